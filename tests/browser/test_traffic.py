"""The page about simulated users: a sentence starts a run, the curve moves, the judge is switched and marked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from engine import tasks
from engine.tasks import Reply, Request
from tests.api.conftest import Live, serving
from tests.api.test_traffic import Scripted
from tests.browser.conftest import PHONE, Open, address
from tests.browser.test_dashboard import becomes, drawn


class Alternating(Scripted):
    """Likes every other request, so that there is always a spread."""

    def judge(self, request: Request, reply: Reply) -> float:
        return float(request.prompt[-1] in "02468")


@pytest.fixture(autouse=True)
def alternating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.FAMILIES, "scripted", (lambda variant, options, where: Alternating(), ("short",)))


@pytest_asyncio.fixture(loop_scope="session")
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with serving(tmp_path) as running:
        yield running


async def fill(page: Page, **fields: str) -> None:
    await page.locator(".more summary").first.click()
    for name, value in fields.items():
        await page.locator(f"#start [name={name}]").fill(value)


async def choose(page: Page, task: str) -> None:
    async with page.expect_response("**/traffic/options*"):
        await page.locator("#start [name=task]").select_option(task)


async def test_a_sentence_starts_a_run_that_one_can_watch_pause_and_stop(live: Live, open_page: Open) -> None:
    page = await open_page(address(live, "/traffic"))
    await drawn(page, "run")
    await choose(page, "scripted:short")
    await fill(page, rate="40", held_out="4", generations="200", name="A **flock** <b>of</b> users")
    await page.get_by_role("button", name="Start").click()
    await expect(page.locator("#start")).to_be_hidden()
    await expect(page.locator(".says")).to_contain_text(
        "A **flock** <b>of</b> users send 1 request to each of 4 members"
    )
    chart = "document.getElementById('chart-run')"
    await becomes(page, f"{chart}.data?.[0]?.x.length >= 3", True)
    await expect(page.locator(".facts.four")).to_contain_text("of 200")
    await expect(page.locator("#replies tbody tr").first).to_contain_text("member")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("#run .state")).to_have_text("paused")
    await page.reload()
    await expect(page.locator("#run .state")).to_have_text("paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#run .state")).to_have_text("running")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#run .state")).to_have_text("stopped")
    await expect(page.locator("#start")).to_be_visible()
    await expect(page.locator("#runs tbody tr")).to_have_count(1)


async def test_the_switch_changes_the_judge_and_marks_every_open_chart(live: Live, open_page: Open) -> None:
    page = await open_page(address(live, "/traffic"))
    board = await open_page(address(live, "/dashboard"))
    await choose(page, "scripted:short")
    await fill(page, rate="40", held_out="0", generations="400")
    await page.get_by_role("button", name="Start").click()
    await becomes(page, "document.getElementById('chart-run').data?.[0]?.x.length >= 2", True)
    await page.locator(".keys").get_by_text("Random").click()
    await expect(page.locator("#judge-says")).to_contain_text("something else 25% of the time")
    await page.locator(".dial input").fill("60")
    await expect(page.locator("#judge-says")).to_contain_text("something else 60% of the time")
    assert str(live.services.judge.error(0)) == "random:0.6"
    mark = "judge: random:0.6"
    for tab, name in ((page, "run"), (board, "learning"), (board, "drift"), (board, "merges"), (board, "throughput")):
        await tab.bring_to_front()
        notes = f"document.getElementById('chart-{name}').layout.annotations?.some(a => a.hovertext.includes('{mark}'))"
        await becomes(tab, f"{notes} ?? false", True)
    await page.bring_to_front()
    await expect(page.locator("#replies tr.apart").first).to_be_visible()
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#run .state")).to_have_text("stopped")


async def test_a_refused_sentence_says_why_and_keeps_what_was_written(live: Live, open_page: Open, watch) -> None:
    watch.expected = ("422",)
    page = await open_page(address(live, "/traffic"))
    await choose(page, "persona:custom")
    await page.locator("[name='option.rule']").fill("be nice to me")
    await page.get_by_role("button", name="Start").click()
    await expect(page.locator(".notice.error")).to_contain_text("clause 1")
    await expect(page.locator("[name='option.rule']")).to_have_value("be nice to me")
    await expect(page.locator("#run .says")).to_have_count(0)


async def test_people_check_the_judge(live: Live, open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.opinions.RATE", 1.0)
    page = await open_page(address(live, "/traffic"))
    await live.client.post("/api/traffic", json={"task": "scripted:short", "generations": 3, "held_out": 0})
    for number in range(1, 4):
        await page.locator("#opinion").get_by_role("button", name="Good").click()
        await expect(page.locator("#opinion")).to_contain_text("The judge gave it")
        await expect(page.locator("#health")).to_contain_text(f"{number} check")


async def test_it_fits_a_phone_in_the_dark(live: Live, open_page: Open) -> None:
    await live.client.post("/api/traffic", json={"task": "scripted:short", "generations": 2, "held_out": 4})
    page = await open_page(address(live, "/traffic"), PHONE, color_scheme="dark")
    await drawn(page, "run")
    await asyncio.sleep(0.2)
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    for name in ("Chat", "Dashboard", "Traffic"):
        await expect(page.get_by_role("link", name=name, exact=True)).to_be_in_viewport()
