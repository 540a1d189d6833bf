"""The page about simulated users without a browser: what its forms start, change and refuse, what it escapes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.traffic.forms import BadForm, ErrorForm, RunForm, fill
from engine.population import profile
from tests.api.conftest import Live, serving
from tests.api.test_traffic import run, scripted, settled, start  # noqa: F401


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with serving(tmp_path) as running:
        yield running


async def post(live: Live, path: str, status: int = 200, **fields: Any) -> str:
    answer = await live.client.post(f"/traffic{path}", data=fields)
    assert answer.status_code == status, answer.text
    return answer.text


async def get(live: Live, path: str = "") -> str:
    answer = await live.client.get(f"/traffic{path}")
    assert answer.status_code == 200, answer.text
    return answer.text


def text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


async def test_the_sentence_starts_a_run(live: Live) -> None:
    html = await post(live, "/start", task="scripted:short", generations="2", held_out="0", each="1", members="4")
    assert "send 1 request to each of 4 members" in text(html) or "send requests" in text(html)
    newest = (await live.client.get("/api/traffic")).json()[0]
    assert newest["plan"]["generations"] == 2
    assert newest["plan"]["settings"] == {}
    done = await settled(live, newest)
    assert done["state"] == "done"
    page = text(await get(live))
    assert "Users of scripted:short send 1 request to each of 4 members, for 2 generations." in page
    assert "2 of 2" in page


async def test_it_pauses_resumes_and_stops(live: Live) -> None:
    view = await start(live, generations=50, rate=20)
    html = await post(live, f"/{view['id']}/pause")
    assert "Resume" in html
    assert "/pause" not in html
    assert "/pause" in (await post(live, f"/{view['id']}/resume"))
    html = await post(live, f"/{view['id']}/stop")
    assert 'data-active="false"' in html
    assert (await settled(live, view))["state"] == "stopped"


async def test_the_judge_changes_at_once_and_by_plan(live: Live) -> None:
    html = await post(live, "/judge", judge="random", percent="40")
    assert "something else 40% of the time" in text(html)
    await post(live, "/judge/plan", judge="stingy", percent="50", generation="7")
    html = await post(live, "/judge/plan", judge="perfect", generation="9")
    assert "From generation 7: a judge that gives the lowest grade 50% of the time." in text(html)
    view = (await live.client.get("/api/judge")).json()
    assert (view["error"], view["schedule"]) == ("random:0.4", "@7 stingy:0.5 @9 perfect")
    await post(live, "/judge/plan", judge="")
    assert (await live.client.get("/api/judge")).json()["schedule"] == ""
    assert "gives the lowest" not in text(await get(live, "/judge"))


async def test_who_judges_is_kept_or_refused_with_a_reason(live: Live) -> None:
    html = await post(live, "/judge/who", kind="llm", url="http://127.0.0.1:9/v1", model="m", rubric="Polite?")
    assert 'value="http://127.0.0.1:9/v1"' in html
    assert (await live.client.get("/api/judge")).json()["who"]["kind"] == "llm"
    said = await post(live, "/judge/who", 422, kind="llm", url="nonsense", model="m", rubric="x")
    assert "url" in said
    assert "whole number" in await post(
        live, "/judge/who", 422, kind="llm", url="http://a/v1", model="m", max_calls="x"
    )
    assert (await live.client.get("/api/judge")).json()["who"]["kind"] == "llm"
    await post(live, "/judge/who", kind="task")


async def test_sources_are_shown_and_weighed(live: Live) -> None:
    await run(live)
    await live.rate((await live.chat())["id"])
    shown = text(await get(live, "/sources"))
    assert "api 1 " in shown
    assert "traffic, all tasks 12 " in shown
    assert "traffic:scripted:short 12 " in shown
    await post(live, "/sources", traffic="0", chat="1", **{"traffic:scripted:short": "1"})
    assert live.services.sources.weight("traffic:scripted:short") == 0
    assert "is a number" in await post(live, "/sources", 422, traffic="much")
    assert "between 0" in await post(live, "/sources", 422, traffic="-1")


async def test_a_second_opinion_leads_to_the_next_one(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.opinions.RATE", 1.0)
    assert "None is waiting" in await get(live, "/opinion")
    await run(live, judge="random:1")
    for _ in range(12):
        offer = re.search(r'action="/traffic/opinion/([^"]+)"', await get(live, "/opinion"))
        assert offer
        truth = await live.client.post(f"/traffic/opinion/{offer[1]}", data={"value": "up"})
    assert "None is waiting" in truth.text
    assert "12 checks" in text(await get(live, "/judge/health"))
    assert (await live.client.post("/traffic/opinion/nobody", data={"value": "up"})).status_code == 404


async def test_a_wrong_judge_is_seen_in_the_replies(live: Live) -> None:
    await run(live, judge="random:1", generations=1)
    html = await get(live, "/replies")
    assert html.count('class="apart"') == 4
    assert "The judge was wrong (random:1)" in html


async def test_what_users_and_models_write_is_escaped(live: Live) -> None:
    evil = "<img src=x onerror=alert(1)>"
    done = await run(live, name=evil, generations=1)
    await live.client.patch(f"/api/traffic/{done['id']}", json={"notes": evil})
    for path in ("", "/runs", "/now", f"?run={done['id']}"):
        assert evil not in await get(live, path)
    await live.client.put("/api/sources", json={evil: 0.5})
    assert evil not in await get(live, "/sources")


async def test_an_own_file_is_kept_and_its_bad_lines_are_named(live: Live) -> None:
    content = b'{"prompt": "2 + 2?", "answer": "4"}\nnonsense\n'
    answer = await live.client.post("/traffic/file", files={"file": ("sums.jsonl", content)})
    assert answer.status_code == 200
    assert "sums: 1 usable line, 1 line that cannot be used" in text(answer.text)
    assert "line 2" in answer.text
    assert "sums" in await get(live, "/options?task=file")
    for name in ("../../x.jsonl", "a/../../b"):
        answer = await live.client.post("/traffic/file", files={"file": (name, content)})
        assert answer.status_code in (200, 422)
    stored = live.services.where.files
    assert stored is not None
    assert {path.parent for path in stored.rglob("*")} == {stored}
    assert (await live.client.post("/traffic/file", files={"file": ("e.jsonl", b"nothing")})).status_code == 422


async def test_an_earlier_run_is_shown_by_its_address(live: Live) -> None:
    first = await run(live, name="first one", generations=1)
    await run(live, name="second one", generations=1)
    assert "Users of second one" in text(await get(live))
    page = await get(live, f"?run={first['id']}")
    assert "Users of first one" in text(page)
    assert f'data-charts="run={first["id"]}"' in page
    figures = await live.client.get(f"/dashboard/figures.json?panel=run&run={first['id']}")
    assert figures.json()["panels"]["run"]["figure"]["data"][0]["x"] == [0]
    answer = await live.client.post(
        "/traffic/start", data={"task": "scripted:short", "generations": "0", "pinned": "x"}
    )
    assert answer.headers["HX-Redirect"] == "/traffic"
    assert (await live.client.get("/traffic?run=nobody")).status_code == 404


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "Task: field required"),
        ({"task": "scripted:short"}, "say when to end"),
        ({"task": "no:such", "generations": "1"}, "unknown"),
        ({"task": "scripted:short", "generations": "many"}, "Generations: input should be a valid integer"),
        ({"task": "scripted:short", "generations": "1", "percent": "101"}, "Percent: "),
        ({"task": "scripted:short", "generations": "1", "judge": "cruel"}, "cruel"),
        ({"task": "scripted:short", "generations": "1", "schedule": "@x"}, "generation"),
        ({"task": "scripted:short", "generations": "1", "members": "3"}, "even"),
        ({"task": "scripted:short", "generations": "1", "each": "inf"}, "Requests to each member"),
        ({"task": "persona:brevity", "generations": "1", "option.words": "0"}, "between 1 and 200"),
        ({"task": "persona:custom", "generations": "1"}, "needs the option rule"),
    ],
)
async def test_a_bad_sentence_is_refused_with_what_to_do(live: Live, fields: dict[str, str], words: str) -> None:
    said = await post(live, "/start", 422, **fields)
    assert words in said
    assert (await live.client.get("/api/traffic")).json() == []


async def test_a_bad_plan_of_the_judge_changes_nothing(live: Live) -> None:
    for generation in ("", "0", "-3", "1e3", "٣", "99999999999"):
        assert "after 0" in await post(live, "/judge/plan", 422, judge="perfect", generation=generation)
    await post(live, "/judge", 422, judge="random", percent="nan")
    assert (await live.client.get("/api/judge")).json()["error"] == "perfect"


async def test_another_site_may_not_start_a_run(live: Live) -> None:
    headers = {"Sec-Fetch-Site": "cross-site"}
    fields = {"task": "scripted:short", "generations": "1"}
    answer: httpx.Response = await live.client.post("/traffic/start", data=fields, headers=headers)
    assert answer.status_code == 403


def test_only_settings_that_change_are_sent() -> None:
    now = profile("room")
    same = {"task": "t", "members": str(now.members), "each": f"{now.merge_after / now.members:g}"}
    assert fill(RunForm, same).wanted(now, {})["settings"] == {}
    other = fill(RunForm, same | {"members": "16", "each": "4"}).wanted(now, {})
    assert other["settings"] == {"members": 16, "merge_after": 64}
    assert fill(RunForm, same | {"profile": "traffic"}).wanted(now, {})["settings"] == {"profile": "traffic"}


def test_percents_become_shares() -> None:
    assert str(fill(ErrorForm, {"judge": "random", "percent": "12.5"}).error()) == "random:0.125"
    assert fill(ErrorForm, {"percent": "30"}).error() is None
    assert fill(RunForm, {"task": "t", "silent": "20"}).wanted(profile("room"), {})["silent"] == 0.2
    with pytest.raises(BadForm, match="Percent"):
        fill(ErrorForm, {"percent": "-1"})
