"""Agentic Sudoku: the model sees a board and plays ``set ROW COL VALUE``, one cell a turn (source text, section 2).

A move that cannot be made costs a turn. The reward is binary and comes at the end: 1 for the board complete and right.
Every turn is asked afresh with the board as it stands and what became of the last move, so that no conversation grows.
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.tasks.base import HELD_OUT, Prompts, Reply, Request, Task, TaskError
from engine.tasks.cards import Option, read_options

VARIANTS = ("4x4", "9x9")
OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "4x4": (Option("blanks", "int", 5, ("5", "10"), "Empty cells at the start."),),
    "9x9": (Option("blanks", "int", 5, ("5", "10", "15"), "Empty cells at the start."),),
    "file": (),
}
SPARE = 5
"""Turns beyond one for each blank."""
SMALL = 24_000
"""Distinct 4x4 puzzles, held-out ones included."""
LONGEST_REPLY = 20_000
MOST_FILE = 32 * 2**20
FILE = "agentic_esopt_train.jsonl"
_MOVE = re.compile(
    r"(?<!\w)[sS][eE][tT][ \t]+([0-9]{1,3})[ \t]+([0-9]{1,3})[ \t]+([0-9]{1,3})(?!\w|[.,]\w|[ \t]+[0-9])"
)
Board = tuple[tuple[int, ...], ...]
"""Rows of 0 (empty) to 4 or 9."""


@dataclass(frozen=True)
class Puzzle:
    """A board with exactly one solution."""

    start: Board
    solution: Board

    @property
    def turns(self) -> int:
        """How many an episode has."""
        return len(empty(self.start)) + SPARE


class SudokuEpisode:
    """See :class:`engine.tasks.base.Episode`."""

    def __init__(self, puzzle: Puzzle) -> None:
        self.puzzle = puzzle
        self.board = [list(row) for row in puzzle.start]
        self.turns = puzzle.turns
        """Turns left."""
        self.feedback = ""

    def messages(self) -> list[dict[str, str]] | None:
        if not self.turns or not empty(self.board):
            return None
        return [{"role": "user", "content": shown(self.board, self.feedback)}]

    def take(self, reply: Reply) -> None:
        self.turns -= 1
        self.feedback = self._move(reply.text[:LONGEST_REPLY])

    def reward(self) -> float:
        return float(tuple(map(tuple, self.board)) == self.puzzle.solution)

    def _move(self, text: str) -> str:
        """Plays the first move that a reply names; what became of it."""
        match = _MOVE.search(text)
        if match is None:
            return "No move was found: write set ROW COL VALUE, with numbers."
        row, col, value = map(int, match.groups())
        size = len(self.board)
        if not all(1 <= number <= size for number in (row, col, value)):
            return f"set {row} {col} {value} is not on the board: all numbers are 1 to {size}."
        if self.board[row - 1][col - 1]:
            return f"set {row} {col} {value} is not possible: the cell is not empty."
        if clash := _clash(self.board, row - 1, col - 1, value):
            return f"set {row} {col} {value} is not possible: its {clash} has a {value} already."
        self.board[row - 1][col - 1] = value
        return f"set {row} {col} {value} was played."


class Sudoku(Task):
    """Boards of one kind; see :func:`make`. ``draw`` gives the puzzle of (seed, index), never a held-out one."""

    likes = "plays legal moves until the board is complete and right"
    system_prompt = "You play Sudoku. Answer with one move and nothing else."
    max_tokens = 32
    many_turns = True

    def __init__(self, name: str, held_out: Sequence[Puzzle], draw: Callable[[int, int], Puzzle]) -> None:
        self.name, self._draw = name, draw
        self._held_out = tuple(map(_request, held_out))

    @property
    def held_out(self) -> Sequence[Request]:
        return self._held_out

    def sample(self, seed: int, index: int) -> Request:
        return _request(self._draw(seed, index))

    def start(self, request: Request) -> SudokuEpisode:
        return SudokuEpisode(request.data)

    def judge(self, request: Request, reply: Reply) -> float:
        episode = self.start(request)
        episode.take(reply)
        return episode.reward()


def _request(puzzle: Puzzle) -> Request:
    return Request(shown(puzzle.start, ""), puzzle)


def shown(board: Sequence[Sequence[int]], feedback: str) -> str:
    """What the model is told in a turn."""
    size = len(board)
    box = int(size**0.5)
    rows = "\n".join(" ".join(str(value) if value else "." for value in row) for row in board)
    cells = ", ".join(f"({row + 1}, {col + 1})" for row, col in empty(board))
    return (
        f"Sudoku of {size} rows and {size} columns: every row, column and {box}x{box} box holds 1 to {size} once.\n"
        f"{rows}\nEmpty cells (row, column): {cells}\n"
        + (f"Last move: {feedback}\n" if feedback else "")
        + "Fill one empty cell: answer set ROW COL VALUE."
    )


def empty(board: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """(row, column) of the cells without a value, from 0."""
    return [(r, c) for r, row in enumerate(board) for c, value in enumerate(row) if not value]


def solutions(board: Sequence[Sequence[int]], most: int = 2) -> list[Board]:
    """Up to ``most`` ways to complete the board."""
    cells = [list(row) for row in board]
    found: list[Board] = []

    def fill() -> None:
        best: tuple[int, int, list[int]] | None = None
        for row, col in empty(cells):
            fitting = [v for v in range(1, len(cells) + 1) if not _clash(cells, row, col, v)]
            if best is None or len(fitting) < len(best[2]):
                best = row, col, fitting
        if best is None:
            found.append(tuple(map(tuple, cells)))
            return
        row, col, fitting = best
        for value in fitting:
            cells[row][col] = value
            fill()
            cells[row][col] = 0
            if len(found) >= most:
                return

    fill()
    return found


def _clash(board: Sequence[Sequence[int]], row: int, col: int, value: int) -> str:
    """Where the value stands already: row, column, box; empty where it fits."""
    box = int(len(board) ** 0.5)
    if value in board[row]:
        return "row"
    if any(line[col] == value for line in board):
        return "column"
    top, left = row - row % box, col - col % box
    if any(value in line[left : left + box] for line in board[top : top + box]):
        return "box"
    return ""


def _emptied(full: Board, blanks: int, dice: random.Random) -> Board:
    """The board with some cells emptied."""
    size = len(full)
    blank = set(dice.sample([(r, c) for r in range(size) for c in range(size)], blanks))
    return tuple(tuple(0 if (r, c) in blank else full[r][c] for c in range(size)) for r in range(size))


def _large(blanks: int, key: str) -> Puzzle:
    """A 9x9 puzzle: a shuffled complete board, emptied where it keeps its one solution. There are more than 10^9 such
    boards and 10^7 ways to empty each, so that no repeat is to be expected."""
    dice = random.Random(f"sudoku 9x9 {blanks} {key}")

    def order() -> list[int]:
        return [band * 3 + line for band in dice.sample(range(3), 3) for line in dice.sample(range(3), 3)]

    values, rows, cols = dice.sample(range(1, 10), 9), order(), order()
    full = tuple(tuple(values[(3 * (r % 3) + r // 3 + c) % 9] for c in cols) for r in rows)
    while len(solutions(start := _emptied(full, blanks, dice))) != 1:
        pass
    return Puzzle(start, full)


@functools.cache
def _small(blanks: int) -> tuple[Puzzle, ...]:
    """:data:`SMALL` distinct 4x4 puzzles, from all 288 complete boards."""
    boards = solutions(((0,) * 4,) * 4, most=288)
    bits = {board: sum(1 << (16 * r + 4 * c + v - 1) for r, row in enumerate(board) for c, v in enumerate(row) if v)
            for board in boards}  # fmt: skip
    dice = random.Random(f"sudoku 4x4 {blanks}")
    found: dict[Board, Puzzle] = {}
    while len(found) < SMALL:
        full = dice.choice(boards)
        start = _emptied(full, blanks, dice)
        clues = sum(1 << (16 * r + 4 * c + v - 1) for r, row in enumerate(start) for c, v in enumerate(row) if v)
        if sum(mask & clues == clues for mask in bits.values()) == 1:
            found[start] = Puzzle(start, full)
    return tuple(found.values())


def _pool(name: str, puzzles: Sequence[Puzzle], held_out: int) -> Sudoku:
    """A task over a fixed set of puzzles."""
    by_prompt = {shown(puzzle.start, ""): puzzle for puzzle in puzzles}
    prompts = Prompts.divide(list(by_prompt), held_out)
    return Sudoku(name, [by_prompt[p] for p in prompts.held_out], lambda s, i: by_prompt[prompts.sample(s, i)])


@functools.cache
def _generated(variant: str, blanks: int) -> Sudoku:
    if variant == "4x4":
        return _pool("sudoku:4x4", _small(blanks), HELD_OUT)
    held = [_large(blanks, f"held out {i}") for i in range(HELD_OUT)]
    kept = {puzzle.start for puzzle in held}

    def draw(seed: int, index: int) -> Puzzle:
        puzzle, again = _large(blanks, f"{seed}/{index}"), 0
        while puzzle.start in kept:
            again += 1
            puzzle = _large(blanks, f"{seed}/{index}/{again}")
        return puzzle

    return Sudoku("sudoku:9x9", held, draw)


def missing(where: Any) -> str:
    """Why there are no puzzles in a file, with what to do; empty where there are some."""
    if where.data_dir is None or not (where.data_dir / "sudoku" / FILE).is_file():
        return f"set POPSERVE_DATA to a folder that holds sudoku/{FILE}"
    return ""


@functools.lru_cache(maxsize=4)
def _from_file(path: Path, changed: int) -> Sudoku:
    """Read anew when its time of change (ns) is another. Raises TaskError with the number of the first line that is no
    puzzle."""
    puzzles = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.stat().st_size <= MOST_FILE else []
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path.name} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            start, solution = (tuple(tuple(row) for row in record[name]) for name in ("puzzle", "solution"))
            if not _whole(start, solution):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise TaskError(f"{path.name}, line {number}: no puzzle of 4 or 9 rows with its one solution") from None
        puzzles.append(Puzzle(start, solution))
    if len(puzzles) < 8:
        raise TaskError(f"{path.name} has {len(puzzles)} puzzles: at least 8 are needed, in at most 32 MiB")
    return _pool("sudoku:file", puzzles, len(puzzles) // 4)


def _whole(start: Board, solution: Board) -> bool:
    size = len(start)
    shape = size in (4, 9) and len(solution) == size and all(len(row) == size for row in (*start, *solution))
    return (
        shape
        and all(type(v) is int and 0 <= v <= size for row in (*start, *solution) for v in row)
        and bool(empty(start))
        and solutions(start) == [solution]
    )


def make(variant: str, options: Mapping[str, Any], where: Any) -> Sudoku:
    """``4x4``, ``9x9`` (option ``blanks``) or ``file`` (POPSERVE_DATA/sudoku). Raises TaskError."""
    if variant not in OPTIONS:
        raise TaskError(f"unknown Sudoku {variant[:40]!r}: choose from {', '.join(OPTIONS)}")
    values = read_options(f"sudoku:{variant}", options, OPTIONS[variant])
    if variant != "file":
        return _generated(variant, int(values["blanks"]))
    if why := missing(where):
        raise TaskError(why)
    path = where.data_dir / "sudoku" / FILE
    return _from_file(path, path.stat().st_mtime_ns)
