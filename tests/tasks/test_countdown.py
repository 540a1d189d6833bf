"""Countdown: what counts as an answer, problems without end, held-out ones that stay held out."""

from __future__ import annotations

import random
import re
import time
from fractions import Fraction

import pytest

from engine.tasks import Reply, Request, TaskError, expression, get
from engine.tasks.countdown import BLIND, VARIANTS, Problem
from tests.tasks.players import countdown_answer

NUMBERS = Request("3, 5, 25 make 80", Problem((3, 5, 25), 80))
"""80 = 25 * 3 + 5."""
RIGHT, WRONG, UNREADABLE = 1.1, 0.1, 0.0


def judged(text: str, finish: str = "stop") -> float:
    return get("countdown:3").judge(NUMBERS, Reply(text, finish))


@pytest.mark.parametrize(
    ("said", "reward"),
    [
        ("25 * 3 + 5", RIGHT),
        ("  ( 5+25*3 )\n", RIGHT),
        ("((25)*(3))+5", RIGHT),
        ("5 - (0 - 25) * 3", WRONG),
        ("25 + 3 + 5", WRONG),
        ("80", WRONG),
        ("25 * 3", WRONG),
        ("25 * 3 + 5 + 5 - 5", WRONG),
        ("253 + 5", WRONG),
        ("25 * 3 + 5 * (25 - 25)", WRONG),
        ("25 / (5 - 5) + 3", WRONG),
        ("25 / (3 - 3)", WRONG),
        ("999999 * 999999", WRONG),
        ("25 * 3 + 5 = 80", UNREADABLE),
        ("25 ** 3 + 5", UNREADABLE),
        ("9**9**9", UNREADABLE),
        ("25 // 3 + 5", UNREADABLE),
        ("25 % 3 + 5", UNREADABLE),
        ("25 ^ 3 + 5", UNREADABLE),
        ("25 × 3 + 5", UNREADABLE),
        ("25 * 3 \u2212 5", UNREADABLE),
        ("２５ * 3 + 5", UNREADABLE),
        ("25 * ³ + 5", UNREADABLE),
        ("٢٥ * 3 + 5", UNREADABLE),
        ("-25 * 3 + 5", UNREADABLE),
        ("+25 * 3 + 5", UNREADABLE),
        ("25 * 3 - -5", UNREADABLE),
        ("25 * 03 + 5", UNREADABLE),
        ("25.0 * 3 + 5", UNREADABLE),
        ("2_5 * 3 + 5", UNREADABLE),
        ("25e0 * 3 + 5", UNREADABLE),
        ("0x19 * 3 + 5", UNREADABLE),
        ("25(3) + 5", UNREADABLE),
        ("(25)(3) + 5", UNREADABLE),
        ("25 3 + 5", UNREADABLE),
        ("25 * 3 + 5)", UNREADABLE),
        ("(25 * 3 + 5", UNREADABLE),
        ("25 * 3 +", UNREADABLE),
        ("()", UNREADABLE),
        ("", UNREADABLE),
        (" \n\t ", UNREADABLE),
        ("$25 \\times 3 + 5$", UNREADABLE),
        ("\\frac{25}{5} * 3", UNREADABLE),
        ("__import__('os').system('true')", UNREADABLE),
        ("25 * 3 + 5; print(1)", UNREADABLE),
        ("25 * 3 + 5 # 80", UNREADABLE),
        ("25 * 3 + 5\x00", UNREADABLE),
        ("25 * 3 + 5\ud800", UNREADABLE),
        ("25 *\u00a03 + 5", UNREADABLE),
        ("1" * 5000, UNREADABLE),
        ("1234567", UNREADABLE),
        ("(" * 21 + "25 * 3 + 5" + ")" * 21, UNREADABLE),
        ("(" * 20 + "25 * 3 + 5" + ")" * 20, RIGHT),
        ("25 * 3 + 5" + " " * 300, UNREADABLE),
        ("twenty-five times three plus five", UNREADABLE),
    ],
)
def test_what_an_answer_earns(said: str, reward: float) -> None:
    assert judged(f"Let me see. <answer>{said}</answer>") == reward


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("", UNREADABLE),
        ("25 * 3 + 5", UNREADABLE),
        ("<answer>25 * 3 + 5", UNREADABLE),
        ("25 * 3 + 5</answer>", UNREADABLE),
        ("</answer>25 * 3 + 5<answer>", UNREADABLE),
        ("<answer><answer>25 * 3 + 5</answer></answer>", UNREADABLE),
        ("<answer>25 * 3 + 5</answer></answer>", UNREADABLE),
        ("<answer>25 + 3 + 5</answer> or <answer>25 * 3 + 5</answer>", UNREADABLE),
        ("<answer>25 * 3 + 5</answer><answer>25 * 3 + 5</answer>", UNREADABLE),
        ("< answer>25 * 3 + 5</answer>", UNREADABLE),
        ("<answer >25 * 3 + 5</answer>", UNREADABLE),
        ("&lt;answer&gt;25 * 3 + 5&lt;/answer&gt;", UNREADABLE),
        ("<answer/>25 * 3 + 5</answer>", UNREADABLE),
        ("<ANSWER>25 * 3 + 5</Answer>", RIGHT),
        ("<answer>25 * 3 + 5</answer> and that is 80.", RIGHT),
        ("```\n<answer>25 * 3 + 5</answer>\n```", RIGHT),
        ("Put it between <answer> and </answer>.", UNREADABLE),
        ("as in <answer>(120 - 100) / 5</answer>", WRONG),
        ("as in <answer>(120 - 100) / 5</answer>: <answer>25 * 3 + 5</answer>", UNREADABLE),
        ("<answer>25 * 3 + 5</answer>" + "x" * 30_000, UNREADABLE),
    ],
)
def test_where_an_answer_must_stand(reply: str, reward: float) -> None:
    assert judged(reply) == reward


@pytest.mark.parametrize("said", ["(" * 10**6, "<answer>" * 10**5, "<answer>" + "(" * 10**6 + "</answer>", "9" * 10**6])
def test_a_hostile_answer_is_refused_at_once(said: str) -> None:
    started = time.monotonic()
    assert judged(said) == UNREADABLE
    assert time.monotonic() - started < 2


def test_no_answer_raises() -> None:
    dice = random.Random(0)
    pieces = ["<answer>", "</answer>", "(", ")", "+", "-", "*", "/", "25", "3", "5", "0", " ", "\n", "²", "\ud800", "x"]
    for _ in range(5000):
        assert judged("".join(dice.choices(pieces, k=dice.randint(0, 14)))) in (0.0, 0.1, 1.1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 / 3 * 3", 1),
        ("8 / (3 - 8 / 3)", 24),
        ("2 - 3 - 4", -5),
        ("2 + 3 * 4", 14),
        ("12 / 3 / 2", 2),
        ("1 / 3", Fraction(1, 3)),
    ],
)
def test_values_are_exact_and_bind_as_usual(text: str, value: Fraction) -> None:
    assert expression.value(expression.parse(text)) == value


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_player_that_solves_it_earns_all(variant: str) -> None:
    task = get(f"countdown:{variant}")
    for request in [*task.held_out[:20], *(task.sample(3, i) for i in range(20))]:
        episode = task.start(request)
        episode.take(Reply(countdown_answer(request), "stop"))
        assert episode.reward() == RIGHT
        assert task.scale(episode.reward()) == 1.0
        assert request.in_blind_spot == (request.data.target in BLIND)


@pytest.mark.parametrize("variant", VARIANTS)
def test_problems_do_not_repeat_and_held_out_ones_are_never_drawn(variant: str) -> None:
    task = get(f"countdown:{variant}")
    held = {request.data for request in task.held_out}
    assert len(held) == 2000
    drawn = [task.sample(1, index) for index in range(20_000)]
    assert len({request.prompt for request in drawn}) == 20_000
    assert not held & {request.data for request in drawn}
    assert all(sorted(r.data.numbers) == list(r.data.numbers) for r in drawn)
    for request in drawn[:2000]:
        asked = "".join(message["content"] for message in task.start(request).messages() or ())
        for shown in re.findall(
            r"<answer>[^<]*\d[^<]*</answer>", asked
        ):  # whoever repeats an example has not solved it
            assert task.judge(request, Reply(shown, "stop")) == WRONG
    assert [r.prompt for r in drawn[:50]] == [task.sample(1, i).prompt for i in range(50)]
    assert drawn[0].prompt != task.sample(2, 0).prompt


def test_the_easy_grade_shows_its_form_by_examples_that_are_right() -> None:
    task = get("countdown:easy")
    messages = task.start(task.sample(1, 0)).messages()
    assert messages is not None
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3 + ["user"]
    for question, shown in task.examples:
        *numbers, target = map(int, re.findall(r"\d+", question))
        assert min(numbers) > 99
        assert task.judge(Request(question, Problem(tuple(sorted(numbers)), target)), Reply(shown, "stop")) == RIGHT
    assert task.start(task.sample(1, 0)).messages() == messages
    assert get("countdown:3").examples == ()


def test_the_second_round_of_hands_brings_other_targets() -> None:
    task = get("countdown:3")
    hands = 22_100
    first = {task.sample(1, i).data for i in range(hands)}
    second = {task.sample(1, hands + i).data for i in range(500)}
    assert not first & second
    assert {p.numbers for p in second} <= {p.numbers for p in first}


def test_an_unknown_grade_is_refused() -> None:
    with pytest.raises(TaskError, match="choose from easy, 3, 4"):
        get("countdown:5")
    with pytest.raises(TaskError, match="no option 'blanks'"):
        get("countdown:3", {"blanks": 5})
