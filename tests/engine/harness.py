"""A server on the scripted backend, with a journal that can be made to fail, and the people who use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.config import Config
from engine.interface import MergeRecord, RatedReply, Saved
from engine.learner import Learner
from engine.ledger import Ledger
from engine.master import Master, replay
from engine.population import Generation, Settings
from engine.reply import ServedReply
from engine.server import Server
from tests.engine.memory_journal import MemoryJournal
from tests.engine.scripted_backend import WATCHED, ScriptedBackend, ScriptedStream

HELLO = [{"role": "user", "content": "hello you"}]


class Journal(MemoryJournal):
    """Keeps JSON, and raises once for each name in ``fail``."""

    def __init__(self) -> None:
        super().__init__()
        self.fail: set[str] = set()
        self.rated: dict[str, RatedReply] = {}

    def _check(self, name: str) -> None:
        if name in self.fail:
            self.fail.remove(name)
            raise OSError(f"the disk is full ({name})")

    async def load(self) -> Saved | None:
        if self.generation is None:
            return None
        stale = self.generation.settings.max_staleness
        rewards = [r for r in self.rated.values() if r.generation >= self.generation.number - stale]
        return Saved(self.generation, list(self.entries), self.merges[-max(1, stale) :], rewards)

    async def begin(self, generation: Generation) -> None:
        self._check("begin")
        await super().begin(generation)

    async def prepare(self, record: MergeRecord) -> None:
        self._check("prepare")
        await super().prepare(record)

    async def commit(self, record: MergeRecord) -> None:
        await asyncio.sleep(0)
        self._check("commit")
        await super().commit(record)

    async def append(self, entry: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self._check("append")
        await super().append(json.loads(json.dumps(entry)))


class World:
    """One home: servers come and go over the same journal."""

    def __init__(self, model: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
        self.model, self.home = model, home
        self.journal = Journal()
        self.rows, self.talkative = 32, True
        self.backends: list[ScriptedBackend] = []
        self.servers: list[Server] = []
        self.events: list[tuple[str, dict]] = []
        self.serial = 0
        monkeypatch.setattr("engine.server.make_backend", lambda config, folder: self._backend(folder))

    def _backend(self, folder: Path) -> ScriptedBackend:
        self.backends.append(ScriptedBackend(folder, self.rows, self.talkative))
        return self.backends[-1]

    @property
    def server(self) -> Server:
        return self.servers[-1]

    @property
    def backend(self) -> ScriptedBackend:
        return self.backends[-1]

    def new(self, profile: str = "room", seed: int | None = 1) -> Server:
        config = Config(home=self.home, model=str(self.model), profile=profile, seed=seed)
        self.servers.append(Server(config, self.journal))
        self.server.listen(lambda kind, data: self.events.append((kind, data)))
        return self.server

    async def start(self, settings: Settings | None = None, **options: Any) -> Server:
        await self.new(**options).start()
        if settings is not None:
            await self.server.configure(settings)
        return self.server

    async def close(self) -> None:
        for server in self.servers:
            await server.close()

    # -- people -------------------------------------------------------------------------------------------------------

    def ask(self, **options: Any) -> ServedReply:
        from engine.interface import Sampling

        self.serial += 1
        return self.server.reply(HELLO, Sampling(), request_id=f"r{self.serial}", **options)

    async def talk(self, **options: Any) -> ServedReply:
        """One whole reply of a talkative backend."""
        async with self.ask(**options) as reply:
            text = "".join([d.text async for d in reply])
        assert text == "one two three"
        return reply

    def rate(self, member: int, reward: float | None, generation: int | None = None, name: str = ""):
        g = self.server.learner.generation.number if generation is None else generation
        name = name or f"g{g}m{member}"
        self.journal.rated.pop(name, None)
        if reward is not None:
            self.journal.rated[name] = RatedReply(name, g, member, reward)
        return self.server.rate(name, g, member, reward)

    def rate_all(self, rewards: Mapping[int, float] | None = None) -> None:
        """Spread rewards over the present members; fewer ratings than make a merge due by themselves."""
        members = self.server.learner.generation.settings.members
        for member, reward in (rewards or {i: i % 3 / 2 for i in range(members)}).items():
            self.rate(member, reward)

    # -- truth --------------------------------------------------------------------------------------------------------

    def ledger(self) -> Ledger:
        return Ledger.from_json(self.journal.entries)

    def source(self) -> np.ndarray:
        """The watched weight of the present source model by the journal alone."""
        made = self.ledger()
        return replay(self.backend.checkpoint, made).weights(WATCHED, made.coefficients)

    async def check(self) -> None:
        """Whole: memory and journal agree, and the source and every member are served as the journal says."""
        server, journal = self.server, self.journal
        assert server.state == "serving", server.waiting_for
        assert server.learner.ledger == self.ledger()
        assert server.learner.generation == journal.generation
        assert Learner.resume(await journal.load()).rewards == server.learner.rewards
        assert journal.generation is not None
        m_sigma = journal.generation.settings.sigma
        made: Master = replay(self.backend.checkpoint, self.ledger())
        assert server.master is not None
        assert server.master.folded.keys() == made.folded.keys()
        assert all(np.array_equal(server.master.folded[n], f) for n, f in made.folded.items())
        for target in ["source", *("population" for _ in journal.generation.members)]:
            async with self.ask(target=target) as reply:
                stream = reply._stream
                assert isinstance(stream, ScriptedStream)
                assert stream.backend is self.backend
                assert reply.generation == journal.generation.number
                coefficients = dict(self.ledger().coefficients)
                if target == "population":
                    m = journal.generation.members[reply.member]
                    coefficients[m.direction] = coefficients.get(m.direction, 0.0) + m.sign * m_sigma
                np.testing.assert_allclose(stream.theta(), made.weights(WATCHED, coefficients), atol=3e-6)


async def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    """Waits for something that happens by itself."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (the condition belongs to somebody else)
            await asyncio.sleep(0.002)
