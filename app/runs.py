"""What a run of simulated users is to do, and what it has shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Plan:
    """What a run does. ``generations`` or ``max_ratings`` ends it, whichever comes first."""

    generations: int | None = None
    max_ratings: int | None = None
    seed: int = 0
    """Of the users: their prompts, the sampling of the replies, who stays silent."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Sent to PUT /api/settings before the start; empty leaves the server as it is."""
    concurrency: int = 64
    silent: float = 0.0
    """The share of users who read and do not rate."""
    shuffle_rewards: bool = False
    """A control: each generation's rewards are dealt out among its replies at random, so nothing can be learned."""
    eval_every: int = 0
    """Measures after every so many generations; 0: only before and after."""
    held_out: int = 256
    """Prompts of a measurement; 0: none."""
    temperature: float = 0.7
    max_tokens: int = 64

    def __post_init__(self) -> None:
        def check(ok: bool, message: str) -> None:
            if not ok:
                raise ValueError(message)

        check(self.generations is not None or self.max_ratings is not None, "give --generations or --max-ratings")
        check(self.generations is None or self.generations >= 0, "--generations must be at least 0")
        check(self.max_ratings is None or self.max_ratings >= 0, "--max-ratings must be at least 0")
        check(0 <= self.seed < 2**31, "--seed must be between 0 and 2147483647")
        check(1 <= self.concurrency <= 1024, "--concurrency must be between 1 and 1024")
        check(0 <= self.silent <= 0.95, "--silent must be between 0 and 0.95")
        check(self.eval_every >= 0, "--eval-every must be at least 0")
        check(self.held_out >= 0, "--held-out must be at least 0")


@dataclass(frozen=True)
class Score:
    """One measurement: the mean greedy held-out score of the source model before ``generation`` is rated."""

    generation: int
    ratings: int
    score: float
    prompts: int
    seconds: float


@dataclass(frozen=True)
class Turn:
    """One generation of users. ``mean_reward`` is what they thought, also where rewards are shuffled."""

    generation: int
    mean_reward: float | None
    ratings: int
    late: int
    null: bool | None
    """The merge had nothing to learn from; None when the run ended before the merge."""
    drift: float | None
    seconds: float


@dataclass
class Result:
    """What a run has shown so far; ``complete`` when it ended as planned."""

    task: str
    url: str
    model: str
    system_prompt: str
    settings: dict[str, Any]
    plan: dict[str, Any]
    started_at: float
    scores: list[Score] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    ratings: int = 0
    seconds: float = 0.0
    complete: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def sparkline(values: Iterable[float]) -> str:
    """Values of 0..1 as bars."""
    bars = "▁▂▃▄▅▆▇█"
    return "".join(bars[round(min(1.0, max(0.0, value)) * (len(bars) - 1))] for value in values)


def curve(result: Result) -> str:
    """The held-out scores as a line of bars and a small table; empty without measurements."""
    if not result.scores:
        return ""
    scores = [s.score for s in result.scores]
    rows = [f"{s.generation:10d}  {s.ratings:7d}  {s.score:.3f}  {'█' * round(40 * s.score)}" for s in result.scores]
    head = f"held-out score: {scores[0]:.3f} {sparkline(scores)} {scores[-1]:.3f}"
    return "\n".join([head, "generation  ratings  score", *rows])
