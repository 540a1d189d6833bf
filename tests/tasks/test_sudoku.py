"""Sudoku: which replies are moves, what they cost, and that a right board at the end earns the reward."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from engine.tasks import Reply, Surroundings, TaskError, get
from engine.tasks.sudoku import FILE, SPARE, Puzzle, SudokuEpisode, empty, solutions
from tests.tasks.players import SudokuPlayer

FULL = ((1, 2, 3, 4), (3, 4, 1, 2), (2, 1, 4, 3), (4, 3, 2, 1))
START = ((0, 2, 3, 4), (3, 4, 1, 2), (2, 1, 4, 3), (4, 3, 2, 0))
PUZZLE = Puzzle(START, FULL)
"""Empty: (1, 1), a 1; and (4, 4), a 1."""
PLAYED, ILLEGAL, NONE = "was played", "not possible", "No move"


def answered(text: str) -> SudokuEpisode:
    episode = SudokuEpisode(PUZZLE)
    episode.take(Reply(text, "stop"))
    return episode


@pytest.mark.parametrize(
    ("said", "became"),
    [
        ("set 1 1 1", PLAYED),
        ("SET 1 1 1", PLAYED),
        ("Set 4 4 1.", PLAYED),
        ("  set\t1  1\t1\n", PLAYED),
        ("I play `set 1 1 1`.", PLAYED),
        ("```\nset 1 1 1\n```", PLAYED),
        ("**set 4 4 1**", PLAYED),
        ("set 01 001 1", PLAYED),
        ("set 1 1 1\nset 4 4 1", PLAYED),
        ("set ROW COL VALUE\nset 1 1 1", PLAYED),
        ("set 1 1 2", ILLEGAL),
        ("set 1 1 3", ILLEGAL),
        ("set 1 2 2", ILLEGAL),
        ("set 1 2 1", ILLEGAL),
        ("set 2 2 4", ILLEGAL),
        ("set 0 1 1", "not on the board"),
        ("set 1 0 1", "not on the board"),
        ("set 1 1 0", "not on the board"),
        ("set 5 1 1", "not on the board"),
        ("set 1 5 1", "not on the board"),
        ("set 1 1 5", "not on the board"),
        ("set 999 999 999", "not on the board"),
        ("", NONE),
        ("   \n", NONE),
        ("set", NONE),
        ("set 1 1", NONE),
        ("set 1 1 ", NONE),
        ("1 1 1", NONE),
        ("set -1 1 1", NONE),
        ("set 1 1 -1", NONE),
        ("set 1, 1, 1", NONE),
        ("set (1, 1) 1", NONE),
        ("set 1.0 1 1", NONE),
        ("set 1 1 1.5", NONE),
        ("set 1 1 1000", NONE),
        ("set 1111 1 1", NONE),
        ("set １ １ １", NONE),
        ("set ١ ١ ١", NONE),
        ("set ¹ ¹ ¹", NONE),
        ("set one one one", NONE),
        ("set 1\n1\n1", NONE),
        ("set 1 1 = 1", NONE),
        ("\u017fet 1 1 1", NONE),
        ("set 1 1 1abc", NONE),
        ("set 1 1 1１", NONE),
        ("set 1 1 1 4", NONE),
        ("set 1 1 1,000", NONE),
        ("reset 1 1 1", NONE),
        ("set1 1 1", NONE),
        ("s e t 1 1 1", NONE),
        ("set\u00a01\u00a01\u00a01", NONE),
        ("set 1 1 \x001", NONE),
        ("\ud800", NONE),
        ("set " * 10_000, NONE),
        ("9" * 10**6, NONE),
        ("x" * 30_000 + "set 1 1 1", NONE),
    ],
)
def test_what_a_reply_does(said: str, became: str) -> None:
    episode = answered(said)
    assert became in episode.feedback
    assert episode.turns == PUZZLE.turns - 1
    assert (len(empty(episode.board)) == 1) == (became == PLAYED)
    assert episode.reward() == 0.0


def test_the_first_move_counts_and_the_last_cell_earns_the_reward() -> None:
    episode = answered("set 1 1 1 then set 4 4 1")
    assert episode.reward() == 0.0
    episode.take(Reply("set 4 4 1", "stop"))
    assert (episode.reward(), episode.messages()) == (1.0, None)


def test_illegal_moves_cost_turns_until_none_is_left() -> None:
    episode = SudokuEpisode(PUZZLE)
    turns = 0
    while episode.messages() is not None:
        episode.take(Reply("set 1 2 4", "stop"))
        turns += 1
    assert turns == 2 + SPARE
    assert episode.reward() == 0.0


def test_a_legal_move_that_is_wrong_stays_and_loses() -> None:
    task = get("sudoku:4x4", {"blanks": 10})
    for request in task.held_out:
        wrong = next(
            (
                (r, c, v)
                for r, c in empty(request.data.start)
                for v in range(1, 5)
                if v != request.data.solution[r][c] and _fits(request.data.start, r, c, v)
            ),
            None,
        )
        if wrong is None:
            continue
        episode = task.start(request)
        episode.take(Reply(f"set {wrong[0] + 1} {wrong[1] + 1} {wrong[2]}", "stop"))
        assert PLAYED in episode.feedback
        while (messages := episode.messages()) is not None:
            assert messages
            episode.take(Reply("set 1 1 1", "stop"))
        assert episode.reward() == 0.0
        return
    pytest.fail("no board has a legal wrong move")


def _fits(board: tuple[tuple[int, ...], ...], row: int, col: int, value: int) -> bool:
    box = [board[r][c] for r in range(4) for c in range(4) if (r // 2, c // 2) == (row // 2, col // 2)]
    return value not in board[row] and value not in [line[col] for line in board] and value not in box


@pytest.mark.parametrize(("variant", "blanks"), [("4x4", 5), ("4x4", 10), ("9x9", 5), ("9x9", 10), ("9x9", 15)])
def test_a_player_that_solves_it_earns_all(variant: str, blanks: int) -> None:
    task = get(f"sudoku:{variant}", {"blanks": blanks})
    assert task.many_turns
    assert len(task.held_out) == 256
    for request in [*task.held_out[:5], *(task.sample(1, i) for i in range(5))]:
        assert len(empty(request.data.start)) == blanks
        assert solutions(request.data.start) == [request.data.solution]
        assert SudokuPlayer().play(task, request) == 1.0


@pytest.mark.parametrize("variant", ["4x4", "9x9"])
def test_boards_do_not_repeat_and_held_out_ones_are_never_drawn(variant: str) -> None:
    task = get(f"sudoku:{variant}")
    drawn = {task.sample(1, index).prompt for index in range(20_000)}
    assert len(drawn) == 20_000
    assert not drawn & {request.prompt for request in task.held_out}
    assert task.sample(1, 7).prompt == task.sample(1, 7).prompt != task.sample(2, 7).prompt


def test_what_is_asked_stays_short() -> None:
    task = get("sudoku:9x9", {"blanks": 15})
    episode = task.start(task.sample(0, 0))
    sizes = []
    while (messages := episode.messages()) is not None:
        sizes.append(sum(len(message["content"]) for message in messages))
        episode.take(Reply("set 1 1 1 " * 5000, "length"))
    assert len(sizes) == 20
    assert max(sizes) < 800


def test_no_reply_raises_and_a_hostile_one_is_read_at_once() -> None:
    dice = random.Random(0)
    pieces = ["set", "SET", " ", "\n", "1", "4", "99", "-", "٣", "\ud800", "\x00", "x"]
    started = time.monotonic()
    for _ in range(3000):
        answered("".join(dice.choices(pieces, k=dice.randint(0, 12))))
    for hostile in (" " * 10**6, "set" * 10**6, "set 1 " * 10**6):
        answered(hostile)
    assert time.monotonic() - started < 5


def test_puzzles_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="set POPSERVE_DATA"):
        get("sudoku:file", {}, Surroundings(data_dir=tmp_path))
    (tmp_path / "sudoku").mkdir()
    task = get("sudoku:9x9")
    lines = [{"puzzle": r.data.start, "solution": r.data.solution} for r in task.held_out[:16]]
    file = tmp_path / "sudoku" / FILE
    file.write_text("\n".join(map(json.dumps, lines)))
    found = get("sudoku:file", {}, Surroundings(data_dir=tmp_path))
    assert (len(found.held_out), len({found.sample(0, i).prompt for i in range(12)})) == (4, 12)
    assert SudokuPlayer().play(found, found.sample(0, 0)) == 1.0
    file.write_text("\n".join(map(json.dumps, lines[:8])))
    os.utime(file, ns=(0, 0))
    assert len(get("sudoku:file", {}, Surroundings(data_dir=tmp_path)).held_out) == 2


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"puzzle": 1, "solution": 2}', '{"puzzle": [[0]], "solution": [[1]]}', "[" * 100_000]
)
def test_a_file_with_a_bad_line_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "sudoku").mkdir()
    good = json.dumps({"puzzle": START, "solution": FULL})
    (tmp_path / "sudoku" / FILE).write_text(f"{good}\n{line}")
    with pytest.raises(TaskError, match="line 2"):
        get("sudoku:file", {}, Surroundings(data_dir=tmp_path))


def test_an_unknown_kind_or_number_of_blanks_is_refused() -> None:
    with pytest.raises(TaskError, match="choose from 4x4, 9x9, file"):
        get("sudoku:6x6")
    with pytest.raises(TaskError, match="5, 10"):
        get("sudoku:4x4", {"blanks": 7})
