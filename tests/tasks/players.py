"""Scripted players: what a perfect model would answer."""

from __future__ import annotations

import itertools
from fractions import Fraction

from engine.tasks import Request


def countdown_answer(request: Request) -> str:
    """A reply that earns all of a Countdown problem, found by search."""
    numbers, target = request.data.numbers, request.data.target
    found = _search([(Fraction(n), str(n)) for n in numbers], Fraction(target))
    assert found is not None, request.prompt
    return f"I combine them. <answer>{found}</answer>"


def _search(hand: list[tuple[Fraction, str]], target: Fraction) -> str | None:
    if len(hand) == 1:
        return hand[0][1] if hand[0][0] == target else None
    for i, j in itertools.permutations(range(len(hand)), 2):
        (a, left), (b, right) = hand[i], hand[j]
        rest = [n for k, n in enumerate(hand) if k not in (i, j)]
        options = [(a - b, "-")]
        if i < j:
            options += [(a + b, "+"), (a * b, "*")]
        if b:
            options.append((a / b, "/"))
        for value, sign in options:
            found = _search([*rest, (value, f"({left} {sign} {right})")], target)
            if found is not None:
                return found
    return None
