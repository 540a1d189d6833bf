"""Implicit feedback: watched from the start, counted only while it is on, and never above what a person says."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import Session, col, select

from app.tables import ImplicitSignal, Message
from tests.api.conftest import Live, serving


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with serving(tmp_path) as running:
        yield running


async def say(live: Live, content: str, conversation: str = "") -> tuple[str, Message]:
    """One turn in chat: (the conversation, the reply)."""
    answer = await live.client.post("/chat", data={"content": content, "conversation": conversation})
    assert answer.status_code == 200, answer.text
    found = re.search(r'"conversation": "([^"]+)"', answer.text)
    assert found
    return found[1], (await replies(live))[-1]


async def replies(live: Live) -> list[Message]:
    query = select(Message).where(Message.role == "assistant").order_by(col(Message.created_at))
    return await live.services.db.read(lambda session: list(session.exec(query)))


async def reply(live: Live, inference_id: str) -> Message:
    return await live.services.store.message(inference_id)


async def seen(live: Live) -> list[tuple[str, float]]:
    def query(session: Session) -> list[tuple[str, float]]:
        return [(s.rule, s.weight) for s in session.exec(select(ImplicitSignal).order_by(col(ImplicitSignal.id)))]

    return await live.services.db.read(query)


async def put(live: Live, status: int = 200, **change: Any) -> dict[str, Any]:
    answer = await live.client.put("/api/implicit", json=change)
    assert answer.status_code == status, answer.text
    return answer.json()


def rule(view: dict[str, Any], name: str) -> dict[str, Any]:
    return next(rule for rule in view["rules"] if rule["name"] == name)


async def test_it_is_off_and_only_watches(live: Live) -> None:
    assert (await live.client.get("/api/implicit")).json()["on"] is False
    conversation, first = await say(live, "What is a flock of birds?")
    await say(live, "No, that's wrong.", conversation)
    assert await seen(live) == [("correction", 0.0)]
    assert (await reply(live, first.id)).reward is None
    assert live.server.status().ratings == 0


@pytest.mark.parametrize(
    ("next_message", "name", "reward", "weight"),
    [
        ("No, that's wrong.", "correction", 0.0, 0.5),
        ("Thanks, that helps!", "thanks", 1.0, 0.4),
        ("what is a flock of birds", "asked_again", 0.0, 0.3),
    ],
)
async def test_the_next_message_counts_for_the_reply_before_it(
    live: Live, next_message: str, name: str, reward: float, weight: float
) -> None:
    await put(live, on=True)
    conversation, first = await say(live, "What is a flock of birds?")
    await say(live, next_message, conversation)
    assert await seen(live) == [(name, weight)]
    row = await reply(live, first.id)
    assert (row.reward, row.weight) == (reward, pytest.approx(weight))
    assert live.server.status().ratings == 1


async def test_a_message_that_says_nothing_counts_for_nothing(live: Live) -> None:
    await put(live, on=True)
    conversation, _ = await say(live, "What is a flock of birds?")
    await say(live, "And what is a herd of cows?", conversation)
    assert await seen(live) == []


async def test_buttons_count_once(live: Live) -> None:
    await put(live, on=True)
    _, first = await say(live, "What is a flock?")
    for _ in range(3):
        assert (await live.client.post(f"/replies/{first.id}/copied")).status_code == 204
    assert await seen(live) == [("copy", 0.3)]
    assert (await live.client.post("/chat/again", data={"turn": first.parent_id})).status_code == 200
    assert await seen(live) == [("copy", 0.3), ("regenerate", 0.3)]
    row = await reply(live, first.id)
    assert (row.reward, row.weight) == (0.5, pytest.approx(0.6))
    assert live.server.status().ratings == 1


async def test_a_thumb_stands_alone_and_taking_it_back_leaves_the_rest(live: Live) -> None:
    await put(live, on=True)
    _, first = await say(live, "What is a flock?")
    await live.client.post(f"/replies/{first.id}/copied")
    await live.client.post(f"/replies/{first.id}/thumb", data={"value": "down"})
    row = await reply(live, first.id)
    assert (row.reward, row.weight) == (0.0, 1.0)
    await live.client.post("/chat/again", data={"turn": first.parent_id})
    assert ((await reply(live, first.id)).reward, (await reply(live, first.id)).weight) == (0.0, 1.0)
    await live.client.post(f"/replies/{first.id}/thumb", data={"value": ""})
    row = await reply(live, first.id)
    assert (row.reward, row.weight) == (0.5, pytest.approx(0.6))


async def test_each_rule_shows_its_weight_and_its_agreement_with_thumbs(live: Live) -> None:
    for value in ("up", "up", "down"):
        _, first = await say(live, "What is a flock?")
        await live.client.post(f"/replies/{first.id}/copied")
        await live.client.post(f"/replies/{first.id}/thumb", data={"value": value})
    copied = rule((await live.client.get("/api/implicit")).json(), "copy")
    assert (copied["seen"], copied["weight"], copied["value"]) == (3, 0.3, 1.0)
    assert (copied["agreement"]["count"], copied["agreement"]["share"]) == (3, pytest.approx(2 / 3))
    assert copied["agreement"]["low"] < 2 / 3 < copied["agreement"]["high"]
    page = (await live.client.get("/traffic")).text
    assert "67% of 3" in page
    assert rule((await live.client.get("/api/implicit")).json(), "thanks")["agreement"] is None


async def test_weights_are_kept_marked_and_survive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as live:
        view = await put(live, on=True, weights={"copy": 0.0, "thanks": 1})
        assert (rule(view, "copy")["weight"], rule(view, "thanks")["weight"]) == (0.0, 1.0)
        assert [m["text"] for m in (await live.client.get("/api/marks")).json()] == ["implicit feedback on"]
        _, first = await say(live, "What is a flock?")
        await live.client.post(f"/replies/{first.id}/copied")
        assert (await reply(live, first.id)).reward is None
    async with serving(tmp_path) as live:
        view = (await live.client.get("/api/implicit")).json()
        assert view["on"] is True
        assert rule(view, "thanks")["weight"] == 1.0
        assert rule(view, "regenerate")["weight"] == 0.3


async def test_the_pages_form_switches_it(live: Live) -> None:
    answer = await live.client.post("/traffic/implicit", data={"on": "true", "weight.copy": "0.1"})
    assert answer.status_code == 200
    assert live.services.implicit.on
    answer = await live.client.post("/traffic/implicit", data={"weight.copy": "0.2"})
    assert not live.services.implicit.on
    assert 'value="0.2"' in answer.text


async def test_bad_input_is_refused(live: Live) -> None:
    assert "from 0 to 1" in (await put(live, 422, weights={"copy": 2.0}))["error"]["message"]
    assert "unknown rule" in (await put(live, 422, weights={"shout": 0.5}))["error"]["message"]
    assert (await live.client.post("/traffic/implicit", data={"weight.copy": "much"})).status_code == 422
    _, first = await say(live, "What is a flock?")
    bad = await live.client.post(f"/api/implicit/{first.id}", json={"action": "shout"})
    assert bad.status_code == 422
    assert (await live.client.post(f"/api/implicit/{first.id}", json={"action": "copy"})).status_code == 204
    assert (await live.client.post("/replies/nobody/copied")).status_code == 404
    assert await seen(live) == [("copy", 0.0)]


async def test_what_was_seen_while_off_may_count_when_it_is_done_again(live: Live) -> None:
    _, first = await say(live, "What is a flock?")
    await live.client.post(f"/replies/{first.id}/copied")
    await put(live, on=True)
    assert (await reply(live, first.id)).reward is None
    await live.client.post(f"/replies/{first.id}/copied")
    assert (await reply(live, first.id)).reward == 1.0
    assert await seen(live) == [("copy", 0.3)]
