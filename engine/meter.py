"""Tokens a second over a sliding window."""

from __future__ import annotations

import time
from collections import deque

WINDOW = 10.0
"""Seconds."""


class Meter:
    def __init__(self) -> None:
        self._buckets: deque[list[float]] = deque()

    def add(self, tokens: int) -> None:
        now = time.monotonic()
        if self._buckets and now - self._buckets[-1][0] < 0.25:
            self._buckets[-1][1] += tokens
        else:
            self._buckets.append([now, tokens])
            while self._buckets[0][0] < now - WINDOW:
                self._buckets.popleft()

    def rate(self) -> float:
        """Tokens a second over the last ten seconds (less while it has not run that long)."""
        now = time.monotonic()
        recent = [(t, n) for t, n in self._buckets if t >= now - WINDOW]
        if not recent:
            return 0.0
        return sum(n for _, n in recent) / max(1.0, min(WINDOW, now - recent[0][0]))
