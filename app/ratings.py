"""From a thumb to a credit: the rating is stored, the reply's reward follows from it, the engine is told.

    rated = await ratings.rate(inference_id, "thumb", True, rater="local", source="chat")
    rated.credit                       # {kind, generation, member, ratings, merge_after}

``value`` None takes a rating back. Rating again replaces the value (the events stay). Raises NotFound, BadRating,
NotFinished, KeyReused, DatabaseUnavailable; when it returns, the rating is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict, dataclass
from typing import Any

from sqlmodel import Session, col, func, select

from app.db import Database
from app.events import Bus
from app.settings import Metric
from app.sources import Sources
from app.store import NotFound
from app.tables import ImplicitSignal, Message, Rating, RatingEvent
from engine.interface import EngineError, PopulationServer
from engine.judges.implicit import combine

log = logging.getLogger(__name__)


class BadRating(ValueError):
    """An undeclared metric, or a value that it does not take; the message lists what it takes."""


class NotFinished(Exception):
    """The reply is still being written, or has failed, so that there is nothing to rate."""


class KeyReused(Exception):
    """The idempotency key was used for another rating."""


@dataclass(frozen=True)
class Rated:
    """A stored rating. ``credit`` is :class:`engine.interface.Credit` as a dict; its kind is ``waiting`` while the
    engine does not serve: it is told as soon as it does."""

    inference_id: str
    metric_name: str
    value: bool | float | None
    credit: dict[str, Any]


@dataclass(frozen=True)
class _Stored:
    message: Message
    more: int
    """Present ratings more than before: 1, 0, or -1 for one taken back."""


class Ratings:
    """The only way in for ratings, from the page and from the API."""

    def __init__(
        self, db: Database, server: PopulationServer, bus: Bus, metrics: dict[str, Metric], sources: Sources
    ) -> None:
        self.db = db
        self.sources = sources
        self.server = server
        self.bus = bus
        self.metrics = metrics
        self.total = 0
        """Present ratings: one for each (reply, rater, metric), however often it was changed."""
        self._untold: dict[str, tuple[int, int | None, float | None, float]] = {}

    async def open(self) -> None:
        """Counts what is stored."""
        count = select(func.count()).select_from(Rating)
        self.total = await self.db.read(lambda session: session.exec(count).one())

    async def by_source(self) -> dict[str, int]:
        """Present ratings by where they come from: ``chat``, ``api``, ``traffic:…``."""
        events = select(RatingEvent.source, func.count()).join(Rating, col(Rating.event_id) == col(RatingEvent.id))
        counted = events.group_by(RatingEvent.source)
        return await self.db.read(lambda session: dict(session.exec(counted).all()))

    def declared(self) -> str:
        return "; ".join(f"{name}: {metric.describe()}" for name, metric in self.metrics.items())

    async def rate(
        self,
        inference_id: str,
        metric: str,
        value: object,
        *,
        rater: str,
        source: str,
        comment: str | None = None,
        tags: dict[str, str] | None = None,
        key: str | None = None,
        truth: float | None = None,
        judge: str | None = None,
    ) -> Rated:
        """Stores one rating and tells the engine; not undone when the caller is cancelled.

        ``truth``: the reward in 0..1 of a judge without error, where it is known; ``judge``: the error in force.
        """
        if metric not in self.metrics:
            raise BadRating(f"The metric {metric[:80]!r} is not declared. Declared: {self.declared()}.")
        try:
            number = None if value is None else self.metrics[metric].parse(value)
        except ValueError:
            raise BadRating(f"{metric} takes {self.metrics[metric].describe()}, or null to take it back.") from None
        event = RatingEvent(
            inference_id=inference_id,
            rater=rater,
            metric=metric,
            value=number,
            comment=comment,
            tags=tags,
            source=source,
            idempotency_key=key,
            truth=truth,
            judge=judge,
            created_at=time.time(),
        )
        return await asyncio.shield(asyncio.ensure_future(self._rate(event)))

    async def _rate(self, event: RatingEvent) -> Rated:
        weight = self.sources.weight(event.source)
        stored = await self.db.write(lambda session: record(session, event, self.metrics, weight))
        self.total += stored.more
        message = stored.message
        credit = self._tell(message.id, message.generation or 0, message.member, message.reward, message.weight)
        boolean = self.metrics[event.metric].kind == "bool" and event.value is not None
        value = bool(event.value) if boolean else event.value
        rated = Rated(message.id, event.metric, value, credit)
        self.bus.publish("rating", asdict(rated) | {"rater": event.rater, "source": event.source})
        return rated

    async def imply(self, inference_id: str, rule: str, value: float, weight: float) -> bool:
        """Keeps a signal of implicit feedback (:func:`imply`) and tells the engine where it counts; whether it does."""
        source = self.sources.weight("chat")
        job = self.db.write(lambda session: imply(session, inference_id, rule, value, weight, self.metrics, source))
        message = await asyncio.shield(asyncio.ensure_future(job))
        if message is None:
            return False
        self._tell(message.id, message.generation or 0, message.member, message.reward, message.weight)
        return True

    def _tell(
        self, inference_id: str, generation: int, member: int | None, reward: float | None, weight: float
    ) -> dict[str, Any]:
        status = self.server.status()
        if status.state not in ("starting", "failed"):
            try:
                self._untold.pop(inference_id, None)  # first: the engine may answer with an event that tells the rest
                return asdict(self.server.rate(inference_id, generation, member, reward, weight))
            except EngineError as error:
                log.warning("the rating of %s is stored and waits for the engine: %s", inference_id, error)
        self._untold[inference_id] = (generation, member, reward, weight)
        return {
            "kind": "waiting",
            "generation": generation,
            "member": member,
            "ratings": status.ratings,
            "merge_after": status.merge_after,
        }

    def tell_waiting(self) -> None:
        """Credits what was rated while the engine did not serve, if it does now."""
        if not self._untold or self.server.status().state in ("starting", "failed"):
            return
        waiting, self._untold = self._untold, {}
        for inference_id, told in waiting.items():
            self._tell(inference_id, *told)


def record(session: Session, event: RatingEvent, metrics: dict[str, Metric], weight: float = 1.0) -> _Stored:
    """The database's part: the event, the present value, the reward of the reply and its weight (that of the source of
    its newest rating)."""
    event = RatingEvent.model_validate(event)
    message = session.get(Message, event.inference_id)
    if message is None or message.role != "assistant":
        raise NotFound(f"No reply has the id {event.inference_id[:80]!r}.")
    if event.idempotency_key is not None:
        earlier = session.exec(
            select(RatingEvent).where(RatingEvent.idempotency_key == event.idempotency_key)
        ).one_or_none()
        if earlier is not None:
            same = ("inference_id", "rater", "metric", "value", "comment", "tags")
            if any(getattr(earlier, name) != getattr(event, name) for name in same):
                raise KeyReused("This idempotency key was used for another rating: take a new key.")
            return _Stored(message, 0)
    if message.state == "streaming":
        raise NotFinished("This reply is still being written: rate it when it has finished.")
    if message.state == "failed" or message.generation is None:
        raise NotFinished("This reply never finished, so there is nothing to rate: ask again.")
    before = session.get(Rating, (event.inference_id, event.rater, event.metric)) is not None
    session.add(event)
    session.flush()
    _replace(session, event)
    message.reward, message.weight = outcome(session, message.id, metrics, weight)
    session.flush()
    return _Stored(message, (event.value is not None) - before)


def imply(
    session: Session,
    inference_id: str,
    rule: str,
    value: float,
    weight: float,
    metrics: dict[str, Metric],
    source: float,
) -> Message | None:
    """Keeps that a rule of implicit feedback applies to a reply, once; the reply where this changes what it is worth.
    ``weight`` 0 is kept and worth nothing; ``source`` is the weight of chat's ratings."""
    message = session.get(Message, inference_id)
    if message is None or message.role != "assistant":
        raise NotFound(f"No reply has the id {inference_id[:80]!r}.")
    same = select(ImplicitSignal).where(ImplicitSignal.inference_id == inference_id, ImplicitSignal.rule == rule)
    kept = session.exec(same).first()
    if kept is not None and (kept.weight or not weight):
        return None
    if kept is None:
        kept = ImplicitSignal(inference_id=inference_id, rule=rule, value=value, weight=0.0, created_at=time.time())
    kept.weight = weight
    session.add(kept)
    session.flush()
    before = (message.reward, message.weight)
    if weight and reward(session, inference_id, metrics) is None:
        message.reward, message.weight = outcome(session, inference_id, metrics, source)
        session.flush()
    return message if (message.reward, message.weight) != before else None


def outcome(
    session: Session, inference_id: str, metrics: dict[str, Metric], weight: float
) -> tuple[float | None, float]:
    """(reward, weight) of a reply: from its ratings, or else from what people did (:mod:`engine.judges.implicit`)."""
    signals = session.exec(select(ImplicitSignal).where(ImplicitSignal.inference_id == inference_id))
    implied = [(signal.value, signal.weight) for signal in signals]
    value, share = combine(reward(session, inference_id, metrics), implied)
    return value, weight if value is None else weight * share


def reward(session: Session, inference_id: str, metrics: dict[str, Metric]) -> float | None:
    """The weighted mean of a reply's present ratings, each mapped to 0..1; None without any."""
    weight = total = 0.0
    for rating in session.exec(select(Rating).where(Rating.inference_id == inference_id)):
        metric = metrics.get(rating.metric)
        if metric is not None:
            weight += metric.weight
            total += metric.weight * min(1.0, max(0.0, metric.reward(rating.value)))
    return total / weight if weight else None


def _replace(session: Session, event: RatingEvent) -> None:
    row = session.get(Rating, (event.inference_id, event.rater, event.metric))
    if event.value is None:
        if row is not None:
            session.delete(row)
            session.flush()
        return
    assert event.id is not None
    if row is None:
        row = Rating(
            inference_id=event.inference_id,
            rater=event.rater,
            metric=event.metric,
            value=event.value,
            event_id=event.id,
            updated_at=event.created_at,
        )
    row.value, row.event_id, row.updated_at = event.value, event.id, event.created_at
    row.truth, row.judge = event.truth, event.judge
    if event.comment is not None:
        row.comment = event.comment or None
    session.add(row)
    session.flush()
