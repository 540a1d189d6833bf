"""The engine's history on SQLite: :class:`engine.interface.Journal`, each method one transaction."""

from __future__ import annotations

import time
from typing import Any

from sqlmodel import Session, col, delete, func, select

from app.db import Database
from app.tables import GenerationRow, LedgerEntry, Merge, MergeUse, Message
from engine.interface import MergeRecord, RatedReply, Saved
from engine.population import Generation

COLUMNS = (
    "generation",
    "reason",
    "mean_reward",
    "ratings",
    "null",
    "late",
    "signal_share",
    "drift",
    "merged_at",
    "merge_ms",
    "pause_ms",
    "fitness",
    "counts",
)


class SqliteJournal:
    """Returns from every method after COMMIT. May raise DatabaseUnavailable."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def load(self) -> Saved | None:
        """What a start needs; merges that were prepared and never committed are forgotten first."""
        await self.db.write(
            lambda session: session.execute(delete(Merge).where(col(Merge.state) == "prepared")) and None
        )
        return await self.db.read(_load)

    async def begin(self, generation: Generation) -> None:
        await self.db.write(lambda session: _begin(session, generation))

    async def prepare(self, record: MergeRecord) -> None:
        def job(session: Session) -> None:
            session.execute(delete(Merge).where(col(Merge.state) == "prepared"))
            session.add(_row(record))

        await self.db.write(job)

    async def commit(self, record: MergeRecord) -> None:
        def job(session: Session) -> None:
            query = select(Merge).where(Merge.state == "prepared", Merge.generation == record.generation)
            prepared = session.exec(query).one_or_none()
            if prepared is None:
                raise ValueError(f"the merge of generation {record.generation} was never prepared")
            for name, value in _row(record, "committed").model_dump(exclude={"id"}).items():
                setattr(prepared, name, value)
            assert prepared.id is not None
            for used in record.used:
                session.add(
                    MergeUse(
                        merge_id=prepared.id,
                        inference_id=used.inference_id,
                        generation=used.generation,
                        member=used.member,
                        reward=used.reward,
                        weight=used.weight,
                    )
                )
            session.add(LedgerEntry(entry=record.entry, created_at=time.time()))
            _begin(session, record.next)

        await self.db.write(job)

    async def append(self, entry: dict[str, Any]) -> None:
        await self.db.write(lambda session: session.add(LedgerEntry(entry=entry, created_at=time.time())))


def _begin(session: Session, generation: Generation) -> None:
    session.add(GenerationRow(number=generation.number, data=generation.to_json(), created_at=time.time()))


def _row(record: MergeRecord, state: str = "prepared") -> Merge:
    rest = {
        "entry": record.entry,
        "z": record.z,
        "next": record.next.to_json(),
        "population": record.population.to_json() if record.population else None,
        "alpha": record.alpha,
        "running_share": record.running_share,
    }
    return Merge(state=state, record=rest, **{name: getattr(record, name) for name in COLUMNS})


def _load(session: Session) -> Saved | None:
    present = session.exec(select(GenerationRow).order_by(col(GenerationRow.id).desc()).limit(1)).one_or_none()
    if present is None:
        return None
    generation = Generation.from_json(present.data)
    staleness = generation.settings.max_staleness
    entries = [row.entry for row in session.exec(select(LedgerEntry).order_by(col(LedgerEntry.id)))]
    newest = (
        select(Merge).where(Merge.state == "committed").order_by(col(Merge.generation).desc()).limit(max(1, staleness))
    )
    merges = [_record(session, row) for row in reversed(session.exec(newest).all())]
    return Saved(generation, entries, merges, _rewards(session, present, staleness))


def _rewards(session: Session, present: GenerationRow, staleness: int) -> list[RatedReply]:
    """The rated replies that can still be credited. A population that was drawn anew under the same number starts
    without those of its predecessor."""
    rated = select(Message).where(
        col(Message.reward).is_not(None),
        col(Message.member).is_not(None),
        col(Message.generation) >= present.number - staleness,
    )
    drawn = select(func.count(col(GenerationRow.id))).where(GenerationRow.number == present.number)
    since = present.created_at if session.exec(drawn).one() > 1 else 0.0
    return [
        RatedReply(m.id, m.generation, m.member, m.reward, m.weight)  # type: ignore[arg-type]
        for m in session.exec(rated.order_by(col(Message.created_at)))
        if m.generation != present.number or m.created_at >= since
    ]


def _record(session: Session, row: Merge) -> MergeRecord:
    used = session.exec(select(MergeUse).where(MergeUse.merge_id == row.id))
    ended = row.record["population"]
    return MergeRecord(
        **{name: getattr(row, name) for name in COLUMNS},
        entry=row.record["entry"],
        z=row.record["z"],
        next=Generation.from_json(row.record["next"]),
        population=Generation.from_json(ended) if ended else None,
        alpha=row.record["alpha"],
        running_share=row.record["running_share"],
        used=[RatedReply(u.inference_id, u.generation, u.member, u.reward, u.weight) for u in used],
    )
