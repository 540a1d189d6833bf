"""From one generation to the next: noise drawn, merge committed, rows folded, snapshots kept.

The order makes a crash harmless at any point: a merge counts from the journal's commit on, a fold from its entry in
the journal on, and weights are always rebuilt from the ledger.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import report
from engine.interface import BadRequest, MergeRecord
from engine.ledger import Fold
from engine.noise import Direction
from engine.population import Generation, Settings

if TYPE_CHECKING:
    from engine.server import Server

log = logging.getLogger(__name__)

SNAPSHOT_FOLDS = 8
"""Folds between two snapshots: replaying one costs about as long as adding its noise."""
IDLE_SECONDS = 5.0
"""A fold stalls the engine for a second, so it waits until nobody has been served for this long."""


class Turnover:
    """The slow side of the server; called under its merging lock, except for :meth:`tend`."""

    def __init__(self, server: Server):
        self.server = server
        self._folds_since_snapshot = 0
        self._saving: asyncio.Task[Any] | None = None

    def check(self, settings: Settings) -> None:
        """Raises BadRequest for a population that this engine can never hold."""
        backend = self.server.backend_or_fresh()
        rows = getattr(getattr(backend, "rows", None), "columns", None)
        directions = settings.members // 2 if settings.antithetic else settings.members
        need = directions * settings.rank
        if settings.kind == "lowrank" and rows is not None and need > rows:
            raise BadRequest(
                f"{settings.members} members of rank {settings.rank} need {need} noise rows, the engine has {rows}: "
                f"start it with POPSERVE_ROWS={need} or more"
            )

    async def rebuild(self) -> None:
        """Brings a fresh backend to the present generation: snapshot, ledger, rows."""
        from engine.master import replay

        server, learner = self.server, self.server.learner
        backend = server.backend_or_fresh()
        server.master = await asyncio.to_thread(replay, backend.checkpoint, learner.ledger, self._snapshots)
        if server.master.folded or backend.basis:
            await backend.fold(server.master, {})
        server.basis = backend.basis
        self.check(learner.generation.settings)
        # Gaussian terms are folded by the merge that adds them, unless it was killed before it could.
        interrupted = any(d.kind == "gaussian" for d in learner.ledger.coefficients)
        if interrupted or not await self._try_draw(learner.generation, set()):
            await self.fold()
            await self._draw(learner.generation, set())
        await asyncio.to_thread(lambda: backend.checkpoint.norm)
        server.drift = report.drift(backend.checkpoint, learner.ledger.totals())

    async def redraw(self, generation: Generation) -> None:
        """Another population under the same number; nobody has been served by the present one."""
        server, backend = self.server, self.server.backend_or_raise()
        async with server.gate.hold():
            await server.gate.drained()
            try:
                if not await self._try_draw(generation, set(), keep_present=False):
                    await self.fold()
                    await self._draw(generation, set(), keep_present=False)
                await server.journal.begin(generation)
            except Exception:
                try:
                    await self._draw(server.learner.generation, set())
                except Exception as error:
                    server.restart(backend, error)
                raise
            server.learner.redraw(generation)
            server.router.turn(generation)

    async def merge(self, record: MergeRecord, began: float) -> MergeRecord:
        """Draws the next population while the present one goes on serving, commits, switches; nobody waits.

        Only where the rows hold one generation but not two, and for gaussian terms and members, which are a change of
        all weights, are new requests held back and running ones awaited.
        """
        server, backend = self.server, self.server.backend_or_fresh()
        server.gate.reset()
        terms = {Direction.from_json(d) for d, _ in record.entry["terms"]}
        late = terms - set(record.population.directions)
        kinds = {d.kind for d in terms} | {record.next.settings.kind, record.population.settings.kind}
        whole = "gaussian" in kinds
        if not whole:
            fits = await self._try_draw(record.next, late)
            if not fits and server.learner.ledger.coefficients:
                await self.fold()
                fits = await self._try_draw(record.next, late)
            if fits:
                return await self._commit(record, began)
        async with server.gate.hold():
            await server.gate.drained()
            record = await self._commit(record, began)
            try:
                await self.fold()
                await self._draw(record.next, set(), keep_present=False)
            except Exception as error:
                # It has happened all the same; an engine rebuilt from the ledger can serve the next generation.
                log.exception("generation %d could not be made resident", record.next.number)
                server.restart(backend, error)
        return replace(record, pause_ms=server.gate.waited_ms, merge_ms=(time.monotonic() - began) * 1000)

    async def _commit(self, record: MergeRecord, began: float) -> MergeRecord:
        server = self.server
        took = (time.monotonic() - began) * 1000
        record = replace(record, merged_at=time.time(), merge_ms=took, pause_ms=server.gate.waited_ms)
        await server.journal.commit(record)
        server.learner.commit(record)
        server.router.turn(record.next)
        return record

    async def _try_draw(self, generation: Generation, extra: set[Direction], keep_present: bool = True) -> bool:
        from engine.backends.rows import NoRoom

        try:
            await self._draw(generation, extra, keep_present)
        except NoRoom as full:
            log.info("%s", full)
            return False
        return True

    async def _draw(self, generation: Generation, extra: set[Direction], keep_present: bool = True) -> None:
        """Makes a generation resident beside what the present source and running requests need. Raises NoRoom."""
        learner = self.server.learner
        unfolded = {d for d, c in learner.ledger.coefficients.items() if c and d.kind == "lowrank"}
        keep = unfolded | (set(learner.generation.directions) if keep_present else set())
        wanted = list(dict.fromkeys([*generation.directions, *sorted(extra | unfolded)]))
        await self.server.backend_or_fresh().draw(wanted, keep)

    # -- folds --------------------------------------------------------------------------------------------------------

    async def fold(self) -> None:
        """Moves the unfolded coefficients into the weights. Running requests keep their output: their vectors change
        basis. Where decay has fallen due on earlier folds, F itself changes, so nobody may be running."""
        server, ledger = self.server, self.server.learner.ledger
        coefficients = {d: c for d, c in ledger.coefficients.items() if c}
        if not coefficients:
            return
        if ledger.folded and ledger.pending_pull != 1.0:
            async with server.gate.hold():
                await server.gate.drained()
                await self._fold(coefficients, ledger.pending_pull)
        else:
            await self._fold(coefficients, ledger.pending_pull)

    async def _fold(self, coefficients: dict[Direction, float], pull_back: float) -> None:
        server, master = self.server, self.server.master
        assert master is not None
        if self._saving is not None:
            await asyncio.wait([self._saving])
        entry = Fold(server.learner.generation.number, pull_back)
        backend = server.backend_or_fresh()
        await server.journal.append(entry.to_json())
        try:
            await asyncio.to_thread(master.fold, coefficients, pull_back)
            await backend.fold(master, coefficients)
        except Exception as error:
            # From the journal on it counts; what the engine holds now, nobody knows.
            server.learner.ledger.append(entry)
            server.restart(backend, error)
            raise
        # A request that was admitted up to here names the old basis, which the backend still understands.
        server.learner.ledger.append(entry)
        server.basis += 1
        self._folds_since_snapshot += 1
        if self._folds_since_snapshot >= SNAPSHOT_FOLDS:
            self._folds_since_snapshot = 0
            self._saving = asyncio.create_task(self._snapshot())

    @property
    def _snapshots(self) -> Path:
        return self.server.config.home / "snapshots"

    async def _snapshot(self) -> None:
        from engine.master import save_snapshot

        server = self.server
        position, head = len(server.learner.ledger.entries), server.learner.ledger.head
        try:
            await asyncio.to_thread(save_snapshot, server.master, self._snapshots, position, head)
        except OSError as error:
            log.warning("the snapshot was not written (%s); a restart replays more of the ledger", error)

    async def tend(self) -> None:
        """Folds in quiet moments, when merged directions fill more than half of the rows."""
        server, quiet_since = self.server, time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            if server.gate.running or server.state != "serving":
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= IDLE_SECONDS and self._crowded() and not server._merging.locked():
                async with server._merging:
                    try:
                        await self.fold()
                    except Exception:
                        log.exception("a fold failed")
                server.merge_if_due()
                quiet_since = time.monotonic()

    def _crowded(self) -> bool:
        rows = getattr(getattr(self.server.backend, "rows", None), "columns", None)
        unfolded = sum(d.rank for d, c in self.server.learner.ledger.coefficients.items() if c)
        return rows is not None and unfolded > rows // 2
