"""The pages in Debian's chromium against the application with an engine without a model.

Every page is watched: no request to another host, no error on the console.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from tests.api.conftest import Live, serving

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP, PHONE = (1280, 800), (390, 844)
Open = Callable[..., Awaitable[Page]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


def chromium() -> str:
    """Where the browser is; without one these tests fail and say what to do."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise RuntimeError("No chromium found: install Debian's package chromium, or run make test, which does.")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield running
        await running.close()


class Watch:
    """What a page asked for and complained about."""

    def __init__(self) -> None:
        self.foreign: list[str] = []
        self.errors: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Parts of messages that a test provokes."""

    def follow(self, page: Page) -> None:
        page.on("request", lambda request: self._asked(request.url))
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _asked(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1":
            self.foreign.append(url)

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.expected):
            self.errors.append(text)


@pytest_asyncio.fixture(loop_scope="session")
async def watch() -> AsyncIterator[Watch]:
    watching = Watch()
    yield watching
    assert not watching.foreign
    assert not watching.errors


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser, watch: Watch) -> AsyncIterator[Open]:
    """Opens pages that share cookies and storage, as one person's tabs do."""
    contexts = {}

    async def opened(url: str, size: tuple[int, int] = DESKTOP, **options: object) -> Page:
        key = (size, tuple(sorted(options.items())))
        if key not in contexts:
            contexts[key] = await browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
            contexts[key].set_default_timeout(10_000)
        page = await contexts[key].new_page()
        watch.follow(page)
        await page.goto(url)
        return page

    yield opened
    for context in contexts.values():
        await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with serving(tmp_path) as running:
        yield running


def address(live: Live, path: str = "/") -> str:
    return f"http://127.0.0.1:{live.port}{path}"


@pytest_asyncio.fixture(loop_scope="session")
async def page(live: Live, open_page: Open) -> Page:
    """The chat page of a fresh server."""
    return await open_page(address(live))
