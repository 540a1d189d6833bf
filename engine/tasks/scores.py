"""How close a reply is to the expected answers: equal, containing one, or chrF."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable

from sacrebleu.metrics import CHRF

LONGEST = 4_000
"""Characters of a reply that are compared."""
_EDGES = " .,;:!?\"'`*“”‘’«»。"
_LEADS = ("answer:", "the answer is", "the correct answer is", "the answer:")


def plain(text: str) -> str:
    """The text without what does not matter: case, kinds of blanks, quotes and full stops around it."""
    text = " ".join(unicodedata.normalize("NFKC", text[:LONGEST]).casefold().split())
    return text.strip(_EDGES) or text


def said(text: str) -> str:
    """A reply in plain form without "The answer is" before it."""
    text = plain(text)
    for lead in _LEADS:
        if text.startswith(lead) and len(text) > len(lead):
            return plain(text[len(lead) :])
    return text


def exact(reply: str, answers: Iterable[str]) -> float:
    """1 when the reply is one of the answers apart from case, blanks and punctuation around it."""
    given = {plain(reply), said(reply)}
    return float(any(plain(answer) in given for answer in answers))


def contains(reply: str, answers: Iterable[str]) -> float:
    """1 when one of the answers stands in the reply as words of its own ("4" is not in "14")."""
    given = plain(reply)
    return float(any(_stands(plain(answer), given) for answer in answers))


def chrf(reply: str, answers: Iterable[str]) -> float:
    """sacrebleu's sentence chrF (character 6-grams, beta 2) with the best of the answers, 0..1."""
    text = " ".join(reply[:LONGEST].split())
    wanted = [shortened for answer in answers if (shortened := " ".join(answer[:LONGEST].split()))]
    if not text or not wanted:
        return 0.0
    return min(1.0, max(0.0, _chrf().sentence_score(text, wanted).score / 100))


@functools.lru_cache(maxsize=1)
def _chrf() -> CHRF:
    return CHRF()


def _stands(answer: str, text: str) -> bool:
    place = text.find(answer) if answer else -1
    while place >= 0:
        end = place + len(answer)
        before, after = text[max(0, place - 1) : place], text[end : end + 1]
        if not (answer[0].isalnum() and before.isalnum()) and not (answer[-1].isalnum() and after.isalnum()):
            return True
        place = text.find(answer, place + 1)
    return False
