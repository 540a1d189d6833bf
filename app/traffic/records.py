"""Runs of simulated users as they are kept: enough to go on after a restart, and to look at them later."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlmodel import Session, col, func, select

from app.db import Database
from app.opinions import last_prompt
from app.store import NotFound
from app.tables import Message, Rating, TrafficRun
from app.traffic.views import Progress, RunReply, RunView, Score, Turn


class Records:
    """May raise DatabaseUnavailable and NotFound."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def leftovers(self) -> None:
        """What ran when the server ended waits to be resumed."""

        def job(session: Session) -> None:
            for row in session.exec(select(TrafficRun).where(TrafficRun.state == "running")):
                row.state, row.why = "paused", "The server was restarted: resume the run to go on."

        await self.db.write(job)

    async def create(
        self, *, name: str, task: str, options: Mapping[str, Any], plan: dict[str, Any], result: dict[str, Any]
    ) -> RunView:
        now = time.time()
        row = TrafficRun(
            id=secrets.token_hex(6),
            name=name,
            task=task,
            options=dict(options),
            plan=plan,
            state="running",
            progress=asdict(Progress()),
            result={"scores": [], "turns": [], "message": "", **result},
            created_at=now,
            updated_at=now,
        )

        def job(session: Session) -> RunView:
            copy = TrafficRun.model_validate(row)
            session.add(copy)
            session.flush()
            return view(copy)

        return await self.db.write(job)

    async def save(self, run: RunView) -> None:
        """How far it is, and what it has shown."""

        def job(session: Session) -> None:
            row = _row(session, run.id)
            row.state, row.why, row.progress = run.state, run.why, asdict(run.progress)
            row.result = {
                **row.result,
                "scores": [asdict(s) for s in run.scores],
                "turns": [asdict(t) for t in run.turns],
                "message": run.message,
                "settings": run.settings,
                "model": run.model,
                "system_prompt": run.system_prompt,
            }
            row.updated_at, row.finished_at = time.time(), run.finished_at

        await self.db.write(job)

    async def describe(self, run_id: str, values: Mapping[str, str]) -> RunView:
        """Changes its name or notes."""

        def job(session: Session) -> RunView:
            row = _row(session, run_id)
            for name, value in values.items():
                setattr(row, name, value)
            session.flush()
            return view(row)

        return await self.db.write(job)

    async def all(self, limit: int = 200) -> list[RunView]:
        """Newest first."""

        def query(session: Session) -> list[RunView]:
            rows = session.exec(select(TrafficRun).order_by(col(TrafficRun.created_at).desc()).limit(limit))
            return [view(row) for row in rows]

        return await self.db.read(query)

    async def with_categories(self) -> RunView | None:
        """The newest run that was measured by category."""

        def query(session: Session) -> RunView | None:
            for row in session.exec(select(TrafficRun).order_by(col(TrafficRun.created_at).desc()).limit(200)):
                if any(score.get("by_category") for score in row.result["scores"]):
                    return view(row)
            return None

        return await self.db.read(query)

    async def get(self, run_id: str) -> RunView:
        return await self.db.read(lambda session: view(_row(session, run_id)))

    async def used(self, run_id: str) -> tuple[int, int]:
        """(requests drawn, replies rated) by the run so far, from the replies themselves."""

        def query(session: Session) -> tuple[int, int]:
            of_run = select(func.max(Message.request_index), func.count(col(Message.reward)))
            newest, rated = session.exec(of_run.where(Message.run_id == run_id)).one()
            return (0 if newest is None else newest + 1), rated

        return await self.db.read(query)

    async def replies(self, run_id: str, limit: int) -> list[RunReply]:
        """The newest replies with what they were rated."""

        def query(session: Session) -> list[RunReply]:
            _row(session, run_id)
            newest = (
                select(Message, Rating)
                .join(Rating, col(Rating.inference_id) == col(Message.id), isouter=True)
                .where(Message.run_id == run_id, Message.state != "streaming")
                .order_by(col(Message.created_at).desc())
                .limit(limit)
            )
            return [_reply(message, rating) for message, rating in session.exec(newest)]

        return await self.db.read(query)


def _reply(message: Message, rating: Rating | None) -> RunReply:
    return RunReply(
        id=message.id,
        prompt=last_prompt(message),
        text=message.content,
        generation=message.generation,
        member=message.member,
        truth=rating.truth if rating else None,
        observed=rating.value if rating else None,
        judge=rating.judge if rating else None,
        episode_id=message.episode_id,
        category=message.category,
        created_at=message.created_at,
    )


def _row(session: Session, run_id: str) -> TrafficRun:
    row = session.get(TrafficRun, run_id)
    if row is None:
        raise NotFound(f"There is no run {run_id[:40]!r}.")
    return row


def view(row: TrafficRun) -> RunView:
    kept = row.result
    return RunView(
        id=row.id,
        name=row.name,
        notes=row.notes,
        task=row.task,
        options=row.options,
        plan=row.plan,
        state=row.state,  # type: ignore[arg-type]
        why=row.why,
        progress=Progress(**row.progress),
        scores=[Score(**score) for score in kept["scores"]],
        turns=[Turn(**turn) for turn in kept["turns"]],
        message=kept["message"],
        likes=kept.get("likes", ""),
        model=kept.get("model", ""),
        settings=kept.get("settings", {}),
        system_prompt=kept.get("system_prompt", ""),
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
    )
