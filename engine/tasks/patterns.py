"""Patterns that a person wrote, run with a limit on time: none can hang a judge or fill the memory.

The package ``regex`` stops a search by the clock. It has no such limit while it compiles, where counted repeats of
groups multiply (``((a{500}){500}){500}`` takes gigabytes): their size is reckoned before anything is compiled.
"""

from __future__ import annotations

import math
import unicodedata

import regex

LONGEST_PATTERN = 500
"""Characters."""
LONGEST_TEXT = 20_000
"""Characters of a reply that a pattern looks at; the rest is not searched."""
SECONDS = 0.05
DEEPEST = 30
BIGGEST = 20_000
"""The most places that counted repeats may unfold to (some milliseconds of compiling)."""
_COUNT = regex.compile(r"(\)?)\{(\d*),?(\d*)\}")
_VERBOSE = regex.compile(r"\(\?[a-wyzA-Z]*x")


class PatternError(ValueError):
    """A pattern that is not run; the message says why."""


class Pattern:
    """A compiled pattern: ``Pattern("^(yes|no)$").found("yes")``. A search that takes too long finds nothing."""

    def __init__(self, text: str, ignore_case: bool = False) -> None:
        """Raises :class:`PatternError`."""
        self.text, self.ignore_case = text, ignore_case
        if len(text) > LONGEST_PATTERN:
            raise PatternError(f"the pattern has {len(text)} characters, at most {LONGEST_PATTERN} are allowed")
        _refuse_large(text)
        try:
            self._compiled = regex.compile(text, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, ValueError, OverflowError, RecursionError, MemoryError, IndexError, KeyError) as error:
            raise PatternError(f"the pattern {text[:80]!r} is not valid: {error}") from None

    def found(self, text: str) -> bool:
        """Whether it occurs in the text's first 20,000 characters. False when that is not known in time."""
        try:
            return self._compiled.search(text[:LONGEST_TEXT], timeout=SECONDS) is not None
        except (TimeoutError, MemoryError, RecursionError, regex.error):
            return False


def _refuse_large(text: str) -> None:
    """Refuses what compiles too slowly: too deep, or counts that multiply. Errs on the careful side."""
    if text.count("(") > DEEPEST and _depth(text) > DEEPEST:
        raise PatternError(f"the pattern nests groups more than {DEEPEST} deep")
    if _VERBOSE.search(text):
        raise PatternError("the pattern uses the flag x, which is not supported")
    single, groups = len(text), 1
    for closes, least, most in _COUNT.findall("".join(_digit(c) for c in text)):
        count = max(int(least or 0), int(most or 0), 1)
        if closes:
            groups *= count
        else:
            single += count
    if single * groups > BIGGEST:
        raise PatternError(f"the pattern repeats too much: its counts unfold to more than {BIGGEST:,} places")


def _digit(character: str) -> str:
    """The ASCII digit of any digit, so that no count is overlooked; blanks are dropped for the same reason."""
    if character.isspace():
        return ""
    value = unicodedata.digit(character, None)
    return character if value is None or math.isnan(value) else str(int(value))


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest
