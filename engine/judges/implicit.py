"""What people do with a reply, read as feedback: plain rules, each with a weight, and how often they agree with thumbs.

    signals("What is the capital of Peru?", "It is Cusco.", "No, that's wrong.")     # [Signal("correction", 0.0, 0.5)]
    action("copy")                                                                   # Signal("copy", 1.0, 0.3)
    combine(None, signals)                                                           # (reward, weight)

The rules are for English and rather say nothing than something wrong: "thanks, but that's wrong" is a correction only,
"no, thanks" is neither, and "no, ..." to a reply that ends with a question is an answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.judges import JudgeFault
from engine.judges.health import wilson

SAME = 0.8
"""Share of common words, of all words of both, from which two questions are the same."""
FEWEST_WORDS = 3
"""A shorter question ("Why?") is asked of many things."""
MOST_CHARACTERS = 2000
"""Of a text; the rest is not read."""
MOST_THANKS_WORDS = 25
"""A longer message that opens with thanks is about something else."""


@dataclass(frozen=True)
class Rule:
    """One thing that a person may do."""

    name: str
    label: str
    value: float
    """What it says of the reply, 0..1."""
    weight: float
    """Beside a real rating, which weighs 1; 0 leaves the rule out of the rewards."""
    help: str


RULES = (
    Rule(
        "asked_again", "Asked again", 0.0, 0.3, "The next message is the same question, up to fillers and word order."
    ),
    Rule(
        "correction", "Corrected", 0.0, 0.5, 'The next message opens with "no, …", "that\'s wrong", "not what I asked".'
    ),
    Rule("regenerate", "Regenerated", 0.0, 0.3, "Another answer was asked for with the button."),
    Rule("copy", "Copied", 1.0, 0.3, "The reply was copied with the button."),
    Rule("thanks", "Thanked", 1.0, 0.4, "The next message opens with thanks and takes nothing back."),
)
ACTIONS = ("regenerate", "copy")


@dataclass(frozen=True)
class Signal:
    """A rule that applied to a reply."""

    rule: str
    value: float
    weight: float


@dataclass(frozen=True)
class Agreement:
    """How often a rule and the thumbs on the same replies said the same, with a 95% interval, all in 0..1."""

    share: float
    low: float
    high: float
    count: int


_FILLER_WORDS = """
    a an the please pls so ok okay hey hi hello again and then well just can could would you i me asked said repeat tell
    is are was were do does did s re to of in for it that this my question
"""
_FILLERS = frozenset(_FILLER_WORDS.split())
_WORD = re.compile(r"\w+")
_GOOD = (
    r"(?:all|it|fine|ok|okay|good|great|perfect|right|correct|true|enough|nice|helpful|wonderful|amazing|excellent|cool|"
    r"brilliant|awesome|clear|not (?:wrong|incorrect|a mistake|necessary|needed|a problem))\b"
)
_POLITE_NO = (
    r"(?:thanks|thank|thx|but|problem|worries|need|rush|matter|idea|doubt|wonder|wait,? (?:that'?s )?(?:right|correct)|"
    r"i'?m (?:good|fine|done|ok)|(?:that|it|this)(?:'?s| is| was) (?:\w+ly )?" + _GOOD + r"|you'?re right)"
)
_PLAIN = r"(?:still |just |simply |completely |totally |clearly |definitely |also |all |both )?"
_END = r"(?=\s*(?:[.,!?;:)\n–—-]|$|(?:but|and|again|about|because|since|try|please|here)\b))"
"""Of a claim: "it's false that ..." and "that was wrong of him" say nothing of the reply."""
_NOT_RIGHT = r"(?:not|n't) (?:quite |really |exactly |entirely |even )?(?:right|correct|true|accurate)"
_CLAUSE = r"(?:^|[.!;,\n–—-]\s*|\b(?:but|and|sorry|think|thanks|hmm|well|again)[, ]\s*)"
"""Before a claim: "explain why that's wrong" makes none."""
_OPENING_NO = re.compile(rf"(?:no|nope|nah)(?:[,!;:–—]|\.(?!\s*\d)|\s-)\s*(?!{_POLITE_NO})\S", re.I)
_OPENING_ACTUALLY = re.compile(
    r"(?:well,? )?actually,? (?:it|that|this|he|she|they|there|the|you|no)\b"
    rf"(?!(?:'?s| is| was) (?:\w+ly )?{_GOOD})",
    re.I,
)
_OPENING_WRONG = re.compile(
    rf"(?:(?:wrong|incorrect)(?: answer| again)?|{_PLAIN}{_NOT_RIGHT}){_END}|i (?:meant|mean)\b(?! it\b)|try again\b",
    re.I,
)
_CLAIMS = re.compile(
    rf"{_CLAUSE}(?:"
    rf"(?:that|this|it|your answer|the answer)(?:'s| is| was|s)? {_PLAIN}(?:wrong|incorrect|false|{_NOT_RIGHT}){_END}|"
    rf"(?:that|this|it) ?(?:is|was){_NOT_RIGHT}{_END}|"
    r"(?:that|this|it) (?:doesn't|does not) (?:look|seem|sound) (?:right|correct)\b|"
    rf"you(?:'re| are|re) {_PLAIN}(?:wrong|mistaken){_END}|"
    r"you (?:made|have) (?:a|an|another) (?:mistake|error)\b|"
    r"you (?:misunderstood|misread|ignored|got (?:it|that|this) wrong)\b|"
    r"you (?:didn't|did not|still didn't) (?:answer|understand|read|listen)\b)",
    re.I,
)
_NOT_ASKED = re.compile(
    r"(?:\bnot|n't) what i(?: have|'ve| had|'d)? (?:asked|meant|wanted|said|was asking)\b|"
    r"\bi (?:didn't|did not|never) ask(?:ed)? (?:for|about|you)\b|"
    r"\bdoes(?:n't| not) answer my question\b",
    re.I,
)
_THANKS = re.compile(
    r"(?:(?:ok|okay|great|perfect|awesome|wow|cool|good|nice|ah|oh|yes|yeah|excellent|brilliant|wonderful|amazing|lovely|"
    r"many|got it|i see|that helps|very helpful|much)[,.!]*\s+){0,3}"
    r"(?:thanks|thank you|thank u|thx|thankyou|much appreciated)\b"
    r"(?!\s+(?:to|in|for nothing|note|notes|letter|card|email|mail|message|speech|giving|god|goodness)\b)",
    re.I,
)
_TAKEN_BACK = re.compile(
    r"\b(?:but|however|though|although|unfortunately|except|still|wrong|incorrect|mistake|useless|not)\b|n't\b",
    re.I,
)


def with_weights(weights: Mapping[str, float]) -> tuple[Rule, ...]:
    """The rules with these weights by name (0..1), the others as they are. Raises JudgeFault."""
    names = {rule.name for rule in RULES}
    for name, weight in weights.items():
        if name not in names:
            raise JudgeFault(f"unknown rule {str(name)[:40]!r}: choose from {', '.join(rule.name for rule in RULES)}")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= 1:
            raise JudgeFault(f"the weight of {name} must be a number from 0 to 1, not {str(weight)[:40]!r}")
    return tuple(replace(rule, weight=float(weights.get(rule.name, rule.weight))) for rule in RULES)


def signals(previous_question: str, reply: str, next_message: str, rules: Sequence[Rule] = RULES) -> list[Signal]:
    """What the next message of a conversation says of the reply before it; usually nothing."""
    message = _tidy(next_message)
    found = []
    if same_question(previous_question, next_message):
        found.append("asked_again")
    if _corrects(message, answers=reply.rstrip()[-200:].endswith("?")):
        found.append("correction")
    if not found and _thanks(message):
        found.append("thanks")
    return [Signal(rule.name, rule.value, rule.weight) for rule in rules if rule.name in found]


def action(name: str, rules: Sequence[Rule] = RULES) -> Signal:
    """The signal of a button, one of :data:`ACTIONS`. Raises JudgeFault."""
    for rule in rules:
        if rule.name == name and name in ACTIONS:
            return Signal(rule.name, rule.value, rule.weight)
    raise JudgeFault(f"unknown action {name[:40]!r}: choose from {', '.join(ACTIONS)}")


def same_question(first: str, second: str) -> bool:
    """Whether two messages ask the same: at least :data:`SAME` of their words in common and none exchanged for another.

    The longest questions differ in one word and ask something else, so a word of content on both sides, or a number on
    one, makes them two.
    """
    one, two = (Counter(_WORD.findall(text[:MOST_CHARACTERS].casefold())) for text in (first, second))
    if min(one.total(), two.total()) < FEWEST_WORDS:
        return False
    if (one & two).total() < SAME * (one | two).total():
        bare = [Counter({w: n for w, n in words.items() if w not in _FILLERS}) for words in (one, two)]
        if bare[0] != bare[1] or bare[0].total() < FEWEST_WORDS:
            return False
    own = [{word for word in side if word not in _FILLERS} for side in (one - two, two - one)]
    return not (own[0] and own[1]) and not any(map(str.isdecimal, own[0] | own[1]))


def agreement(pairs: Iterable[tuple[str, float, float]]) -> dict[str, Agreement]:
    """By rule, from (rule, value it implied, value of the thumb); each above or below 1/2 on the scale 0..1."""
    counts: dict[str, list[int]] = {}
    for rule, implied, thumb in pairs:
        seen = counts.setdefault(rule, [0, 0])
        seen[0] += (implied >= 0.5) == (thumb >= 0.5)
        seen[1] += 1
    return {
        rule: Agreement(same / count, *wilson(same / count, count), count) for rule, (same, count) in counts.items()
    }


def combine(real: float | None, implicit: Iterable[Signal | tuple[float, float]]) -> tuple[float | None, float]:
    """(reward, weight) of a reply from its rating and its signals, given as such or as (value, weight).

    A real rating stands alone, with weight 1. Without one the signals are averaged by weight, and weigh their sum, at
    most 1: however many there are, they never weigh more than a person who says it. (None, 0) when nothing is known.
    """
    if real is not None:
        return real, 1.0
    pairs = [(s.value, s.weight) if isinstance(s, Signal) else s for s in implicit]
    total = math.fsum(weight for _, weight in pairs)
    if total <= 0:
        return None, 0.0
    return math.fsum(value * weight for value, weight in pairs) / total, min(1.0, total)


def _tidy(message: str) -> str:
    """The start of a message with plain apostrophes, without what it quotes."""
    lines = (line.strip() for line in message[:MOST_CHARACTERS].replace("’", "'").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(">"))


def _corrects(message: str, *, answers: bool) -> bool:
    """``answers``: the message follows a question, so an opening "no" may be the answer to it."""
    opening = message.lstrip("\"'(*. \n")
    if not answers and (_OPENING_NO.match(opening) or _OPENING_ACTUALLY.match(opening)):
        return True
    return any((_OPENING_WRONG.match(opening), _CLAIMS.search(message[:300]), _NOT_ASKED.search(message[:300])))


def _thanks(message: str) -> bool:
    found = _THANKS.match(message)
    rest = message[found.end() :] if found else ""
    return bool(found) and len(message.split()) <= MOST_THANKS_WORDS and not _TAKEN_BACK.search(rest)
