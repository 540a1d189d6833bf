"""What a person fills in on the page, as what a run and a judge are asked for. Percents become shares; empty fields are
left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from app.text import Text
from engine.judges.errors import JudgeError, parse
from engine.population import Settings

OPTION = "option."
"""Before the name of a field that is an option of the task."""
F = TypeVar("F", bound=BaseModel)
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class BadForm(ValueError):
    """A field that cannot be used; the message names it and says what it takes."""


class ErrorForm(BaseModel):
    """How a judge errs: perfect, random, stingy or blindspot, and how often."""

    judge: Text = ""
    percent: Percent = 25

    def error(self) -> JudgeError | None:
        """None: as it is. Raises UnknownError."""
        if not self.judge:
            return None
        return parse(f"{self.judge}:{self.percent / 100:g}" if self.judge in ("random", "stingy") else self.judge)


class RunForm(ErrorForm):
    """The sentence that one fills in, and what lies behind "More"."""

    task: Annotated[Text, Field(min_length=1, max_length=200)]
    members: int | None = None
    each: float | None = Field(None, gt=0, le=1e6, allow_inf_nan=False, title="requests to each member")
    generations: int | None = None
    max_ratings: int | None = Field(None, title="ratings")
    regime: Text = "hetero+sample"
    profile: Text = ""
    schedule: Annotated[Text, Field(max_length=2000)] = ""
    rate: float | None = None
    concurrency: int = Field(64, title="at once")
    silent: Percent = 0
    eval_every: int = Field(0, title="measure every")
    held_out: int = Field(256, title="held-out requests")
    temperature: float = 0.7
    max_tokens: int | None = Field(None, title="most tokens")
    seed: int = 0
    shuffle: bool = False
    name: Annotated[Text, Field(max_length=120)] = ""

    def wanted(self, now: Settings, options: dict[str, Any]) -> dict[str, Any]:
        """The arguments of :meth:`app.traffic.desk.TrafficDesk.start`; settings that stay are left out."""
        error = self.error()
        settings: dict[str, Any] = {"profile": self.profile} if self.profile else {}
        members = now.members if self.members is None else self.members
        if members != now.members:
            settings["members"] = members
        asked = now.merge_after if self.each is None else round(self.each * members)
        if asked != now.merge_after and (self.each != round(now.merge_after / now.members, 3) or not self.profile):
            settings["merge_after"] = asked
        return {
            "task": self.task,
            "options": options,
            "name": self.name,
            "generations": self.generations,
            "max_ratings": self.max_ratings,
            "regime": self.regime,
            "seed": self.seed,
            "silent": self.silent / 100,
            "concurrency": self.concurrency,
            "rate": self.rate,
            "eval_every": self.eval_every,
            "held_out": self.held_out,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "shuffle_rewards": self.shuffle,
            "settings": settings,
            "judge": None if error is None else str(error),
            "schedule": self.schedule.strip() or None,
        }


def fill(form: type[F], fields: Mapping[str, Any]) -> F:
    """The form from what a browser sent; empty fields are left out. Raises BadForm."""
    given = {name: value for name, value in fields.items() if isinstance(value, str) and value.strip()}
    try:
        return form(**{name: value for name, value in given.items() if name in form.model_fields})
    except ValidationError as error:
        fault = error.errors()[0]
        name = str(fault["loc"][0])
        label = form.model_fields[name].title or name.replace("_", " ")
        said = fault["msg"].removeprefix("Value error, ")
        raise BadForm(f"{label.capitalize()}: {said[:1].lower()}{said[1:]}.") from error


def options_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """The options of the task among the fields; empty ones are left out."""
    return {
        name.removeprefix(OPTION): value
        for name, value in fields.items()
        if name.startswith(OPTION) and isinstance(value, str) and value.strip()
    }
