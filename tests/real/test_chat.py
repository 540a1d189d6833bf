"""The main job in a real browser against the real engine: chat, rate, merge, and the dashboard moves."""

from __future__ import annotations

import pytest
from playwright.async_api import async_playwright

from tests.browser import flows
from tests.browser.conftest import ARGUMENTS, DESKTOP, chromium
from tests.real.real_server import RealServer

pytestmark = [pytest.mark.engine, pytest.mark.browser]


async def test_the_main_job(server: RealServer) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        context = await browser.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
        seen = await flows.whole(await context.new_page(), server.url)
        await browser.close()
    (merged, *_) = server.get("/api/generations")
    assert merged["ratings"] == 8
    assert seen["merges"][1] > seen["merges"][0]
    assert server.get("/api/status")["generation"] >= 1
