"""All tasks as a page offers them: with their options, and whether they can be had here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from engine.tasks import FAMILIES, Surroundings, bigbench, get, own_file, personas, sudoku
from engine.tasks.base import TaskError
from engine.tasks.cards import Option, TaskCard

MOST_FILES = 200
"""File names offered for the task of a team's own file."""
_TITLES = {
    "persona:no-hedging": "No hedging",
    "persona:json": "Valid JSON",
    "persona:language": "A chosen language",
    "sudoku:file": "Sudoku from the data folder",
    "persona:custom": "A rule of your own",
    "countdown:easy": "Countdown, easy",
    "countdown:3": "Countdown, three numbers",
    "countdown:4": "Countdown, four numbers",
    "bigbench": "BIG-Bench, one stream over many tasks",
    "file": "A file of your own",
}
_LIKES = {
    "persona:language": "is written in the language that you choose",
    "persona:custom": "keeps the rule that you type",
    "bigbench": bigbench.BigBench.likes,
    "file": "is what the file asks for",
}
_OPTIONS: Mapping[str, tuple[Option, ...]] = {
    f"{family}:{variant}": options
    for family, module in (("persona", personas), ("sudoku", sudoku))
    for variant, options in module.OPTIONS.items()
}


def describe(where: Surroundings) -> list[TaskCard]:
    """A card for every task, also for those that cannot be had here: ``available`` and ``why`` say so. Reads no
    BIG-Bench record and no user file."""
    return [_bare(name, where) if name in ("bigbench", "file") else _card(name, where) for name in _names()]


def _names() -> Iterable[str]:
    """All of them, also those that need options or data, by family."""
    for family, (_, parts) in FAMILIES.items():
        variants = {"persona": tuple(personas.OPTIONS), "sudoku": tuple(sudoku.OPTIONS)}.get(family, parts)
        yield from (f"{family}:{variant}" for variant in variants)
        if not variants:
            yield family


def _card(name: str, where: Surroundings) -> TaskCard:
    """The card of a task that is cheap to make, filled from the task itself."""
    family, _, variant = name.partition(":")
    title = _TITLES.get(name, variant.capitalize() if family == "persona" else f"{family.capitalize()} {variant}")
    card = TaskCard(name, family, title, _LIKES.get(name, ""), _OPTIONS.get(name, ()))
    if any(option.default is None for option in card.options):
        return card
    try:
        task = get(name, {}, where)
    except TaskError as error:
        return replace(card, available=False, why=str(error))
    turns = "many" if task.many_turns else "one"
    return replace(card, likes=card.likes or task.likes, grades=task.grades, turns=turns)


def _bare(name: str, where: Surroundings) -> TaskCard:
    """The card of a task whose data are too large to be read for a page."""
    why, options = "", ()
    if name == "bigbench":
        why = bigbench.missing(where)
    else:
        names = own_file.stored(where)[:MOST_FILES]
        why = "" if names else "there is no file yet: bring a JSONL file of prompts and how replies are judged"
        options = tuple(_offered(option, names) for option in own_file.OPTIONS)
    return TaskCard(name, name, _TITLES[name], _LIKES[name], options, None, "one", not why, why)


def _offered(option: Option, names: tuple[str, ...]) -> Option:
    """The option ``file`` as a choice among the files there are."""
    if option.name != "file" or not names:
        return option
    return replace(option, kind="choice", choices=names, default=names[0])
