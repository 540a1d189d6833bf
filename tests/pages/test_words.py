"""What the pages say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.words import credited, happening, merged, percent
from engine.interface import Status
from engine.population import Settings

STATUS = Status(
    model="small",
    engine="vllm (cpu)",
    state="serving",
    waiting_for="",
    generation=12,
    members=16,
    ratings=41,
    merge_after=64,
    rated_members=9,
    drift=0.01,
    running=0,
    waiting=0,
    tokens_per_second=0.0,
    profile="traffic",
    settings=Settings().to_json(),
    last_merge=None,
)


LATE = "which has merged; the next merge corrects for it"


def credit(kind: str = "counted", member: int | None = 7, ratings: int = 61) -> dict[str, Any]:
    return {"kind": kind, "generation": 12, "member": member, "ratings": ratings, "merge_after": 64}


@pytest.mark.parametrize(
    ("given", "value", "said"),
    [
        (credit(), True, "counted for member 7 in generation 12; 3 more until the next merge"),
        (credit(ratings=64), False, "counted for member 7 in generation 12; the next merge is due"),
        (credit(), None, "taken back for member 7 in generation 12; 3 more until the next merge"),
        (
            credit("late"),
            True,
            "counted late for member 7 in generation 12, which has merged; the next merge corrects for it",
        ),
        (
            credit("late"),
            None,
            "taken back for member 7 in generation 12, which has merged; the next merge corrects for it",
        ),
        (credit("recorded"), True, "recorded only: generation 12 is too long ago to be credited"),
        (credit("recorded", member=None), True, "recorded only: no member of the population wrote this reply"),
        (credit("waiting"), True, "stored; it counts as soon as the engine serves"),
    ],
)
def test_what_a_vote_did(given: dict[str, Any], value: bool | None, said: str) -> None:
    assert credited(given, value) == said


def test_two_sentences_say_what_is_happening() -> None:
    first, second = happening(STATUS)
    assert first.startswith("16 slightly different copies of small take turns")
    assert "has 41 of the 64 ratings" in second
    assert "being merged" in happening(replace(STATUS, state="merging"))[1]
    assert "9 of 16 are" in happening(replace(STATUS, ratings=64))[1]
    starting = happening(replace(STATUS, state="starting", waiting_for="The engine is loading."))
    assert starting[0] == "The engine is loading."
    failed = happening(replace(STATUS, state="failed", waiting_for="No model."))
    assert failed[0] == "No model."
    assert "kept" in failed[1]


def test_the_newest_merge_in_a_line() -> None:
    assert merged(None) == ""
    assert merged({"generation": 12, "ratings": 64}) == "Generation 13: merged 64 ratings."
    null = {"generation": 2, "next_generation": 3, "ratings": 8, "message": "Nothing to learn: all the same."}
    assert merged(null) == "Generation 3: nothing to learn: all the same."


@pytest.mark.parametrize(("value", "text"), [(0, "0%"), (0.001234, "0.12%"), (0.05, "5%"), (0.914, "91%"), (1, "100%")])
def test_percent(value: float, text: str) -> None:
    assert percent(value) == text
