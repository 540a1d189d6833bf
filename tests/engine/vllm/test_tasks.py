"""A scripted player on the real engine: what a perfect model would say, generated token by token by a member of a
population, earns the whole reward, and the member that said it is credited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.backends.vllm_backend import VllmBackend
from engine.interface import Sampling
from engine.population import profile
from engine.server import Server
from engine.tasks import Reply, Request, Surroundings, Task, get
from tests.engine.shared_server import SharedServer
from tests.tasks.players import SudokuPlayer, countdown_answer
from tests.tasks.test_bigbench import numbers, write

pytestmark = pytest.mark.asyncio(loop_scope="session")


def surroundings(home: Path) -> Surroundings:
    """A file of a user's own, and a BIG-Bench folder with one task to learn from and one that is held out."""
    write(home, "modified_arithmetic", numbers("sum", 300), numbers("sum", 20, 1_000))
    write(home, "operators", numbers("op", 30), numbers("op", 10, 1_000))
    (home / "bigbench" / "tasks.tsv").write_text("task\ttrain\nmodified_arithmetic\t300\noperators\t30\n")
    lines = [{"prompt": f"What is {i} plus one?", "answer": str(i + 1)} for i in range(40)]
    (home / "sums.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return Surroundings(data_dir=home, files=home)


def says(text: str) -> Callable[[Request, list[dict[str, str]]], str]:
    return lambda request, messages: text


SCRIPTS: dict[str, tuple[dict[str, Any], Callable[[Request, list[dict[str, str]]], str]]] = {
    "persona:brevity": ({}, says("A mountain that can erupt.")),
    "persona:json": ({}, says('{"answer": 42}')),
    "persona:custom": ({"rule": "at most 3 words"}, says("Two words.")),
    "countdown:easy": ({}, lambda request, messages: countdown_answer(request)),
    "countdown:3": ({}, lambda request, messages: countdown_answer(request)),
    "countdown:4": ({}, lambda request, messages: countdown_answer(request)),
    "sudoku:4x4": ({}, lambda request, messages: SudokuPlayer().move(messages)),
    "sudoku:9x9": ({"blanks": 5}, lambda request, messages: SudokuPlayer().move(messages)),
    "bigbench": ({}, lambda request, messages: str(int(request.prompt.split()[1]) + 1)),
    "file": ({"file": "sums.jsonl"}, lambda request, messages: str(int(request.prompt.split()[2]) + 1)),
}


async def played(server: Server, task: Task, script: Callable[..., str]) -> tuple[Any, float, set[int | None]]:
    request, members, member = task.sample(0, 0), set(), None
    episode = task.start(request)
    while (messages := episode.messages()) is not None:
        words = script(request, messages)
        sampling = Sampling(temperature=0.7, max_tokens=96, seed=1, choice=(words,))
        text, finish = "", ""
        name = f"{task.name}-{len(members)}-{id(messages)}"
        async with server.reply(messages, sampling, request_id=name, member=member) as reply:
            async for delta in reply:
                text, finish = text + delta.text, delta.finish_reason or finish
        assert (text, finish) == (words, "stop")
        member = reply.member
        members.add(member)
        episode.take(Reply(text, finish))
    return reply, task.scale(episode.reward()), members


async def test_scripted_players_earn_the_whole_reward_and_their_member_gets_it(
    backend: VllmBackend, tmp_path: Path
) -> None:
    server, where = SharedServer(backend, tmp_path / "home", seed=5), surroundings(tmp_path)
    await server.start()
    try:
        await server.configure(profile("room", members=4, merge_after=64), seed=5)
        for name, (options, script) in SCRIPTS.items():
            task = get(name, options, where)
            reply, reward, members = await played(server, task, script)
            assert reward == 1.0, name
            assert len(members) == 1, name
            assert members != {None}, name
            assert server.rate(name, reply.generation, reply.member, reward).kind == "counted", name
        assert server.status().ratings == len(SCRIPTS)
    finally:
        await server.close()
