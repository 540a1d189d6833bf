"""Rules that a person types: clauses joined by ``and``, read once and judged without running anything of theirs.

at most 20 words and contains "please"
at least 5 words and avoids "maybe" and ends with "?"
matches /^\\d+ (apples|pears)$/i and is json

``contains``, ``avoids``, ``starts with`` and ``ends with`` ignore upper and lower case; quotes and backslashes inside
a text are written ``\\"`` and ``\\\\``, a slash inside a pattern ``\\/``. A reply that is blank keeps no rule, and one
that was cut off has not ended: it fails ``at most`` and ``ends with``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from engine.tasks.base import Reply, TaskError
from engine.tasks.patterns import Pattern, PatternError

LONGEST_RULE = 2_000
"""Characters."""
MOST_CLAUSES = 20
MOST_PATTERNS = 4
"""Of a rule, and of all tests of one request: each may take its whole time limit."""
LONGEST_JSON = 20_000
_QUOTED = r'"(?P<text>(?:[^"\\]|\\.)*)"'
_FORMS = (
    ("at most", re.compile(r"at most (?P<count>[0-9]{1,5}) words?", re.I)),
    ("at least", re.compile(r"at least (?P<count>[0-9]{1,5}) words?", re.I)),
    ("contains", re.compile(rf"contains {_QUOTED}", re.I)),
    ("avoids", re.compile(rf"avoids {_QUOTED}", re.I)),
    ("starts with", re.compile(rf"starts with {_QUOTED}", re.I)),
    ("ends with", re.compile(rf"ends with {_QUOTED}", re.I)),
    ("matches", re.compile(r"matches /(?P<pattern>(?:[^/\\]|\\.)+)/(?P<flag>i?)", re.I)),
    ("is json", re.compile(r"is json", re.I)),
)
_AND = re.compile(r"\s+and\s+", re.I)
KINDS = 'at most N words, at least N words, contains "TEXT", avoids "TEXT", starts with "TEXT", ends with "TEXT", ' + (
    "matches /PATTERN/, is json"
)


@dataclass(frozen=True)
class Clause:
    """One condition: how it is written, and whether a reply meets it."""

    text: str
    met: Callable[[Reply], bool]


@dataclass(frozen=True)
class Rule:
    """Clauses that must all be met."""

    clauses: tuple[Clause, ...]

    def judge(self, reply: Reply) -> float:
        """1 when the reply is not blank and meets every clause, else 0. Never raises."""
        return float(bool(reply.text.strip()) and all(clause.met(reply) for clause in self.clauses))

    @property
    def patterns(self) -> int:
        """How many clauses search by a pattern."""
        return sum(clause.text.startswith("matches ") for clause in self.clauses)

    def __str__(self) -> str:
        """The rule as :func:`parse` reads it."""
        return " and ".join(clause.text for clause in self.clauses)


def parse(text: str) -> Rule:
    """The rule that a person typed. Raises TaskError that names the clause which cannot be read."""
    if len(text) > LONGEST_RULE:
        raise TaskError(f"the rule has {len(text)} characters: at most {LONGEST_RULE:,} are allowed")
    text = text.strip()
    if not text:
        raise TaskError(f"the rule is empty: write clauses joined by and, of {KINDS}")
    clauses, place = [], 0
    while True:
        number, here = len(clauses) + 1, repr(text[place : place + 60])
        read = next(((kind, found) for kind, form in _FORMS if (found := form.match(text, place))), None)
        if read is None:
            raise TaskError(f"clause {number} of the rule, {here}, is none of {KINDS}")
        kind, found = read
        clauses.append(_clause(kind, found, number))
        if len(clauses) > MOST_CLAUSES:
            raise TaskError(f"the rule has more than {MOST_CLAUSES} clauses: leave some out")
        place = found.end()
        if place == len(text):
            rule = Rule(tuple(clauses))
            if rule.patterns > MOST_PATTERNS:
                raise TaskError(
                    f"the rule has {rule.patterns} patterns: leave some out, at most {MOST_PATTERNS} are run"
                )
            return rule
        joint = _AND.match(text, place)
        if joint is None:
            raise TaskError(f"after clause {number} of the rule, {text[place : place + 60]!r}: join clauses by and")
        place = joint.end()


def is_json(text: str) -> bool:
    """Whether the whole text is one JSON object or array that is not empty; a fence of three backticks is allowed."""
    text = text.strip()
    if len(text) > LONGEST_JSON:
        return False
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict | list) and bool(value)


def _clause(kind: str, found: re.Match[str], number: int) -> Clause:
    if kind == "is json":
        return Clause("is json", lambda reply: is_json(reply.text))
    if kind == "matches":
        return _matches(found["pattern"], bool(found["flag"]), number)
    if kind in ("at most", "at least"):
        count = int(found["count"])
        if kind == "at most" and count == 0:
            raise TaskError(f"clause {number} of the rule allows no words: a blank reply is never good")
        words = f"{kind} {count} word{'s' * (count != 1)}"
        if kind == "at least":
            return Clause(words, lambda reply: len(reply.text.split()) >= count)
        return Clause(words, lambda reply: reply.finish_reason == "stop" and len(reply.text.split()) <= count)
    wanted = re.sub(r"\\(.)", r"\1", found["text"], flags=re.S)
    if not wanted:
        raise TaskError(f"clause {number} of the rule has an empty text: write something between the quotes")
    low = wanted.casefold()
    quoted = kind + ' "' + wanted.replace("\\", "\\\\").replace('"', '\\"') + '"'
    tests: dict[str, Callable[[Reply], bool]] = {
        "contains": lambda reply: low in reply.text.casefold(),
        "avoids": lambda reply: low not in reply.text.casefold(),
        "starts with": lambda reply: reply.text.strip().casefold().startswith(low),
        "ends with": lambda reply: reply.finish_reason == "stop" and reply.text.strip().casefold().endswith(low),
    }
    return Clause(quoted, tests[kind])


def _matches(written: str, ignore_case: bool, number: int) -> Clause:
    try:
        pattern = Pattern(written.replace("\\/", "/"), ignore_case)
    except PatternError as error:
        raise TaskError(f"clause {number} of the rule: {error}") from None
    return Clause(f"matches /{written}/{'i' * ignore_case}", lambda reply: pattern.found(reply.text))
