"""What a language model that judges wrote, read as a score: ``{"score": 7, "why": "kind"}`` is (0.7, "kind")."""

from __future__ import annotations

import json

from engine.judges import writable

FAILURES = ("refused", "timeout", "unreachable", "server", "nonsense", "cap")
MOST_CHARACTERS = 20_000
"""Of what the judge writes, and of the conversation and the reply that it is shown."""
MOST_OBJECTS = 50


class Failed(Exception):
    """One call gave no verdict: its kind, one of :data:`FAILURES`, and why in words."""

    def __init__(self, kind: str, why: str, *, again: bool = False, wait: float = 0.0) -> None:
        super().__init__(why)
        self.kind, self.why, self.again, self.wait = kind, why, again, wait


def parse(text: str) -> tuple[float, str]:
    """(score in 0..1, reason) of what a judge wrote: one object with a score, anywhere. Raises Failed."""
    found: dict[float, str] = {}
    decoder = json.JSONDecoder()
    text, place = text[:MOST_CHARACTERS], -1
    for _ in range(MOST_OBJECTS):
        place = text.find("{", place + 1)
        if place < 0:
            break
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        place = end - 1
        score = value.get("score") if isinstance(value, dict) else None
        if isinstance(score, (int, float)) and not isinstance(score, bool) and 0 <= score <= 10:
            why = value.get("why")
            found[score / 10] = why if isinstance(why, str) else ""
    if len(found) != 1:
        raise Failed("nonsense", "the judge answered nonsense: " + ("two scores" if found else "no score from 0 to 10"))
    ((score, why),) = found.items()
    return score, " ".join(writable(why[:1000]).split())[:300]
