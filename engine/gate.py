"""Admission: holds new requests back for the moments in which nobody may be admitted, and says how long they waited.

It lies above the engine's own queue on purpose: a request that the engine has queued keeps the weights it was
submitted with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._holds = 0
        self.waiting = 0
        self.running = 0
        self._left = asyncio.Event()
        self._waiting_since: float | None = None
        self._waited = 0.0

    async def enter(self) -> None:
        """Returns when admission is open; every call needs one :meth:`leave`."""
        while not self._open.is_set():
            self.waiting += 1
            if self._waiting_since is None:
                self._waiting_since = time.monotonic()
            try:
                await self._open.wait()
            finally:
                self.waiting -= 1
                if not self.waiting:
                    self._stop_clock()
        self.running += 1

    def leave(self) -> None:
        self.running -= 1
        self._left.set()

    def reset(self) -> None:
        """Starts the clock of ``waited_ms`` anew."""
        self._waited, self._waiting_since = 0.0, None

    @property
    def waited_ms(self) -> float:
        """For how long somebody has waited, since :meth:`reset`."""
        now = time.monotonic()
        return (self._waited + now - (self._waiting_since or now)) * 1000

    def _stop_clock(self) -> None:
        if self._waiting_since is not None:
            self._waited += time.monotonic() - self._waiting_since
            self._waiting_since = None

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Nobody is admitted inside. Holds nest."""
        self._holds += 1
        self._open.clear()
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self._stop_clock()
                self._open.set()

    async def drained(self) -> None:
        """Returns when no request is running; only inside :meth:`hold` does that last."""
        while self.running:
            self._left.clear()
            await self._left.wait()
