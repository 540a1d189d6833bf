"""BIG-Bench as one stream over many tasks: each comes in proportion to its size, every request counts the same.

Tasks with 205 to 43,735 training records are learned from, as in the source text; of them the validation records are
held out, and of all other tasks everything is. The records come from a folder with ``bigbench/TASK/train.jsonl.gz``
and ``validation.jsonl.gz``, where ``bigbench/tasks.tsv`` says how large the tasks are if the folder has only a part of
them, or from the hub (tasksource/bigbench) by the package ``datasets`` where that is installed.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import importlib.util
import random
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.tasks.base import Reply, Request, Task, TaskError
from engine.tasks.bigbench_records import read, request
from engine.tasks.bigbench_table import CATEGORIES, CATEGORY
from engine.tasks.cards import read_options

if TYPE_CHECKING:
    from engine.tasks import Surroundings

SMALLEST, LARGEST = 205, 43_735
"""Training records of a task that is learned from."""
HUB = "tasksource/bigbench"
VARIANTS = ("",)
Load = Callable[[str], tuple[Iterable[Any], Iterable[Any]]]
"""From a task's name, its training and its validation records."""


@dataclass(frozen=True)
class Part:
    """One task of the stream."""

    task: str
    size: int
    """How often it comes in one pass: its training records at their true number, less the share not usable."""
    rest: tuple[Request, ...]
    held_out: tuple[Request, ...]
    skipped: int
    """Records left out: too long, without an answer, repeated, or not readable."""

    @property
    def learned(self) -> bool:
        """Whether it is learned from."""
        return bool(self.rest)


class BigBench(Task):
    """One stream over the parts. Scores by category: :attr:`Request.category`, one of :attr:`categories`."""

    name = "bigbench"
    likes = "is the right answer, or close to the expected text where a task is open-ended (chrF)"
    grades = None
    system_prompt = "Answer the question. Write the answer only, without an explanation."

    def __init__(self, parts: Sequence[Part]) -> None:
        """Raises TaskError where there is nothing to learn from."""
        self.parts = tuple(parts)
        self.training = tuple(part for part in parts if part.learned)
        self.unseen = tuple(part for part in parts if not part.learned)
        if not self.training:
            raise TaskError(f"BIG-Bench has no task with {SMALLEST} to {LARGEST:,} training records here: complete it")
        found = {CATEGORY.get(part.task, "Other") for part in parts}
        self.categories = tuple(category for category in CATEGORIES if category in found)
        self.skipped = sum(part.skipped for part in parts)
        self._records = tuple(record for part in self.training for record in part.rest)
        held_out = (record for part in parts for record in part.held_out)
        self._held_out = tuple(sorted(held_out, key=lambda r: hashlib.sha256(r.prompt.encode()).digest()))
        self._order = functools.lru_cache(maxsize=4)(self._pass)

    @property
    def held_out(self) -> Sequence[Request]:
        """Validation records of the tasks learned from, and all of the others, mixed by their hash."""
        return self._held_out

    @property
    def size(self) -> int:
        """Requests of one pass over everything."""
        return sum(part.size for part in self.training)

    def sample(self, seed: int, index: int) -> Request:
        """Request ``index``; in one pass of :attr:`size` each task comes as often as it is large, and none of its
        records comes a second time before all have come once."""
        turn, place = divmod(index, self.size)
        return self._records[self._order(seed, turn)[place]]

    def judge(self, request: Request, reply: Reply) -> float:
        return request.data.score(reply.text)

    def _pass(self, seed: int, turn: int) -> array[int]:
        """The record numbers of one pass, in order."""
        rng = random.Random(f"{seed}/{turn}")
        slots = [which for which, part in enumerate(self.training) for _ in range(part.size)]
        rng.shuffle(slots)
        walks, first = [], 0
        for part in self.training:
            walks.append(_walk(first, len(part.rest), rng))
            first += len(part.rest)
        return array("I", [next(walks[which]) for which in slots])


def make(variant: str, options: Mapping[str, Any], where: Surroundings) -> Task:
    """The stream over all tasks. Raises TaskError."""
    if variant:
        raise TaskError(f"unknown task 'bigbench:{variant[:80]}': the stream over all its tasks is called bigbench")
    read_options("bigbench", options, ())
    if why := missing(where):
        raise TaskError(why)
    return _from_hub() if where.data_dir is None else _from_folder(where.data_dir.resolve() / "bigbench")


def missing(where: Surroundings) -> str:
    """What to do before there can be a stream; empty when it can be had. Reads no records."""
    if where.data_dir is not None:
        if (where.data_dir / "bigbench").is_dir():
            return ""
        return f"BIG-Bench is not in the data folder: {where.data_dir} has no folder bigbench"
    if importlib.util.find_spec("datasets") is not None:
        return ""
    return "BIG-Bench is not here: set POPSERVE_DATA to a folder that has it in bigbench/, or install datasets"


@functools.lru_cache(maxsize=2)
def _from_folder(folder: Path) -> BigBench:
    def load(task: str) -> tuple[Iterable[Any], Iterable[Any]]:
        return read(folder / task / "train.jsonl.gz"), read(folder / task / "validation.jsonl.gz")

    sizes = _sizes(folder / "tasks.tsv")
    tasks = sorted(path.parent.name for path in folder.glob("*/train.jsonl.gz"))
    return BigBench([_part(task, load, sizes.get(task)) for task in tasks])


@functools.lru_cache(maxsize=1)
def _from_hub() -> BigBench:
    from datasets import load_dataset

    def load(task: str) -> tuple[Iterable[Any], Iterable[Any]]:
        return load_dataset(HUB, task, split="train"), load_dataset(HUB, task, split="validation")

    try:
        return BigBench([_part(task, load, None) for task in sorted(CATEGORY)])
    except (OSError, ValueError) as error:
        raise TaskError(f"BIG-Bench cannot be loaded from the hub ({error}): set POPSERVE_DATA to a folder") from None


def _part(task: str, load: Load, true_size: int | None) -> Part:
    """Reads one task. Its held-out prompts come first: a training record with the same prompt is left out."""
    train, validation = load(task)
    seen: set[str] = set()
    held_out, skipped, _ = _usable(task, validation, seen)
    rest, more, count = _usable(task, train, seen)
    size = round((true_size if true_size is not None else count) * len(rest) / count) if count else 0
    if rest and SMALLEST <= size <= LARGEST:
        return Part(task, size, rest, held_out, skipped + more)
    return Part(task, 0, (), held_out + rest, skipped + more)


def _usable(task: str, records: Iterable[Any], seen: set[str]) -> tuple[tuple[Request, ...], int, int]:
    """The requests of the records, how many records gave none, and how many records there are."""
    usable: list[Request] = []
    count = 0
    for record in records:
        count += 1
        made = request(task, record) if record is not None else None
        if made is not None and made.prompt not in seen:
            seen.add(made.prompt)
            usable.append(made)
    return tuple(usable), count - len(usable), count


def _sizes(path: Path) -> dict[str, int]:
    """The true number of training records by task; none where the table is missing or has none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (OSError, ValueError, csv.Error):
        return {}
    return {row["task"]: int(row["train"]) for row in rows if row.get("task") and (row.get("train") or "").isdecimal()}


def _walk(first: int, count: int, rng: random.Random) -> Iterable[int]:
    """Record numbers without end: every round has all of them, in another order."""
    order = list(range(first, first + count))
    while True:
        rng.shuffle(order)
        yield from order
