"""What a page needs to know to offer a task: its name, taste and options, and whether it can be had here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.tasks.base import TaskError

LONGEST_VALUE = 4_000
"""Characters of an option that is text."""


@dataclass(frozen=True)
class Option:
    """One thing to choose about a task."""

    name: str
    kind: Literal["text", "int", "choice"]
    default: str | int | None = None
    """None: it must be given."""
    choices: tuple[str, ...] = ()
    """Of a ``choice``; of an ``int`` the only values, where not every number is possible."""
    help: str = ""

    def read(self, value: Any) -> str | int:
        """The value in its kind (numbers may come as text). Raises TaskError."""
        if self.kind == "int":
            try:
                if isinstance(value, bool) or len(str(value)) > 9:
                    raise ValueError
                number = int(str(value))
            except ValueError:
                raise TaskError(f"option {self.name} must be a whole number, not {str(value)[:40]!r}") from None
            if self.choices and str(number) not in self.choices:
                raise TaskError(f"option {self.name} must be one of {', '.join(self.choices)}, not {number}")
            return number
        if not isinstance(value, str):
            raise TaskError(f"option {self.name} must be text, not {type(value).__name__}")
        if len(value) > LONGEST_VALUE:
            raise TaskError(f"option {self.name} has {len(value)} characters: at most {LONGEST_VALUE:,} are allowed")
        if self.kind == "choice" and value not in self.choices:
            raise TaskError(f"option {self.name} must be one of {', '.join(self.choices)}, not {value[:40]!r}")
        return value


def read_options(task: str, given: Mapping[str, Any], options: Sequence[Option]) -> dict[str, str | int]:
    """All options with their values, defaults included. Raises TaskError for unknown, missing and unusable ones."""
    known = {option.name: option for option in options}
    if unknown := [name for name in given if name not in known]:
        there_are = f"its options are {', '.join(known)}" if known else "it has none"
        raise TaskError(f"{task} has no option {str(unknown[0])[:40]!r}: {there_are}")
    values: dict[str, str | int] = {}
    for name, option in known.items():
        value = given.get(name, option.default)
        if value is None:
            raise TaskError(f"{task} needs the option {name}: {option.help}")
        values[name] = option.read(value)
    return values


@dataclass(frozen=True)
class TaskCard:
    """A task as a page offers it."""

    name: str
    """``family:variant``."""
    family: str
    title: str
    likes: str
    """The taste, as a continuation of "a reply is good when it ..."."""
    options: tuple[Option, ...] = ()
    grades: tuple[float, ...] | None = (0.0, 1.0)
    turns: Literal["one", "many"] = "one"
    available: bool = True
    why: str = ""
    """Where it is not available: what to do about it."""
