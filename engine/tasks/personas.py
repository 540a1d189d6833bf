"""Personas: users who ask everyday questions and like one thing in a reply, whatever it says."""

from __future__ import annotations

import re

from engine.tasks.base import Prompts, Reply, Task
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


PROMPTS = Prompts.divide(questions())

PERSONAS = (
    Task(
        name="persona:brevity",
        likes=f"is finished and has at most {MOST_WORDS} words",
        prompts=PROMPTS,
        judge=brief,
        system_prompt="You are a helpful assistant. Answer in one short sentence.",
    ),
    Task(
        name="persona:lists",
        likes="contains a list of at least two items",
        prompts=PROMPTS,
        judge=listed,
        system_prompt="You are a helpful assistant. Answer in at most two sentences or a short list.",
    ),
)
