"""A backend without a model: keeps the real bookkeeping of rows, bases and folds, and computes one weight matrix of
every stream, so that tests see with which θ each request is served, at every step, whatever merges or folds meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import numpy as np

from engine.backends.base import Weights
from engine.backends.rows import Rows
from engine.checkpoint import Checkpoint
from engine.interface import Delta, Sampling
from engine.master import Master
from engine.noise import Direction, add_scaled, factors

WATCHED = "model.layers.0.self_attn.q_proj.weight"


class Died(Exception):
    """What a dead engine raises."""


class ScriptedBackend:
    """See :class:`engine.backends.base.Backend`. ``hooks`` run (and may stall or fail) inside start, draw and fold.

    Streams wait for :meth:`ScriptedStream.say`; with ``talkative`` they answer three words at once.
    """

    def __init__(self, folder: Path, rows: int = 32, talkative: bool = False):
        self.checkpoint = Checkpoint(folder)
        self.name, self.max_model_len = "scripted", 64
        self.rows = Rows(rows)
        self.talkative = talkative
        self.alive, self.closed = False, False
        self.hooks: dict[str, Callable[[], Awaitable[None]]] = {}
        self.streams: list[ScriptedStream] = []
        self.folds: list[dict[int, float]] = []
        self.places: dict[int, tuple[Direction, int]] = {}
        self.plain = self.checkpoint.weights(WATCHED)
        self._drawing = asyncio.Lock()

    async def _hook(self, name: str) -> None:
        if name in self.hooks:
            await self.hooks[name]()
        if not self.alive:
            raise Died(name)

    async def start(self, say: Callable[[str], None]) -> None:
        say("starting the script")
        self.alive = True
        await self._hook("start")

    @property
    def basis(self) -> int:
        return len(self.folds)

    async def close(self) -> None:
        self.closed = True
        self.die()

    def die(self) -> None:
        self.alive = False
        for stream in self.streams:
            stream.items.put_nowait(Died("stream"))

    @property
    def running(self) -> int:
        return self.rows.running

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        return list(range(sum(len(m["content"].split()) for m in messages)))

    async def draw(self, directions: list[Direction], keep: set[Direction]) -> None:
        async with self._drawing:
            wanted = [d for d in dict.fromkeys(directions) if d.kind == "lowrank"]
            self.rows.keep_only(keep | set(wanted))
            missing = self.rows.missing(wanted)
            if not missing:
                return
            placed = self.rows.allocate(missing)
            try:
                await self._hook("draw")
            except BaseException:
                self.rows.forget(missing)
                raise
            for direction, columns in placed.items():
                self.places.update({column: (direction, k) for k, column in enumerate(columns)})

    def open(
        self, tokens: list[int], sampling: Sampling, weights: Weights, *, request_id: str, priority: int = 0
    ) -> ScriptedStream:
        if not self.alive:
            raise Died("open")
        stream = ScriptedStream(self, weights, sampling, request_id)
        self.streams.append(stream)
        return stream

    async def score(self, tokens: list[int], weights: Weights) -> list[float]:
        raise NotImplementedError("the script has no probabilities")

    async def fold(self, master: Master, coefficients: Mapping[Direction, float]) -> None:
        async with self._drawing:
            await self._hook("fold")
            vector = {column: c for d, c in coefficients.items() if d in self.rows for column in self.rows.of(d)}
            self.folds.append(vector)
            self.plain = master.weights(WATCHED, {})


class ScriptedStream:
    """A request; checks at every step that θ is the one it was admitted with."""

    def __init__(self, backend: ScriptedBackend, weights: Weights, sampling: Sampling, request_id: str):
        self.backend, self.weights, self.sampling, self.id = backend, weights, sampling, request_id
        self.vector: dict[int, float] = {}
        self.whole = {d: c for d, c in weights.coefficients.items() if d.kind == "gaussian" and c}
        for direction, c in weights.coefficients.items():
            if direction.kind == "lowrank" and c:
                self.vector.update(dict.fromkeys(backend.rows.of(direction), c))
        self.epoch: int | None = backend.rows.enter()
        self.items: asyncio.Queue[Delta | Exception] = asyncio.Queue()
        self.tokens = 0
        self.admitted = self.theta()
        if backend.talkative:
            self.say("one ", "two ", "three", end="stop")

    def theta(self) -> np.ndarray:
        """The watched weight that the engine would multiply with now."""
        vector = dict(self.vector)
        for fold in self.backend.folds[self.weights.basis :]:
            for column, c in fold.items():
                vector[column] = vector.get(column, 0.0) - c
        theta = self.backend.plain.copy()
        for column, c in vector.items():
            direction, k = self.backend.places[column]
            b, a = factors(direction, WATCHED, theta.shape)
            theta += np.float32(c) * np.multiply.outer(b[:, k], a[:, k])
        for direction, c in self.whole.items():
            add_scaled(theta, direction, WATCHED, c)
        return theta

    def say(self, *words: str, end: str | None = None) -> None:
        for i, word in enumerate(words):
            self.tokens += 1
            self.items.put_nowait(Delta(word, self.tokens, end if i == len(words) - 1 else None))

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> Delta:
        if self.tokens < 0:
            raise StopAsyncIteration
        item = await self.items.get()
        if isinstance(item, Exception):
            raise item
        np.testing.assert_allclose(self.theta(), self.admitted, atol=2e-6)
        if item.finish_reason:
            self.tokens = -1
        return item

    async def close(self) -> None:
        if self.epoch is not None:
            self.backend.rows.leave(self.epoch)
            self.epoch = None
