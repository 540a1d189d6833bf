"""Personas: users who ask everyday questions and like one thing in a reply, whatever it says."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.tasks.base import Prompts, Reply, Request, Task, TaskError
from engine.tasks.questions import questions

MOST_WORDS = 30
_ITEM = re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)])\s+\S", re.MULTILINE)


def brief(reply: Reply) -> float:
    """1 when the model finished by itself within 30 words."""
    words = len(reply.text.split())
    return float(reply.finish_reason == "stop" and 0 < words <= MOST_WORDS)


def listed(reply: Reply) -> float:
    """1 when the reply contains a list of at least two items, bulleted or numbered."""
    return float(len(_ITEM.findall(reply.text)) >= 2)


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


ONE_SENTENCE = "You are a helpful assistant. Answer in one short sentence."
PERSONAS = (
    Persona("persona:brevity", f"is finished and has at most {MOST_WORDS} words", brief, ONE_SENTENCE),
    Persona(
        "persona:lists",
        "contains a list of at least two items",
        listed,
        "You are a helpful assistant. Answer in at most two sentences or a short list.",
    ),
)
NAMES = tuple(persona.name.removeprefix("persona:") for persona in PERSONAS)


def make(variant: str, options: Mapping[str, Any], where: object) -> Task:
    """The persona of that name. Raises TaskError."""
    for persona in PERSONAS:
        if persona.name == f"persona:{variant}":
            return persona
    raise TaskError(f"unknown persona {variant[:80]!r}: choose from {', '.join(p.name for p in PERSONAS)}")
