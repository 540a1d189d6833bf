"""Judges that are wrong in one of three ways: what a judge says (``observed``) of what is true (``truth``).

    error = parse("random:0.25")
    error.observe(truth, grades=task.grades, blind=request.in_blind_spot, key="run/17", seed=0)

Rewards go in and come out on the task's own scale (Countdown: 0, 0.1, 1.1). With grades:

- **random(p)**: with probability p one of the other grades, each alike. Thumbs flip; three grades say nothing at
  p = 2/3.
- **stingy(p)**: with probability p the lowest grade.
- **blind spot**: on the requests in it the grades above the lowest are turned round (1.1 and 0.1 swap, 0 stays); of two
  grades both swap.

Scores in 0..1 (``grades`` None): random(p) draws a uniform score with probability p, stingy(p) gives 0, the blind spot
gives 1 − score. Source: the source text's section on imperfect judges; DESIGN for thumbs and scores.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["perfect", "random", "stingy", "blindspot"]
HELP = "perfect, random:P, stingy:P (P between 0 and 1) or blindspot"


class UnknownError(ValueError):
    """Not a judge error; the message lists what there is."""


@dataclass(frozen=True)
class JudgeError:
    """How a judge errs; ``perfect`` does not."""

    kind: Kind = "perfect"
    p: float = 0.0
    """Of random and stingy."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.p:g}" if self.kind in ("random", "stingy") else self.kind

    def observe(self, truth: float, *, grades: Sequence[float] | None, blind: bool, key: str, seed: int = 0) -> float:
        """What the judge says. The same (error, seed, key) always errs alike; ``grades`` are rising."""
        if self.kind == "perfect":
            return truth
        if self.kind == "blindspot":
            return self._turned(truth, grades) if blind else truth
        dice = random.Random(f"{self}/{seed}/{key}")
        if dice.random() >= self.p:
            return truth
        if self.kind == "stingy":
            return 0.0 if grades is None else grades[0]
        if grades is None:
            return dice.random()
        return dice.choice([g for g in grades if g != truth])

    @staticmethod
    def _turned(truth: float, grades: Sequence[float] | None) -> float:
        if grades is None:
            return 1.0 - truth
        turnable = list(grades) if len(grades) == 2 else list(grades[1:])
        return turnable[-1 - turnable.index(truth)] if truth in turnable else truth


PERFECT = JudgeError()


def parse(text: str) -> JudgeError:
    """The error that ``str()`` wrote or a person typed. Raises UnknownError."""
    kind, colon, number = text.strip().lower().replace("blind-spot", "blindspot").partition(":")
    if kind in ("perfect", "blindspot") and not colon:
        return JudgeError(kind)  # type: ignore[arg-type]
    if kind in ("random", "stingy"):
        try:
            p = float(number)
        except ValueError:
            p = math.nan
        if 0.0 <= p <= 1.0:
            return JudgeError(kind, p)  # type: ignore[arg-type]
    raise UnknownError(f"unknown judge {text[:80]!r}: choose {HELP}")
