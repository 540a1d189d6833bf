"""Whole weights take turns: one set at a time, oldest first, nobody starves, a failure spoils nothing."""

from __future__ import annotations

import asyncio

import pytest

from engine.backends import turns as module
from engine.backends.base import Weights
from engine.backends.turns import Turns
from engine.noise import Direction


def weights(seed: int) -> Weights:
    return Weights({Direction(seed, "gaussian", 0): 0.001}, 0, "source")


X, Y, Z = weights(1), weights(2), weights(3)


class Engine:
    """What is loaded, and a check that nobody runs while it changes."""

    def __init__(self):
        self.turns = Turns(self.load)
        self.loaded: Weights | None = None
        self.loads: list[Weights | None] = []
        self.running = 0
        self.fail: Exception | None = None
        self.stall: asyncio.Event | None = None

    async def load(self, weights: Weights | None) -> None:
        assert not self.running, "weights were changed under a running request"
        self.loaded = "half"
        if self.stall:
            await self.stall.wait()
        if self.fail:
            error, self.fail = self.fail, None
            raise error
        await asyncio.sleep(0)
        self.loaded = weights
        self.loads.append(weights)

    async def request(self, weights: Weights | None, until: asyncio.Event) -> None:
        async with self.turns.turn(weights):
            assert self.loaded == weights
            self.running += 1
            try:
                await until.wait()
                assert self.loaded == weights
            finally:
                self.running -= 1

    def begin(self, weights: Weights | None) -> tuple[asyncio.Task, asyncio.Event]:
        until = asyncio.Event()
        return asyncio.create_task(self.request(weights, until)), until


async def soon() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def finish(*begun) -> None:
    for _, until in begun:
        until.set()
    await asyncio.wait_for(asyncio.gather(*(task for task, _ in begun)), 2)


async def test_the_plain_basis_needs_no_load():
    engine = Engine()
    both = engine.begin(None), engine.begin(None)
    await soon()
    assert engine.running == 2
    await finish(*both)
    assert engine.loads == []


async def test_the_same_weights_run_together_others_wait():
    engine = Engine()
    first, second, other = engine.begin(X), engine.begin(X), engine.begin(Y)
    await soon()
    assert (engine.running, engine.loaded) == (2, X)
    await finish(first, second)
    await soon()
    assert (engine.running, engine.loaded) == (1, Y)
    await finish(other)
    assert engine.loads == [X, Y]


async def test_the_oldest_goes_first():
    engine = Engine()
    begun = [engine.begin(X)]
    await soon()
    for w in (Y, None, Z, Y):
        begun.append(engine.begin(w))
        await soon()
    await finish(begun[0])
    await soon()
    assert (engine.loaded, engine.running) == (Y, 2), "the second Y runs with the first"
    await finish(*begun)
    assert engine.loads == [X, Y, None, Z]


async def test_a_busy_member_does_not_starve_another(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    engine = Engine()
    busy = engine.begin(X)
    await soon()
    waiting = engine.begin(Y)
    await soon()
    joined = engine.begin(X)
    await soon()
    assert engine.running == 2, "within its patience the loaded member admits more"
    await asyncio.sleep(0.06)
    late = engine.begin(X)
    await soon()
    assert engine.running == 2
    await finish(busy, joined)
    await soon()
    assert (engine.loaded, engine.running) == (Y, 1)
    await finish(waiting, late)
    assert engine.loads == [X, Y, X]


async def test_an_endless_stream_of_requests_lets_everybody_in(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    engine, served = Engine(), set()

    async def customer(w: Weights) -> None:
        for _ in range(15):
            async with engine.turns.turn(w):
                assert engine.loaded == w
                await asyncio.sleep(0.001)
        served.add(w.key)

    await asyncio.wait_for(asyncio.gather(*(customer(w) for w in (X, X, X, Y, Z))), 10)
    assert len(served) == 3


async def test_a_load_that_fails_fails_its_request_only():
    engine = Engine()
    engine.fail = OSError("no space left")
    task, _ = engine.begin(X)
    behind = engine.begin(Y)
    with pytest.raises(OSError, match="no space"):
        await task
    await soon()
    assert engine.loaded == Y
    await finish(behind)


async def test_after_a_failed_load_even_the_old_weights_are_loaded_again():
    engine = Engine()
    await finish(engine.begin(X))
    engine.fail = OSError("halfway")
    task, _ = engine.begin(Y)
    with pytest.raises(OSError, match="halfway"):
        await task
    await finish(engine.begin(X))
    assert engine.loads == [X, X]


async def test_after_a_cancelled_load_even_the_old_weights_are_loaded_again():
    engine = Engine()
    engine.stall = asyncio.Event()
    task, _ = engine.begin(Y)
    await soon()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    engine.stall.set()
    await finish(engine.begin(None))
    assert engine.loads == [None]


async def test_a_waiter_that_leaves_is_forgotten():
    engine = Engine()
    running = engine.begin(X)
    await soon()
    gone, _ = engine.begin(Y)
    behind = engine.begin(Z)
    await soon()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await finish(running, behind)
    assert engine.loads == [X, Z]
    assert engine.turns._waiting == []


async def test_a_fold_waits_for_whole_weights():
    engine = Engine()
    running = engine.begin(X)
    await soon()

    async def fold():
        async with engine.turns.alone():
            assert engine.running == 0
            engine.loaded = None
            await asyncio.sleep(0.01)

    folding = asyncio.create_task(fold())
    await soon()
    held = engine.begin(X)
    await soon()
    assert not folding.done()
    assert engine.running == 1
    await finish(running)
    await asyncio.wait_for(folding, 2)
    await finish(held)
    assert engine.loads == [X, X], "the fold left the plain basis"


async def test_a_fold_does_not_wait_for_the_plain_basis():
    engine = Engine()
    running = engine.begin(None)
    await soon()

    async def fold():
        async with engine.turns.alone():
            assert engine.running == 1

    await asyncio.wait_for(fold(), 2)
    later = engine.begin(None)
    await soon()
    assert engine.running == 2
    assert engine.loads == []
    await finish(running, later)


async def test_a_failed_fold_leaves_it_usable():
    engine = Engine()
    with pytest.raises(RuntimeError):
        async with engine.turns.alone():
            raise RuntimeError
    await finish(engine.begin(None), engine.begin(X))
    assert engine.loads == [None, X], "what a failed fold left is not trusted"
