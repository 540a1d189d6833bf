"""A cap on what a judge may spend: calls, tokens and money, reserved before a call and settled after it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Budget:
    """Limits and what has been spent. Not for several threads."""

    max_calls: int
    max_tokens: int
    price: float = 0.0
    """Of a million tokens, in any currency; 0 when it is not known."""
    max_cost: float = math.inf
    """In the currency of ``price``."""
    calls: int = 0
    tokens: int = 0
    """Spent, and reserved by calls under way. Both may start with what was spent before a restart."""

    @property
    def cost(self) -> float:
        return self.price_of(self.tokens)

    def price_of(self, tokens: int) -> float:
        return tokens * self.price / 1e6

    def reserve(self, tokens: int) -> bool:
        """Sets one call with up to ``tokens`` tokens aside; False, and nothing happens, when a limit forbids it."""
        after = self.tokens + tokens
        if self.calls >= self.max_calls or after > self.max_tokens or self.price_of(after) > self.max_cost:
            return False
        self.calls += 1
        self.tokens = after
        return True

    def settle(self, reserved: int, used: int) -> None:
        """Replaces what was set aside by what the call took."""
        self.tokens += used - reserved
