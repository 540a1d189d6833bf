"""What a page is told about the tasks: each with its options, and why one cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.tasks import Surroundings, TaskError, get, names
from engine.tasks.cards import Option, read_options
from engine.tasks.catalogue import describe


def test_every_task_has_a_card_and_those_without_needs_can_be_had() -> None:
    cards = {card.name: card for card in describe(Surroundings())}
    assert {*names(), "persona:custom", "bigbench", "file"} <= set(cards)
    for name in names():
        card, task = cards[name], get(name)
        assert card.available
        assert card.family == name.partition(":")[0]
        assert card.title
        assert card.likes
        assert card.grades == task.grades
        assert (card.turns == "many") is task.many_turns
        assert all(option.default is not None for option in card.options)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    (tmp_path / "bigbench").mkdir()
    for where, available in (
        (Surroundings(data_dir=tmp_path / "none"), False),
        (Surroundings(data_dir=tmp_path), True),
    ):
        card = next(card for card in describe(where) if card.name == "bigbench")
        assert card.available is available
        assert bool(card.why) is not available


def test_stored_files_are_the_choices_of_the_file_task(tmp_path: Path) -> None:
    def card() -> object:
        return next(card for card in describe(Surroundings(files=tmp_path)) if card.name == "file")

    assert not card().available
    assert "no file yet" in card().why
    for name in ("b.jsonl", "a.jsonl", ".part"):
        (tmp_path / name).touch()
    assert card().available
    assert card().options[0].choices == ("a.jsonl", "b.jsonl")
    assert card().options[0].default == "a.jsonl"


COUNT = Option("count", "int", 5, ("5", "10"), "how many")
KIND = Option("kind", "choice", None, ("big", "small"), "which")


def test_options_are_read_with_their_defaults() -> None:
    assert read_options("task", {"kind": "big"}, (COUNT, KIND)) == {"count": 5, "kind": "big"}
    assert read_options("task", {"kind": "big", "count": "10"}, (COUNT, KIND)) == {"count": 10, "kind": "big"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs the option kind: which"),
        ({"kind": "huge"}, "one of big, small"),
        ({"kind": ["big"]}, "must be text, not list"),
        ({"kind": "big", "count": 7}, "one of 5, 10"),
        ({"kind": "big", "count": "many"}, "whole number"),
        ({"kind": "big", "count": 5.5}, "whole number"),
        ({"kind": "big", "count": True}, "whole number"),
        ({"kind": "big", "count": "9" * 10_000}, "whole number"),
        ({"kind": "big", "colour": "red"}, "no option 'colour': its options are count, kind"),
    ],
)
def test_unusable_options_are_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        read_options("task", given, (COUNT, KIND))
