"""A journal in memory, for tests of the engine alone; keeps JSON like the real one."""

from __future__ import annotations

from typing import Any

from engine.interface import MergeRecord, RatedReply, Saved
from engine.population import Generation


class MemoryJournal:
    def __init__(self) -> None:
        self.generation: Generation | None = None
        self.entries: list[dict[str, Any]] = []
        self.merges: list[MergeRecord] = []
        self.prepared: MergeRecord | None = None
        self.rewards: list[RatedReply] = []

    async def load(self) -> Saved | None:
        if self.generation is None:
            return None
        return Saved(self.generation, list(self.entries), self.merges[-4:], list(self.rewards))

    async def begin(self, generation: Generation) -> None:
        self.generation = generation

    async def prepare(self, record: MergeRecord) -> None:
        self.prepared = record

    async def commit(self, record: MergeRecord) -> None:
        assert self.prepared is not None
        assert self.prepared.entry == record.entry
        self.prepared = None
        self.merges.append(record)
        self.entries.append(record.entry)
        self.generation = record.next

    async def append(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
