"""The population server: one source model, served, rated, merged. Implements ``engine.interface.PopulationServer``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import report
from engine.config import Config, fetch, make_backend
from engine.gate import Gate
from engine.interface import (
    BadRequest,
    CannotMerge,
    Credit,
    EngineError,
    Journal,
    Listener,
    MemberStatus,
    MergeRecord,
    NotReady,
    Sampling,
    State,
    Status,
    Target,
)
from engine.learner import Learner, message_of
from engine.meter import Meter
from engine.population import Generation, Settings, draw, profile
from engine.reply import ServedReply
from engine.router import Router
from engine.turnover import Turnover

if TYPE_CHECKING:
    from engine.backends.base import Backend, Weights
    from engine.master import Master

log = logging.getLogger(__name__)


class Server:
    """See :class:`engine.interface.PopulationServer`. All methods belong to one event loop."""

    def __init__(self, config: Config, journal: Journal):
        self.config, self.journal = config, journal
        self.state: State = "starting"
        self.waiting_for = "The engine is starting."
        self.gate, self.meter = Gate(), Meter()
        self.entropy = secrets.randbits(62) if config.seed is None else config.seed
        self.learner = Learner(draw(0, profile(config.profile), self.entropy))
        self.router = Router(self.learner.generation)
        self.backend: Backend | None = None
        self.master: Master | None = None
        self.basis = 0
        """Folds that the backend's weights hold beyond what it was started with."""
        self.drift = 0.0
        self.last_merge: MergeRecord | None = None
        self.turnover = Turnover(self)
        self._listeners: list[Listener] = []
        self._merging = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.engine_name, self.model_name = "", config.model

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        try:
            await self._start()
        except Exception as error:
            self.state = "failed"
            self.waiting_for = str(error) or repr(error)
            self.emit("status")
            raise error if isinstance(error, EngineError) else EngineError(str(error)) from error

    async def _start(self) -> None:
        self._say("preparing the model")
        folder = await asyncio.to_thread(fetch, self.config)
        self.model_name = folder.name
        saved = await self.journal.load()
        if saved is None:
            await self.journal.begin(self.learner.generation)
        else:
            self.learner = Learner.resume(saved)
            self.router.turn(self.learner.generation, fresh=False)
            self.last_merge = saved.merges[-1] if saved.merges else None
        await self._raise_backend(folder)
        self.state, self.waiting_for = "serving", ""
        self.emit("population")
        self._spawn(self.turnover.tend(), "tend")
        self.merge_if_due()

    async def _raise_backend(self, folder: Path) -> None:
        """Makes a backend that serves the present generation."""
        self._say("loading libraries")
        backend = await asyncio.to_thread(make_backend, self.config, folder)
        try:
            await backend.start(self._say)
            self._say("rebuilding the weights from the ledger")
            self.backend = backend
            await self.turnover.rebuild()
            self.engine_name = backend.name
        except BaseException:
            self.backend = None
            await backend.close()
            raise

    def _say(self, what: str) -> None:
        self.waiting_for = f"The engine is {what}."
        self.emit("status")

    async def close(self) -> None:
        self.state, self.waiting_for = "failed", "The engine is closed."
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        backend, self.backend = self.backend, None
        if backend is not None:
            await backend.close()

    def backend_or_raise(self) -> Backend:
        if self.backend is None or self.state in ("starting", "failed"):
            raise NotReady(self.waiting_for or "The engine is not running.")
        return self.backend

    def backend_or_fresh(self) -> Backend:
        """The backend, also while it is being brought up."""
        if self.backend is None:
            raise NotReady("The engine is not running.")
        return self.backend

    @contextlib.contextmanager
    def watching_for_death(self, backend: Backend | None) -> Iterator[None]:
        """Turns a dead engine under its user into an EngineError, and brings up another one."""
        try:
            yield
        except Exception as error:
            if backend is None or backend.alive or isinstance(error, EngineError):
                raise
            self.restart(backend, error)
            if self.state == "failed":
                raise NotReady(self.waiting_for) from error
            raise EngineError("The engine has died while answering. It starts again by itself: try again.") from error

    def restart(self, backend: Backend, why: Exception) -> None:
        """Puts a fresh engine at the present generation in the place of one that died, or that does not hold what the
        ledger says. Does nothing when that is under way already."""
        if self.backend is not backend or self.state in ("starting", "failed"):
            return
        log.error("the engine is lost: %s", why)
        self.backend, self.state = None, "starting"
        self._spawn(self._revive(backend), "revive")

    async def _revive(self, dead: Backend) -> None:
        self._say("starting again after a failure")
        async with self._merging:
            await dead.close()
            try:
                await self._raise_backend(dead.checkpoint.folder)
            except Exception as error:
                log.exception("the engine did not come back")
                self.state, self.waiting_for = "failed", f"The engine died and did not come back: {error}"
            else:
                self.state, self.waiting_for = "serving", ""
        self.emit("status")
        self.merge_if_due()

    # -- serving ------------------------------------------------------------------------------------------------------

    def reply(
        self,
        messages: list[dict[str, str]],
        sampling: Sampling,
        *,
        request_id: str,
        target: Target = "population",
        session: str | None = None,
        member: int | None = None,
        priority: int = 0,
    ) -> ServedReply:
        return ServedReply(self, messages, sampling, request_id, target, session, member, priority)

    def source(self) -> Weights:
        """The present source model as the backend holds it."""
        from engine.backends.base import Weights

        return Weights(dict(self.learner.ledger.coefficients), self.basis, self.learner.ledger.head)

    def assign(self, target: Target, session: str | None, index: int | None = None) -> tuple[int, int | None, Weights]:
        """Who answers now: (generation, member, weights). Raises BadRequest for a base that is folded away, and for a
        member (``index``) that there is not."""
        generation = self.learner.generation
        if target == "source":
            return generation.number, None, self.source()
        if target == "base":
            if self.learner.ledger.folded:
                raise BadRequest("generation 0 is no longer resident: it has been folded into the weights since")
            return 0, None, replace(self.source(), coefficients={}, source="base")
        if index is not None and not 0 <= index < len(generation.members):
            raise BadRequest(f"there is no member {index}: the population has {len(generation.members)}, from 0 on")
        _, counts = self.learner.fitness()
        member = generation.members[self.router.choose(counts, session, index)]
        sigma = generation.settings.sigma * member.sign
        return generation.number, member.index, self.source().plus(member.direction, sigma)

    def release(self, generation: int, member: int | None) -> None:
        if member is not None:
            self.router.done(generation, member)
            self.emit("served", {"generation": generation, "member": member})

    # -- learning -----------------------------------------------------------------------------------------------------

    def rate(
        self, inference_id: str, generation: int, member: int | None, reward: float | None, weight: float = 1.0
    ) -> Credit:
        credit = self.learner.record(inference_id, generation, member, reward, weight)
        self.emit("rating", asdict(credit))
        self.merge_if_due()
        return credit

    def merge_if_due(self) -> None:
        if self.state == "serving" and self.learner.due() and not self._merging.locked():
            self._spawn(self._merge_due(), "merge")

    async def _merge_due(self) -> None:
        try:
            async with self._merging:
                while self.learner.due() and self.state == "serving":
                    await self._turn("ratings")
        except CannotMerge:
            return
        except Exception:
            log.exception("a merge failed; the present generation goes on")

    async def merge(self, reason: str = "button") -> MergeRecord:
        self.backend_or_raise()

        async def now() -> MergeRecord:
            async with self._merging:
                return await self._turn(reason)

        return await self._to_the_end(now(), "merge")

    async def configure(self, settings: Settings, *, seed: int | None = None) -> Generation:
        self.backend_or_raise()
        self.turnover.check(settings)

        async def now() -> Generation:
            async with self._merging:
                if seed is not None:
                    self.entropy = seed
                if not self.router.untouched:
                    return (await self._turn("settings", settings)).next
                generation = draw(self.learner.generation.number, settings, self.entropy)
                await self.turnover.redraw(generation)
                self.emit("population")
                return generation

        return await self._to_the_end(now(), "configure")

    async def _to_the_end(self, work: Any, name: str) -> Any:
        """Runs what must not stop halfway when the caller goes away."""
        task = self._spawn(work, name)
        task.add_done_callback(lambda _: self.merge_if_due())
        return await asyncio.shield(task)

    async def _turn(self, reason: str, following: Settings | None = None) -> MergeRecord:
        """One turn of generations, under the merging lock."""
        began = time.monotonic()
        self.backend_or_raise()
        record = self.learner.plan(reason, self.entropy, following)
        record = replace(
            record, drift=report.drift(self.backend_or_raise().checkpoint, self.learner.totals_after(record))
        )
        self.state = "merging"
        self.emit("status")
        try:
            with self.watching_for_death(self.backend):
                await self.journal.prepare(record)
                record = await self.turnover.merge(record, began)
        finally:
            if self.state == "merging":
                self.state = "serving"
        self.last_merge, self.drift = record, record.drift
        log.info("generation %d: %s", record.generation, message_of(record))
        self.emit("merge", report.merge_json(record))
        self.emit("status")
        return record

    # -- telling ------------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        return report.status(self)

    def members(self) -> list[MemberStatus]:
        return report.members(self)

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def emit(self, kind: str, data: dict[str, Any] | None = None) -> None:
        if data is None:
            data = asdict(self.status())
        for listener in list(self._listeners):
            listener(kind, data)

    def _spawn(self, work: Any, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
