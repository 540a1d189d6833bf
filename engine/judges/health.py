"""How often a judge is wrong, from the second opinions of people, and whether that still teaches the right thing.

    estimate([Opinion(observed=1.0, person=0.0), …]).sentence

**Wrong** means: on thumbs and grades another grade than the person's; on scores in 0..1 more than 0.25 apart. The error
rate comes with Wilson's 95% interval. Replies that were drawn with unequal chances weigh the inverse of their chance;
the interval then uses Kish's effective number, (Σw)² / Σw².

**Whether it teaches** is another question than how often it is wrong. Let a be the share praised (0.5 or more) of what
people dislike, and b the share blamed of what they like. For a reply that people like with chance q the thumb of the
judge is on average a + q (1 − a − b): its slope falls to 0 where the *balanced error* (a + b) / 2 is 1/2, and turns
round above. A judge that flips thumbs with p has balanced error p, as its error rate; one that praises everything has
1/2 even when people like 95% of the replies and it is wrong 5% of the time; one that withholds half of the praise has
1/4. So the verdict goes by the balanced error, and by the error rate until both sides have been checked:

- **unknown**: fewer than :data:`FEWEST` checks (with fewer, even no error at all could be a high rate).
- **harmful**: its interval lies at the chance level or above: the population learns nothing, or the wrong thing.
- **watch**: its interval reaches half-way to the chance level or above.
- **fine**: its interval lies below half-way: at least half of the judge's slope is left.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

FEWEST = 12
"""Checks before anything is said: with 12 and no error the interval ends at 24%, below half-way to chance."""
FEWEST_A_SIDE = 8
"""Checks of liked, and of disliked replies, before the balanced error counts: with none wrong it then ends at 23%."""
APART = 0.25
Z95 = 1.959963984540054

Word = Literal["unknown", "fine", "watch", "harmful"]


@dataclass(frozen=True)
class Opinion:
    """A judged reply that a person judged too."""

    observed: float
    """What the judge said, 0..1."""
    person: float
    """What the person says, 0..1."""
    kind: str = ""
    """A stratum to report apart, such as the task or the category."""
    blind: bool | None = None
    """Whether the request lies in the blind spot; None where there is none."""
    weight: float = 1.0
    """Inverse of the chance that it was drawn with, up to a factor."""


@dataclass(frozen=True)
class Share:
    """A share of checks with its 95% interval, all in 0..1."""

    count: int
    errors: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class Health(Share):
    """The error rate of a judge, and what it means."""

    verdict: Word
    sentence: str
    """For everybody."""
    balanced: tuple[float, float, float] | None = None
    """Balanced error with its 95% interval (value, low, high), once both sides have been checked."""
    by_kind: dict[str, Share] = field(default_factory=dict)
    """``false praise`` of what people dislike, ``false blame`` of what they like, ``blind spot`` and ``elsewhere``, and
    every stratum."""


def wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson's 95% score interval of a share seen in ``count`` draws, (0, 1) without any.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
    """
    if count <= 0:
        return 0.0, 1.0
    z2 = Z95 * Z95 / count
    centre = (share + z2 / 2) / (1 + z2)
    half = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count)) / (1 + z2)
    return (0.0 if share <= 0 else max(0.0, centre - half)), (1.0 if share >= 1 else min(1.0, centre + half))


def sample(key: str, rate: float) -> bool:
    """Whether a reply is offered for a second opinion; the same key always gives the same answer."""
    return int.from_bytes(hashlib.sha256(key.encode("utf-8", "replace")).digest()[:8]) < rate * 2**64


def estimate(opinions: Iterable[Opinion], grades: Sequence[float] | None = None, chance: float = 0.5) -> Health:
    """The health of a judge. Opinions without finite numbers are left out.

    ``grades``: those that people choose from, on 0..1; (0, 1) for thumbs, None for scores. A judge with finer grades
    counts as the nearest of them. ``chance``: the level at which a judge says nothing.
    """
    usable = [o for o in opinions if all(map(math.isfinite, (o.observed, o.person, o.weight))) and o.weight > 0]

    def wrong(opinion: Opinion) -> bool:
        if grades is None:
            return abs(opinion.observed - opinion.person) > APART
        return _nearest(opinion.observed, grades) != _nearest(opinion.person, grades)

    overall = _share(usable, wrong)
    by_kind = _by_kind(usable, wrong)
    balanced = _balanced(by_kind["false praise"], by_kind["false blame"])
    verdict = _verdict(overall, balanced, chance)
    return Health(
        overall.count,
        overall.errors,
        overall.rate,
        overall.low,
        overall.high,
        verdict,
        _sentence(overall, by_kind, balanced, verdict, chance),
        balanced,
        by_kind,
    )


def _nearest(value: float, grades: Sequence[float]) -> float:
    return min(grades, key=lambda grade: abs(grade - value))


def _share(opinions: Sequence[Opinion], wrong: Callable[[Opinion], bool]) -> Share:
    """The weighted share of wrong ones."""
    total = sum(o.weight for o in opinions)
    if not opinions or total <= 0:
        return Share(0, 0, 0.0, 0.0, 1.0)
    errors = [o for o in opinions if wrong(o)]
    rate = min(1.0, sum(o.weight for o in errors) / total)
    effective = total**2 / sum(o.weight**2 for o in opinions)
    return Share(len(opinions), len(errors), rate, *wilson(rate, effective))


def _by_kind(opinions: Sequence[Opinion], wrong: Callable[[Opinion], bool]) -> dict[str, Share]:
    kinds = {
        "false praise": _share([o for o in opinions if o.person < 0.5], lambda o: o.observed >= 0.5),
        "false blame": _share([o for o in opinions if o.person >= 0.5], lambda o: o.observed < 0.5),
    }
    for name, blind in (("blind spot", True), ("elsewhere", False)):
        if part := [o for o in opinions if o.blind is blind]:
            kinds[name] = _share(part, wrong)
    for kind in sorted({o.kind for o in opinions if o.kind} - kinds.keys()):
        kinds[kind] = _share([o for o in opinions if o.kind == kind], wrong)
    return kinds


def _balanced(praise: Share, blame: Share) -> tuple[float, float, float] | None:
    """Half the sum of two independent shares; its interval puts the ends of theirs together (MOVER; Newcombe 1998)."""
    if min(praise.count, blame.count) < FEWEST_A_SIDE:
        return None
    value = (praise.rate + blame.rate) / 2
    down = math.hypot(praise.rate - praise.low, blame.rate - blame.low) / 2
    up = math.hypot(praise.high - praise.rate, blame.high - blame.rate) / 2
    return value, max(0.0, value - down), min(1.0, value + up)


def _verdict(overall: Share, balanced: tuple[float, float, float] | None, chance: float) -> Word:
    if overall.count < FEWEST:
        return "unknown"
    low, high = balanced[1:] if balanced else (overall.low, overall.high)
    if low >= chance:
        return "harmful"
    return "watch" if high >= chance / 2 else "fine"


def _sentence(
    overall: Share,
    by_kind: dict[str, Share],
    balanced: tuple[float, float, float] | None,
    verdict: Word,
    chance: float,
) -> str:
    if not overall.count:
        return "Nobody has checked this judge yet."
    checks = f"{overall.count} check{'s' if overall.count > 1 else ''}"
    if verdict == "unknown":
        return f"Too few checks to say how good the judge is: {checks}, {FEWEST} are needed."
    numbers = f"({_percent(overall.low)[:-1]}–{_percent(overall.high)}, {checks})"
    said = f"The judge is wrong about {_percent(overall.rate)} of the time {numbers}."
    if balanced:
        said += _lean(by_kind["false praise"], by_kind["false blame"])
    rate, _, high = balanced or (overall.rate, overall.low, overall.high)
    if verdict == "harmful":
        return f"{said} The population learns nothing from it, or the wrong thing: change or fix the judge."
    if rate >= chance:
        return f"{said} The population probably learns nothing from it, or the wrong thing; more checks will tell."
    if high >= chance:
        return f"{said} It may be so bad that the population learns nothing; more checks will tell."
    if verdict == "watch":
        return f"{said} The population learns more slowly, but in the right direction."
    return f"{said} That hardly slows the learning."


def _lean(praise: Share, blame: Share) -> str:
    """Names an error that goes mostly one way, which the error rate alone does not show."""
    if praise.rate >= max(0.25, 2 * blame.rate):
        return f" It praises {_percent(praise.rate)} of what people dislike."
    if blame.rate >= max(0.25, 2 * praise.rate):
        return f" It blames {_percent(blame.rate)} of what people like."
    return ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
