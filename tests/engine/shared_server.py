"""A server over an engine that is up already and outlives it: for tests and benches that start many from θ_0."""

from __future__ import annotations

from pathlib import Path

from engine.backends.vllm_backend import VllmBackend
from engine.config import Config
from engine.server import Server
from tests.engine.memory_journal import MemoryJournal


class SharedServer(Server):
    """:meth:`close` leaves the engine running."""

    def __init__(self, backend: VllmBackend, home: Path, seed: int) -> None:
        super().__init__(Config(home=home, model=str(backend.checkpoint.folder), seed=seed), MemoryJournal())
        self._shared = backend

    async def _raise_backend(self, folder: Path) -> None:
        self.backend = self._shared
        await self.turnover.rebuild()

    async def close(self) -> None:
        self.backend = None
        await super().close()
