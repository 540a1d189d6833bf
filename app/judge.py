"""The judge of simulated users: who judges, how it errs now, and how it will err from which generation on.

    verdict = await desk.verdict(task, request, messages, reply, truth, key="3/17", seed=0)
    verdict.observed, verdict.truth, verdict.judge      # 0..1, what is rated and what is true

By default the task itself judges, so the truth is known; a reward model or a language model may judge in its place. The
error concerns simulated traffic alone: what people say is never changed. Every change is stored before it takes effect,
from the next reply on, and is marked on every chart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.db import DatabaseUnavailable
from app.events import Bus
from app.marks import Marks
from app.store import Store
from engine.interface import PopulationServer
from engine.judges import Judge, JudgeFault, open_judge
from engine.judges.errors import PERFECT, JudgeError, parse
from engine.judges.schedule import Schedule, parse_schedule
from engine.tasks import Request, Task

log = logging.getLogger(__name__)
KEY = "judge"
TASK: dict[str, Any] = {"kind": "task", "options": {}}


@dataclass(frozen=True)
class JudgeView:
    """The judge as it stands."""

    error: str
    """As :func:`engine.judges.errors.parse` reads it."""
    schedule: str
    """Changes to come, by the server's generation numbers: ``@150 perfect``."""
    who: dict[str, Any]
    """{kind, options}: ``task``, ``llm`` or ``reward_model``."""
    fault: str
    """Why the judge cannot be asked, with what to do; empty when it can. Replies stay unrated meanwhile."""


@dataclass(frozen=True)
class Verdict:
    """What a reply is rated with. ``observed`` None: it could not be judged."""

    observed: float | None
    truth: float | None
    judge: str
    why: str = ""


class JudgeDesk:
    """All methods belong to the event loop. May raise DatabaseUnavailable, UnknownError or JudgeFault."""

    def __init__(self, store: Store, marks: Marks, server: PopulationServer, bus: Bus) -> None:
        self.store, self.marks, self.server, self.bus = store, marks, server, bus
        self._error: JudgeError = PERFECT
        self._schedule = Schedule()
        self._who: dict[str, Any] = TASK
        self._judge: Judge | None = None
        self._fault = ""
        self._changing = asyncio.Lock()
        """Changes are stored and marked one after another."""

    async def open(self) -> None:
        saved = (await self.store.settings()).get(KEY)
        if not isinstance(saved, dict):
            return
        self._error, self._schedule = parse(saved["error"]), parse_schedule(saved["schedule"])
        self._who = saved["who"]
        try:
            self._judge = await self._opened(self._who)
        except JudgeFault as fault:
            self._fault = str(fault)
            log.warning("the judge cannot be opened: %s", fault)

    async def close(self) -> None:
        judge, self._judge = self._judge, None
        if judge is not None:
            await judge.close()

    def view(self) -> JudgeView:
        number = self.server.status().generation
        to_come = Schedule(tuple(c for c in self._schedule.changes if c[0] > number))
        return JudgeView(str(self.error(number)), str(to_come), self._who, self._fault)

    def error(self, generation: int) -> JudgeError:
        """The error in force for replies of this generation."""
        return self._schedule.at(generation) or self._error

    async def change(
        self,
        *,
        error: JudgeError | None = None,
        schedule: Schedule | None = None,
        who: dict[str, Any] | None = None,
    ) -> JudgeView:
        """Changes what is given. ``schedule`` counts the server's generations; a new ``error`` takes effect now and
        leaves the changes that are still to come, unless a schedule comes with it."""
        async with self._changing:
            number = self.server.status().generation
            before = self.error(number)
            if schedule is None:
                schedule = Schedule(tuple(c for c in self._schedule.changes if c[0] > number))
            now = schedule.at(number) or error or before
            later = Schedule(tuple(c for c in schedule.changes if c[0] > number))
            judge, fault = self._judge, self._fault
            if who is not None:
                judge, fault = await self._opened(who), ""
            whom = self._who if who is None else who
            await self._save(now, later, whom)
            if judge is not self._judge:
                await self.close()
            self._error, self._schedule, self._who, self._judge, self._fault = now, later, whom, judge, fault
            if now != before:
                await self.marks.add(number, "judge", f"judge: {now}", error=str(now), before=str(before))
            if who is not None:
                await self.marks.add(number, "judge", f"judged by {_name(who)}", who=who["kind"])
            self.bus.publish("judge", self.view().__dict__)
            return self.view()

    async def on_generation(self, number: int) -> None:
        """Generation ``number`` is served now: what was planned up to it has come into force."""
        async with self._changing:
            now, before = self.error(number), self._error
            if now == before:
                return
            later = Schedule(tuple(c for c in self._schedule.changes if c[0] > number))
            try:
                await self._save(now, later, self._who)
                await self.marks.add(number, "judge", f"judge: {now}", error=str(now), before=str(before))
            except DatabaseUnavailable as error:  # the schedule still says it; the next generation stores it
                log.warning("the judge's change to %s is not stored yet: %s", now, error)
                return
            self._error, self._schedule = now, later
            self.bus.publish("judge", self.view().__dict__)

    async def verdict(
        self,
        task: Task,
        request: Request,
        messages: list[dict[str, str]],
        reply: str,
        truth: float,
        *,
        generation: int,
        key: str,
        seed: int,
    ) -> Verdict:
        """Judges one reply (the last one of an episode). ``truth`` is the task's own reward on its own scale; ``key``
        and ``seed`` decide where the judge errs. Never raises for what a model or a judge said."""
        error, true = self.error(generation), task.scale(truth)
        if self._who["kind"] == "task":
            observed = error.observe(truth, grades=task.grades, blind=request.in_blind_spot, key=key, seed=seed)
            return Verdict(task.scale(observed), true, str(error))
        label = f"{_name(self._who)} {error}"
        if self._judge is None:
            return Verdict(None, true, label, self._fault or "the judge is closed")
        said = await self._judge.verdict(messages, reply)
        if said.score is None:
            return Verdict(None, true, label, said.why)
        observed = error.observe(said.score, grades=None, blind=request.in_blind_spot, key=key, seed=seed)
        return Verdict(observed, true, label, said.why)

    async def _save(self, error: JudgeError, schedule: Schedule, who: dict[str, Any]) -> None:
        await self.store.save_settings({KEY: {"error": str(error), "schedule": str(schedule), "who": who}})

    @staticmethod
    async def _opened(who: dict[str, Any]) -> Judge | None:
        if who.get("kind") == "task":
            return None
        return await open_judge(str(who.get("kind")), who.get("options") or {})


def _name(who: dict[str, Any]) -> str:
    """Of the judge, for people."""
    return {"task": "the task itself", "llm": "a language model", "reward_model": "a reward model"}[who["kind"]]


def shifted(schedule: Schedule, first: int) -> Schedule:
    """A schedule that counts from a run's first generation, in the server's generation numbers."""
    changes: Sequence[tuple[int, JudgeError]] = [(first + after, error) for after, error in schedule.changes]
    return Schedule(tuple(changes))
