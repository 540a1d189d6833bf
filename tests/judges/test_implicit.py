"""Implicit feedback: a table of what people say after a reply, and how signals become rewards."""

from __future__ import annotations

import time

import pytest

from engine.judges import JudgeFault
from engine.judges.implicit import (
    RULES,
    Agreement,
    Rule,
    Signal,
    action,
    agreement,
    combine,
    same_question,
    signals,
    with_weights,
)

QUESTION = "What is the capital of Australia?"
REPLY = "The capital of Australia is Sydney."


def rules_of(message: str, question: str = QUESTION, reply: str = REPLY) -> set[str]:
    return {signal.rule for signal in signals(question, reply, message)}


@pytest.mark.parametrize(
    "message",
    [
        "No, it's Canberra.",
        "no. that is Canberra",
        "Nope, try Canberra",
        "No! I said the capital",
        "No - Canberra",
        "That's wrong.",
        "that’s wrong, can you fix it?",
        "This is not right",
        "That isn't correct.",
        "It's still wrong",
        "Thanks, but that's wrong.",
        "Sorry, you're mistaken.",
        "You made a mistake in the second step.",
        "That's not what I asked.",
        "Not what I wanted, sorry",
        "I didn't ask for a poem.",
        "You didn't answer my question.",
        "Wrong.",
        "Incorrect, it is Canberra",
        "Not quite right.",
        "Actually, it's Canberra.",
        "Actually that was in 1927.",
        "I meant the country",
        "Hmm, that's incorrect",
        "This isn't what I wanted",
        "I think that's wrong",
        "that doesn't look right",
        "> The capital is Sydney.\nThat's wrong.",
    ],
)
def test_a_correction_is_seen_and_is_nothing_else(message):
    assert rules_of(message) == {"correction"}


@pytest.mark.parametrize(
    "message",
    [
        "Thanks!",
        "thank you so much",
        "Great, thanks",
        "Ok, thank you. What about New Zealand?",
        "Thanks, that's perfect.",
        "thx",
        "Wow, cool, thanks a lot!",
        "Thank you for the explanation.",
    ],
)
def test_thanks_are_seen_and_are_nothing_else(message):
    assert rules_of(message) == {"thanks"}


@pytest.mark.parametrize(
    "message",
    [
        "No, thanks.",
        "No problem.",
        "No, that's all.",
        "No, that's fine, go on",
        "No, that is perfectly right.",
        "No worries",
        "No. 5 is the best chapter, tell me about it",
        "None of my friends knew!",
        "Now what about Austria?",
        "Nothing else.",
        "What's wrong with this code?",
        "Explain why that's wrong",
        "Is it wrong to lie?",
        "It is wrong to steal. Discuss.",
        "Can you write a thank you note?",
        "Thank you letter for my teacher, please",
        "Thanks to the new law rents fell. Why?",
        "Thanks for nothing",
        "Thanks in advance",
        "Thanks but no thanks",
        "Thanks, but can you make it shorter?",
        "Thanks, I still don't get it",
        "How do I say thanks in French?",
        "It's not true that cats fly, right?",
        "That was wrong of him",
        "This is false advertising, right?",
        "Write a story that begins: That's wrong, said Tom",
        "Not true love, but friendship?",
        "No, but what about Spain?",
        "Actually, can you make it a poem?",
        "Actually, that's great",
        "What is the capital of Austria?",
        "What is the population of Australia?",
        "And who lives there?",
        "Tell me something that's not right in the head",
        "> No, that's wrong.\nDid you write this?",
        "",
        "?",
    ],
)
def test_what_is_no_feedback_says_nothing(message):
    assert rules_of(message) == set()


@pytest.mark.parametrize(
    ("message", "expected"),
    [("No, I have not.", set()), ("Actually, it's for my son.", set()), ("That's wrong.", {"correction"})],
)
def test_an_answer_to_the_models_own_question_is_no_correction(message, expected):
    assert rules_of(message, reply="Have you been there?") == expected


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (QUESTION, QUESTION, True),
        (QUESTION, "what is the capital of australia", True),
        (QUESTION, "Please, what is the capital of Australia?", True),
        (QUESTION, "I asked: what is the capital of Australia?", True),
        (QUESTION, "The capital of Australia is what?", True),
        (QUESTION, "What is the capital of Austria?", False),
        (
            "How many of the people in the north of the country voted?",
            "How many of the people in the south of the country voted?",
            False,
        ),
        (
            "Give me 3 names for a small black cat with long white paws",
            "Give me 5 names for a small black cat with long white paws",
            False,
        ),
        (
            "Name the tallest mountain on the whole wide earth",
            "Name the tallest mountain on the whole wide earth in 1700",
            False,
        ),
        ("Why?", "Why?", False),
        ("", "", False),
        ("Wie heißt die Hauptstadt von Peru?", "wie heißt die hauptstadt von peru", True),
    ],
)
def test_a_question_asked_again_is_told_from_one_that_is_like_it(first, second, same):
    assert same_question(first, second) is same
    assert same_question(second, first) is same
    assert ("asked_again" in rules_of(second, first)) is same


def test_a_question_asked_again_with_a_no_is_both():
    assert rules_of("No, what is the capital of Australia?") == {"asked_again", "correction"}


def test_every_rule_has_a_value_a_weight_and_words():
    assert [rule.name for rule in RULES] == ["asked_again", "correction", "regenerate", "copy", "thanks"]
    assert all(0 <= rule.value <= 1 and 0 < rule.weight <= 1 and rule.label and rule.help for rule in RULES)


def test_buttons_are_signals():
    assert (action("copy").value, action("regenerate").value) == (1.0, 0.0)
    with pytest.raises(JudgeFault, match="regenerate, copy"):
        action("thanks")


def test_a_rule_that_is_left_out_gives_no_signal_and_weights_can_be_set():
    rules = with_weights({"thanks": 0.0, "copy": 1})
    assert signals(QUESTION, REPLY, "Thanks!", rules) == [Signal("thanks", 1.0, 0.0)]
    assert signals(QUESTION, REPLY, "Thanks!", ()) == []
    assert action("copy", rules) == Signal("copy", 1.0, 1.0)
    assert isinstance(rules[0], Rule)


@pytest.mark.parametrize(
    "weights", [{"sighs": 0.5}, {"copy": 2}, {"copy": True}, {"copy": float("nan")}, {"copy": "1"}]
)
def test_a_weight_that_is_not_usable_is_refused(weights):
    with pytest.raises(JudgeFault, match=r"unknown rule|number from 0 to 1"):
        with_weights(weights)


@pytest.mark.parametrize(
    ("real", "implicit", "expected"),
    [
        (None, [], (None, 0.0)),
        (None, [(1.0, 0.0)], (None, 0.0)),
        (None, [(1.0, 0.3)], (1.0, 0.3)),
        (None, [(1.0, 0.3), (0.0, 0.1)], (0.75, 0.4)),
        (None, [(0.0, 0.5)] * 5, (0.0, 1.0)),
        (0.0, [(1.0, 0.3)] * 9, (0.0, 1.0)),
        (1.0, [], (1.0, 1.0)),
        (None, [Signal("copy", 1.0, 0.5)], (1.0, 0.5)),
    ],
)
def test_a_real_rating_outweighs_every_signal(real, implicit, expected):
    reward, weight = combine(real, implicit)
    assert (reward, weight) == (
        expected[0] if expected[0] is None else pytest.approx(expected[0]),
        pytest.approx(expected[1]),
    )


def test_agreement_with_thumbs_comes_with_wilsons_interval():
    found = agreement([("copy", 1.0, 1.0)] * 8 + [("copy", 1.0, 0.0)] * 2 + [("thanks", 1.0, 1.0)])
    assert found["copy"] == Agreement(0.8, pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4), 10)
    assert (found["thanks"].share, found["thanks"].high, found["thanks"].count) == (1.0, 1.0, 1)
    assert agreement([]) == {}


@pytest.mark.parametrize(
    "text", ["no, " * 300_000, "thanks " * 100_000, "that " * 100_000, "\n" * 10**6, "great " * 400, "x" * 10**6]
)
def test_a_huge_message_is_read_in_no_time(text):
    started = time.monotonic()
    signals(text, text, text)
    assert time.monotonic() - started < 0.5
