"""Ratings: stored once, credited to the member that answered, refused when they are none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sqlmodel import select

from app.tables import Rating, RatingEvent
from tests.api.conftest import Live, shared_loop, until

HOSTILE = "'); DROP TABLE message; -- <script>alert(1)</script> \u202e ${7*7} %s \\x00 θ"


async def events(live: Live) -> list[RatingEvent]:
    def query(session: Any) -> list[RatingEvent]:
        return list(session.exec(select(RatingEvent).order_by(RatingEvent.id)))

    return await live.services.db.read(query)


async def total(live: Live) -> int:
    return (await live.client.get("/api/status")).json()["ratings_total"]


async def test_a_thumb_is_credited_to_its_member(live: Live) -> None:
    reply = await live.chat()
    answer = await live.rate(reply["id"], True, comment="good", tags={"k": "v"})
    assert answer.status_code == 200
    credit = {"kind": "counted", **reply["population"], "ratings": 1, "merge_after": 4}
    assert answer.json() == {"inference_id": reply["id"], "metric_name": "thumb", "value": True, "credit": credit}
    stored = (await events(live))[0]
    assert (stored.rater, stored.metric, stored.value, stored.comment) == ("api", "thumb", 1.0, "good")
    assert (stored.tags, stored.source) == ({"k": "v"}, "api")
    assert (await live.services.store.message(reply["id"])).reward == 1.0
    member = (await live.client.get("/api/members")).json()[reply["population"]["member"]]
    assert (member["ratings"], member["fitness"]) == (1, 1.0)
    assert await total(live) == 1


async def test_the_other_thumb_and_taking_it_back(live: Live) -> None:
    name = (await live.chat())["id"]
    for value, reward in ((True, 1.0), (False, 0.0), (None, None), (True, 1.0)):
        answer = await live.rate(name, value)
        assert answer.json()["value"] is value
        assert answer.json()["credit"]["ratings"] == (0 if value is None else 1)
        assert (await live.services.store.message(name)).reward == reward
        shown = await live.services.store.rated_message(name, "api")
        assert shown.ratings == ({} if value is None else {"thumb": float(value)})
        assert await total(live) == (0 if value is None else 1)
    assert [e.value for e in await events(live)] == [1.0, 0.0, None, 1.0]


async def test_one_reward_from_several_raters_and_metrics(live: Live) -> None:
    name = (await live.chat())["id"]
    await live.rate(name, True, rater="a")
    await live.rate(name, False, rater="b")
    await live.rate(name, 0.5, metric_name="score", rater="b")
    answer = await live.rate(name, 1, metric_name="score", rater="a")
    assert (await live.services.store.message(name)).reward == pytest.approx(0.625)
    assert answer.json()["credit"]["ratings"] == 1


async def test_a_comment_stays_until_it_is_replaced(live: Live) -> None:
    name = (await live.chat())["id"]
    for comment, shown in (("why", "why"), (None, "why"), ("so", "so"), ("", "")):
        await live.rate(name, True, comment=comment)
        assert (await live.services.store.rated_message(name, "api")).comment == shown


async def test_fifty_at_once_are_all_stored_once(live: Live) -> None:
    replies = [await live.chat() for _ in range(50)]
    answers = await asyncio.gather(*(live.rate(r["id"], i % 3 > 0) for i, r in enumerate(replies)))
    assert {a.status_code for a in answers} == {200}
    stored = await events(live)
    assert sorted(e.inference_id for e in stored) == sorted(r["id"] for r in replies)
    assert await total(live) == 50


async def test_fifty_at_once_on_one_reply_leave_one_value(live: Live) -> None:
    name = (await live.chat())["id"]
    await asyncio.gather(*(live.rate(name, i % 2 == 0) for i in range(50)))
    stored = await events(live)
    assert len(stored) == 50

    def query(session: Any) -> list[Rating]:
        return list(session.exec(select(Rating)))

    (present,) = await live.services.db.read(query)
    assert (present.value, present.event_id) == (stored[-1].value, stored[-1].id)
    assert live.server.rewards[0][name].reward == stored[-1].value


async def test_an_idempotency_key_stores_once(live: Live) -> None:
    name = (await live.chat())["id"]
    key = {"Idempotency-Key": "k1"}
    answers = await asyncio.gather(*(live.rate(name, True, headers=key) for _ in range(10)))
    assert {a.status_code for a in answers} == {200}
    assert len({a.text for a in answers}) == 1
    assert len(await events(live)) == 1
    assert await total(live) == 1
    clash = await live.rate(name, False, headers=key)
    assert clash.status_code == 409
    assert "new key" in clash.json()["error"]["message"]


async def test_enough_ratings_merge(live: Live) -> None:
    for i in range(4):
        await live.rate((await live.chat())["id"], i < 2)
    await until(lambda: live.server.merges)
    (merged,) = (await live.client.get("/api/generations")).json()
    assert (merged["generation"], merged["ratings"], merged["mean_reward"]) == (0, 4, 0.5)
    assert sorted(merged["fitness"]) == [0, 0, 1, 1]
    assert merged["null"] is False
    status = (await live.client.get("/api/status")).json()
    assert (status["generation"], status["ratings"], status["ratings_needed"]) == (1, 0, 4)
    assert (await live.chat())["population"]["generation"] == 1


async def test_late_and_too_old_ratings(live: Live) -> None:
    replies = [await live.chat() for _ in range(6)]

    async def merge() -> None:
        generation = live.server.generation.number
        fresh = replies[:4] if generation == 0 else [await live.chat() for _ in range(4)]
        for reply in fresh:
            await live.rate(reply["id"])
        await until(lambda: live.server.generation.number == generation + 1)

    await merge()
    assert (await live.rate(replies[4]["id"], False)).json()["credit"]["kind"] == "late"
    assert (await live.rate(replies[0]["id"], False)).json()["credit"]["kind"] == "late"
    assert (await live.rate(replies[0]["id"], None)).json()["credit"]["kind"] == "late"
    for _ in range(4):
        await merge()
    answer = await live.rate(replies[5]["id"])
    assert answer.json()["credit"]["kind"] == "recorded"
    assert (await live.client.get("/api/generations")).json()[1]["late"] == 2


async def test_the_source_can_be_rated_and_is_not_trained_on(live: Live) -> None:
    answer = await live.rate((await live.chat(population=False))["id"])
    assert answer.json()["credit"] == {
        "kind": "recorded",
        "generation": 0,
        "member": None,
        "ratings": 0,
        "merge_after": 4,
    }


@shared_loop
@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        ({"inference_id": "chatcmpl-none"}, 404, "chatcmpl-none"),
        ({"inference_id": HOSTILE}, 404, "No reply"),
        ({"inference_id": ""}, 422, "inference_id"),
        ({"inference_id": 7}, 422, "inference_id"),
        ({"metric_name": "stars"}, 422, "thumb: true or false; score: a number from 0 to 1"),
        ({"metric_name": HOSTILE}, 422, "not declared"),
        ({"value": 1}, 422, "true or false"),
        ({"value": 1.0}, 422, "true or false"),
        ({"value": "true"}, 422, "true or false"),
        ({"value": []}, 422, "true or false"),
        ({"metric_name": "score", "value": True}, 422, "a number from 0 to 1"),
        ({"metric_name": "score", "value": 1.01}, 422, "a number from 0 to 1"),
        ({"metric_name": "score", "value": -1}, 422, "a number from 0 to 1"),
        ({"metric_name": "score", "value": 10**400}, 422, "a number from 0 to 1"),
        ({"metric_name": "score", "value": "0.5"}, 422, "a number from 0 to 1"),
        ({"metric_name": "score", "value": {"$gt": 0}}, 422, "a number from 0 to 1"),
        ({"comment": "x" * 10_001}, 422, "comment"),
        ({"comment": 5}, 422, "comment"),
        ({"tags": {"a": 1}}, 422, "tags"),
        ({"tags": {str(i): "x" for i in range(51)}}, 422, "tags"),
        ({"rater": ""}, 422, "rater"),
    ],
)
async def test_what_is_refused(shared: Live, change: dict[str, Any], status: int, word: str) -> None:
    name = (await shared.chat())["id"]
    body = {"inference_id": name, "metric_name": "thumb", "value": True} | change
    answer = await shared.client.post(
        "/v1/feedback", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status, answer.text
    assert word in answer.json()["error"]["message"]
    assert name not in [e.inference_id for e in await events(shared)]


@shared_loop
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_are_none(shared: Live, value: str) -> None:
    name = (await shared.chat())["id"]
    raw = f'{{"inference_id": "{name}", "metric_name": "score", "value": {value}}}'
    answer = await shared.client.post("/v1/feedback", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert name not in [e.inference_id for e in await events(shared)]


async def test_a_missing_value_is_no_withdrawal(live: Live) -> None:
    name = (await live.chat())["id"]
    answer = await live.client.post("/v1/feedback", json={"inference_id": name, "metric_name": "thumb"})
    assert answer.status_code == 422
    assert "value" in answer.json()["error"]["message"]


async def test_hostile_text_is_stored_as_text(live: Live) -> None:
    reply = await live.chat("say: " + HOSTILE, source=HOSTILE, session=HOSTILE)
    await live.rate(reply["id"], True, comment=HOSTILE, rater=HOSTILE, tags={HOSTILE: HOSTILE})
    (stored,) = await events(live)
    assert (stored.comment, stored.rater, stored.tags) == (HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    message = await live.services.store.message(reply["id"])
    assert message.content == HOSTILE
    assert message.source == HOSTILE
    surrogate = await live.client.post(
        "/v1/feedback",
        content=f'{{"inference_id":"{reply["id"]}","metric_name":"thumb","value":true,"comment":"\\udc80"}}',
        headers={"Content-Type": "application/json"},
    )
    assert surrogate.status_code == 422


async def test_a_reply_that_is_still_written(live: Live) -> None:
    ask = {"messages": [{"role": "user", "content": "slow"}]}
    task = asyncio.create_task(live.client.post("/v1/chat/completions", json=ask))
    await until(lambda: live.server.running)
    answer = await live.rate(next(iter(live.services.inferences._running)))
    assert answer.status_code == 409
    assert "still being written" in answer.json()["error"]["message"]
    task.cancel()


async def test_what_the_user_said_is_no_reply(live: Live) -> None:
    talk = await live.services.store.create_conversation()
    said = await live.services.store.add_turn(talk.id, "hello")
    assert (await live.rate(said.id)).status_code == 404
