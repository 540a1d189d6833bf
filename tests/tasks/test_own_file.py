"""A team's own file: every line is a request or is named by number, and nothing outside the folder is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.tasks import Reply, Request, Surroundings, TaskError, get, own_file


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def asks(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"prompt": f"{i} plus 1?", "answer": str(i + 1)} for i in range(start, start + count)]


def score(path: Path, record: dict[str, Any], reply: str) -> float:
    found = own_file.read(lines(path, {"prompt": "?", **record}))
    assert found.problems == ()
    return found.requests[0].data(Reply(reply, "stop"))


@pytest.mark.parametrize(
    ("record", "reply", "reward"),
    [
        ({"answer": "Lima"}, " lima. ", 1.0),
        ({"answer": "Lima"}, "The answer is Lima.", 1.0),
        ({"answer": "Lima"}, "It is Lima, of course", 0.0),
        ({"answer": ["Lima", "Callao"]}, "CALLAO", 1.0),
        ({"answer": 4}, "4", 1.0),
        ({"answer": "Lima", "judge": "exact"}, "", 0.0),
        ({"answer": "4", "judge": "contains"}, "There are 4 of them", 1.0),
        ({"answer": "4", "judge": "contains"}, "There are 14 or 40", 0.0),
        ({"answer": "new york", "judge": "contains"}, "In New  York!", 1.0),
        ({"answer": "the red house", "judge": "chrf"}, "the red house", 1.0),
        ({"answer": "the red house", "judge": "chrf"}, "", 0.0),
        ({"tests": ["at most 3 words", 'contains "sea"']}, "the sea", 1.0),
        ({"tests": ["at most 3 words", 'contains "sea"']}, "the lake", 0.5),
        ({"tests": ["at most 3 words"], "judge": "tests"}, "", 0.0),
        ({"pattern": r"^\d{4}$"}, "2024", 1.0),
        ({"pattern": r"^\d{4}$", "judge": "pattern"}, "in 2024", 0.0),
        ({"pattern": "(a|aa)+$"}, "a" * 5_000 + "b", 0.0),
    ],
)
def test_each_way_of_judging(tmp_path: Path, record: dict[str, Any], reply: str, reward: float) -> None:
    assert score(tmp_path / "a.jsonl", record, reply) == reward


def test_chrf_gives_partial_credit(tmp_path: Path) -> None:
    assert 0.3 < score(tmp_path / "a.jsonl", {"answer": "the red house", "judge": "chrf"}, "the red horse") < 1.0


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("not json", "not JSON"),
        ('{"prompt": "a"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"prompt": "a", "answer": ' + "9" * 5_000 + "}", "not JSON"),
        ("[1]", "braces"),
        ('"text"', "braces"),
        ({"answer": "b"}, '"prompt"'),
        ({"prompt": " ", "answer": "b"}, '"prompt"'),
        ({"prompt": 3, "answer": "b"}, '"prompt"'),
        ({"prompt": "a" * 20_001, "answer": "b"}, "20,000"),
        ('{"prompt": "\\ud800", "answer": "b"}', "half a character"),
        ({"prompt": "a"}, "exactly one"),
        ({"prompt": "a", "answer": "b", "pattern": "c"}, "exactly one"),
        ({"prompt": "a", "answer": ""}, '"answer"'),
        ({"prompt": "a", "answer": []}, '"answer"'),
        ({"prompt": "a", "answer": [["b"]]}, '"answer"'),
        ({"prompt": "a", "answer": True}, '"answer"'),
        ({"prompt": "a", "answer": None}, '"answer"'),
        ({"prompt": "a", "answer": "b", "judge": "kind"}, "exact, contains, chrf"),
        ({"prompt": "a", "answer": "b", "judge": ["exact"]}, "exact, contains, chrf"),
        ({"prompt": "a", "tests": "is json"}, '"tests"'),
        ({"prompt": "a", "tests": []}, "1 to 20"),
        ({"prompt": "a", "tests": ["be nice"]}, "clause 1"),
        ({"prompt": "a", "tests": ["matches /a/"] * 5}, "at most 4 patterns"),
        ({"prompt": "a", "tests": ["is json"], "judge": "exact"}, "left out"),
        ({"prompt": "a", "pattern": "("}, "not valid"),
        ({"prompt": "a", "pattern": "((a{500}){500}){500}"}, "repeats too much"),
        ({"prompt": "a", "pattern": ""}, '"pattern"'),
        ({"prompt": "a", "answer": "b", "category": 3}, '"category"'),
        ({"prompt": "0 plus 1?", "answer": "2"}, "same prompt as in line 1"),
        ('{"prompt": "' + "a" * (1024 * 1024) + '", "answer": "b"}', "1 MiB"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: Any, what: str) -> None:
    found = own_file.read(lines(tmp_path / "a.jsonl", *asks(1), "", line, *asks(2, start=1)))
    assert found.usable == 3
    assert [problem.line for problem in found.problems] == [3]
    assert what in found.problems[0].what
    assert found.bad == 1


def test_lines_that_are_not_utf8_are_named_and_a_byte_order_mark_is_not_minded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a", "answer": "b"}\r\n{"prompt": "\xff", "answer": "b"}')
    found = own_file.read(path)
    assert found.usable == 1
    assert found.problems == (own_file.Problem(2, "not UTF-8 at byte 13"),)


def test_all_bad_lines_are_counted_and_the_first_thousand_told(tmp_path: Path) -> None:
    found = own_file.read(lines(tmp_path / "a.jsonl", *["nothing"] * 1_500))
    assert (found.usable, found.bad, len(found.problems)) == (0, 1_500, 1_000)


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", *asks(5))
    first = own_file.read(path)
    assert own_file.read(path) is first
    assert own_file.read(lines(path, *asks(6))).usable == 6


def test_too_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lines(tmp_path / "a.jsonl", *asks(50))
    monkeypatch.setattr(own_file, "MOST_REQUESTS", 40)
    with pytest.raises(TaskError, match="split it"):
        own_file.read(path)
    with path.open("r+b") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(TaskError, match="64 MiB"):
        own_file.read(path)


def test_a_fifth_is_held_out_and_never_sampled(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", *asks(100))
    task = get("file", {"file": "a.jsonl"}, Surroundings(files=tmp_path))
    held_out = set(task.held_out)
    assert len(held_out) == 20
    sampled = [task.sample(3, index) for index in range(80)]
    assert len(set(sampled)) == 80
    assert held_out.isdisjoint(sampled)
    assert {task.sample(3, index) for index in range(80, 160)} == set(sampled)
    assert task.judge(
        Request("7 plus 1?", next(r for r in sampled if r.prompt == "7 plus 1?").data), Reply("8", "stop")
    )


@pytest.mark.parametrize(
    ("record", "grades"),
    [
        ({"answer": "b"}, (0.0, 1.0)),
        ({"tests": ["is json"]}, (0.0, 1.0)),
        ({"tests": ["is json", "at most 3 words"]}, None),
        ({"answer": "b", "judge": "chrf"}, None),
    ],
)
def test_rewards_are_thumbs_unless_a_line_gives_more(
    tmp_path: Path, record: dict[str, Any], grades: tuple[float, ...] | None
) -> None:
    lines(tmp_path / "a.jsonl", *asks(5), {"prompt": "?", **record})
    options = {"file": "a.jsonl", "max_tokens": 9, "system_prompt": ""}
    task = get("file", options, Surroundings(files=tmp_path))
    assert (task.grades, task.max_tokens, task.system_prompt) == (grades, 9, "")


def test_too_few_usable_lines_name_the_first_bad_one(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", *asks(4), "bad")
    with pytest.raises(TaskError, match=r"4 usable requests, at least 5 .* 1 lines .* line 5: not JSON"):
        get("file", {"file": "a.jsonl"}, Surroundings(files=tmp_path))


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../secret.jsonl", "/etc/passwd", "sub/a.jsonl", "..\\a", ".hidden", "link", "a\0b", "none", "C:a"],
)
def test_nothing_outside_the_folder_is_read(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    for path in (tmp_path / "secret.jsonl", folder / "sub" / "a.jsonl", folder / ".hidden"):
        lines(path, *asks(9))
    (folder / "link").symlink_to(tmp_path / "secret.jsonl")
    with pytest.raises(TaskError, match=r"plain file name|no file"):
        get("file", {"file": name}, Surroundings(files=folder))


@pytest.mark.parametrize(
    ("options", "where", "said"),
    [
        ({}, "here", "needs the option file"),
        ({"file": "a.jsonl"}, None, "no folder of user files"),
        ({"file": "a.jsonl", "max_tokens": 0}, "here", "1 to 1,024"),
        ({"file": "a.jsonl", "max_tokens": "many"}, "here", "whole number"),
    ],
)
def test_unusable_options_are_named(tmp_path: Path, options: dict[str, Any], where: str | None, said: str) -> None:
    lines(tmp_path / "a.jsonl", *asks(9))
    with pytest.raises(TaskError, match=said):
        get("file", options, Surroundings(files=tmp_path if where else None))


@settings(deadline=None)
@given(st.text(max_size=300))
def test_no_reply_upsets_a_judge(tmp_path_factory: pytest.TempPathFactory, reply: str) -> None:
    records = [
        {"prompt": "1", "answer": "b"},
        {"prompt": "2", "answer": ".", "judge": "contains"},
        {"prompt": "3", "answer": "b c", "judge": "chrf"},
        {"prompt": "4", "tests": ["is json", 'avoids "x"']},
        {"prompt": "5", "pattern": "^(.+)+$"},
    ]
    found = own_file.read(lines(tmp_path_factory.getbasetemp() / "judges.jsonl", *records))
    assert all(0.0 <= request.data(Reply(reply, "stop")) <= 1.0 for request in found.requests)
