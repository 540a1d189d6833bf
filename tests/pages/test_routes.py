"""The pages' own endpoints, as somebody who means no good would use them."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.api.conftest import Live, serving, shared_loop, until


@shared_loop
@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("/chat", {}, 422),
        ("/chat", {"content": "   "}, 422),
        ("/chat", {"content": "x" * 100_001}, 422),
        ("/chat", {"content": "hi", "conversation": "nope"}, 404),
        ("/chat/again", {"turn": "nope"}, 404),
        ("/chat/again", {}, 422),
        ("/replies/nope/thumb", {"value": "up"}, 404),
        ("/replies/nope/thumb", {"value": "sideways"}, 422),
        ("/replies/nope/comment", {"text": "x"}, 404),
        ("/sheet/profile", {"profile": "nope"}, 422),
        ("/sheet/merge", {}, 409),
        ("/sheet/chat", {"temperature": "9", "max_tokens": "5"}, 422),
        ("/sheet/chat", {"temperature": "nan", "max_tokens": "5"}, 422),
        ("/sheet/chat", {"temperature": "1", "max_tokens": "0"}, 422),
    ],
)
async def test_bad_input_is_refused_with_words(shared: Live, path: str, form: dict[str, str], status: int) -> None:
    answer = await shared.client.post(path, data=form)
    assert answer.status_code == status
    words = answer.json()["error"]["message"] if "json" in answer.headers["content-type"] else answer.text
    assert len(words) > 10
    assert "Traceback" not in words


@shared_loop
@pytest.mark.parametrize("path", ["/c/nope", "/c/nope/turns", "/turns/nope", "/dashboard/tables/nope"])
async def test_unknown_addresses_are_not_found(shared: Live, path: str) -> None:
    assert (await shared.client.get(path)).status_code == 404


@shared_loop
async def test_unknown_panels_are_named(shared: Live) -> None:
    answer = await shared.client.get("/dashboard/figures.json?panel=nope")
    assert answer.status_code == 404
    assert "learning" in answer.json()["error"]["message"]


@shared_loop
@pytest.mark.parametrize("path", ["/chat", "/chat/stop", "/sheet/merge", "/replies/x/thumb"])
async def test_other_web_pages_cannot_post_here(shared: Live, path: str) -> None:
    answer = await shared.client.post(path, data={"content": "hi"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403


async def test_figures_are_json_without_nan(live: Live) -> None:
    for i in range(4):
        await live.rate((await live.chat())["id"], i % 2 == 0)
    await until(lambda: live.server.merges)
    status = live.server.status
    live.server.status = lambda: type(status())(**{**vars(status()), "tokens_per_second": float("nan")})  # type: ignore[method-assign]
    live.services.pulse.look()
    text = (await live.client.get("/dashboard/figures.json")).text
    panels = json.loads(text, parse_constant=pytest.fail)["panels"]
    assert panels["learning"]["figure"]["data"][1]["y"] == [0.5]
    assert panels["throughput"]["figure"]["data"][0]["y"][-1] is None


async def test_merges_are_read_once_a_merge(live: Live) -> None:
    reads = []
    generations = live.services.history.generations

    async def counted(**options):
        reads.append(options)
        return await generations(**options)

    live.services.history.generations = counted  # type: ignore[method-assign]
    for count in (0, 1, 2):
        for _ in range(3):
            panels = (await live.client.get("/dashboard/figures.json?panel=drift")).json()["panels"]
            data = panels["drift"]["figure"]["data"]
            assert len(data[0]["x"] if data else []) == count
        assert len(reads) == count + 1
        for i in range(4):
            await live.rate((await live.chat())["id"], i % 2 == 0)
        await until(lambda count=count: len(live.server.merges) > count)


async def test_a_message_is_not_stored_while_the_engine_starts(tmp_path) -> None:
    gate = asyncio.Event()
    async with serving(tmp_path, ready=False, start_after=gate) as live:
        answer = await live.client.post("/chat", data={"content": "hi"})
        assert answer.status_code == 503
        assert "stays in the field" in answer.json()["error"]["message"]
        assert await live.services.store.conversations() == []
        gate.set()


async def test_leaving_before_the_first_word_stops_the_answer(live: Live) -> None:
    live.server.hold = asyncio.Event()
    task = asyncio.create_task(live.client.post("/chat", data={"content": "hi"}))
    await until(lambda: live.server.replies)
    task.cancel()
    (talk,) = await live.services.store.conversations()
    async with asyncio.timeout(5):
        while True:
            (turn,) = await live.services.store.thread(talk.id)
            if turn.shown and turn.shown.message.state == "stopped":
                break
            await asyncio.sleep(0.01)


async def test_the_pulse_is_told_when_it_changes(live: Live) -> None:
    pulse = live.services.pulse
    pulse.look()
    before, told = len(pulse.beats), []
    live.services.bus.publish = lambda kind, data: told.append(kind)  # type: ignore[method-assign]
    pulse.look()
    assert told == []
    live.server.running = 3
    pulse.look()
    assert told == ["status"]
    assert [b.running for b in pulse.beats][before:] == [0, 3]
