"""Status, merging by hand, and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import Live, serving, shared_loop


async def test_merging_by_hand(live: Live) -> None:
    answer = await live.client.post("/api/merge")
    assert answer.status_code == 409
    assert "0 of 4 members are rated" in answer.json()["error"]["message"]
    for value in (True, False):
        await live.rate((await live.chat())["id"], value)
    answer = await live.client.post("/api/merge")
    assert answer.status_code == 200
    assert answer.json()["generation"] == 0
    assert (await live.client.get("/api/generations")).json() == [answer.json()]
    assert (await live.client.get("/api/status")).json()["last_merge"]["generation"] == 0


async def test_generations_go_on_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as live:
        for value in (True, False):
            await live.rate((await live.chat())["id"], value)
        await live.client.post("/api/merge")
    async with serving(tmp_path) as live:
        assert (await live.client.get("/api/status")).json()["generation"] == 1
        assert len((await live.client.get("/api/generations")).json()) == 1


async def test_settings(live: Live) -> None:
    now = (await live.client.get("/api/settings")).json()
    assert now["settings"]["members"] == 4
    assert set(now["profiles"]) == {"room", "traffic", "reference"}
    assert now["metrics"]["thumb"]["kind"] == "bool"
    assert now["system_prompt"].startswith("You are")


async def test_a_profile_draws_a_new_population(live: Live) -> None:
    await live.rate((await live.chat())["id"])
    answer = await live.client.put("/api/settings", json={"profile": "traffic", "merge_after": 32})
    assert answer.status_code == 200
    assert answer.json()["settings"]["members"] == 16
    assert answer.json()["settings"]["merge_after"] == 32
    status = (await live.client.get("/api/status")).json()
    assert (status["members"], status["ratings"], status["profile"]) == (16, 0, "traffic")


async def test_chat_settings_leave_the_population_and_are_kept(tmp_path: Path) -> None:
    change = {"system_prompt": "At most two sentences.", "temperature": 0.3, "max_tokens": 64}
    async with serving(tmp_path) as live:
        before = (await live.client.get("/api/members")).json()
        answer = await live.client.put("/api/settings", json=change)
        assert answer.status_code == 200
        assert (await live.client.get("/api/members")).json() == before
    async with serving(tmp_path) as live:
        now = (await live.client.get("/api/settings")).json()
        assert {name: now[name] for name in change} == change
        stored = await live.services.store.message((await live.chat())["id"])
        assert stored.sampling is not None
        assert stored.sampling["temperature"] == 0.3
        assert stored.sampling["max_tokens"] == 64


async def test_the_same_settings_draw_nothing(live: Live) -> None:
    before = (await live.client.get("/api/members")).json()
    await live.client.put("/api/settings", json={"members": 4})
    assert (await live.client.get("/api/members")).json() == before
    await live.client.put("/api/settings", json={"seed": 99})
    assert (await live.client.get("/api/members")).json() != before


@shared_loop
@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        ({"profile": "huge"}, 422, "choose from room, traffic, reference"),
        ({"members": 3}, 422, "even number"),
        ({"members": 10**9}, 422, "between 2 and 512"),
        ({"members": True}, 422, "members"),
        ({"members": "8"}, 422, "members"),
        ({"sigma": 0}, 422, "sigma"),
        ({"alpha": -1}, 422, "alpha"),
        ({"kind": "other"}, 422, "lowrank or gaussian"),
        ({"step": "leap"}, 422, "zscore or shrunk"),
        ({"rank": 16}, 400, "noise rows"),
        ({"temperature": 9}, 422, "temperature"),
        ({"max_tokens": 0}, 422, "max_tokens"),
        ({"system_prompt": "x" * 8001}, 422, "system_prompt"),
        ({"unknown": 1}, 422, "unknown"),
        ({"temperature": 0.1, "members": 3}, 422, "even number"),
    ],
)
async def test_settings_that_are_refused_change_nothing(
    shared: Live, change: dict[str, Any], status: int, word: str
) -> None:
    before = (await shared.client.get("/api/settings")).json()
    answer = await shared.client.put("/api/settings", json=change)
    assert answer.status_code == status, answer.text
    assert word in answer.json()["error"]["message"]
    assert (await shared.client.get("/api/settings")).json() == before


@shared_loop
@pytest.mark.parametrize("raw", ['{"sigma": NaN}', '{"sigma": Infinity}', '{"alpha": NaN}', '{"decay": -Infinity}'])
async def test_settings_that_are_no_numbers(shared: Live, raw: str) -> None:
    answer = await shared.client.put("/api/settings", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


@shared_loop
@pytest.mark.parametrize("query", ["limit=0", "limit=x", "after=-2", "after=" + "9" * 40])
async def test_queries_that_are_refused(shared: Live, query: str) -> None:
    answer = await shared.client.get(f"/api/generations?{query}")
    assert answer.status_code == 422
    assert answer.json()["error"]["message"]
