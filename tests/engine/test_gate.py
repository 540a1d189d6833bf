"""Admission: holds nest, waiting is measured, whoever leaves early leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from engine.gate import Gate


async def soon() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_open_gate_admits_at_once():
    gate = Gate()
    await gate.enter()
    await gate.enter()
    assert (gate.running, gate.waiting, gate.waited_ms) == (2, 0, 0)
    gate.leave()
    gate.leave()
    assert gate.running == 0


async def test_nobody_is_admitted_inside_a_hold_and_holds_nest():
    gate = Gate()
    async with gate.hold():
        async with gate.hold():
            waiter = asyncio.create_task(gate.enter())
            await soon()
        await soon()
        assert not waiter.done()
        assert (gate.waiting, gate.running) == (1, 0)
    await waiter
    assert (gate.waiting, gate.running) == (0, 1)


async def test_a_hold_ends_also_when_what_it_protects_fails():
    gate = Gate()
    with pytest.raises(RuntimeError):
        async with gate.hold():
            raise RuntimeError
    await asyncio.wait_for(gate.enter(), 1)


async def test_a_gate_that_closes_again_at_once_admits_nobody():
    gate = Gate()
    async with gate.hold():
        waiter = asyncio.create_task(gate.enter())
        await soon()
    async with gate.hold():
        await soon()
        assert not waiter.done()
        assert gate.waiting == 1
    await asyncio.wait_for(waiter, 1)


async def test_drained_waits_for_everybody():
    gate = Gate()
    await gate.enter()
    await gate.enter()
    async with gate.hold():
        drained = [asyncio.create_task(gate.drained()) for _ in range(2)]
        gate.leave()
        await soon()
        assert not any(d.done() for d in drained)
        gate.leave()
        await asyncio.wait_for(asyncio.gather(*drained), 1)
    await asyncio.wait_for(gate.drained(), 1)


async def test_cancelled_waiters_leave_nothing_behind():
    gate = Gate()
    async with gate.hold():
        waiters = [asyncio.create_task(gate.enter()) for _ in range(3)]
        await soon()
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        assert (gate.waiting, gate.running) == (0, 0)
        gone = gate.waited_ms
        await asyncio.sleep(0.03)
        assert gate.waited_ms == gone, "nobody waits any more"
        await asyncio.wait_for(gate.drained(), 1)
    assert gate.running == 0


async def test_waiting_is_measured_while_somebody_waits():
    gate = Gate()
    async with gate.hold():
        await asyncio.sleep(0.03)
        assert gate.waited_ms == 0
        waiter = asyncio.create_task(gate.enter())
        await asyncio.sleep(0.05)
        so_far = gate.waited_ms
        assert 40 < so_far < 500
    assert gate.waited_ms >= so_far
    await waiter
    kept = gate.waited_ms
    await asyncio.sleep(0.02)
    assert gate.waited_ms == kept
    gate.reset()
    assert gate.waited_ms == 0
