"""Members that are whole weights take turns: requests for the same weights run together, others wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from engine.backends.base import Weights

UNKNOWN = "unknown"
"""Stands for the weights while they are being replaced: a load that fails or is cancelled leaves neither the old nor
the new ones."""

PATIENCE = 2.0
"""Seconds that the loaded weights go on admitting requests while others wait."""


class Turns:
    """Admits requests by the weights they need; ``None`` is the plain basis, which low-rank requests share.

    ``load`` brings weights in. Oldest first; a turn ends when its requests are done.
    """

    def __init__(self, load: Callable[[Weights | None], Awaitable[None]]):
        self._load = load
        self._loaded: str | None = None
        self._running = 0
        self._closed = False
        self._since = 0.0
        self._waiting: list[str | None] = []
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def turn(self, weights: Weights | None) -> AsyncIterator[None]:
        """Holds until ``weights`` are loaded, and keeps them loaded inside."""
        key = weights.key if weights else None
        if not (key == self._loaded and not self._waiting and not self._closed):
            await self._wait(key, weights)
        else:
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running and (self._waiting or self._closed):
                async with self._changed:
                    self._changed.notify_all()

    async def _wait(self, key: str | None, weights: Weights | None) -> None:
        async with self._changed:
            self._waiting.append(key)
            try:
                await self._changed.wait_for(lambda: self._may_enter(key))
                if key != self._loaded:
                    self._closed, self._loaded = True, UNKNOWN
                    try:
                        await self._load(weights)
                        self._loaded, self._since = key, asyncio.get_running_loop().time()
                    finally:
                        self._closed = False
                self._running += 1
            finally:
                self._waiting.remove(key)
                self._changed.notify_all()

    def _may_enter(self, key: str | None) -> bool:
        if self._closed:
            return False
        if key == self._loaded:
            others = any(k != key for k in self._waiting)
            return not others or asyncio.get_running_loop().time() - self._since < PATIENCE or self._first() == key
        return not self._running and self._first() == key

    def _first(self) -> str | None:
        return self._waiting[0] if self._waiting else None

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """For a fold. Waits for whole-weight requests to end (their weights would be lost), not for low-rank ones,
        which only change their basis; afterwards the plain basis is loaded."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._closed)
            self._closed = True
            try:
                if self._loaded is not None:
                    await self._changed.wait_for(lambda: not self._running)
                self._loaded = UNKNOWN
                yield
                self._loaded = None
            finally:
                self._closed = False
                self._changed.notify_all()
