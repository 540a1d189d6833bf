"""What the dashboard and ``/api/generations`` ask: the merges so far."""

from __future__ import annotations

from dataclasses import dataclass

from sqlmodel import Session, col, select

from app.db import Database
from app.tables import Merge


@dataclass(frozen=True)
class GenerationResult:
    """A generation that has merged. Rewards are 0..1, times milliseconds, ``merged_at`` Unix seconds."""

    generation: int
    mean_reward: float | None
    fitness: list[float | None]
    """Mean reward by member, None where a member was not rated."""
    counts: list[int]
    """Rated replies by member."""
    ratings: int
    late: int
    """Ratings of earlier generations credited in this merge."""
    null: bool
    """True when every rated member scored the same and nothing was learned."""
    signal_share: float | None
    drift: float
    """‖θ − θ_0‖ / ‖θ_0‖ after the merge."""
    merged_at: float
    merge_ms: float
    pause_ms: float
    reason: str


class History:
    """Reads merges. Methods may raise DatabaseUnavailable."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def generations(self, *, after: int = -1, limit: int = 1000) -> list[GenerationResult]:
        """The newest ``limit`` merged generations with a number above ``after``, oldest first."""

        def query(session: Session) -> list[GenerationResult]:
            merged = select(Merge).where(Merge.state == "committed", Merge.generation > after)
            rows = session.exec(merged.order_by(col(Merge.generation).desc()).limit(limit)).all()
            names = GenerationResult.__dataclass_fields__
            return [GenerationResult(**{name: getattr(row, name) for name in names}) for row in reversed(rows)]

        return await self.db.read(query)
