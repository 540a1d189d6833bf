"""How much a rating counts by where it comes from: people in chat, API clients, simulated users.

A source is ``chat``, ``api`` or ``traffic:TASK``; a weight is set for the exact source or for its first part. It is
stored with each reply when it is rated, so a change concerns the ratings from then on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from app.store import Store

DEFAULT = {"chat": 1.0, "api": 1.0, "traffic": 1.0}
"""What there always is."""
KEY, MOST, LARGEST = "sources", 100, 1000.0


class BadWeight(ValueError):
    """A weight that is refused; the message says what to do."""


class Sources:
    """The present weights; :meth:`change` stores before it takes effect."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.weights: dict[str, float] = dict(DEFAULT)

    async def open(self) -> None:
        saved = (await self.store.settings()).get(KEY)
        if isinstance(saved, dict):
            self.weights |= saved

    def weight(self, source: str) -> float:
        """Of a rating from ``source``; 0 leaves it out."""
        return self.weights.get(source, self.weights.get(source.partition(":")[0], 1.0))

    async def change(self, weights: Mapping[str, float]) -> None:
        """Raises BadWeight."""
        for name, value in weights.items():
            if not name or len(name) > 200:
                raise BadWeight("A source is a name of at most 200 characters, such as chat, api or traffic.")
            if not (math.isfinite(value) and 0 <= value <= LARGEST):
                raise BadWeight(f"The weight of {name} must be between 0 (left out) and {LARGEST:g}, not {value}.")
        changed = self.weights | dict(weights)
        if len(changed) > MOST:
            raise BadWeight(f"At most {MOST} sources can have a weight.")
        await self.store.save_settings({KEY: changed})
        self.weights = changed
