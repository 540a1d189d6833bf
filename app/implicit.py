"""Implicit feedback: what people do in chat (ask again, correct, thank, copy, regenerate) as weak ratings; first off.

    await implicit.said(question, reply, next_message)      # what the next message of a conversation says of a reply
    await implicit.did(inference_id, "copy")                # what a button says

What is seen is kept in any case, so that each rule's agreement with the thumbs on the same replies shows whether it can
be trusted; it moves the population only while switched on, and never where a person has given a rating. The rules are
those of :mod:`engine.judges.implicit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlmodel import Session, col, func, select

from app.db import Database
from app.events import Bus
from app.marks import Marks
from app.ratings import Ratings
from app.store import Store
from app.tables import ImplicitSignal, Message, Rating
from engine.interface import PopulationServer
from engine.judges.implicit import RULES, Agreement, Rule, action, agreement, signals, with_weights

KEY = "implicit"
RECENT = 5000
"""The newest signals on rated replies that the agreement is estimated from."""


@dataclass(frozen=True)
class RuleView:
    """A rule with what it has been worth so far."""

    name: str
    label: str
    help: str
    value: float
    """What it says of the reply, 0..1."""
    weight: float
    """Beside a rating, which weighs 1."""
    seen: int
    """Replies to which it applied."""
    agreement: Agreement | None
    """With thumbs on the same replies; None without any."""


@dataclass(frozen=True)
class ImplicitView:
    on: bool
    rules: list[RuleView]


class Implicit:
    """All methods belong to the event loop. May raise DatabaseUnavailable, JudgeFault and, for an unknown reply,
    NotFound."""

    def __init__(
        self, db: Database, store: Store, ratings: Ratings, marks: Marks, server: PopulationServer, bus: Bus
    ) -> None:
        self.db, self.store, self.ratings, self.marks, self.server, self.bus = db, store, ratings, marks, server, bus
        self.on = False
        self.rules: tuple[Rule, ...] = RULES

    async def open(self) -> None:
        saved = (await self.store.settings()).get(KEY)
        if isinstance(saved, dict):
            self.on, self.rules = bool(saved["on"]), with_weights(saved["weights"])

    async def change(self, *, on: bool | None = None, weights: Mapping[str, float] | None = None) -> None:
        """Switches it, or weighs its rules, for what is seen from now on. Raises JudgeFault."""
        rules = with_weights({rule.name: rule.weight for rule in self.rules} | dict(weights or {}))
        switched = self.on if on is None else on
        kept = {"on": switched, "weights": {rule.name: rule.weight for rule in rules}}
        await self.store.save_settings({KEY: kept})
        before, (self.on, self.rules) = self.on, (switched, rules)
        if before != switched:
            words = f"implicit feedback {'on' if switched else 'off'}"
            await self.marks.add(self.server.status().generation, "settings", words, implicit=kept)
        self.bus.publish(KEY, {"on": switched})

    async def said(self, question: str, reply: Message, next_message: str) -> list[str]:
        """The rules that a person's next message makes apply to the reply before it."""
        found = signals(question, reply.content, next_message, self.rules) if _complete(reply) else []
        for signal in found:
            await self._keep(reply.id, signal.rule, signal.value, signal.weight)
        return [signal.rule for signal in found]

    async def did(self, reply: Message, what: str) -> None:
        """A button: ``copy`` or ``regenerate``. Raises JudgeFault for another one."""
        signal = action(what, self.rules)
        if _complete(reply):
            await self._keep(reply.id, signal.rule, signal.value, signal.weight)

    async def _keep(self, inference_id: str, rule: str, value: float, weight: float) -> None:
        counts = await self.ratings.imply(inference_id, rule, value, weight if self.on else 0.0)
        self.bus.publish(KEY, {"rule": rule, "inference_id": inference_id, "counts": counts})

    async def view(self) -> ImplicitView:
        def query(session: Session) -> tuple[dict[str, int], dict[str, Agreement]]:
            counted = select(ImplicitSignal.rule, func.count()).group_by(ImplicitSignal.rule)
            both = (
                select(ImplicitSignal.rule, ImplicitSignal.value, Rating.value)
                .join(Rating, col(Rating.inference_id) == col(ImplicitSignal.inference_id))
                .where(Rating.metric == "thumb")
                .order_by(col(ImplicitSignal.id).desc())
                .limit(RECENT)
            )
            return dict(session.exec(counted).all()), agreement(session.exec(both).all())

        seen, agreed = await self.db.read(query)
        rules = [
            RuleView(r.name, r.label, r.help, r.value, r.weight, seen.get(r.name, 0), agreed.get(r.name))
            for r in self.rules
        ]
        return ImplicitView(self.on, rules)


def _complete(reply: Message) -> bool:
    """Whether there is a population's reply to speak of."""
    return reply.state in ("done", "stopped") and reply.generation is not None and bool(reply.content)
