"""The server's pulse: how fast it answers, looked at every second, kept for the last hour and told to open pages.

The engine says when something happens; that nothing happens any more is seen only by looking.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from app.events import Bus
from engine.interface import PopulationServer

PERIOD = 1.0
KEPT = 3600
"""Beats."""


@dataclass(frozen=True)
class Beat:
    """What was seen at ``at`` (Unix seconds)."""

    at: float
    tokens_per_second: float
    running: int
    waiting: int


class Pulse:
    """Runs beside the server; :attr:`beats` is what it has seen, oldest first."""

    def __init__(self, server: PopulationServer, bus: Bus) -> None:
        self.server, self.bus = server, bus
        self.beats: deque[Beat] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(PERIOD)

    def look(self) -> None:
        """Keeps one beat while the engine serves, and publishes a status when it differs from the one before."""
        status = self.server.status()
        if status.state in ("starting", "failed"):
            return
        beat = Beat(time.time(), status.tokens_per_second, status.running, status.waiting)
        last = self.beats[-1] if self.beats else None
        self.beats.append(beat)
        now = (beat.tokens_per_second, beat.running, beat.waiting)
        if last is not None and now != (last.tokens_per_second, last.running, last.waiting):
            self.bus.publish("status", {})
