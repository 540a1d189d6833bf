"""Prompts are many, repeatable and never held out; judges say what their names say."""

from __future__ import annotations

import itertools

import pytest

from engine.tasks import Reply, Request, get, names
from engine.tasks.base import HELD_OUT, Prompts
from engine.tasks.personas import everyday
from engine.tasks.questions import questions
from engine.tasks.tastes import brief, listed


def test_there_are_many_distinct_questions() -> None:
    everything = questions()
    assert len(everything) == len(set(everything)) >= 20_000 + HELD_OUT
    assert all(q == " ".join(q.split()) and q[-1] in ".?" and "{" not in q for q in everything)


@pytest.mark.parametrize("name", [n for n in names() if n.startswith("persona:")])
def test_held_out_prompts_are_never_sampled(name: str) -> None:
    task = get(name)
    held_out = set(task.held_out)
    assert len(held_out) == 256
    rest = {Request(prompt) for prompt in everyday().rest}
    assert held_out.isdisjoint(rest)
    assert {r.prompt for r in held_out | rest} == set(questions())
    for seed in (0, 1, 2**31 - 1):
        sampled = {task.sample(seed, index) for index in range(len(rest))}
        assert sampled == rest


def test_the_held_out_set_is_pinned() -> None:
    """Scores of different versions are only comparable while this stays."""
    assert [request.prompt for request in get("persona:brevity").held_out[:3]] == [
        "What question do children ask about recycling?",
        "Can you compare snails and reindeer?",
        "Which country is famous for noodle soup?",
    ]


def test_samples_depend_on_the_seed_and_the_index_only() -> None:
    task = get("persona:brevity")
    first = [task.sample(7, index) for index in range(200)]
    assert first == [task.sample(7, index) for index in range(200)]
    assert len(set(first)) == 200
    assert first != [task.sample(8, index) for index in range(200)]


def test_prompts_come_again_in_another_order_when_all_have_been_asked() -> None:
    prompts = Prompts.divide([str(i) for i in range(60)], held_out=10)
    once, twice = ([prompts.sample(1, turn * 50 + i) for i in range(50)] for turn in (0, 1))
    assert sorted(once) == sorted(twice)
    assert once != twice


def test_divide_refuses_repeats_and_too_few() -> None:
    with pytest.raises(ValueError, match="twice"):
        Prompts.divide(["a", "b", "a"], held_out=1)
    with pytest.raises(ValueError, match="leave nothing"):
        Prompts.divide(["a", "b"], held_out=2)


def words(count: int) -> str:
    return " ".join(itertools.repeat("word", count))


@pytest.mark.parametrize(
    ("text", "finish_reason", "reward"),
    [
        (words(1), "stop", 1.0),
        (words(30), "stop", 1.0),
        (words(31), "stop", 0.0),
        (words(30), "length", 0.0),
        ("", "stop", 0.0),
        (" \n", "stop", 0.0),
    ],
)
def test_brevity(text: str, finish_reason: str, reward: float) -> None:
    assert brief(Reply(text, finish_reason)) == reward


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("Some:\n- one\n- two", 1.0),
        ("1. one\n2. two\n3. three", 1.0),
        ("  * one\n\n  * two", 1.0),
        ("• one\n• two", 1.0),
        ("1) one\n2) two", 1.0),
        ("Only:\n- one", 0.0),
        ("one - two - three", 0.0),
        ("1.5 litres\n2.5 litres", 0.0),
        ("-\n-\n", 0.0),
        ("**bold** words\n**more** words", 0.0),
        ("", 0.0),
    ],
)
def test_lists(text: str, reward: float) -> None:
    assert listed(Reply(text, "length")) == reward


def test_an_unknown_task_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"persona:brevity, persona:lists"):
        get("persona:rudeness")
