"""What happens, told to every open page: a bus with numbered events, replay for those who reconnect, and no waiting.

A subscriber that reads too slowly is dropped; it gets ``resync`` as its last event and reloads what it shows. So does
one that comes back with an id that is no longer kept, or from before a restart.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

COALESCED = ("status", "served", "traffic")
"""Kinds of which only the newest matters; they are sent at most every ``interval`` seconds and not replayed."""


class TooManySubscribers(Exception):
    """No more pages can listen; the message is written for people."""


@dataclass(frozen=True)
class Event:
    """``id`` is ``<boot>-<number>``; ``data`` is plain JSON data."""

    id: str
    kind: str
    data: dict[str, Any]


@dataclass(eq=False)
class Subscription:
    """An open page. Iterate it; leave it with :meth:`Bus.leave`."""

    queue: asyncio.Queue[Event | None] = field(default_factory=lambda: asyncio.Queue(256))
    dropped: bool = False

    async def __aiter__(self) -> AsyncIterator[Event]:
        while not (self.dropped and self.queue.empty()):
            event = await self.queue.get()
            if event is None:
                return
            yield event
        yield Event("", "resync", {})


class Bus:
    """Publishes on the event loop's thread; never blocks."""

    def __init__(self, *, keep: int = 1000, subscribers: int = 256, interval: float = 0.25) -> None:
        self._boot = secrets.token_hex(4)
        self._number = 0
        self._kept: deque[Event] = deque()
        self._keep = keep
        self._forgotten = 0
        """Number of the newest event that can no longer be replayed."""
        self._limit = subscribers
        self._interval = interval
        self._sent_at: dict[str, float] = {}
        self._pending: dict[str, dict[str, Any]] = {}
        self._subscriptions: set[Subscription] = set()
        self._closed = False

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Sends now, or, for a coalesced kind that was just sent, the newest data a moment later."""
        if self._closed:
            return
        if kind not in COALESCED:
            self._send(kind, data)
            return
        if kind in self._pending:
            self._pending[kind] = data
            return
        wait = self._sent_at.get(kind, -1e9) + self._interval - time.monotonic()
        if wait <= 0:
            self._send(kind, data)
        else:
            self._pending[kind] = data
            asyncio.get_running_loop().call_later(wait, self._flush, kind)

    def subscribe(self, last_id: str | None = None) -> Subscription:
        """``last_id`` is the last event the page saw: what it missed comes first. Raises TooManySubscribers."""
        if len(self._subscriptions) >= self._limit:
            raise TooManySubscribers(f"{self._limit} pages listen already: close one and reload.")
        subscription = Subscription()
        if last_id:
            boot, _, number = last_id.partition("-")
            known = boot == self._boot and number.isdecimal() and self._forgotten <= int(number[:18]) <= self._number
            missed = [e for e in self._kept if _number(e) > int(number)] if known else []
            if not known or len(missed) >= subscription.queue.maxsize:
                subscription.queue.put_nowait(Event(f"{self._boot}-{self._number}", "resync", {}))
            else:
                for event in missed:
                    subscription.queue.put_nowait(event)
        if self._closed:
            subscription.queue.put_nowait(None)
        else:
            self._subscriptions.add(subscription)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    def close(self) -> None:
        """Ends every subscription; later events go nowhere."""
        self._closed = True
        for subscription in self._subscriptions:
            if not subscription.queue.full():
                subscription.queue.put_nowait(None)
            else:
                subscription.dropped = True
        self._subscriptions.clear()

    def _flush(self, kind: str) -> None:
        data = self._pending.pop(kind, None)
        if data is not None and not self._closed:
            self._send(kind, data)

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        self._number += 1
        event = Event(f"{self._boot}-{self._number}", kind, data)
        if kind in COALESCED:
            self._sent_at[kind] = time.monotonic()
        else:
            self._kept.append(event)
            if len(self._kept) > self._keep:
                self._forgotten = _number(self._kept.popleft())
        for subscription in list(self._subscriptions):
            try:
                subscription.queue.put_nowait(event)
            except asyncio.QueueFull:
                subscription.dropped = True
                self._subscriptions.discard(subscription)


def _number(event: Event) -> int:
    return int(event.id.rpartition("-")[2])
