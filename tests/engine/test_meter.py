"""Throughput over a sliding window."""

from __future__ import annotations

import pytest

from engine import meter as module
from engine.meter import Meter


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_steady_stream(clock):
    meter = Meter()
    for _ in range(200):
        meter.add(5)
        clock.now += 0.1
    assert meter.rate() == pytest.approx(50, rel=0.05)


def test_nothing_is_nothing(clock):
    meter = Meter()
    assert meter.rate() == 0.0
    meter.add(100)
    clock.now += module.WINDOW + 0.1
    assert meter.rate() == 0.0


def test_the_beginning_is_not_exaggerated(clock):
    meter = Meter()
    meter.add(30)
    assert meter.rate() == 30
    clock.now += 3
    assert meter.rate() == 10


def test_it_forgets_what_it_no_longer_needs(clock):
    meter = Meter()
    for _ in range(1000):
        meter.add(1)
        clock.now += 0.3
    assert len(meter._buckets) < 50
