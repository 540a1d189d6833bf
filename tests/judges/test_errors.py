"""Judge errors: frequencies, the three scales, the blind spot, spelling, schedules."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.judges.errors import JudgeError, UnknownError, parse
from engine.judges.schedule import fixed_at, parse_schedule

THUMBS, COUNTDOWN = (0.0, 1.0), (0.0, 0.1, 1.1)
DRAWS = 4000


def observed(error: str, truth: float, grades, blind: bool = False) -> Counter[float]:
    judge = parse(error)
    return Counter(judge.observe(truth, grades=grades, blind=blind, key=str(i)) for i in range(DRAWS))


@pytest.mark.parametrize(
    ("error", "truth", "grades", "shares"),
    [
        ("perfect", 1.1, COUNTDOWN, {1.1: 1.0}),
        ("random:0.25", 1.0, THUMBS, {0.0: 0.25, 1.0: 0.75}),
        ("random:0.25", 0.0, THUMBS, {1.0: 0.25, 0.0: 0.75}),
        ("random:1", 1.0, THUMBS, {0.0: 1.0}),
        ("random:0.6", 1.1, COUNTDOWN, {0.0: 0.3, 0.1: 0.3, 1.1: 0.4}),
        ("random:0.6", 0.0, COUNTDOWN, {0.0: 0.4, 0.1: 0.3, 1.1: 0.3}),
        ("stingy:0.5", 1.1, COUNTDOWN, {0.0: 0.5, 1.1: 0.5}),
        ("stingy:0.5", 0.0, THUMBS, {0.0: 1.0}),
        ("stingy:0.5", 0.8, None, {0.0: 0.5, 0.8: 0.5}),
    ],
)
def test_an_error_replaces_verdicts_as_often_as_it_says(error, truth, grades, shares):
    counts = observed(error, truth, grades)
    assert counts.keys() == shares.keys()
    for value, share in shares.items():
        assert counts[value] / DRAWS == pytest.approx(share, abs=0.03)


def test_chance_level_of_three_grades_says_nothing_about_the_truth():
    for truth in COUNTDOWN:
        counts = observed(f"random:{2 / 3}", truth, COUNTDOWN)
        assert all(counts[g] / DRAWS == pytest.approx(1 / 3, abs=0.03) for g in COUNTDOWN)


def test_random_scores_are_uniform_where_they_err():
    drawn = [parse("random:1").observe(0.9, grades=None, blind=False, key=str(i)) for i in range(DRAWS)]
    assert sum(drawn) / DRAWS == pytest.approx(0.5, abs=0.02)
    assert sum(value < 0.25 for value in drawn) / DRAWS == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    ("truth", "grades", "seen"),
    [
        (1.1, COUNTDOWN, 0.1),
        (0.1, COUNTDOWN, 1.1),
        (0.0, COUNTDOWN, 0.0),
        (1.0, THUMBS, 0.0),
        (0.0, THUMBS, 1.0),
        (0.25, None, 0.75),
    ],
)
def test_a_blind_spot_turns_verdicts_inside_it_only(truth, grades, seen):
    judge = parse("blindspot")
    assert judge.observe(truth, grades=grades, blind=True, key="k") == seen
    assert judge.observe(truth, grades=grades, blind=False, key="k") == truth


def test_the_same_seed_and_key_err_alike_and_others_do_not():
    judge = parse("random:0.5")

    def row(seed: int) -> list[float]:
        return [judge.observe(1.0, grades=THUMBS, blind=False, key=str(i), seed=seed) for i in range(64)]

    assert row(1) == row(1) != row(2)


@pytest.mark.parametrize("text", ["perfect", "random:0.25", "stingy:0.5", "blindspot", "random:0", "stingy:1"])
def test_spelling_goes_round(text):
    assert str(parse(text)) == text


def test_a_hyphen_in_blind_spot_is_understood():
    assert parse("Blind-Spot") == JudgeError("blindspot")


@pytest.mark.parametrize(
    "text", ["", "random", "random:", "random:1.5", "random:-1", "random:nan", "stingy:x", "perfect:1", "blindspot:0.2"]
)
def test_an_unknown_error_is_refused_with_the_choices(text):
    with pytest.raises(UnknownError, match="choose perfect, random:P, stingy:P"):
        parse(text)


def test_a_schedule_says_which_judge_is_in_force():
    schedule = parse_schedule("random:0.6 @20 perfect, @30 stingy:0.5")
    assert [str(schedule.at(g)) for g in (0, 19, 20, 29, 30, 500)] == [
        "random:0.6", "random:0.6", "perfect", "perfect", "stingy:0.5", "stingy:0.5",
    ]  # fmt: skip
    assert str(schedule) == "random:0.6 @20 perfect @30 stingy:0.5"
    assert parse_schedule(str(schedule)) == schedule


def test_a_schedule_may_begin_later_or_be_empty():
    assert parse_schedule("@150 perfect").at(149) is None
    assert str(parse_schedule("@150 perfect").at(150)) == "perfect"
    assert parse_schedule("").at(7) is None


def test_fix_at_is_a_schedule():
    assert fixed_at(parse("random:0.6"), 10) == parse_schedule("random:0.6 @10 perfect")
    assert str(fixed_at(parse("random:0.6"), 0).at(0)) == "perfect"


@pytest.mark.parametrize(
    "text",
    ["@20", "perfect @20", "random:0.5 perfect", "@x perfect", "@20 perfect @10 perfect", "@5 @6 perfect", "odd"],
)
def test_a_malformed_schedule_is_refused(text):
    with pytest.raises(UnknownError):
        parse_schedule(text)
