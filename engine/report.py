"""What the server tells of itself: pure pictures of its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine import merge
from engine.interface import MemberStatus, MergeRecord, Status
from engine.learner import message_of
from engine.noise import Direction

if TYPE_CHECKING:
    from engine.checkpoint import Checkpoint
    from engine.server import Server


def status(server: Server) -> Status:
    """The server at this moment."""
    learner = server.learner
    settings = learner.generation.settings
    _, counts = learner.fitness()
    return Status(
        model=server.model_name,
        engine=server.engine_name,
        state=server.state,
        waiting_for=server.waiting_for,
        generation=learner.generation.number,
        members=settings.members,
        ratings=learner.ratings,
        merge_after=settings.merge_after,
        rated_members=int((counts > 0).sum()),
        drift=server.drift,
        running=server.gate.running,
        waiting=server.gate.waiting,
        tokens_per_second=server.meter.rate(),
        profile=settings.profile,
        settings=settings.to_json(),
        last_merge=merge_json(server.last_merge) if server.last_merge else None,
    )


def members(server: Server) -> list[MemberStatus]:
    """The members that answer now, with their fitness so far."""
    fit, counts = server.learner.fitness()
    served, running = server.router.served, server.router.running
    return [
        MemberStatus(
            member=i,
            seed=m.direction.seed,
            sign=m.sign,
            served=served[i],
            running=running[i],
            ratings=int(counts[i]),
            fitness=float(fit[i]) if counts[i] else None,
        )
        for i, m in enumerate(server.learner.generation.members)
    ]


def merge_json(record: MergeRecord) -> dict[str, Any]:
    """A merge for people and for JSON, with one sentence about it."""
    names = ("generation", "reason", "mean_reward", "ratings", "null", "late", "drift", "merged_at", "merge_ms")
    return {name: getattr(record, name) for name in names} | {
        "pause_ms": record.pause_ms,
        "next_generation": record.next.number,
        "message": message_of(record),
    }


def drift(checkpoint: Checkpoint, totals: Mapping[Direction, float]) -> float:
    """‖θ − θ_0‖ / ‖θ_0‖ from the coefficient of every direction; see :func:`engine.merge.drift`."""
    by_kind: dict[Any, list[float]] = {}
    for direction, c in totals.items():
        by_kind.setdefault(direction.kind, []).append(c)
    parts = [merge.drift(cs, checkpoint.size(kind), checkpoint.norm) for kind, cs in by_kind.items()]
    return sum(p * p for p in parts) ** 0.5
