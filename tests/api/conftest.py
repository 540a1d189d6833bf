"""A real web server on a free port around an engine without a model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import uvicorn
from fastapi import FastAPI

from app.deps import Services
from app.main import WebServer, bind, create_app
from app.settings import AppSettings
from tests.fake_server import FakeServer


@dataclass
class Live:
    """A running application."""

    app: FastAPI
    client: httpx.AsyncClient
    services: Services
    server: FakeServer
    port: int

    async def chat(self, content: str = "hi", **options: Any) -> dict[str, Any]:
        """One whole reply."""
        answer = await self.client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": content}], **options}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def rate(self, inference_id: str, value: Any = True, **options: Any) -> httpx.Response:
        headers = options.pop("headers", {})
        rating = {"inference_id": inference_id, "metric_name": "thumb", "value": value} | options
        return await self.client.post("/v1/feedback", json=rating, headers=headers)


def isolated(home: Path, **changes: Any) -> AppSettings:
    """Settings that no environment reaches."""
    return AppSettings(_env_file=None, **({"home": home, "port": 0} | changes))


@contextlib.asynccontextmanager
async def serving(home: Path, ready: bool = True, port: int = 0, **options: Any) -> AsyncIterator[Live]:
    """Runs the application; with ``ready`` waits until the engine serves."""
    made: list[FakeServer] = []

    def factory(journal: Any) -> FakeServer:
        made.append(FakeServer(journal, **options))
        return made[0]

    settings = isolated(home, port=port)
    app = create_app(settings, server=factory)
    bound = bind(settings)
    port = bound.getsockname()[1]
    web = WebServer(uvicorn.Config(app, lifespan="on", log_level="critical", timeout_graceful_shutdown=2))
    task = asyncio.create_task(web.serve(sockets=[bound]))
    try:
        await until(lambda: web.started or task.done())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            live = Live(app, client, app.state.services, made[0], port)
            if ready:
                await until(lambda: live.server.state == "serving")
            yield live
    finally:
        web.should_exit = True
        await task
        bound.close()


async def until(condition: Callable[[], Any], seconds: float = 5) -> None:
    """Waits for a condition; fails when it does not come."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with serving(tmp_path) as running:
        yield running


shared_loop = pytest.mark.asyncio(loop_scope="session")
"""Marks a test that uses ``shared``."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    """One application for the many tests that are refused and leave nothing behind."""
    async with serving(tmp_path_factory.mktemp("shared")) as running:
        yield running
