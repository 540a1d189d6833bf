"""Marks: what every chart shows as a line, because it explains a bend: another judge, other settings or weights."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlmodel import Session, col, select

from app.db import Database
from app.events import Bus
from app.tables import Mark

Kind = Literal["judge", "settings", "weights", "run"]
MOST = 500


@dataclass(frozen=True)
class MarkView:
    """``generation`` is the first one it concerns; ``created_at`` is in Unix seconds."""

    id: int
    generation: int
    kind: str
    text: str
    data: dict[str, Any]
    created_at: float


class Marks:
    """Writes and reads marks; the newest ``MOST`` are kept at hand. May raise DatabaseUnavailable."""

    def __init__(self, db: Database, bus: Bus) -> None:
        self.db, self.bus = db, bus
        self.newest: list[MarkView] = []
        """Oldest first."""

    async def open(self) -> None:
        def query(session: Session) -> list[MarkView]:
            rows = session.exec(select(Mark).order_by(col(Mark.id).desc()).limit(MOST)).all()
            return [_view(row) for row in reversed(rows)]

        self.newest = await self.db.read(query)

    async def add(self, generation: int, kind: Kind, text: str, **data: Any) -> MarkView:
        def job(session: Session) -> MarkView:
            row = Mark(generation=generation, kind=kind, text=text, data=data, created_at=time.time())
            session.add(row)
            session.flush()
            return _view(row)

        mark = await self.db.write(job)
        self.newest = [*self.newest, mark][-MOST:]
        self.bus.publish("mark", asdict(mark))
        return mark


def _view(row: Mark) -> MarkView:
    assert row.id is not None
    return MarkView(row.id, row.generation, row.kind, row.text, row.data, row.created_at)
