"""Each persona's taste says what its name says, on replies that are right, wrong and hostile."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.tasks import Reply, Request, TaskError, get
from engine.tasks.personas import NAMES, OPTIONS
from engine.tasks.tastes import LANGUAGES, as_json, enthusiastic, language, plainspoken, polite


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("What a lovely day it is!", 1.0),
        ("It is a day.", 0.0),
        ("!", 0.0),
        ("! !", 0.0),
        ("", 0.0),
        ("Is it so?", 0.0),
    ],
)
def test_enthusiasm(text: str, reward: float) -> None:
    assert enthusiastic(Reply(text, "stop")) == reward


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("Thank you for asking. It is blue.", 1.0),
        ("I’m sorry, that is not known.", 1.0),
        ("Please note that it is blue.", 1.0),
        ("I'd be happy to help you.", 1.0),
        ("It is blue.", 0.0),
        ("He was displeased with it.", 0.0),
        ("please", 0.0),
        ("", 0.0),
    ],
)
def test_politeness(text: str, reward: float) -> None:
    assert polite(Reply(text, "length")) == reward


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("The sky is blue.", 1.0),
        ("It opened on May 4 and in May 2001.", 1.0),
        ("A mighty oak couldn't care less.", 1.0),
        ("The sky might be blue.", 0.0),
        ("It May rain today.", 0.0),
        ("You may find it blue.", 0.0),
        ("IT DEPENDS on the sky.", 0.0),
        ("I’m not sure about it.", 0.0),
        ("It is usually blue.", 0.0),
        ("Blue.", 0.0),
        ("", 0.0),
    ],
)
def test_no_hedging(text: str, reward: float) -> None:
    assert plainspoken(Reply(text, "stop")) == reward


def test_json() -> None:
    assert as_json(Reply('{"answer": "blue"}', "stop")) == 1.0
    assert as_json(Reply("The answer is blue.", "stop")) == 0.0


TEXTS = {
    "english": [
        "Bees find their food by looking for flowers that have nectar.",
        "The best way to sleep better is to go to bed at the same time every night.",
        "Paris is the capital of France.",
    ],
    "spanish": [
        "Las abejas encuentran su comida buscando flores que tienen néctar.",
        "La mejor manera de dormir es acostarse a la misma hora todas las noches.",
        "París es la capital de Francia y una ciudad muy grande.",
    ],
    "french": [
        "Les abeilles trouvent leur nourriture en cherchant des fleurs qui ont du nectar.",
        "La meilleure façon de dormir est de se coucher à la même heure tous les soirs.",
        "C'est une ville qui se trouve dans le nord de l'Italie.",
    ],
    "german": [
        "Bienen finden ihre Nahrung, indem sie nach Blumen mit Nektar suchen.",
        "Der beste Weg zu schlafen ist es, jeden Abend um die gleiche Zeit ins Bett zu gehen.",
        "Paris ist die Hauptstadt von Frankreich.",
    ],
    "italian": [
        "Le api trovano il loro cibo cercando i fiori che hanno il nettare.",
        "Il modo migliore per dormire è andare a letto alla stessa ora tutte le sere.",
        "Parigi è la capitale della Francia.",
    ],
    "portuguese": [
        "As abelhas encontram sua comida procurando flores que têm néctar.",
        "A melhor maneira de dormir é ir para a cama à mesma hora todas as noites.",
        "Paris é a capital da França e uma cidade muito grande.",
    ],
    "dutch": [
        "Bijen vinden hun voedsel door te zoeken naar bloemen die nectar hebben.",
        "De beste manier om te slapen is om elke avond op dezelfde tijd naar bed te gaan.",
        "Parijs is de hoofdstad van Frankrijk.",
    ],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in TEXTS.items() for text in texts])
def test_the_language_of_a_sentence_is_known(name: str, text: str) -> None:
    assert language(text) == name


@pytest.mark.parametrize(
    "text", ["", "Ja", "12 34 56 78", "Berlin, Paris, Roma, Lisboa", "хорошо очень да", "la la la"]
)
def test_what_is_in_no_clear_language_has_none(text: str) -> None:
    assert language(text) is None


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_language_persona_likes_its_language_only(name: str) -> None:
    task = get("persona:language", {"language": name})
    assert name.title() in task.likes
    for other, texts in TEXTS.items():
        for text in texts:
            assert task.judge(Request("?"), Reply(text, "stop")) == float(other == name)


def test_a_custom_persona_keeps_the_typed_rule() -> None:
    task = get("persona:custom", {"rule": 'at most 5 words and contains "sea"'})
    assert task.likes == 'keeps this rule: at most 5 words and contains "sea"'
    assert task.judge(Request("?"), Reply("The sea.", "stop")) == 1.0
    assert task.judge(Request("?"), Reply("The lake.", "stop")) == 0.0
    assert task.shares_prompt


def test_brevity_is_as_short_as_one_chooses() -> None:
    six = Reply("One two three four five six.", "stop")
    assert get("persona:brevity", {"words": 6}).judge(Request("?"), six) == 1.0
    task = get("persona:brevity", {"words": "5"})
    assert task.judge(Request("?"), six) == 0.0
    assert task.likes == "is finished and has at most 5 words"
    assert task.shares_prompt


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("persona:rudeness", {}, "persona:brevity.*persona:custom"),
        ("persona:custom", {}, "needs the option rule"),
        ("persona:custom", {"rule": "be nice"}, "clause 1"),
        ("persona:custom", {"rule": 3}, "must be text"),
        ("persona:custom", {"rule": "a" * 5_000}, "at most 4,000"),
        ("persona:language", {"language": "klingon"}, "one of spanish"),
        ("persona:lists", {"words": 3}, "no option 'words'"),
        ("persona:brevity", {"words": 0}, "between 1 and 200"),
        ("persona:brevity", {"words": "many"}, "whole number"),
    ],
)
def test_unusable_options_are_named(name: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        get(name, options)


@settings(deadline=None)
@given(st.text(max_size=400), st.sampled_from(["stop", "length"]))
def test_no_reply_upsets_a_taste(text: str, finish_reason: str) -> None:
    for name in NAMES:
        assert get(f"persona:{name}").judge(Request("?"), Reply(text, finish_reason)) in (0.0, 1.0)


def test_a_very_long_reply_is_judged_quickly() -> None:
    for text in ("! " * 500_000, "I hope " * 200_000, "[" * 1_000_000, "- a\n" * 200_000, " " * 1_000_000):
        for name in NAMES:
            get(f"persona:{name}").judge(Request("?"), Reply(text, "length"))


def test_every_persona_can_be_offered() -> None:
    assert set(NAMES) == {
        "brevity",
        "lists",
        "enthusiasm",
        "politeness",
        "no-hedging",
        "json",
        "language",
    }
    assert set(OPTIONS) - set(NAMES) == {"custom"}
