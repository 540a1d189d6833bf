"""Countdown: combine a few numbers, each used once, into an expression that equals a target (source text, section 2).

Rewards: 0 for an answer that cannot be read, 0.1 for a readable expression that is wrong, 1.1 for a right one. Problems
are drawn without end: every hand of numbers comes once in an order of its own, then again with its next target.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.tasks import expression
from engine.tasks.base import Reply, Request, Task, TaskError, shuffled
from engine.tasks.cards import read_options

VARIANTS = ("easy", "3", "4")
UNREADABLE, WRONG, RIGHT = 0.0, 0.1, 1.1
HELD_OUT = 2000
BLIND = range(60, 81)
"""Targets that a judge with a blind spot gets wrong (source text, section 3)."""
LONGEST_REPLY = 20_000
EASY = (
    "Make the target with + - * / and parentheses; use each number exactly once. "
    "Put only the expression between <answer> and </answer>."
)
EXAMPLES = (
    ("Use 300, 400 to make 700.", "<answer>300 + 400</answer>"),
    ("Use 900, 250 to make 650.", "<answer>900 - 250</answer>"),
    ("Use 150, 600, 120 to make 630.", "<answer>600 + 150 - 120</answer>"),
)
"""Of the easy grade: shown as earlier turns, since a small model takes a form from examples and not from words."""
_OPEN, _CLOSE = "<answer>", "</answer>"
_TAG = re.compile(r"</?answer>", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """What the judge knows. Two problems are the same when their sorted numbers and their targets are."""

    numbers: tuple[int, ...]
    """Rising."""
    target: int


class Countdown(Task):
    """One grade of difficulty; see :func:`make`."""

    grades = (UNREADABLE, WRONG, RIGHT)
    likes = "ends with an expression that uses each number once and equals the target"
    system_prompt = "You are a helpful assistant."

    def __init__(self, variant: str) -> None:
        self.name, self.variant = f"countdown:{variant}", variant
        self.max_tokens = 256
        if variant == "easy":
            self.max_tokens, self.system_prompt, self.examples = 48, EASY, EXAMPLES
        _held_out(variant)  # now, in the caller's thread: it takes a second

    @property
    def held_out(self) -> Sequence[Request]:
        return _held_out(self.variant)

    def sample(self, seed: int, index: int) -> Request:
        if self.variant == "easy":
            rest = _easy()[1]
            return _request(rest[shuffled(len(rest), seed, index)], seed, index, easy=True)
        hands = _hands(self.variant)
        hand = hands[shuffled(len(hands), seed, index)]
        kept = _kept(self.variant)
        targets = [t for t in reachable(hand) if Problem(hand, t) not in kept]
        random.Random(f"{seed}/{hand}").shuffle(targets)
        return _request(Problem(hand, targets[index // len(hands) % len(targets)]), seed, index)

    def judge(self, request: Request, reply: Reply) -> float:
        said = answer(reply.text)
        if said is None:
            return UNREADABLE
        try:
            read = expression.parse(said)
        except expression.Unreadable:
            return UNREADABLE
        problem: Problem = request.data
        if Counter(expression.numbers(read)) != Counter(problem.numbers):
            return WRONG
        return RIGHT if expression.value(read) == problem.target else WRONG


def answer(text: str) -> str | None:
    """What stands in the one answer of a reply; None where there is no answer, a broken one, or more than one: a list
    of guesses is no answer."""
    if len(text) > LONGEST_REPLY:
        return None
    tags = list(_TAG.finditer(text))
    if [tag[0].lower() for tag in tags] != [_OPEN, _CLOSE]:
        return None
    return text[tags[0].end() : tags[1].start()]


def reachable(hand: Sequence[int], highest: int = 100) -> list[int]:
    """The targets from 1 to ``highest`` that use every number of the hand once, through whole numbers; rising."""
    return [value for value in sorted(_values(tuple(sorted(hand)))) if 1 <= value <= highest]


@functools.lru_cache(maxsize=50_000)
def _values(hand: tuple[int, ...]) -> frozenset[int]:
    if len(hand) == 1:
        return frozenset(hand)
    found: set[int] = set()
    for i, j in itertools.combinations(range(len(hand)), 2):
        rest = [n for k, n in enumerate(hand) if k not in (i, j)]
        for value in _pair(hand[i], hand[j]):
            found |= _values(tuple(sorted([*rest, value])))
    return frozenset(found)


def _pair(a: int, b: int) -> Iterator[int]:
    yield from (a + b, a - b, b - a, a * b)
    if b and a % b == 0:
        yield a // b
    if a and b % a == 0:
        yield b // a


@functools.cache
def _hands(variant: str) -> list[tuple[int, ...]]:
    """22,100 hands of three numbers up to 50, 40,920 of four up to 30; each has several targets, most have dozens."""
    count, highest = (3, 50) if variant == "3" else (4, 30)
    return list(itertools.combinations_with_replacement(range(1, highest + 1), count))


@functools.cache
def _easy() -> tuple[list[Problem], list[Problem]]:
    """(held out, the rest): what two numbers below 100 make, up to 200, and three numbers up to 21, up to 40."""
    choose = itertools.combinations_with_replacement
    problems = [Problem(pair, t) for pair in choose(range(1, 100), 2) for t in reachable(pair, 200)]
    problems += [Problem(hand, t) for hand in choose(range(1, 22), 3) for t in reachable(hand, 40)]
    random.Random("countdown:easy").shuffle(problems)
    return problems[:HELD_OUT], problems[HELD_OUT:]


@functools.cache
def _held_out(variant: str) -> tuple[Request, ...]:
    if variant == "easy":
        problems = _easy()[0]
    else:
        chosen = random.Random(f"countdown:{variant}").sample(_hands(variant), HELD_OUT)
        problems = [Problem(hand, random.Random(f"held out {hand}").choice(reachable(hand))) for hand in chosen]
    return tuple(_request(problem, -1, i, easy=variant == "easy") for i, problem in enumerate(problems))


@functools.cache
def _kept(variant: str) -> frozenset[Problem]:
    return frozenset(request.data for request in _held_out(variant))


def _request(problem: Problem, seed: int, index: int, *, easy: bool = False) -> Request:
    shown = list(problem.numbers)
    random.Random(f"{seed}/{index}/order").shuffle(shown)
    listed = ", ".join(map(str, shown))
    # No number of a problem is above 99: whoever repeats an example has not solved it.
    prompt = (
        f"Use {listed} to make {problem.target}."
        if easy
        else (
            f"Use each of the numbers {listed} exactly once, with + - * / and parentheses, to make {problem.target}.\n"
            "Put only the expression between <answer> and </answer>, "
            "as in <answer>(120 - 100) / 5</answer> for the numbers 5, 100, 120 and the target 4."
        )
    )
    return Request(prompt, problem, blind=problem.target in BLIND)


def make(variant: str, options: Mapping[str, Any], where: Any) -> Countdown:
    """``easy`` (two or three numbers, small targets), ``3`` or ``4`` numbers. Raises TaskError."""
    if variant not in VARIANTS:
        raise TaskError(f"unknown Countdown {variant[:40]!r}: choose from {', '.join(VARIANTS)}")
    read_options(f"countdown:{variant}", options, ())
    return _made(variant)


@functools.cache
def _made(variant: str) -> Countdown:
    return Countdown(variant)
