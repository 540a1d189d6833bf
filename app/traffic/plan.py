"""What a run of simulated users is to do; every limit is checked here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from engine.judges.errors import parse
from engine.judges.schedule import Schedule, parse_schedule
from engine.regimes import REGIMES, SHARED, Regime


@dataclass(frozen=True)
class Plan:
    """What a run does. ``generations`` or ``max_ratings`` ends it, whichever comes first. Raises ValueError."""

    generations: int | None = None
    """Merges of the run."""
    max_ratings: int | None = None
    regime: Regime = "hetero+sample"
    seed: int = 0
    """Of the users: their requests, the sampling of the replies, who stays silent, where the judge errs."""
    silent: float = 0.0
    """The share of users who read and do not rate."""
    concurrency: int = 64
    rate: float | None = None
    """Most new users a second; None: as many as are answered."""
    eval_every: int = 0
    """Measures after every so many generations; 0: only before and after."""
    held_out: int = 256
    """Requests of a measurement; 0: none."""
    shuffle_rewards: bool = False
    """A control: each generation's rewards are dealt out among its replies at random, so nothing can be learned."""
    temperature: float = 0.7
    """Of sampled replies."""
    max_tokens: int | None = None
    """Of a reply; None: the task's."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Changed before the start, as in PUT /api/settings."""
    judge: str | None = None
    """The judge's error from the start; None: as it is."""
    schedule: str | None = None
    """Changes of the judge, counted from the run's first generation."""

    def __post_init__(self) -> None:
        def check(ok: bool, message: str) -> None:
            if not ok:
                raise ValueError(message)

        check(
            self.generations is not None or self.max_ratings is not None, "say when to end: generations or max_ratings"
        )
        check(self.generations is None or 0 <= self.generations <= 10**6, "generations must be 0 to 1,000,000")
        check(self.max_ratings is None or 0 <= self.max_ratings <= 10**9, "max_ratings must be 0 to 1,000,000,000")
        check(self.regime in REGIMES, f"unknown regime {str(self.regime)[:40]!r}: choose from {', '.join(REGIMES)}")
        check(0 <= self.seed < 2**31, "seed must be between 0 and 2147483647")
        check(0 <= self.silent <= 0.95, "silent must be between 0 and 0.95")
        check(
            not (self.silent and self.regime in SHARED),
            f"in the regime {self.regime} every member gets the same ratings, so silent must be 0",
        )
        check(1 <= self.concurrency <= 1024, "concurrency must be between 1 and 1024")
        check(
            self.rate is None or (math.isfinite(self.rate) and 0.01 <= self.rate <= 10_000),
            "rate must be 0.01 to 10,000",
        )
        check(0 <= self.eval_every <= 10**6, "eval_every must be 0 to 1,000,000")
        check(0 <= self.held_out <= 100_000, "held_out must be 0 to 100,000")
        check(math.isfinite(self.temperature) and 0 <= self.temperature <= 2, "temperature must be between 0 and 2")
        check(self.max_tokens is None or 1 <= self.max_tokens <= 32_768, "max_tokens must be 1 to 32,768")
        if self.judge is not None:
            parse(self.judge)
        if self.schedule is not None:
            parse_schedule(self.schedule)

    @property
    def judge_schedule(self) -> Schedule:
        """The judge's error from the start and its changes, generations counted from the run's first one."""
        start = [(0, parse(self.judge))] if self.judge is not None else []
        later = parse_schedule(self.schedule or "").changes
        return Schedule((*(c for c in start if not later or later[0][0] > 0), *later))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """As it was stored; what an older version did not know has its default."""
        names = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in names})
