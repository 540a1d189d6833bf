"""BIG-Bench: prompts that can be answered, judges that are right, tasks in proportion, nothing held out is sampled."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.tasks import Reply, Surroundings, TaskError, get
from engine.tasks.bigbench_records import LONGEST_PROMPT, request
from engine.tasks.bigbench_table import CATEGORIES, CATEGORY, OPEN_ENDED


def record(inputs: str, targets: list[str], choices: list[str] | None = None, marks: list[float] | None = None) -> Any:
    return {
        "idx": 0,
        "inputs": inputs,
        "targets": targets,
        "multiple_choice_targets": choices or [],
        "multiple_choice_scores": marks if marks is not None else [float(c in targets) for c in choices or []],
    }


def write(folder: Path, task: str, train: list[Any], validation: list[Any]) -> None:
    (folder / "bigbench" / task).mkdir(parents=True)
    for name, records in (("train", train), ("validation", validation)):
        text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records)
        (folder / "bigbench" / task / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))


def numbers(task: str, count: int, start: int = 0) -> list[Any]:
    return [record(f"{task}: {i} + 1 =", [str(i + 1)]) for i in range(start, start + count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tasks to learn from, of which one is larger than its records here, and three that are not."""
    write(tmp_path, "modified_arithmetic", numbers("a", 300), numbers("a", 60, 1_000))
    write(tmp_path, "object_counting", numbers("b", 300), numbers("b", 60, 1_000))
    write(tmp_path, "operators", numbers("c", 100), numbers("c", 20, 1_000))
    write(tmp_path, "unnatural_in_context_learning", numbers("d", 10), numbers("d", 10, 1_000))
    write(tmp_path, "made_up", [*numbers("e", 3), "not json", "[]", record("x" * 5_000, ["y"])], numbers("e", 5))
    rows = ["task\ttrain", "modified_arithmetic\t900", "unnatural_in_context_learning\t58736", "nonsense\tmany"]
    (tmp_path / "bigbench" / "tasks.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_tasks_of_a_fitting_size_are_learned_from_and_the_others_held_out(folder: Path) -> None:
    task = get("bigbench", where=Surroundings(data_dir=folder))
    assert {part.task: part.size for part in task.training} == {"modified_arithmetic": 900, "object_counting": 300}
    assert {part.task for part in task.unseen} == {"operators", "unnatural_in_context_learning", "made_up"}
    assert Counter(r.data.task for r in task.held_out) == {
        "modified_arithmetic": 60,
        "object_counting": 60,
        "operators": 120,
        "unnatural_in_context_learning": 20,
        "made_up": 5,
    }
    assert task.categories == ("Logic", "Math", "Other")
    assert task.skipped == 6
    assert len({r.data.task for r in task.held_out[:64]}) >= 4


def test_each_task_comes_in_proportion_and_no_record_again_before_all_have_come(folder: Path) -> None:
    task = get("bigbench", where=Surroundings(data_dir=folder))
    for turn in (0, 1):
        drawn = [task.sample(5, turn * 1_200 + index) for index in range(1_200)]
        by_task = {
            name: [r for r in drawn if r.data.task == name] for name in ("modified_arithmetic", "object_counting")
        }
        assert len(by_task["modified_arithmetic"]) == 900
        assert len(set(by_task["modified_arithmetic"][:300])) == 300
        assert set(Counter(by_task["modified_arithmetic"]).values()) == {3}
        assert set(Counter(by_task["object_counting"]).values()) == {1}
        assert set(task.held_out).isdisjoint(drawn)
    assert [task.sample(5, i) for i in range(50)] == [task.sample(5, i) for i in range(50)]
    assert [task.sample(6, i) for i in range(50)] != [task.sample(5, i) for i in range(50)]


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("blue", 1.0),
        (" Blue.\n", 1.0),
        ("LETTER", 1.0),
        ("(LETTER)", 1.0),
        ("LETTER.", 1.0),
        ("**LETTER**", 1.0),
        ("(LETTER) blue", 1.0),
        ("LETTER: blue", 1.0),
        ("The answer is (LETTER).", 1.0),
        ("Answer: blue", 1.0),
        ("(LETTER) red", 0.0),
        ("(OTHER) blue", 0.0),
        ("OTHER", 0.0),
        ("red", 0.0),
        ("a b c", 0.0),
        ("(A) (B) (C)", 0.0),
        ("LETTER or OTHER", 0.0),
        ("Z", 0.0),
        ("", 0.0),
        ("blue or red", 0.0),
        ("x" * 100_000, 0.0),
    ],
)
def test_a_choice_is_its_letter_or_its_text(reply: str, reward: float) -> None:
    made = request("color", record("Which colour has the sky?", ["blue"], ["red", "blue", "green"]))
    assert made is not None
    letter = next(letter for letter, choice in made.data.letters.items() if choice == "blue").upper()
    other = next(letter for letter, choice in made.data.letters.items() if choice == "red").upper()
    assert f"({letter}) blue" in made.prompt
    assert made.data.score(reply.replace("LETTER", letter).replace("OTHER", other)) == reward


def test_a_list_of_choices_that_is_there_gets_letters_in_its_place() -> None:
    made = request("color", record("Q: Sky?\n  choice: red\n  choice: blue\nA:", ["blue"], ["blue", "red"]))
    assert made is not None
    lines = made.prompt.split("\n")
    assert (lines[0], lines[3:]) == ("Q: Sky?", ["A:", "Answer with the letter of one choice."])
    assert sorted(line[4:] for line in lines[1:3]) == ["blue", "red"]


def test_the_place_in_the_list_does_not_betray_the_answer() -> None:
    made = [request("color", record(f"Question {i}?", ["yes"], ["yes", "no"])) for i in range(400)]
    first = sum(r.data.letters["a"] == "yes" for r in made if r is not None)
    assert 150 < first < 250


@pytest.mark.parametrize("choices", [["a", "b"], ["(a)", "(b)"], [str(i) for i in range(40)]])
def test_choices_that_letters_would_confuse_have_none(choices: list[str]) -> None:
    made = request("hyperbaton", record("Which is right, a or b?", choices[:1], choices))
    assert made is not None
    assert made.prompt == "Which is right, a or b?"
    assert made.data.score(choices[0]) == 1.0
    assert made.data.score(choices[1]) == 0.0


def test_marks_say_which_choices_are_right_and_where_they_do_not_the_targets_do() -> None:
    both = request("color", record("Sky?", ["blue"], ["blue", "azure", "red"], [1, 1, 0]))
    none = request("color", record("Sky?", ["blue"], ["blue", "azure", "red"], [0, 0, 0]))
    assert both is not None
    assert none is not None
    assert [both.data.score(c) for c in ("blue", "azure", "red")] == [1.0, 1.0, 0.0]
    assert [none.data.score(c) for c in ("blue", "azure", "red")] == [1.0, 0.0, 0.0]


def test_open_ended_tasks_get_chrf_and_all_others_an_exact_match() -> None:
    open_ended = request("qa_wikidata", record("Capital of Peru?", ["Lima", "the city of Lima"]))
    closed = request("disfl_qa", record("Capital of Peru?", ["Lima", "the city of Lima"]))
    assert open_ended is not None
    assert closed is not None
    assert open_ended.data.score("the city of Lima") == 1.0
    assert 0.0 < open_ended.data.score("the city Limassol") < 1.0
    assert [closed.data.score(t) for t in ("lima", "the city of lima.", "the city Limassol")] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "unusable",
    [
        {},
        record("", ["a"]),
        record("Q", []),
        record("Q" * (LONGEST_PROMPT + 1), ["a"]),
        record("ö" * (LONGEST_PROMPT // 2 + 1), ["a"]),
        record("Q", ["a" * 500]),
        record("Q", ["c"], ["a", "b"]),
        record("Q", ["aa"], ["aa", "bb\ud800"]),
        record("Q", [" "]),
        {"inputs": 3, "targets": ["a"]},
        {"inputs": "Q", "targets": "a"},
        {"inputs": "Q", "targets": [3]},
        {"inputs": "Q", "targets": ["b"], "multiple_choice_targets": ["a"], "multiple_choice_scores": [None]},
    ],
)
def test_unusable_records_are_left_out(unusable: Any) -> None:
    assert request("color", unusable) is None


@settings(deadline=None)
@given(st.text(max_size=300))
def test_no_reply_upsets_a_judge(reply: str) -> None:
    for task, choices in (("color", ["x", "yy"]), ("color", ["xx", "yy"]), ("gem", None), ("operators", None)):
        made = request(task, record("Q", ["xx" if choices != ["x", "yy"] else "x"], choices))
        assert made is not None
        assert 0.0 <= made.data.score(reply) <= 1.0


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("bigbench", lambda path: Surroundings(data_dir=path / "none"), "no folder bigbench"),
        ("bigbench:color", lambda path: Surroundings(data_dir=path), "called bigbench"),
    ],
)
def test_missing_data_and_unknown_names_are_said(folder: Path, name: str, make: Any, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        get(name, where=make(folder))


def test_without_a_folder_and_without_datasets_the_folder_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TaskError, match="POPSERVE_DATA"):
        get("bigbench")


def test_a_damaged_file_costs_its_own_records_only(folder: Path) -> None:
    path = folder / "bigbench" / "operators" / "train.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-40])
    (folder / "bigbench" / "made_up" / "validation.jsonl.gz").write_bytes(b"not gzip")
    task = get("bigbench", where=Surroundings(data_dir=folder))
    assert len(task.training) == 2
    assert 20 <= sum(r.data.task == "operators" for r in task.held_out) < 120


def test_nothing_to_learn_from_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "operators", numbers("c", 20), numbers("c", 20, 1_000))
    with pytest.raises(TaskError, match="complete it"):
        get("bigbench", where=Surroundings(data_dir=tmp_path))


def test_every_category_has_tasks_and_every_task_one_category() -> None:
    assert set(CATEGORY.values()) == set(CATEGORIES)
    assert len(CATEGORIES) == 10
    assert set(CATEGORY) > OPEN_ENDED


ALL = [
    folder
    for folder in (os.environ.get("POPSERVE_DATA"), Path(__file__).parents[3] / "shared" / "data")
    if folder and (Path(folder) / "bigbench").is_dir()
]


@pytest.mark.skipif(not ALL, reason="no folder with BIG-Bench (POPSERVE_DATA)")
def test_the_whole_set_is_a_stream() -> None:
    started = time.monotonic()
    task = get("bigbench", where=Surroundings(data_dir=Path(ALL[0])))
    assert time.monotonic() - started < 20
    assert len(task.training) >= 78
    assert sum(bool(part.held_out) for part in task.unseen) >= 70
    assert task.categories == CATEGORIES
    assert min(part.size for part in task.training) >= 205
    drawn = [task.sample(0, index) for index in range(20_000)]
    assert set(task.held_out).isdisjoint(drawn)
    assert {r.category for r in drawn} == set(CATEGORIES)
    sizes = {part.task: part.size / task.size for part in task.training}
    share = Counter(r.data.task for r in drawn)
    assert all(abs(share[name] / 20_000 - size) < 0.01 for name, size in sizes.items())
    for each in {*drawn, *task.held_out}:
        assert len(each.prompt.encode()) <= LONGEST_PROMPT
        assert task.judge(each, Reply(each.data.answers[0], "stop")) == 1.0
        assert task.judge(each, Reply("", "stop")) == 0.0
