"""What a person does on the pages, as functions of a Playwright page: used by the tests and against any server.

    .venv/bin/python -m tests.browser.flows --url http://127.0.0.1:8000

runs :func:`whole` once: chat, streamed reply, thumb up, switch, take back, reload, merge, the dashboard moves.
"""

from __future__ import annotations

import argparse
import asyncio
import re

from playwright.async_api import Locator, Page, async_playwright, expect

TOKEN_TIMEOUT = 120_000
"""Milliseconds for the first token and for a whole reply, on a slow machine."""


def replies(page: Page) -> Locator:
    return page.locator(".reply:not(.writing)")


async def say(page: Page, text: str, *, wait: bool = True) -> Locator:
    """Sends a message; with ``wait`` until its reply has finished. Returns the newest reply."""
    before = await page.locator(".turn").count()
    await page.locator("#content").fill(text)
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn")).to_have_count(before + 1, timeout=TOKEN_TIMEOUT)
    turn = page.locator(".turn").last
    if wait:
        await expect(turn.locator(".foot")).to_be_visible(timeout=TOKEN_TIMEOUT)
        await expect(page.locator("#send")).to_be_visible()
    return turn.locator(".reply")


def thumb(reply: Locator, up: bool) -> Locator:
    return reply.get_by_role("button", name="Good reply" if up else "Bad reply")


async def vote(reply: Locator, up: bool, *, pressed: bool = True) -> str:
    """Clicks a thumb and waits until it is (or is no longer) pressed. Returns what the line says."""
    await thumb(reply, up).click()
    await expect(thumb(reply, up)).to_have_attribute("aria-pressed", "true" if pressed else "false")
    await expect(thumb(reply, not up)).to_have_attribute("aria-pressed", "false")
    return (await reply.locator(".said").inner_text()).strip()


async def streamed(page: Page, text: str) -> list[str]:
    """Sends a message and returns the lengthening texts that the page showed, at least two."""
    await say(page, text, wait=False)
    seen: list[str] = []
    for _ in range(2000):
        shown = await page.locator(".turn").last.locator(".prose").all_inner_texts()
        now = "\n".join(shown).strip()
        if now and (not seen or now != seen[-1]):
            seen.append(now)
        if await page.locator(".turn").last.locator(".foot").count():
            break
        await asyncio.sleep(0.02)
    await expect(page.locator("#send")).to_be_visible(timeout=TOKEN_TIMEOUT)
    assert len(seen) >= 2, f"the reply did not stream: {seen}"
    return seen


async def generation(page: Page) -> int:
    """The number in the status line."""
    text = await page.locator('[data-live="generation"]').inner_text()
    return int(re.sub(r"\D", "", text))


async def rate_until_merge(page: Page, most: int = 100) -> int:
    """Chats and rates, up and down in turn, until the page says that the generation has turned. Returns how many."""
    start = await generation(page)
    # A notice goes by itself; on a slow machine the next reply may take longer than it stays.
    await page.evaluate(
        """() => {
            window.noticed = [];
            new MutationObserver((records) => {
                for (const record of records) for (const node of record.addedNodes) noticed.push(node.textContent);
            }).observe(document.getElementById("notices"), { childList: true });
        }"""
    )

    async def told() -> bool:
        return any(re.search(r"Generation \d+: ", text) for text in await page.evaluate("() => window.noticed"))

    for number in range(1, most + 1):
        await vote(await say(page, f"Say something about the number {number}."), number % 2 == 0)
        if await generation(page) > start or await told():
            break
    await expect(page.locator('[data-live="generation"]')).not_to_have_text(f"gen {start}", timeout=TOKEN_TIMEOUT)
    async with asyncio.timeout(TOKEN_TIMEOUT / 1000):
        while not await told():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return number


async def whole(page: Page, url: str) -> dict[str, object]:
    """The main job, from the first message to the moving dashboard. Returns what was seen; raises AssertionError."""
    await page.goto(url)
    await expect(page.locator("#send")).to_be_enabled(timeout=5 * TOKEN_TIMEOUT)
    texts = await streamed(page, "What is a flock?")
    reply = replies(page).last
    said = [await vote(reply, True)]
    assert "member" in said[0], said
    said.append(await vote(reply, False))
    said.append(await vote(reply, False, pressed=False))
    assert "taken back" in said[2], said
    said.append(await vote(reply, True))
    await page.reload()
    await expect(thumb(replies(page).last, True)).to_have_attribute("aria-pressed", "true")
    dashboard = await page.context.new_page()
    await dashboard.goto(url.rstrip("/") + "/dashboard")
    await expect(dashboard.locator("#chart-members .main-svg").first).to_be_visible(timeout=TOKEN_TIMEOUT)
    before = await points(dashboard)
    await page.bring_to_front()
    rated = await rate_until_merge(page)
    await dashboard.bring_to_front()
    for _ in range(600):
        after = await points(dashboard)
        if after > before:
            break
        await asyncio.sleep(0.1)
    assert after > before, "the dashboard did not move"
    return {"texts": len(texts), "reply": texts[-1], "said": said, "rated": rated, "merges": (before, after)}


async def points(dashboard: Page) -> int:
    """How many merges the dashboard draws."""
    return await dashboard.evaluate(
        """() => {
            const line = (document.getElementById("chart-learning").data ?? []).find((t) => t.name === "mean reward");
            return line ? line.x.length : 0;
        }"""
    )


async def _main(url: str) -> None:
    from tests.browser.conftest import ARGUMENTS, chromium

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        page = await context.new_page()
        for name, value in (await whole(page, url)).items():
            print(f"{name}: {value}")
        await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Drive the pages of a running server once.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    asyncio.run(_main(parser.parse_args().url))
