"""What simulated users ask and what they like: a task samples requests, plays episodes and rewards replies.

from engine.tasks import get
task = get("persona:brevity")
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.tasks import bigbench, countdown, own_file, personas, sudoku
from engine.tasks.base import Episode, Reply, Request, Task, TaskError


@dataclass(frozen=True)
class Surroundings:
    """Where tasks find what is not in the package."""

    data_dir: Path | None = None
    """Public test sets in the layout NAME/...; None: from the hub."""
    files: Path | None = None
    """The folder that user files lie in; a task never reads outside it."""


Make = Callable[[str, Mapping[str, Any], Surroundings], Task]
FAMILIES: dict[str, tuple[Make, tuple[str, ...]]] = {
    "persona": (personas.make, personas.NAMES),
    "countdown": (countdown.make, countdown.VARIANTS),
    "sudoku": (sudoku.make, sudoku.VARIANTS),
    "bigbench": (bigbench.make, ()),
    "file": (own_file.make, ()),
}
"""By the name's first part: what makes the task from (second part, options, surroundings), and the second parts that
need neither options nor data."""


def names() -> list[str]:
    """The names of all tasks that need neither options nor data."""
    return [f"{family}:{part}" for family, (_, parts) in FAMILIES.items() for part in parts]


def get(name: str, options: Mapping[str, Any] | None = None, where: Surroundings | None = None) -> Task:
    """The task of that name, ``family:variant``. Raises TaskError with the names there are."""
    family, _, variant = name.partition(":")
    if family not in FAMILIES:
        raise TaskError(f"unknown task {name[:80]!r}: choose from {', '.join(names())}, bigbench, file")
    return FAMILIES[family][0](variant, options or {}, where or Surroundings())


__all__ = ["FAMILIES", "Episode", "Reply", "Request", "Surroundings", "Task", "TaskError", "get", "names"]
