"""BIG-Bench's records as requests: how they are read, what the prompt looks like, how a reply is judged."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import string
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.tasks import scores
from engine.tasks.base import Request
from engine.tasks.bigbench_table import CATEGORY, OPEN_ENDED

LONGEST_PROMPT = 4_000
"""UTF-8 bytes: a byte-level tokenizer makes at most one token of each, so that it fits a context of 4,096 tokens."""
LONGEST_ANSWER = 400
"""Characters of the shortest answer that has to be written out; a longer one does not fit a reply."""
MOST_LINE = 1024 * 1024
_LISTED = re.compile(r"^[ \t]*(?:choice|option):[ \t]*(.*?)[ \t]*$", re.IGNORECASE)
_LETTER = re.compile(r"\(?([a-z])(?:\)|[.:](?=\s|$)|(?=\s*$))\s*(.*)", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """What the judge knows of a record."""

    task: str
    answers: tuple[str, ...]
    """The right ones."""
    letters: Mapping[str, str]
    """Choice by lower-case letter as the prompt lists them; empty where it lists none."""
    open_ended: bool
    """Whether it is judged by chrF."""

    def score(self, reply: str) -> float:
        """0..1: chrF / 100, or whether the reply is a right answer, its letter, or both ("(B) red")."""
        if self.open_ended:
            return scores.chrf(reply, self.answers)
        if scores.exact(reply, self.answers):
            return 1.0
        found = _LETTER.fullmatch(scores.said(reply))
        if found is None or found[1] not in self.letters:
            return 0.0
        chosen = self.letters[found[1]]
        agrees = not found[2] or scores.plain(found[2]) == scores.plain(chosen)
        return float(agrees and chosen in self.answers)


def request(task: str, record: Mapping[str, Any]) -> Request | None:
    """The record as a request; None for one that is too long or has no answer."""
    inputs, targets = record.get("inputs"), _texts(record.get("targets"))
    choices, marks = _texts(record.get("multiple_choice_targets")), record.get("multiple_choice_scores")
    if not isinstance(inputs, str):
        return None
    letters = _letters(inputs, choices) if choices else {}
    prompt = _with_choices(inputs, letters) if letters else inputs
    if choices:
        targets = _right(choices, marks) or [target for target in targets if target in choices]
    targets = [target for target in targets if target.strip()]
    try:
        size = len(prompt.encode())
        for text in (*targets, *letters.values()):
            text.encode()
    except UnicodeEncodeError:
        return None
    if not targets or not prompt.strip() or size > LONGEST_PROMPT:
        return None
    if not letters and min(map(len, targets)) > LONGEST_ANSWER:
        return None
    open_ended = not choices and task in OPEN_ENDED
    return Request(prompt, Answer(task, tuple(targets), letters, open_ended), CATEGORY.get(task, "Other"))


def read(path: Path) -> Iterator[Mapping[str, Any] | None]:
    """The records of a gzipped JSONL file, None for a line that is none; ends early where the file is damaged."""
    try:
        with gzip.open(path, "rb") as file:
            while line := file.readline(MOST_LINE):
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    record = None
                yield record if isinstance(record, dict) else None
    except (OSError, EOFError, zlib.error):
        yield None


def _right(choices: list[str], marks: Any) -> list[str]:
    """The choices with the best mark; none where no mark says which (emojis_emotion_prediction has only zeros)."""
    if not isinstance(marks, list) or len(marks) != len(choices) or not all(isinstance(m, int | float) for m in marks):
        return []
    best = max(marks)
    return [choice for choice, mark in zip(choices, marks, strict=True) if mark == best > 0]


def _letters(inputs: str, choices: list[str]) -> dict[str, str]:
    """A letter for each choice, in an order that the record's own does not betray; none where letters confuse."""
    distinct = list(dict.fromkeys(choices))
    bare = [choice.strip(" ().:").casefold() for choice in distinct]
    if not 2 <= len(distinct) <= len(string.ascii_lowercase) or any(len(b) == 1 and b.isalpha() for b in bare):
        return {}
    distinct.sort(key=lambda choice: hashlib.sha256(f"{inputs}\n{choice}".encode(errors="replace")).digest())
    return dict(zip(string.ascii_lowercase, distinct, strict=False))


def _with_choices(inputs: str, letters: Mapping[str, str]) -> str:
    """The question with lettered choices, in the place of a list that it already has, else below it."""
    block = [f"({letter.upper()}) {choice}" for letter, choice in letters.items()]
    lines = inputs.rstrip().split("\n")
    found = [match[1] if (match := _LISTED.match(line)) else None for line in lines]
    places = [place for place, choice in enumerate(found) if choice is not None]
    if places and {found[place] for place in places} == {choice.strip() for choice in letters.values()}:
        kept = [line for line, choice in zip(lines, found, strict=True) if choice is None]
        lines = [*kept[: places[0]], *block, *kept[places[0] :]]
    else:
        lines += block
    return "\n".join([*lines, "Answer with the letter of one choice."])


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
