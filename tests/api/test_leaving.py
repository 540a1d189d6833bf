"""Replies that are cut off, by their client, by a stop or by the end of the server: stopped at once, and kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from app.tables import Message
from tests.api.conftest import Live, serving, until
from tests.api.test_completions import ASK, chunks, newest, row


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("held", [True, False])
async def test_a_client_that_leaves_before_the_first_token(live: Live, stream: bool, held: bool) -> None:
    """``held``: not yet admitted; else admitted and silent."""
    if held:
        live.server.hold = asyncio.Event()
    ask = {"messages": [{"role": "user", "content": "slow"}], "stream": stream}
    task = asyncio.create_task(live.client.post("/v1/chat/completions", json=ask))
    await until(lambda: live.server.replies)
    await until(lambda: live.server.running == (0 if held else 1))
    await asyncio.sleep(0.05)
    task.cancel()
    await until(lambda: not live.services.inferences._running, 2)
    assert live.server.running == 0
    stored = await newest(live)
    assert (stored.state, stored.content) == ("stopped", "")
    assert (await live.rate(stored.id)).status_code == (409 if held else 200)


async def test_a_client_that_leaves_in_the_middle(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.03, text="word " * 500) as live:
        async with live.client.stream("POST", "/v1/chat/completions", json=ASK | {"stream": True}) as answer:
            seen = 0
            async for line in answer.aiter_lines():
                seen += "word" in line
                if seen == 3:
                    break
        await until(lambda: not live.services.inferences._running, 2)
        stored = await newest(live)
        assert stored.state == "stopped"
        assert stored.content.startswith("word word word ")
        assert len(stored.content) < 500
        assert (await live.rate(stored.id)).status_code == 200


async def test_a_client_that_does_not_read(tmp_path: Path) -> None:
    """It neither blocks the engine nor loses the reply."""
    async with serving(tmp_path, text="word " * 50_000) as live:
        ask = ASK | {"stream": True, "max_tokens": 60_000}
        async with live.client.stream("POST", "/v1/chat/completions", json=ask):
            await until(lambda: not live.services.inferences._running, 15)
            assert (await newest(live)).state == "done"


async def test_stopping_by_id(live: Live) -> None:
    ask = {"messages": [{"role": "user", "content": "slow"}], "stream": True}
    task = asyncio.create_task(live.client.post("/v1/chat/completions", json=ask))
    await until(lambda: live.server.running)
    inference = next(iter(live.services.inferences._running.values()))
    assert await live.services.inferences.stop(inference.id)
    assert not await live.services.inferences.stop(inference.id)
    parts = chunks((await task).text)
    assert "stopped" in parts[-1]["error"]["message"]
    assert (await row(live, inference.id)).state == "stopped"


async def test_while_the_engine_starts(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with serving(tmp_path, ready=False, start_after=go) as live:
        assert (await live.client.get("/healthz")).json() == {"status": "ok", "state": "starting"}
        status = (await live.client.get("/api/status")).json()
        assert status["state"] == "starting"
        for path in ("/v1/chat/completions", "/api/merge"):
            answer = await live.client.post(path, json=ASK)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0
            assert "being loaded" in answer.json()["error"]["message"]
        go.set()
        await until(lambda: live.server.state == "serving")
        await live.chat()


async def test_an_engine_that_does_not_start(tmp_path: Path) -> None:
    async with serving(tmp_path, ready=False, failure="There is no memory left: close something.") as live:
        await until(lambda: live.server.state == "failed")
        answer = await live.client.post("/v1/chat/completions", json=ASK)
        assert answer.status_code == 503
        assert "no memory left" in answer.json()["error"]["message"]
        assert (await live.client.get("/healthz")).status_code == 200


async def test_stopping_the_server_ends_streams_and_keeps_their_text(tmp_path: Path) -> None:
    async with httpx.AsyncClient() as client:
        async with serving(tmp_path, delay=0.02, text="word " * 500) as live:
            base = f"http://127.0.0.1:{live.port}"
            task = asyncio.create_task(client.post(base + "/v1/chat/completions", json=ASK | {"stream": True}))
            events = asyncio.create_task(client.get(base + "/api/events"))
            await until(lambda: live.server.running)
            await asyncio.sleep(0.1)
        assert (await events).status_code == 200
        assert "stopped" in chunks((await task).text)[-1]["error"]["message"]
    async with serving(tmp_path) as again:
        stored = await newest(again)
        assert stored.state == "stopped"
        assert stored.content.startswith("word ")


async def test_leftovers_of_a_crash_become_stopped(tmp_path: Path) -> None:
    async with serving(tmp_path) as live:
        left = {"id": "chatcmpl-left", "role": "assistant", "state": "streaming", "created_at": 0.0}
        await live.services.db.write(lambda s: s.add(Message(**left)))
    async with serving(tmp_path) as again:
        assert (await row(again, "chatcmpl-left")).state == "stopped"
