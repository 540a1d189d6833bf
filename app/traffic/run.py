"""A run of simulated users: generation after generation gets the ratings that make its merge due and not one more, so
that no rating is late; greedy answers of the source model to held-out requests say what was learned."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from app.history import History
from app.traffic.records import Records
from app.traffic.users import Rated, Read, Users
from app.traffic.views import Progress, RunState, RunView, Score, Turn
from app.traffic.words import message_of
from engine.interface import PopulationServer, Status
from engine.regimes import SHARED, Ask, check, plan

T = TypeVar("T")
MERGE_TIMEOUT = 180.0
"""Seconds to wait for a due merge before the run is given up."""
POLL = 0.05
NUDGE = 5.0
"""After so many seconds without a merge some more users come: members may lack ratings that others took."""
NUDGES = 3
FAILURES = 64
"""Replies in a row that may fail, or that nobody can judge, before the run is given up."""


class RunFailed(Exception):
    """The run cannot go on; the message says why. It may be resumed."""


class Run:
    """One run under way. ``view`` is what it has shown so far; ``tell`` is called whenever that changes."""

    def __init__(
        self,
        view: RunView,
        users: Users,
        server: PopulationServer,
        history: History,
        records: Records,
        tell: Callable[[RunView], None],
        *,
        first: int = 0,
    ) -> None:
        self.view, self.users, self.plan = view, users, users.plan
        self.server, self.history, self.records, self._tell = server, history, records, tell
        self.next = first
        """Requests drawn so far: the index of the next one."""
        self.going = asyncio.Event()
        self.going.set()
        self._finished: deque[float] = deque(maxlen=4096)
        self._places = asyncio.Semaphore(self.plan.concurrency)
        self._next_start = 0.0
        self._in_a_row = self._unjudged = 0

    # -- what it does -------------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Everything that is left of the plan, in order. Raises RunFailed."""
        status = await self._serving()
        self._show(model=status.model, settings=status.settings, why="")
        check(self.plan.regime, status.members, status.merge_after)
        if not self.view.scores and not self.view.turns:
            await self._measure(status.generation)
        measured = bool(self.view.scores) and not self.view.turns
        while (left := self._left()) is None or left > 0:
            merged = self.view.progress.merged
            if self.plan.generations is not None and merged >= self.plan.generations:
                break
            turn = await self._generation(left)
            self._progress(merged=merged + (turn.null is not None))
            self._show(turns=[*self.view.turns, turn])
            measured = False
            if self.plan.eval_every and turn.null is not None and (merged + 1) % self.plan.eval_every == 0:
                await self._measure(turn.generation + 1)
                measured = True
            await self.records.save(self.view)
        if not measured:
            await self._measure((await self._serving()).generation)
        self._progress(eta_seconds=0.0)

    def _left(self) -> int | None:
        """Ratings until the plan's end, None without such an end."""
        return None if self.plan.max_ratings is None else self.plan.max_ratings - self.view.progress.ratings

    async def _generation(self, left: int | None) -> Turn:
        """Brings a generation the ratings that it lacks (at most ``left``) and waits for its merge."""
        started = time.monotonic()
        status = await self._serving()
        generation, merged = status.generation, False
        self._progress(generation=generation)
        rated: list[Rated] = []
        extra = nudges = 0
        whole = self.plan.regime in SHARED
        while not merged and (left is None or len(rated) < left):
            missing = status.merge_after - status.ratings + extra
            if whole and not rated:
                asks = plan(self.plan.regime, status.members, status.merge_after, self.next)
                self.next = max(self.next, *(ask.index + 1 for ask in asks))
            else:
                asks = self._asks(missing if left is None else min(missing, left - len(rated)))
            rated += await self._visit(asks, generation, hold=self.plan.shuffle_rewards or whole)
            merged, status = await self._merge(generation)
            if not merged and status.ratings >= status.merge_after + extra:
                nudges += 1
                if nudges > NUDGES:
                    raise RunFailed(f"generation {generation} has {status.ratings} ratings and does not merge")
                extra += max(1, status.members // 4)
        null, drift = await self._outcome(generation) if merged else (None, None)
        return Turn(
            generation,
            _mean(r.verdict.truth for r in rated),
            _mean(r.verdict.observed for r in rated),
            len(rated),
            sum(r.late for r in rated),
            null,
            drift,
            time.monotonic() - started,
        )

    def _asks(self, ratings: int) -> list[Ask]:
        """New requests, until so many of their users are not silent."""
        asks: list[Ask] = []
        while ratings > 0:
            ask = plan("hetero" if self.plan.regime != "hetero+sample" else "hetero+sample", 1, 1, self.next)[0]
            self.next += 1
            asks.append(ask)
            ratings -= not self.users.silent(ask.index)
        return asks

    async def _visit(self, asks: Sequence[Ask], generation: int, *, hold: bool) -> list[Rated]:
        """Users come; the ones who rated. ``hold``: nobody rates before all have read."""
        if not hold:
            outcomes = await together(self._read_and_rate(ask) for ask in asks)
            return [rated for rated in outcomes if rated is not None]
        reads = [r for r in await together(self._read(ask) for ask in asks) if r is not None]
        verdicts = await together(self.users.judge(read) for read in reads)
        if self.plan.shuffle_rewards:
            dealt = [verdict.observed for verdict in verdicts]
            random.Random(f"{self.plan.seed}/{generation}/shuffle").shuffle(dealt)
            verdicts = [replace(v, observed=observed) for v, observed in zip(verdicts, dealt, strict=True)]
        rated = await together(self.users.rate(r, v) for r, v in zip(reads, verdicts, strict=True))
        return [r for r in rated if self._count(r)]

    async def _read_and_rate(self, ask: Ask) -> Rated | None:
        read = await self._read(ask)
        if read is None:
            return None
        rated = await self.users.rate(read, await self.users.judge(read))
        return rated if self._count(rated) else None

    async def _read(self, ask: Ask) -> Read | None:
        """A read reply that is to be judged, or None for one that is not."""
        async with self._places:
            await self._turn_to_start()
            read = await self.users.read(ask)
        now = self.view.progress
        self._finished.append(time.monotonic())
        if read.end == "failed":
            self._in_a_row += 1
            if self._in_a_row > FAILURES:
                raise RunFailed("the engine fails to answer: see the server's log")
            await self._serving()
        else:
            self._in_a_row = 0
        silent = read.end == "read" and self.users.silent(ask.index)
        self._progress(
            users=now.users + 1,
            silent=now.silent + silent,
            spanned=now.spanned + (read.end == "spanned"),
            failed=now.failed + (read.end == "failed"),
        )
        return read if read.end == "read" and not silent else None

    def _count(self, rated: Rated) -> bool:
        """Counts a judged reply; whether it was rated."""
        now = self.view.progress
        if rated.verdict.observed is None:
            self._unjudged += 1
            self._progress(unrated=now.unrated + 1)
            self._show(why=f"Some replies could not be judged: {rated.verdict.why}"[:400])
            if self._unjudged > FAILURES:
                raise RunFailed(f"none of the last {FAILURES} replies could be judged: {rated.verdict.why}"[:400])
            return False
        self._unjudged = 0
        self._progress(ratings=now.ratings + 1)
        return True

    async def _turn_to_start(self) -> None:
        """Waits while the run is paused, and for the plan's rate."""
        await self.going.wait()
        if self.plan.rate is not None:
            start = max(time.monotonic(), self._next_start)
            self._next_start = start + 1 / self.plan.rate
            await asyncio.sleep(start - time.monotonic())
            await self.going.wait()

    async def _measure(self, generation: int) -> None:
        """Greedy answers of the source model to held-out requests."""
        requests = self.users.task.held_out[: self.plan.held_out]
        if not requests:
            return
        started = time.monotonic()
        held = await together(self._placed(self.users.measure(request)) for request in requests)
        scored = [(r.category, v) for r, v in zip(requests, held, strict=True) if v is not None]
        if not scored:
            raise RunFailed("the engine answered none of the held-out requests: see the server's log")
        by_category: dict[str, list[float]] = {}
        for category, value in scored:
            if category:
                by_category.setdefault(category, []).append(value)
        score = Score(
            generation,
            self.view.progress.ratings,
            sum(v for _, v in scored) / len(scored),
            len(scored),
            time.monotonic() - started,
            {name: sum(values) / len(values) for name, values in sorted(by_category.items())},
        )
        self._show(scores=[*self.view.scores, score])
        await self.records.save(self.view)

    async def _placed(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._places:
            return await work

    # -- waiting for the server ---------------------------------------------------------------------------------------

    async def _serving(self) -> Status:
        """The status, once the engine serves. Raises RunFailed when it has failed."""
        while (status := self.server.status()).state in ("starting", "paused"):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        if status.state == "failed":
            raise RunFailed(f"the engine has failed: {status.waiting_for}")
        return status

    async def _merge(self, generation: int) -> tuple[bool, Status]:
        """Waits while a merge is due or under way: (whether it came, the status). Raises RunFailed."""
        started = time.monotonic()
        while True:
            status = await self._serving()
            waited = time.monotonic() - started
            if status.generation != generation:
                return True, status
            if status.state == "serving" and (status.ratings < status.merge_after or waited > NUDGE):
                return False, status
            if waited > MERGE_TIMEOUT:
                raise RunFailed(f"generation {generation} has its ratings but does not merge: see the server's log")
            await asyncio.sleep(POLL)

    async def _outcome(self, generation: int) -> tuple[bool | None, float | None]:
        found = await self.history.generations(after=generation - 1, limit=10_000)
        row = next((row for row in found if row.generation == generation), None)
        return (False, None) if row is None else (row.null, row.drift)

    # -- what it shows ------------------------------------------------------------------------------------------------

    def state(self, state: RunState, why: str = "") -> None:
        ended = time.time() if state in ("done", "failed", "stopped") else None
        self._show(state=state, why=why, finished_at=ended)

    def _progress(self, **values: Any) -> None:
        self._show(progress=replace(self.view.progress, **values))

    def tick(self, seconds: float) -> None:
        """So many seconds of running have passed."""
        now = self.view.progress
        since = time.monotonic() - 10
        while self._finished and self._finished[0] < since:
            self._finished.popleft()
        self._progress(
            seconds=now.seconds + seconds,
            requests_per_second=len(self._finished) / 10,
            eta_seconds=self._eta(replace(now, seconds=now.seconds + seconds)),
        )

    def _eta(self, now: Progress) -> float | None:
        """Seconds left, from the share of the plan that is done."""
        shares = []
        if self.plan.generations:
            shares.append(now.merged / self.plan.generations)
        if self.plan.max_ratings:
            shares.append(now.ratings / self.plan.max_ratings)
        share = max(shares, default=0.0)
        if not share or not self.view.turns:
            return None
        spent = sum(turn.seconds for turn in self.view.turns)
        measuring = [score.seconds for score in self.view.scores]
        return max(0.0, spent * (1 - share) / share) + (measuring[-1] if measuring and share < 1 else 0.0)

    def _show(self, **values: Any) -> None:
        view = replace(self.view, **values)
        self.view = replace(view, message=message_of(view), updated_at=time.time())
        self._tell(self.view)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
