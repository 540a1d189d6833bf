"""Takes the README's screenshots from a running server, light and dark, desktop and phone.

    .venv/bin/python docs/screenshots.py --url http://127.0.0.1:8000

It asks two questions in a new conversation and gives the first reply a thumb up. Run some simulated users first, so
that the dashboard has something to show.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright, expect

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.browser import flows  # noqa: E402
from tests.browser.conftest import ARGUMENTS, DESKTOP, PHONE, chromium  # noqa: E402

QUESTIONS = ("What is a flock?", "Name three things that a good host does.")
LOOKS = (("", DESKTOP, "light"), ("-dark", DESKTOP, "dark"), ("-phone", PHONE, "light"), ("-phone-dark", PHONE, "dark"))


async def conversation(browser: Browser, url: str) -> str:
    """The address of a conversation with a rated reply."""
    page = await browser.new_page()
    await page.goto(url)
    await expect(page.locator("#send")).to_be_enabled(timeout=5 * flows.TOKEN_TIMEOUT)
    for question in QUESTIONS:
        await flows.say(page, question)
    await flows.vote(flows.replies(page).first, True)
    address = page.url
    await page.close()
    return address


async def shoot(page: Page, name: str) -> None:
    await page.evaluate("document.activeElement?.blur()")
    await page.wait_for_timeout(800)
    path = HERE / f"{name}.png"
    await page.screenshot(path=path)
    print(path.relative_to(HERE.parent))


async def dashboard(page: Page, url: str) -> None:
    await page.goto(f"{url}/dashboard")
    for chart in await page.locator("[data-panel]").all():
        await expect(chart.locator(".main-svg").first).to_be_visible(timeout=flows.TOKEN_TIMEOUT)


async def main(url: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        talk = await conversation(browser, url)
        for suffix, (width, height), scheme in LOOKS:
            page = await browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme=scheme,  # type: ignore[arg-type]
                device_scale_factor=2,
            )
            await page.goto(talk)
            await shoot(page, f"chat{suffix}")
            await dashboard(page, url)
            await shoot(page, f"dashboard{suffix}")
            await page.close()
        await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take the README's screenshots from a running server.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    asyncio.run(main(parser.parse_args().url.rstrip("/")))
