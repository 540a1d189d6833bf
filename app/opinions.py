"""Second opinions: a random sample of judged replies is offered to people, and says how good the judge is."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from sqlmodel import Session, col, select

from app.db import Database
from app.events import Bus
from app.store import NotFound
from app.tables import Message, SecondOpinion
from engine.judges.health import Opinion, estimate, sample

RATE = 0.05
"""Share of judged replies that are offered."""
WAITING = 200
"""Offers kept open; the oldest unanswered ones make room."""
RECENT = 500
"""The newest opinions that the estimate is made from."""


@dataclass(frozen=True)
class Offer:
    """A reply to judge: what was asked and answered. What the judge said is told after the person has."""

    id: str
    prompt: str
    text: str
    task: str
    offered_at: float


@dataclass(frozen=True)
class Given:
    """What a person and the judge said of one reply, 0..1."""

    id: str
    person: float | None
    judge: float
    agree: bool | None


class Opinions:
    """May raise DatabaseUnavailable and NotFound."""

    def __init__(self, db: Database, bus: Bus) -> None:
        self.db, self.bus = db, bus

    async def offer(self, inference_id: str, *, observed: float, truth: float | None, blind: bool, judge: str) -> bool:
        """Maybe offers a judged reply; whether it did."""
        if not sample(inference_id, RATE):
            return False

        def job(session: Session) -> None:
            session.merge(
                SecondOpinion(
                    inference_id=inference_id,
                    observed=observed,
                    truth=truth,
                    blind=blind,
                    judge=judge,
                    offered_at=time.time(),
                )
            )
            session.flush()
            waiting = select(SecondOpinion).where(
                col(SecondOpinion.value).is_(None), col(SecondOpinion.skipped).is_(False)
            )
            for old in session.exec(waiting.order_by(col(SecondOpinion.offered_at).desc()).offset(WAITING)):
                session.delete(old)

        await self.db.write(job)
        return True

    async def queue(self, limit: int = 20) -> list[Offer]:
        """Newest first."""

        def query(session: Session) -> list[Offer]:
            waiting = (
                select(SecondOpinion, Message)
                .join(Message, col(Message.id) == col(SecondOpinion.inference_id))
                .where(col(SecondOpinion.value).is_(None), col(SecondOpinion.skipped).is_(False))
                .order_by(col(SecondOpinion.offered_at).desc())
                .limit(limit)
            )
            return [
                Offer(o.inference_id, last_prompt(m), m.content, m.task or "", o.offered_at)
                for o, m in session.exec(waiting)
            ]

        return await self.db.read(query)

    async def give(self, inference_id: str, value: float | None, rater: str) -> Given:
        """A person's value in 0..1; None skips the reply. Raises NotFound."""

        def job(session: Session) -> Given:
            row = session.get(SecondOpinion, inference_id)
            if row is None:
                raise NotFound(f"No reply with the id {inference_id[:80]!r} waits for a second opinion.")
            row.value, row.skipped, row.rater, row.given_at = value, value is None, rater, time.time()
            agree = None if value is None else abs(value - row.observed) <= 0.25
            return Given(inference_id, value, row.observed, agree)

        given = await self.db.write(job)
        self.bus.publish("opinion", asdict(given))
        return given

    async def health(self, judge: str | None = None) -> dict[str, Any]:
        """:class:`engine.judges.health.Health` of the newest opinions, of one judge or of whoever judged."""

        def query(session: Session) -> list[Opinion]:
            given = select(SecondOpinion).where(col(SecondOpinion.value).is_not(None))
            if judge is not None:
                given = given.where(SecondOpinion.judge == judge)
            rows = session.exec(given.order_by(col(SecondOpinion.given_at).desc()).limit(RECENT))
            return [Opinion(r.observed, r.value or 0.0, r.judge, r.blind) for r in rows]

        opinions = await self.db.read(query)
        graded = all(o.observed in (0.0, 1.0) for o in opinions)
        return asdict(estimate(opinions, (0.0, 1.0) if graded else None))


def last_prompt(message: Message) -> str:
    """The last thing that was asked."""
    asked = [m["content"] for m in message.prompt or [] if m["role"] == "user"]
    return asked[-1] if asked else ""
