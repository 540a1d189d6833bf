"""A team's own file as a task: one JSON object a line, each a prompt and how a reply to it is judged.

{"prompt": "Capital of Peru?", "answer": "Lima"}                      judge: exact (default), contains or chrf
{"prompt": "Name two rivers.", "tests": ["at most 5 words", "contains \\"and\\""]}     the share of rules kept
{"prompt": "A date, please.", "pattern": "^\\\\d{4}-\\\\d{2}-\\\\d{2}$"}                     found in the reply or not

``answer`` may be a list, of which one must be met; ``judge`` names the way; ``category`` is for scores by category;
other fields are ignored, and so are blank lines. Every other line that cannot be used is reported with its number.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.tasks import scores
from engine.tasks.base import HELD_OUT, Reply, Request, Task, TaskError, shuffled
from engine.tasks.cards import Option, read_options
from engine.tasks.patterns import Pattern, PatternError
from engine.tasks.rules import MOST_PATTERNS, parse

if TYPE_CHECKING:
    from engine.tasks import Surroundings

MIB = 1024 * 1024
LARGEST_FILE = 64 * MIB
LONGEST_LINE = MIB
LONGEST_PROMPT = 20_000
"""Characters."""
MOST_REQUESTS = 200_000
MOST_TESTS = 20
FEWEST = 5
PROBLEMS_SHOWN = 1_000
"""So many are kept with their words; all are counted."""
WAYS: dict[str, Callable[[str, Sequence[str]], float]] = {
    "exact": scores.exact,
    "contains": scores.contains,
    "chrf": scores.chrf,
}
VARIANTS = ("",)
OPTIONS = (
    Option("file", "text", None, help="the name of a JSONL file in the folder of user files"),
    Option("max_tokens", "int", 128, help="the longest reply, in tokens (1 to 1,024)"),
    Option("system_prompt", "text", Task.system_prompt, help="the system message of its requests"),
)


@dataclass(frozen=True)
class Problem:
    """A line that cannot be used."""

    line: int
    """From 1."""
    what: str


@dataclass(frozen=True)
class OwnFile:
    """What was read: requests whose ``data`` judges a reply (Reply -> 0..1), and the lines that gave none."""

    requests: tuple[Request, ...]
    problems: tuple[Problem, ...] = ()
    """The first 1,000."""
    bad: int = 0
    """All of them."""
    graded: bool = False
    """Whether some request gives more than 0 or 1."""

    @property
    def usable(self) -> int:
        """How many requests there are."""
        return len(self.requests)


class OwnTask(Task):
    """The requests of a file, a fifth of them (at most 256) held out by their hash."""

    def __init__(self, title: str, file: OwnFile, max_tokens: int, system_prompt: str) -> None:
        """Raises TaskError for fewer than five requests."""
        if file.usable < FEWEST:
            first = f"; the first problem is in line {file.problems[0].line}: {file.problems[0].what}" * bool(file.bad)
            raise TaskError(
                f"{title} has {file.usable} usable requests, at least {FEWEST} are needed, and {file.bad} lines that "
                f"cannot be used{first}"
            )
        self.name, self.problems, self.bad = "file", file.problems, file.bad
        self.likes = f"is what {title} asks for"
        self.grades = None if file.graded else (0.0, 1.0)
        self.max_tokens, self.system_prompt = max_tokens, system_prompt
        ordered = sorted(file.requests, key=lambda r: hashlib.sha256(r.prompt.encode()).digest())
        aside = min(HELD_OUT, len(ordered) // FEWEST)
        self._held_out, self._rest = tuple(ordered[:aside]), tuple(ordered[aside:])

    @property
    def held_out(self) -> Sequence[Request]:
        return self._held_out

    def sample(self, seed: int, index: int) -> Request:
        return self._rest[shuffled(len(self._rest), seed, index)]

    def judge(self, request: Request, reply: Reply) -> float:
        return request.data(reply)


def make(variant: str, options: Mapping[str, Any], where: Surroundings) -> Task:
    """The task of ``options["file"]`` in the folder of user files. Raises TaskError."""
    if variant:
        raise TaskError(f"unknown task 'file:{variant[:80]}': the task is called file, its option file names the file")
    values = read_options("file", options, OPTIONS)
    if not 1 <= int(values["max_tokens"]) <= 1024:
        raise TaskError(f"option max_tokens must be 1 to 1,024, not {values['max_tokens']}")
    path = locate(str(values["file"]), where.files)
    return OwnTask(path.name, read(path), int(values["max_tokens"]), str(values["system_prompt"]))


def locate(name: str, folder: Path | None) -> Path:
    """The file of that plain name in the folder, never one outside it. Raises TaskError."""
    if folder is None:
        raise TaskError("there is no folder of user files here: set one up before a file can be used")
    if not name or name.startswith(".") or set(name) & set("/\\\0:") or len(name) > 200:
        raise TaskError(f"{name[:80]!r} is not a plain file name: give the name of a file in the folder of user files")
    root = folder.resolve()
    path = (root / name).resolve()
    if path.parent != root or not path.is_file():
        raise TaskError(f"there is no file {name[:80]!r} in the folder of user files: put it there first")
    return path


def stored(where: Surroundings) -> tuple[str, ...]:
    """The names of the files that can be used, sorted; none where there is no folder."""
    try:
        paths = list(where.files.iterdir()) if where.files is not None else []
    except OSError:
        return ()
    return tuple(sorted(path.name for path in paths if not path.name.startswith(".") and path.is_file()))


def read(path: Path) -> OwnFile:
    """The file's requests and problems; read again only when the file changes. Raises TaskError."""
    try:
        about = path.stat()
        if about.st_size > LARGEST_FILE:
            raise TaskError(f"{path.name} has {about.st_size / MIB:.0f} MiB: split it, at most 64 MiB are read")
        return _read(path, about.st_mtime_ns, about.st_size)
    except OSError as error:
        raise TaskError(f"{path.name} cannot be read: {error.strerror or error}") from None


@functools.lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> OwnFile:
    requests: list[Request] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    bad, graded, number = 0, False, 0
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            try:
                if len(line) > LONGEST_LINE:
                    while line and not line.endswith(b"\n"):
                        line = file.readline(LONGEST_LINE)
                    raise _Bad("longer than 1 MiB")
                if not line.strip():
                    continue
                request, many = _request(line)
                if request.prompt in seen:
                    raise _Bad(f"the same prompt as in line {seen[request.prompt]}")
                seen[request.prompt] = number
            except _Bad as error:
                bad += 1
                if len(problems) < PROBLEMS_SHOWN:
                    problems.append(Problem(number, str(error)))
                continue
            requests.append(request)
            graded |= many
            if len(requests) > MOST_REQUESTS:
                raise TaskError(f"{path.name} has more than {MOST_REQUESTS:,} requests: split it")
    return OwnFile(tuple(requests), tuple(problems), bad, graded)


class _Bad(Exception):
    """What is wrong with a line."""


def _request(line: bytes) -> tuple[Request, bool]:
    """The request of a line, and whether it is graded. Raises _Bad."""
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _Bad(f"not UTF-8 at byte {error.start + 1}") from None
    except (ValueError, RecursionError) as error:
        raise _Bad(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise _Bad("not a JSON object in braces")
    prompt, category = record.get("prompt"), record.get("category", "")
    if not isinstance(prompt, str) or not prompt.strip():
        raise _Bad('"prompt" must be text that is not blank')
    if len(prompt) > LONGEST_PROMPT:
        raise _Bad(f'"prompt" has {len(prompt)} characters, at most {LONGEST_PROMPT:,} are allowed')
    if not isinstance(category, str) or len(category) > 80:
        raise _Bad('"category" must be text of at most 80 characters')
    if _surrogate(prompt) or _surrogate(category):
        raise _Bad("half a character: \\ud800 to \\udfff stand only in pairs")
    ways = [way for way in ("answer", "tests", "pattern") if way in record]
    if len(ways) != 1:
        raise _Bad(f'exactly one of "answer", "tests" and "pattern" must be given, not {len(ways)}')
    named = record.get("judge")
    if ways[0] == "answer":
        judge, graded = _answers(record["answer"], "exact" if named is None else named)
    elif named not in (None, ways[0]):
        raise _Bad(f'"judge" must be left out beside "{ways[0]}"')
    else:
        judge, graded = _tests(record["tests"]) if ways[0] == "tests" else _pattern(record["pattern"])
    return Request(prompt, judge, category), graded


def _answers(answer: Any, way: Any) -> tuple[Callable[[Reply], float], bool]:
    answers = answer if isinstance(answer, list) else [answer]
    texts = [str(a) if isinstance(a, int | float) and not isinstance(a, bool) else a for a in answers]
    if not texts or not all(isinstance(text, str) and text.strip() and not _surrogate(text) for text in texts):
        raise _Bad('"answer" must be text or a list of texts, none of them blank')
    if not isinstance(way, str) or way not in WAYS:
        raise _Bad(f'"judge" must be one of {", ".join(WAYS)}')
    score = WAYS[way]
    return lambda reply: score(reply.text, texts), way == "chrf"


def _tests(tests: Any) -> tuple[Callable[[Reply], float], bool]:
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise _Bad('"tests" must be a list of rules in words')
    if not 1 <= len(tests) <= MOST_TESTS:
        raise _Bad(f'"tests" must have 1 to {MOST_TESTS} rules, not {len(tests)}')
    try:
        rules = [parse(test) for test in tests]
    except TaskError as error:
        raise _Bad(f'"tests": {error}') from None
    if sum(rule.patterns for rule in rules) > MOST_PATTERNS:
        raise _Bad(f'"tests" must have at most {MOST_PATTERNS} patterns in all')
    return lambda reply: sum(rule.judge(reply) for rule in rules) / len(rules), len(rules) > 1


def _pattern(text: Any) -> tuple[Callable[[Reply], float], bool]:
    if not isinstance(text, str) or not text:
        raise _Bad('"pattern" must be text')
    try:
        pattern = Pattern(text)
    except PatternError as error:
        raise _Bad(f'"pattern": {error}') from None
    return lambda reply: float(pattern.found(reply.text)), False


def _surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
