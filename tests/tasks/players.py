"""Scripted players: what a perfect model would answer."""

from __future__ import annotations

import itertools
from fractions import Fraction

from engine.tasks import Reply, Request, Task
from engine.tasks.sudoku import empty, solutions


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


class SudokuPlayer:
    """Solves the board that it is shown, one move a turn."""

    def move(self, messages: list[dict[str, str]]) -> str:
        lines = messages[-1]["content"].splitlines()
        rows = [line.split() for line in lines if line and set(line) <= set("123456789. ")]
        board = [[0 if value == "." else int(value) for value in row] for row in rows]
        (solution,) = solutions(board)
        row, col = empty(board)[0]
        return f"set {row + 1} {col + 1} {solution[row][col]}"

    def play(self, task: Task, request: Request) -> float:
        """The reward of a whole episode."""
        episode = task.start(request)
        while (messages := episode.messages()) is not None:
            episode.take(Reply(self.move(messages), "stop"))
        return episode.reward()
