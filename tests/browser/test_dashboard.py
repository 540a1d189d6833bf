"""The dashboard: it moves with the data, and keeps what a person has set."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.async_api import Page, expect

from tests.api.conftest import Live
from tests.browser import flows
from tests.browser.conftest import PHONE, Open, Watch, address


async def generations(live: Live, count: int) -> None:
    """Simulated ratings until so many merges have happened."""
    goal = len(live.server.merges) + count
    number = 0
    while len(live.server.merges) < goal:
        await live.rate((await live.chat())["id"], 0.1 * (number % 10), metric_name="score")
        number += 1


async def becomes(page: Page, expression: str, value: Any, seconds: float = 10) -> None:
    """Waits for the value of an expression (Playwright's own wait needs eval, which the pages forbid)."""
    async with asyncio.timeout(seconds):
        while await page.evaluate(expression) != value:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def zoom(page: Page, name: str) -> None:
    """Drags a rectangle over the middle of a chart."""
    box = await page.locator(f"#chart-{name} .nsewdrag").first.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    await page.mouse.down()
    await page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.7 * box["height"], steps=5)
    await page.mouse.up()


async def drawn(page: Page, name: str) -> None:
    await expect(page.locator(f"#chart-{name} .main-svg").first).to_be_visible()


async def test_panels_move_and_keep_zoom_and_hidden_traces(live: Live, open_page: Open) -> None:
    await generations(live, 5)
    page = await open_page(address(live, "/dashboard"))
    await drawn(page, "learning")
    assert await flows.points(page) == 5
    chart = "document.getElementById('chart-learning')"
    await zoom(page, "learning")
    ranges = f"[...{chart}.layout.xaxis.range, ...{chart}.layout.yaxis.range]"
    zoomed = await page.evaluate(ranges)
    assert zoomed[0] > 0
    assert zoomed[3] < 1
    await page.locator("#chart-learning .legendtoggle").first.click()
    await expect(page.locator("#chart-learning .scatterlayer .trace")).to_have_count(1)
    before = await page.evaluate(f"{chart}.data.map(t => t.y)")
    sentence = await page.locator("#sentence").inner_text()
    await generations(live, 2)
    await becomes(page, f"{chart}.data.find(t => t.name === 'mean reward').x.length", 7)
    after = await page.evaluate(f"{chart}.data.map(t => t.y)")
    assert [y[: len(b)] for y, b in zip(after, before, strict=True)] == before
    assert len(after[1]) == 7
    assert await page.evaluate(ranges) == zoomed
    assert await page.evaluate(f"{chart}._fullData[0].visible") == "legendonly"
    assert await page.locator("#sentence").inner_text() != sentence
    await expect(page.locator("#answer-drift")).to_contain_text("0.7%")


async def test_the_present_members_move_with_every_rating(live: Live, open_page: Open) -> None:
    page = await open_page(address(live, "/dashboard"))
    await drawn(page, "members")
    await expect(page.locator("#answer-members")).to_have_text("No member of generation 0 is rated yet.")
    await live.rate((await live.chat())["id"], True)
    await expect(page.locator("#answer-members")).to_contain_text("Member 0 is the only one rated so far, with 100%")
    chart = "document.getElementById('chart-members')"
    await becomes(page, f"{chart}.data[1].y", [1, 0, 0, 0])
    await page.locator("[data-table=members] summary").click()
    table = page.locator("[data-table=members] table")
    await expect(table.locator("tbody tr").first).to_contain_text("100.0%")
    await live.rate((await live.chat())["id"], False)
    await expect(table.locator("tbody tr").nth(1)).to_contain_text("0.0%")


async def test_throughput_is_seen_while_it_answers(live: Live, open_page: Open) -> None:
    page = await open_page(address(live, "/dashboard"))
    await drawn(page, "throughput")
    status = live.server.status
    live.server.status = lambda: type(status())(**{**vars(status()), "tokens_per_second": 123.0})  # type: ignore[method-assign]
    await expect(page.locator("#answer-throughput")).to_contain_text("123 tokens a second")


async def test_empty_and_null_are_said(live: Live, open_page: Open) -> None:
    page = await open_page(address(live, "/dashboard"))
    await drawn(page, "learning")
    await expect(page.locator("#sentence")).to_have_text(
        "Nothing has been learned yet: generation 0 has no ratings yet."
    )
    await expect(page.locator("#chart-learning")).to_contain_text("The first point comes with the first merge.")
    for _ in range(4):
        await live.rate((await live.chat())["id"], True)
    await expect(page.locator("#answer-merges")).to_contain_text("1 merge had nothing to learn from.")


async def test_every_chart_has_words_a_table_and_terms(live: Live, open_page: Open) -> None:
    await generations(live, 2)
    page = await open_page(address(live, "/dashboard"))
    for panel in await page.locator(".panel").all():
        assert (await panel.locator("h2").inner_text()).endswith("?")
        assert await panel.locator("p").first.inner_text()
        await panel.locator("summary").click()
        assert await panel.locator("tbody tr").first.inner_text()
        assert await panel.locator(".terms b").count() >= 1


async def test_light_dark_and_phone(live: Live, open_page: Open, watch: Watch) -> None:
    await generations(live, 3)
    paints = set()
    for scheme in ("light", "dark"):
        page = await open_page(address(live, "/dashboard"), size=PHONE, color_scheme=scheme)
        await drawn(page, "learning")
        paints.add(await page.evaluate("document.getElementById('chart-learning')._fullLayout.font.color"))
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        await page.locator("#status").click()
        await page.locator("#theme").click()
        other = "dark" if scheme == "light" else "light"
        await expect(page.locator("html")).to_have_attribute("data-theme", other)
        color = "document.getElementById('chart-learning')._fullLayout.font.color"
        await becomes(page, f"{color} === getComputedStyle(document.body).color", True)
    assert len(paints) == 2
