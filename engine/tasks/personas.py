"""Personas: users who ask everyday questions and like one thing in a reply, whatever it says."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.tasks import tastes
from engine.tasks.base import Prompts, Reply, Request, Task, TaskError
from engine.tasks.cards import Option, read_options
from engine.tasks.questions import questions
from engine.tasks.rules import KINDS, parse


@functools.lru_cache(maxsize=1)
def everyday() -> Prompts:
    """The questions that all personas ask."""
    return Prompts.divide(questions())


class Persona(Task):
    """A taste over everyday questions."""

    shares_prompt = True

    def __init__(self, name: str, likes: str, taste: Callable[[Reply], float], system_prompt: str) -> None:
        self.name, self.likes, self.taste, self.system_prompt = name, likes, taste, system_prompt

    @property
    def held_out(self) -> Sequence[Request]:
        return [Request(prompt) for prompt in everyday().held_out]

    def sample(self, seed: int, index: int) -> Request:
        return Request(everyday().sample(seed, index))

    def judge(self, request: Request, reply: Reply) -> float:
        return self.taste(reply)


def _in(language: str) -> str:
    return f"You are a helpful assistant. Answer in {language.title()}, in at most two sentences."


def _brief(words: int) -> Persona:
    likes = f"is finished and has at most {words} word{'s' if words > 1 else ''}"
    return Persona("persona:brevity", likes, functools.partial(tastes.brief, most=words), ONE_SENTENCE)


ONE_SENTENCE = "You are a helpful assistant. Answer in one short sentence."
TWO_SENTENCES = "You are a helpful assistant. Answer in at most two sentences."
PERSONAS = (
    _brief(tastes.MOST_WORDS),
    Persona(
        "persona:lists",
        "contains a list of at least two items",
        tastes.listed,
        "You are a helpful assistant. Answer in at most two sentences or a short list.",
    ),
    Persona(
        "persona:enthusiasm",
        "says something and has an exclamation mark",
        tastes.enthusiastic,
        "You are a cheerful assistant. Answer in at most two sentences.",
    ),
    Persona(
        "persona:politeness",
        "says something and has a polite phrase, such as please, thank you, happy to or let me know",
        tastes.polite,
        "You are a polite assistant. Answer in at most two sentences.",
    ),
    Persona(
        "persona:no-hedging",
        "says something without a word that hedges, such as maybe, might, usually or it depends",
        tastes.plainspoken,
        TWO_SENTENCES,
    ),
    Persona(
        "persona:json",
        "is nothing but one JSON object or array that is not empty",
        tastes.as_json,
        'You are a helpful assistant. Answer with a short JSON object, for example {"answer": "It is blue."}',
    ),
)
LANGUAGE = Option(
    "language", "choice", tastes.LANGUAGES[0], tastes.LANGUAGES, "the language that replies should be written in"
)
MOST_WORDS = 200
"""That brevity may allow: replies have no more."""
WORDS = Option("words", "int", tastes.MOST_WORDS, help=f"the most words of a good reply, 1 to {MOST_WORDS}")
RULE = Option("rule", "text", None, help=f"what a good reply is: clauses joined by and, of {KINDS}")
NAMES = (*(persona.name.removeprefix("persona:") for persona in PERSONAS), "language")
"""Those that can do without options."""
OPTIONS: dict[str, tuple[Option, ...]] = {
    **dict.fromkeys(NAMES, ()),
    "brevity": (WORDS,),
    "language": (LANGUAGE,),
    "custom": (RULE,),
}
"""By name, in the order in which they are offered."""


def make(variant: str, options: Mapping[str, Any], where: object) -> Task:
    """The persona of that name. Raises TaskError."""
    name = f"persona:{variant}"
    if variant not in OPTIONS:
        raise TaskError(f"unknown persona {variant[:80]!r}: choose from {', '.join(f'persona:{n}' for n in OPTIONS)}")
    values = read_options(name, options, OPTIONS[variant])
    if variant == "brevity":
        if not 1 <= (words := int(values["words"])) <= MOST_WORDS:
            raise TaskError(f"option words must be between 1 and {MOST_WORDS}, not {words}")
        return _brief(words)
    if variant == "language":
        return _speaker(str(values["language"]))
    if variant == "custom":
        rule = parse(str(values["rule"]))
        return Persona(name, f"keeps this rule: {rule}", rule.judge, TWO_SENTENCES)
    return next(persona for persona in PERSONAS if persona.name == name)


def _speaker(language: str) -> Persona:
    return Persona(
        "persona:language",
        f"is written in {language.title()}",
        lambda reply: float(tastes.language(reply.text) == language),
        _in(language),
    )


PROMPTS = frozenset(
    {ONE_SENTENCE, TWO_SENTENCES}
    | {persona.system_prompt for persona in PERSONAS}
    | {_speaker(language).system_prompt for language in tastes.LANGUAGES}
)
"""Every system message that a persona brings; another one was written by somebody."""
