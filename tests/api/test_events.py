"""The event stream: numbered, resumable, never waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.events import Bus, TooManySubscribers
from tests.api.conftest import Live, until


async def take(subscription: Any, count: int) -> list[Any]:
    out: list[Any] = []
    async with asyncio.timeout(2):
        async for event in subscription:
            out.append(event)
            if len(out) == count:
                break
    return out


async def test_events_come_in_order() -> None:
    bus = Bus()
    listening = bus.subscribe()
    for i in range(3):
        bus.publish("rating", {"i": i})
    got = await take(listening, 3)
    assert [e.data["i"] for e in got] == [0, 1, 2]
    assert len({e.id for e in got}) == 3


async def test_coming_back_brings_what_was_missed() -> None:
    bus = Bus()
    first = bus.subscribe()
    for i in range(5):
        bus.publish("rating", {"i": i})
    seen = await take(first, 2)
    again = bus.subscribe(seen[-1].id)
    bus.publish("rating", {"i": 5})
    assert [e.data["i"] for e in await take(again, 4)] == [2, 3, 4, 5]


@pytest.mark.parametrize("last", ["x", "0-1", "-", "deadbeef-3", "-1", "a-b-c", "9" * 300])
async def test_an_unknown_id_asks_for_a_fresh_load(last: str) -> None:
    bus = Bus()
    bus.publish("rating", {"i": 0})
    listening = bus.subscribe(last)
    bus.publish("rating", {"i": 1})
    got = await take(listening, 2)
    assert [e.kind for e in got] == ["resync", "rating"]
    assert bus.subscribe(got[0].id).queue.qsize() == 1


async def test_what_is_no_longer_kept_asks_for_a_fresh_load() -> None:
    bus = Bus(keep=3)
    listening = bus.subscribe()
    for i in range(6):
        bus.publish("rating", {"i": i})
    ids = [e.id for e in await take(listening, 6)]
    assert [e.kind for e in await take(bus.subscribe(ids[1]), 1)] == ["resync"]
    assert [e.data["i"] for e in await take(bus.subscribe(ids[2]), 3)] == [3, 4, 5]


async def test_an_id_from_the_future_asks_for_a_fresh_load() -> None:
    bus = Bus()
    listening = bus.subscribe()
    bus.publish("rating", {})
    boot = (await take(listening, 1))[0].id.partition("-")[0]
    for number in ("99", "9" * 40):
        assert [e.kind for e in await take(bus.subscribe(f"{boot}-{number}"), 1)] == ["resync"]


async def test_a_slow_reader_is_dropped_and_told() -> None:
    bus = Bus()
    slow, quick = bus.subscribe(), bus.subscribe()
    for i in range(300):
        bus.publish("rating", {"i": i})
        await take(quick, 1)
    got = [event async for event in slow]
    assert len(got) == 257
    assert got[-1].kind == "resync"
    assert len(bus._subscriptions) == 1


async def test_frequent_status_is_coalesced_and_the_newest_arrives() -> None:
    bus = Bus(interval=0.05)
    listening = bus.subscribe()
    for i in range(100):
        bus.publish("status", {"i": i})
    got = await take(listening, 2)
    assert [e.data["i"] for e in got] == [0, 99]
    await asyncio.sleep(0.1)
    assert listening.queue.empty()


async def test_too_many_pages() -> None:
    bus = Bus(subscribers=2)
    one, _ = bus.subscribe(), bus.subscribe()
    with pytest.raises(TooManySubscribers):
        bus.subscribe()
    bus.leave(one)
    bus.subscribe()


async def test_closing_ends_every_stream() -> None:
    bus = Bus()
    listening = bus.subscribe()
    bus.close()
    assert [e async for e in listening] == []
    assert [e async for e in bus.subscribe()] == []


async def sse(live: Live, last: str | None = None) -> AsyncIterator[dict[str, str]]:
    """Parses the stream into events."""
    headers = {"Last-Event-ID": last} if last else {}
    async with live.client.stream("GET", "/api/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if not line:
                if event:
                    yield event
                event = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(": ")
                event[name] = value


async def test_the_stream_over_http(live: Live) -> None:
    stream = sse(live)
    async with asyncio.timeout(5):
        first = await anext(stream)
        assert first["event"] == "status"
        assert json.loads(first["data"])["state"] == "serving"
        name = (await live.chat())["id"]
        await live.rate(name)
        while (event := await anext(stream))["event"] != "rating":
            pass
        data = json.loads(event["data"])
        assert (data["inference_id"], data["value"], data["credit"]["ratings"]) == (name, True, 1)
        await stream.aclose()
        await live.rate(name, False)
        again = sse(live, event["id"])
        assert (await anext(again))["event"] == "status"
        missed = await anext(again)
        assert (missed["event"], json.loads(missed["data"])["value"]) == ("rating", False)
        await again.aclose()
    await until(lambda: not live.services.bus._subscriptions)


async def test_a_merge_is_told(live: Live) -> None:
    stream = sse(live)
    async with asyncio.timeout(5):
        await anext(stream)
        for _ in range(4):
            await live.rate((await live.chat())["id"])
        kinds = []
        while "population" not in kinds:
            kinds.append((await anext(stream))["event"])
    assert "merge" in kinds
    assert kinds.count("rating") == 4
    await stream.aclose()
