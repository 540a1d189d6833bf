"""The four data regimes: who gets which request, and how replies are drawn (source text, section on data regimes).

fixed            the same requests for all members, again in every generation; greedy
fresh            the same requests for all members, new ones in every generation; greedy
hetero           every request goes to one member only and never comes back; greedy
hetero+sample    the same, sampled: this is what a deployed model sees
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Regime = Literal["fixed", "fresh", "hetero", "hetero+sample"]
REGIMES: tuple[Regime, ...] = ("fixed", "fresh", "hetero", "hetero+sample")
SHARED: tuple[Regime, ...] = ("fixed", "fresh")
"""Those in which all members get the same requests."""


class UnevenRatings(ValueError):
    """All members cannot get the same number of requests; the message says what to change."""


@dataclass(frozen=True)
class Ask:
    """One request of a generation."""

    index: int
    """Which request: :meth:`engine.tasks.Task.sample`."""
    member: int | None
    """Who answers; None: the least-rated member."""
    temperature: float | None
    """0 is greedy; None: as the run samples."""


def check(regime: Regime, members: int, ratings: int) -> None:
    """Raises UnevenRatings when a generation of ``ratings`` does not give each of N ``members`` the same requests."""
    if regime in SHARED and ratings % members:
        raise UnevenRatings(
            f"in the regime {regime} every member gets the same requests, so merge_after ({ratings}) must be a "
            f"multiple of the population size ({members}), for example {members * max(1, round(ratings / members))}"
        )


def plan(regime: Regime, members: int, ratings: int, first: int) -> list[Ask]:
    """The ``ratings`` requests of one generation of a run that has used the indices below ``first``.

    ``fixed`` and ``fresh`` ask the same ratings / N requests of every one of the N ``members``, request by request;
    ``fixed`` always the first ones. The other two ask each of ``ratings`` new requests once. Raises UnevenRatings.
    """
    check(regime, members, ratings)
    if regime in SHARED:
        start = 0 if regime == "fixed" else first
        return [Ask(start + i, member, 0.0) for i in range(ratings // members) for member in range(members)]
    temperature = 0.0 if regime == "hetero" else None
    return [Ask(first + i, None, temperature) for i in range(ratings)]
