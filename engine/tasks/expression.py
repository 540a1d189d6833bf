"""Arithmetic that a model wrote, read by a small parser and never by eval: whole numbers, + - * / and parentheses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 200
"""Characters."""
DEEPEST = 20
"""Parentheses inside parentheses."""
_TOKEN = re.compile(r"[ \t\r\n]*([0-9]+|[-+*/()])")
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}


@dataclass(frozen=True)
class Result:
    """What an expression comes to."""

    value: Fraction
    numbers: tuple[int, ...]
    """As they stand in it, from the left."""


def evaluate(text: str) -> Result | None:
    """The exact value, or None for anything but an expression: signs before numbers, ``**``, ``//``, decimals, leading
    zeros, digits that are not ASCII and a division by zero are none. Never raises."""
    if len(text) > LONGEST:
        return None
    tokens = _tokens(text.strip(" \t\r\n"))
    return None if tokens is None else _value(tokens)


def _tokens(text: str) -> list[str] | None:
    tokens, place = [], 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            return None
        token = found[1]
        if token[0] == "0" and len(token) > 1:
            return None
        tokens.append(token)
        place = found.end()
    return tokens


def _value(tokens: list[str]) -> Result | None:
    """By two stacks, so that nothing nests in Python."""
    values: list[Fraction] = []
    waiting: list[str] = []
    numbers: list[int] = []
    depth, operand_next = 0, True
    for token in tokens:
        if operand_next != (token == "(" or token.isdigit()):
            return None
        if token.isdigit():
            numbers.append(int(token))
            values.append(Fraction(int(token)))
            operand_next = False
        elif token == "(":
            depth += 1
            if depth > DEEPEST:
                return None
            waiting.append(token)
        elif token == ")":
            depth -= 1
            if depth < 0 or not _work(values, waiting, 1):
                return None
            waiting.pop()
        else:
            if not _work(values, waiting, _BINDS[token]):
                return None
            waiting.append(token)
            operand_next = True
    if depth or operand_next or not _work(values, waiting, 1):
        return None
    return Result(values[0], tuple(numbers))


def _work(values: list[Fraction], waiting: list[str], binds: int) -> bool:
    """Does the operations that wait and bind at least so strongly, back to a parenthesis; False: a zero divides."""
    while waiting and _BINDS.get(waiting[-1], 0) >= binds:
        operation, right = waiting.pop(), values.pop()
        if operation == "+":
            values[-1] += right
        elif operation == "-":
            values[-1] -= right
        elif operation == "*":
            values[-1] *= right
        elif right == 0:
            return False
        else:
            values[-1] /= right
    return True
