"""What a restart, a signal and kill -9 leave: every acknowledged rating, and a whole generation."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import Live, serving, until
from tests.api.test_feedback import events, total

ROOT = Path(__file__).parents[2]
CODE = """
import sys
from functools import partial
from pathlib import Path
from app import main
from app.settings import AppSettings
from tests.fake_server import FakeServer
main.real_server = lambda settings, journal: FakeServer(journal, delay=float(sys.argv[2]))
main.serve(AppSettings(_env_file=None, home=Path(sys.argv[1]), port=0))
"""


async def child(home: Path, delay: float = 0.0) -> tuple[asyncio.subprocess.Process, str]:
    """A server process of its own, and its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CODE, str(home), str(delay), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    return process, (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()[-1]


async def test_ratings_find_their_member_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as live:
        rated, unrated = await live.chat(), await live.chat()
        await live.rate(rated["id"], False)
    async with serving(tmp_path) as live:
        assert live.server.rewards[0][rated["id"]].reward == 0.0
        credit = (await live.rate(unrated["id"])).json()["credit"]
        assert credit == {"kind": "counted", **unrated["population"], "ratings": 2, "merge_after": 4}
        assert await total(live) == 2


async def test_ratings_while_the_engine_starts_are_credited_when_it_serves(tmp_path: Path) -> None:
    async with serving(tmp_path) as live:
        name = (await live.chat())["id"]
    go = asyncio.Event()
    async with serving(tmp_path, ready=False, start_after=go) as live:
        answer = await live.rate(name)
        assert answer.status_code == 200
        assert answer.json()["credit"]["kind"] == "waiting"
        go.set()
        await until(lambda: live.server.rewards[0].get(name))


async def test_ratings_while_the_engine_comes_back_are_credited(live: Live) -> None:
    first, second = await live.chat(), await live.chat()
    live.server.state = "starting"
    assert (await live.rate(first["id"], False)).json()["credit"]["kind"] == "waiting"
    assert (await live.rate(second["id"])).json()["credit"]["kind"] == "waiting"
    live.server.state = "serving"
    assert (await live.rate(first["id"], True)).json()["credit"]["kind"] == "counted"
    rewards = {name: rated.reward for name, rated in live.server.rewards[0].items()}
    assert rewards == {first["id"]: 1.0, second["id"]: 1.0}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_quietly_with_streams_and_pages_open(tmp_path: Path, number: signal.Signals) -> None:
    process, url = await child(tmp_path, delay=0.5)
    ask = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        page = asyncio.create_task(client.get("/api/events"))
        async with client.stream("POST", "/v1/chat/completions", json=ask) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            process.send_signal(number)
            rest = [line async for line in lines]
        assert (await page).status_code == 200
    assert any("stopped" in line for line in rest)
    _, complaints = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode in (0, -number)
    assert b"Traceback" not in complaints


async def test_kill_9_loses_no_acknowledged_rating(tmp_path: Path) -> None:
    process, url = await child(tmp_path)
    acknowledged: list[str] = []
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:

        async def one(i: int) -> None:
            while True:
                ask = {"messages": [{"role": "user", "content": "hi"}]}
                name = (await client.post("/v1/chat/completions", json=ask)).json()["id"]
                rating = {"inference_id": name, "metric_name": "thumb", "value": bool(i % 2)}
                if (await client.post("/v1/feedback", json=rating)).status_code == 200:
                    acknowledged.append(name)

        tasks = [asyncio.create_task(one(i)) for i in range(16)]
        await until(lambda: len(acknowledged) >= 60, 30)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await asyncio.gather(*tasks, return_exceptions=True)
    names = list(acknowledged)
    async with serving(tmp_path) as live:
        stored = [e.inference_id for e in await events(live)]
        assert set(names) <= set(stored)
        assert len(stored) == len(set(stored))
        merged = (await live.client.get("/api/generations")).json()
        assert [g["generation"] for g in merged] == list(range(len(merged)))
        assert live.server.generation.number == len(merged)
    check = sqlite3.connect(tmp_path / "popserve.db")
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()
