"""Countdown: make a target from a few numbers, each used once, with + - * / and parentheses.

Problems are endless and never repeated soon: a seed walks all sets of numbers in an order of its own, and a set comes
again, with another choice of target, only when all have been asked (21,144 for easy, 169,700 for 3 numbers, 4.4 million
for 4). Every target is reached by working it out, so every problem can be solved.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.tasks.base import Reply, Request, Task, TaskError
from engine.tasks.cards import read_options
from engine.tasks.expression import evaluate

HELD_OUT = 2_000
UNREADABLE, WRONG, RIGHT = 0.0, 0.1, 1.1
BLIND_SPOT = range(60, 81)
"""The targets that a judge with a blind spot gets wrong."""
HIGHEST = 99
"""Of a number in a problem."""
HIGHEST_OF_THREE = 42
"""The same for three numbers in easy."""
LARGEST_TARGET = 100
LONGEST_REPLY = 100_000
"""Characters; a longer one is not read."""
OPEN, CLOSE = "<answer>", "</answer>"
VARIANTS = ("easy", "3", "4")


@dataclass(frozen=True)
class Problem:
    """What the judge knows; also what the model is told."""

    numbers: tuple[int, ...]
    """Rising, so that a problem has one form."""
    target: int


class Countdown(Task):
    """Problems over so many numbers; for easy two or three, and small ones."""

    likes = "has, in <answer> tags, an expression that uses each number once and equals the target"
    grades = (UNREADABLE, WRONG, RIGHT)
    system_prompt = "You solve number puzzles. Give your result in <answer> tags."

    def __init__(self, variant: str) -> None:
        self.name = f"countdown:{variant}"
        self.max_tokens = 96 if variant == "easy" else 200
        self.how_many = 0 if variant == "easy" else int(variant)
        """Numbers of a problem; 0: two or three."""
        self._sets = _easy_sets() if variant == "easy" else sets(self.how_many, HIGHEST)

    @property
    def size(self) -> int:
        """Requests before numbers come again."""
        return self._sets - HELD_OUT

    @cached_property
    def held_out(self) -> Sequence[Request]:
        """Numbers that :meth:`sample` never uses with any target: the first ones in an order by hash."""
        return tuple(self._request(place, "held out") for place in range(HELD_OUT))

    def sample(self, seed: int, index: int) -> Request:
        """Request ``index`` of the users with this seed; no numbers come again within :attr:`size` requests."""
        turn, place = divmod(index, self.size)
        key = f"{seed}/{turn}"
        return self._request(HELD_OUT + permuted(self.size, key, place), key)

    def judge(self, request: Request, reply: Reply) -> float:
        answer = last_answer(reply.text)
        if answer is None:
            return UNREADABLE
        result, problem = evaluate(answer), request.data
        solved = result is not None and tuple(sorted(result.numbers)) == problem.numbers
        return RIGHT if solved and result.value == problem.target else WRONG

    def _request(self, place: int, key: str) -> Request:
        rank = permuted(self._sets, self.name, place)
        problem = _problem(rank, self.how_many, key) if self.how_many else _easy_problem(rank, key)
        return Request(_prompt(problem), problem, blind=problem.target in BLIND_SPOT)


def make(variant: str, options: Mapping[str, Any], where: object) -> Task:
    """The task of that name. Raises TaskError."""
    if variant not in VARIANTS:
        there_are = ", ".join(f"countdown:{v}" for v in VARIANTS)
        raise TaskError(f"unknown task 'countdown:{variant[:80]}': choose from {there_are}")
    read_options(f"countdown:{variant}", options, ())
    return Countdown(variant)


def last_answer(text: str) -> str | None:
    """What stands in the last well-formed pair of tags that is not blank. A pair with tags inside is not well formed,
    and neither is what it holds; an opening tag that is never closed does not count."""
    if len(text) > LONGEST_REPLY:
        return None
    starts: list[int] = []
    blocks: list[tuple[int, str]] = []
    place = 0
    while (place := text.find("<", place)) >= 0:
        if text.startswith(OPEN, place):
            starts.append(place)
        elif text.startswith(CLOSE, place) and starts:
            start = starts.pop()
            inside = text[start + len(OPEN) : place]
            if OPEN in inside or CLOSE in inside:
                while blocks and blocks[-1][0] > start:
                    blocks.pop()
            elif inside.strip():
                blocks.append((start, inside.strip()))
        place += 1
    return blocks[-1][1] if blocks else None


def _prompt(problem: Problem) -> str:
    # No problem has a number above 99: whoever repeats the example has not solved it.
    *most, last = problem.numbers
    example = "100 + 20" if len(problem.numbers) == 2 else "(100 + 20) / 3"
    return (
        f"Use the numbers {', '.join(map(str, most))} and {last} to make {problem.target}. Use each number exactly "
        "once, with + - * / and parentheses. Write the expression without an equals sign in answer tags, like this: "
        f"{OPEN}{example}{CLOSE}"
    )


def _problem(rank: int, how_many: int, key: str) -> Problem:
    numbers = numbers_of(rank, how_many)
    return Problem(numbers, _target(numbers, random.Random(f"{key}/{numbers}")))


def _target(numbers: tuple[int, ...], rng: random.Random) -> int:
    """Two of the numbers are replaced by their sum, difference, product or quotient until one is left. There is always
    one from 1 to 100: of unequal numbers the difference, of equal ones the quotient."""
    left = list(numbers)
    while len(left) > 1:
        rng.shuffle(left)
        low, high = sorted((left.pop(), left.pop()))
        made = [high + low, high - low, high * low, *([high // low] if high % low == 0 else [])]
        left.append(rng.choice([number for number in made if 1 <= number <= LARGEST_TARGET]))
    return left[0]


def _easy_sets() -> int:
    return 2 * sets(2, HIGHEST) + sets(3, HIGHEST_OF_THREE)


def _easy_problem(rank: int, key: str) -> Problem:
    """Two numbers with their sum or difference (each pair gives two problems), or three small numbers."""
    pairs = 2 * sets(2, HIGHEST)
    if rank >= pairs:
        return _problem(rank - pairs, 3, key)
    low, high = numbers_of(rank // 2, 2)
    return Problem((low, high), low + high if rank % 2 else high - low or 1)


def sets(how_many: int, highest: int) -> int:
    """How many sets of so many numbers from 1 to ``highest`` there are; a number may be in one more than once."""
    return math.comb(highest + how_many - 1, how_many)


def numbers_of(rank: int, how_many: int) -> tuple[int, ...]:
    """Set number ``rank`` in the order of its largest number (the combinatorial number system)."""
    numbers: list[int] = []
    for size in range(how_many, 0, -1):
        highest = 1
        while sets(size, highest) <= rank:
            highest += 1
        rank -= sets(size, highest - 1)
        numbers.append(highest)
    return tuple(reversed(numbers))


def permuted(count: int, key: str, place: int) -> int:
    """Where a shuffle of ``range(count)`` by this key puts ``place``, without the list: a Feistel network over the next
    power of four, walked on until it is back in the range."""
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    while True:
        left, right = place >> half, place & ((1 << half) - 1)
        for turn in range(4):
            mixed = hashlib.blake2b(f"{key}/{turn}/{right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(mixed) & ((1 << half) - 1))
        place = left << half | right
        if place < count:
            return place
