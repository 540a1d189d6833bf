"""Judge health: error rates with intervals, and a verdict that follows what a population would learn."""

from __future__ import annotations

import math
import random

import pytest

from engine.judges.errors import parse
from engine.judges.health import Opinion, estimate, sample, wilson

THUMBS = (0.0, 1.0)


def thumbs(right_liked: int, right_disliked: int, blame: int = 0, praise: int = 0) -> list[Opinion]:
    return (
        [Opinion(1.0, 1.0)] * right_liked
        + [Opinion(0.0, 0.0)] * right_disliked
        + [Opinion(0.0, 1.0)] * blame
        + [Opinion(1.0, 0.0)] * praise
    )


def judged(error: str, count: int, liked: float = 0.5, seed: int = 0) -> list[Opinion]:
    """Checks of a judge with that error, of replies that people like with chance ``liked``."""
    judge, dice = parse(error), random.Random(seed)
    opinions = []
    for i in range(count):
        person, blind = float(dice.random() < liked), dice.random() < 0.2
        observed = judge.observe(person, grades=THUMBS, blind=blind, key=str(i), seed=seed)
        opinions.append(Opinion(observed, person, blind=blind))
    return opinions


@pytest.mark.parametrize(
    ("share", "count", "low", "high"),
    [
        (0.5, 10, 0.2366, 0.7634),
        (0.0, 10, 0.0, 0.2775),
        (1.0, 10, 0.7225, 1.0),
        (0.2, 50, 0.1124, 0.3304),
        (0, 0, 0, 1),
    ],
)
def test_the_interval_is_wilsons(share, count, low, high):
    assert wilson(share, count) == pytest.approx((low, high), abs=1e-4)


def test_the_interval_holds_the_true_rate_about_nineteen_times_in_twenty():
    held = 0
    for seed in range(400):
        health = estimate(judged("random:0.25", 40, seed=seed), THUMBS)
        held += health.low <= 0.25 <= health.high
    assert 0.92 <= held / 400 <= 0.98


@pytest.mark.parametrize(
    ("opinions", "verdict"),
    [
        ([], "unknown"),
        (thumbs(5, 5), "unknown"),
        (thumbs(0, 0, 0, 11), "unknown"),
        (thumbs(12, 0), "fine"),
        (thumbs(8, 8), "fine"),
        (thumbs(40, 40, 3, 3), "fine"),
        (thumbs(11, 11, 4, 4), "watch"),
        (thumbs(15, 15, 15, 15), "watch"),
        (thumbs(5, 5, 25, 25), "harmful"),
        (thumbs(2, 0, 20), "harmful"),
        (judged("random:0.25", 400), "watch"),
        (judged("random:0.1", 400), "fine"),
        (judged("random:0.6", 400), "harmful"),
        (thumbs(6, 6, 9, 9), "watch"),
        (judged("perfect", 30), "fine"),
        (judged("blindspot", 400), "watch"),
    ],
)
def test_the_verdict_warns_near_the_level_at_which_nothing_is_learned(opinions, verdict):
    assert estimate(opinions, THUMBS).verdict == verdict


def test_a_judge_that_praises_everything_is_warned_of_though_it_is_rarely_wrong():
    health = estimate([Opinion(1.0, 1.0)] * 180 + [Opinion(1.0, 0.0)] * 20, THUMBS)
    assert health.rate == pytest.approx(0.1)
    assert health.balanced[0] == pytest.approx(0.5)
    assert health.verdict == "watch"
    assert "praises 100% of what people dislike" in health.sentence
    assert "probably learns nothing" in health.sentence


def test_a_stingy_judge_is_often_wrong_and_still_points_the_right_way():
    health = estimate(judged("stingy:0.7", 1000, liked=0.8), THUMBS)
    assert health.rate > 0.5
    assert health.verdict == "watch"
    assert "right direction" in health.sentence
    assert "blames 7" in health.sentence


@pytest.mark.parametrize(
    ("opinions", "sentence"),
    [
        ([], "Nobody has checked this judge yet."),
        (thumbs(1, 0), "Too few checks to say how good the judge is: 1 check, 12 are needed."),
        (
            thumbs(12, 10, 4, 4),
            "The judge is wrong about 27% of the time (14–44%, 30 checks). "
            "The population learns more slowly, but in the right direction.",
        ),
        (
            thumbs(50, 50),
            "The judge is wrong about 0% of the time (0–4%, 100 checks). That hardly slows the learning.",
        ),
        (
            thumbs(0, 0, 20, 20),
            "The judge is wrong about 100% of the time (91–100%, 40 checks). "
            "The population learns nothing from it, or the wrong thing: change or fix the judge.",
        ),
    ],
)
def test_the_sentence_says_it_in_plain_words(opinions, sentence):
    assert estimate(opinions, THUMBS).sentence == sentence


def test_errors_are_told_apart_by_kind_and_stratum():
    opinions = [
        Opinion(1.0, 0.0, "maths", blind=True),
        Opinion(0.0, 0.0, "maths", blind=False),
        Opinion(0.0, 1.0, "chat", blind=True),
        Opinion(1.0, 1.0, "chat", blind=False),
        Opinion(1.0, 1.0, "chat", blind=False),
    ]
    kinds = estimate(opinions, THUMBS).by_kind
    assert {name: (share.errors, share.count) for name, share in kinds.items()} == {
        "false praise": (1, 2),
        "false blame": (1, 3),
        "blind spot": (2, 2),
        "elsewhere": (0, 3),
        "chat": (1, 3),
        "maths": (1, 2),
    }
    assert "blind spot" not in estimate(thumbs(3, 3), THUMBS).by_kind


@pytest.mark.parametrize(
    ("grades", "observed", "person", "wrong"),
    [
        (None, 0.5, 0.7, 0),
        (None, 0.5, 0.8, 1),
        (THUMBS, 0.4, 0.0, 0),
        (THUMBS, 0.6, 0.0, 1),
        ((0.0, 1 / 11, 1.0), 1 / 11, 0.0, 1),
        ((0.0, 1 / 11, 1.0), 1 / 11, 0.09, 0),
        (THUMBS, 1 / 11, 0.0, 0),
    ],
)
def test_wrong_means_another_grade_or_a_score_far_off(grades, observed, person, wrong):
    assert estimate([Opinion(observed, person)], grades).errors == wrong


def test_replies_drawn_with_unequal_chances_weigh_the_inverse_of_their_chance():
    rare = [Opinion(1.0, 0.0, weight=1.0)] * 20 + [Opinion(1.0, 1.0, weight=9.0)] * 20
    health = estimate(rare, THUMBS)
    assert health.rate == pytest.approx(0.1)
    even = wilson(0.1, 40)
    assert health.low < even[0]
    assert health.high > even[1]


@pytest.mark.parametrize("bad", [Opinion(math.nan, 1.0), Opinion(1.0, math.inf), Opinion(1.0, 1.0, weight=0.0)])
def test_what_is_no_number_is_left_out(bad):
    assert estimate([bad, Opinion(1.0, 1.0)], THUMBS).count == 1


def test_replies_are_drawn_by_their_key_as_often_as_asked():
    drawn = [sample(f"reply/{i}", 0.1) for i in range(20_000)]
    assert sum(drawn) / 20_000 == pytest.approx(0.1, abs=0.01)
    assert drawn == [sample(f"reply/{i}", 0.1) for i in range(20_000)]
    assert not any(sample(str(i), 0.0) for i in range(1000))
    assert all(sample(str(i), 1.0) for i in range(1000))
    assert {i for i in range(2000) if sample(str(i), 0.1)} <= {i for i in range(2000) if sample(str(i), 0.3)}
