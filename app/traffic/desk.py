"""Starts, pauses, resumes and stops runs of simulated users; at most one is active."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict, replace
from typing import Any

from pydantic import ValidationError

from app.changes import BadSetting, Changes, SettingsChange
from app.db import DatabaseUnavailable
from app.events import Bus
from app.history import History
from app.judge import shifted
from app.marks import Marks
from app.settings import SYSTEM_PROMPT
from app.traffic.plan import Plan
from app.traffic.records import Records
from app.traffic.run import Run, RunFailed
from app.traffic.users import Users, World
from app.traffic.views import RunReply, RunView
from engine.interface import EngineError, NotReady, PopulationServer
from engine.regimes import UnevenRatings, check
from engine.tasks import Surroundings, Task, TaskError, get, personas

log = logging.getLogger(__name__)
TICK = 0.5
"""Seconds between two looks at the clock of a run."""


class BadPlan(ValueError):
    """A run that can never be; the message says what to change."""


class RunActive(Exception):
    """Another run is running or paused; the message says what to do."""


class TrafficDesk:
    """All methods belong to the event loop. May raise NotFound, DatabaseUnavailable, BadPlan, RunActive, TaskError,
    UnknownError and what changing settings raises."""

    def __init__(
        self,
        records: Records,
        world: World,
        server: PopulationServer,
        history: History,
        changes: Changes,
        marks: Marks,
        bus: Bus,
        where: Surroundings,
    ) -> None:
        self.records, self.world, self.server, self.history = records, world, server, history
        self.changes, self.marks, self.bus, self.where = changes, marks, bus, where
        self._run: Run | None = None
        self._work: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._by_category: RunView | None = None

    async def open(self) -> None:
        await self.records.leftovers()
        self._by_category = await self.records.with_categories()

    async def close(self) -> None:
        """Ends the active run; it waits to be resumed."""
        await self._halt()
        if self._run is not None and self._run.view.state == "running":
            await self._settle(self._run, "paused", "The server was stopped: resume the run to go on.")

    async def start(self, task: str, *, options: dict[str, Any], name: str = "", **planned: Any) -> RunView:
        """Starts a run; ``planned`` are the fields of :class:`app.traffic.plan.Plan`."""
        try:
            plan = Plan(**planned)
        except ValueError as error:
            raise BadPlan(str(error)) from error
        async with self._starting:
            await self._refuse_second()
            if (status := self.server.status()).state in ("starting", "failed"):
                raise NotReady(status.waiting_for)
            users = await asyncio.to_thread(get, task, options, self.where)
            await self._prepare(users, plan)
            view = await self.records.create(
                name=name.strip() or users.name,
                task=task,
                options=options,
                plan=asdict(plan),
                result={"likes": users.likes, "system_prompt": self.world.preferences.chat.system_prompt},
            )
            number = self.server.status().generation
            if changes := plan.judge_schedule.changes:
                await self.world.desk.change(schedule=shifted(plan.judge_schedule, number))
                log.info("judge of run %s: %s", view.id, changes)
            await self.marks.add(number, "run", f"{view.name} starts", run=view.id)
            return self._launch(view, users, plan, first=0)

    async def resume(self, run_id: str) -> RunView:
        async with self._starting:
            run = self._run
            if run is not None and run.view.id == run_id and run.view.state == "paused" and self._working():
                run.state("running")
                run.going.set()
                await self.records.save(run.view)
                return run.view
            view = await self.records.get(run_id)
            if view.state == "running" and self._working():
                return view
            if view.state == "done":
                raise RunActive("This run has done all that it was planned to do: start another one.")
            await self._refuse_second(run_id)
            users = await asyncio.to_thread(get, view.task, view.options, self.where)
            first, rated = await self.records.used(run_id)
            view = replace(view, progress=replace(view.progress, ratings=max(rated, view.progress.ratings)))
            return self._launch(view, users, Plan.from_json(view.plan), first=first)

    async def pause(self, run_id: str) -> RunView:
        run = await self._active(run_id)
        if run.view.state == "running":
            run.going.clear()
            run.state("paused", "No more users come.")
            await self.records.save(run.view)
        return run.view

    async def stop(self, run_id: str) -> RunView:
        run = self._run
        if run is None or run.view.id != run_id or not self._working():
            view = await self.records.get(run_id)
            if not view.active:
                return view
            view = replace(view, state="stopped", why="", finished_at=time.time())
            await self.records.save(view)
            self._tell(view)
            return view
        await self._halt()
        await self._settle(run, "stopped")
        return run.view

    async def run(self, run_id: str) -> RunView:
        if self._run is not None and self._run.view.id == run_id:
            return self._run.view
        return await self.records.get(run_id)

    async def runs(self) -> list[RunView]:
        """Newest first."""
        kept = await self.records.all()
        live = self._run.view if self._run is not None else None
        return [live if live is not None and live.id == view.id else view for view in kept]

    async def newest(self) -> RunView | None:
        """The run that was started or resumed last, else the newest one."""
        if self._run is not None:
            return self._run.view
        return next(iter(await self.records.all(limit=1)), None)

    @property
    def by_category(self) -> RunView | None:
        """The newest run that was measured by category."""
        run = self._run
        return run.view if run is not None and measured_by_category(run.view) else self._by_category

    async def replies(self, run_id: str, limit: int) -> list[RunReply]:
        return await self.records.replies(run_id, limit)

    async def describe(self, run_id: str, **values: str) -> RunView:
        view = await self.records.describe(run_id, values)
        if self._run is not None and self._run.view.id == run_id:
            self._run.view = replace(self._run.view, name=view.name, notes=view.notes)
            return self._run.view
        return view

    @property
    def active(self) -> RunView | None:
        """The run that is running or paused in this process."""
        return self._run.view if self._run is not None and self._run.view.active else None

    # -- inside -------------------------------------------------------------------------------------------------------

    def _working(self) -> bool:
        return self._work is not None and not self._work.done()

    async def _active(self, run_id: str) -> Run:
        if self._run is not None and self._run.view.id == run_id and self._working():
            return self._run
        view = await self.records.get(run_id)
        raise RunActive(f"This run is {view.state}: there is nothing to pause.")

    async def _refuse_second(self, but: str | None = None) -> None:
        for view in await self.runs():
            if view.active and view.id != but:
                raise RunActive(f"The run {view.name!r} ({view.id}) is {view.state}: stop it before you start another.")

    async def _prepare(self, task: Task, plan: Plan) -> None:
        """Settings as planned, and the task's system prompt in chat where people are to see what is taught."""
        settings = dict(plan.settings)
        chat = self.world.preferences.chat.system_prompt
        if task.shares_prompt and "system_prompt" not in settings and chat in {SYSTEM_PROMPT, *personas.PROMPTS}:
            settings["system_prompt"] = task.system_prompt
        if settings:
            try:
                change = SettingsChange(**settings)
            except ValidationError as error:
                fault = error.errors()[0]
                raise BadSetting(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error
            await self.changes.apply(change)
        status = self.server.status()
        try:
            check(plan.regime, status.members, status.merge_after)
        except UnevenRatings as error:
            raise BadPlan(str(error)) from error

    def _launch(self, view: RunView, task: Task, plan: Plan, *, first: int) -> RunView:
        view = replace(view, state="running", why="", finished_at=None)
        users = Users(self.world, task, plan, view.id)
        self._by_category = self.by_category
        self._run = run = Run(view, users, self.server, self.history, self.records, self._tell, first=first)
        self._work = asyncio.create_task(self._to_the_end(run), name=f"traffic {view.id}")
        self._tell(view)
        return view

    async def _to_the_end(self, run: Run) -> None:
        clock = asyncio.create_task(self._clock(run))
        try:
            await self.records.save(run.view)
            await run.work()
        except asyncio.CancelledError:
            raise
        except (RunFailed, UnevenRatings, EngineError, DatabaseUnavailable, TaskError) as error:
            log.warning("run %s: %s", run.view.id, error)
            await self._settle(run, "failed", f"{str(error)[:1].upper()}{str(error)[1:]}. Resume the run to go on.")
        except Exception:
            log.exception("run %s failed", run.view.id)
            await self._settle(run, "failed", "Something unexpected went wrong: see the server's log.")
        else:
            await self._settle(run, "done")
        finally:
            clock.cancel()

    async def _settle(self, run: Run, state: Any, why: str = "") -> None:
        """A run has come to rest: told, and kept if it can be."""
        run.state(state, why)
        try:
            await self.records.save(run.view)
        except DatabaseUnavailable as error:
            log.error("run %s could not be stored: %s", run.view.id, error)

    async def _clock(self, run: Run) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            if run.view.state == "running":
                run.tick(now - before)
            before = now

    async def _halt(self) -> None:
        """Ends the work at once; replies under way are cut off."""
        work, self._work = self._work, None
        if work is not None and not work.done():
            work.cancel()
            await asyncio.wait([work])

    def _tell(self, view: RunView) -> None:
        self.bus.publish("traffic", {"id": view.id, "state": view.state, "progress": asdict(view.progress)})


def measured_by_category(view: RunView) -> bool:
    return any(score.by_category for score in view.scores)
