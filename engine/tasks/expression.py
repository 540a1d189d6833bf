"""Arithmetic that a model wrote, read without running it: ASCII numbers, ``+ - * /`` and parentheses, exact fractions.

No recursion, no ``eval``, at most :data:`LONGEST` characters and :data:`DEEPEST` open parentheses: whatever is
written is read at once or refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

LONGEST, DEEPEST = 200, 20
_TOKEN = re.compile(r"[ \t\r\n]*([0-9]{1,6}|[-+*/()])")
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}


class Unreadable(ValueError):
    """Not an expression."""


def parse(text: str) -> list[str]:
    """The expression in postfix order: numbers as they were written, and operators. Raises Unreadable.

    There is no unary minus, no power, no implied multiplication and no leading zero.
    """
    if len(text) > LONGEST:
        raise Unreadable("too long")
    text, place = text.strip(" \t\r\n"), 0
    done: list[str] = []
    waiting: list[str] = []
    operand = True
    """Whether a number or an opening parenthesis must come next."""
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise Unreadable(f"{text[place]!r} is no part of an expression")
        token, place = match[1], match.end()
        if token[0].isdigit():
            if not operand or (token[0] == "0" and token != "0"):
                raise Unreadable("a number out of place")
            done.append(token)
            operand = False
        elif token == "(":
            if not operand or waiting.count("(") >= DEEPEST:
                raise Unreadable("a parenthesis out of place, or too many")
            waiting.append(token)
        elif operand:
            raise Unreadable(f"{token!r} out of place")
        elif token == ")":
            while waiting and waiting[-1] != "(":
                done.append(waiting.pop())
            if not waiting:
                raise Unreadable("a parenthesis is closed that was not opened")
            waiting.pop()
        else:
            while waiting and waiting[-1] != "(" and _RANK[waiting[-1]] >= _RANK[token]:
                done.append(waiting.pop())
            waiting.append(token)
            operand = True
    if operand or "(" in waiting:
        raise Unreadable("it ends too early")
    return done + waiting[::-1]


def numbers(postfix: Sequence[str]) -> list[int]:
    """The numbers that occur, in order."""
    return [int(token) for token in postfix if token[0].isdigit()]


def value(postfix: Sequence[str]) -> Fraction | None:
    """The exact value; None for a division by zero."""
    stack: list[Fraction] = []
    for token in postfix:
        if token[0].isdigit():
            stack.append(Fraction(int(token)))
            continue
        right, left = stack.pop(), stack.pop()
        if token == "/" and right == 0:
            return None
        stack.append({"+": left + right, "-": left - right, "*": left * right}[token] if token != "/" else left / right)
    return stack[0]
