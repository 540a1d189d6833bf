"""Changes of the judge that are planned ahead: ``random:0.6 @20 perfect`` errs until generation 20 begins."""

from __future__ import annotations

from dataclasses import dataclass

from engine.judges.errors import PERFECT, JudgeError, UnknownError, parse

MOST = 100


@dataclass(frozen=True)
class Schedule:
    """Which judge error is in force in which generation, counted from the first one (0)."""

    changes: tuple[tuple[int, JudgeError], ...] = ()
    """(first generation, error), rising."""

    def at(self, generation: int) -> JudgeError | None:
        """What the newest change up to this generation says; None before the first one."""
        error = None
        for first, change in self.changes:
            if first <= generation:
                error = change
        return error

    def __str__(self) -> str:
        return " ".join(f"@{first} {error}" if first else str(error) for first, error in self.changes)


def parse_schedule(text: str) -> Schedule:
    """``[ERROR] [@GENERATION ERROR] …``, generations rising. Raises UnknownError with what is wrong."""
    words = text.replace(",", " ").split()
    changes: list[tuple[int, JudgeError]] = []
    first = 0
    expects_error = True
    for word in words:
        if word.startswith("@"):
            number = word[1:]
            if not (number.isascii() and number.isdecimal() and len(number) < 8):
                raise UnknownError(f"{word[:40]!r} is no generation: write for example @20 perfect")
            if expects_error and word is not words[0]:
                raise UnknownError(f"a judge must follow @{first}")
            if changes and int(number) <= changes[-1][0]:
                raise UnknownError(f"the generations of a schedule must rise, {word[:40]} does not")
            first, expects_error = int(number), True
        elif expects_error:
            changes.append((first, parse(word)))
            expects_error = False
        else:
            raise UnknownError(f"{word[:40]!r} must stand after a generation: write for example @20 {word[:40]}")
    if words and expects_error:
        raise UnknownError(f"a judge must follow @{first}")
    if len(changes) > MOST:
        raise UnknownError(f"a schedule has at most {MOST} changes")
    return Schedule(tuple(changes))


def fixed_at(error: JudgeError, generation: int) -> Schedule:
    """Wrong until ``generation`` begins, perfect from then on."""
    return Schedule(((0, error), (generation, PERFECT)) if generation else ((0, PERFECT),))
