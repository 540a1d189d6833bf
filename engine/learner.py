"""What has been rated and what a merge makes of it: the learning state, in numbers only. No effects."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from engine import luck
from engine.interface import CannotMerge, Credit, MergeRecord, RatedReply, Saved
from engine.ledger import Ledger, Merge, entry_from_json
from engine.merge import creditable, enough, fitness, spread, step, zscore
from engine.noise import Direction
from engine.population import Generation, Settings, draw

Rewards = dict[str, tuple[int, float, float]]
"""{inference id: (member, reward, weight)}"""


class Past:
    """A generation that has ended, as long as late ratings may still correct it."""

    def __init__(self, population: Generation, alpha: float):
        self.population = population
        self.alpha = alpha
        self.used: Rewards = {}
        """The rewards that have been merged so far."""

    def z(self, rewards: Rewards) -> np.ndarray:
        """Z (N,) of this generation with these rewards."""
        s = self.population.settings
        return zscore(fitness(s.members, rewards.values())[0], s.antithetic)

    def changed(self, rewards: Rewards) -> list[RatedReply]:
        """Replies whose reward is not the one that was merged; None where it was taken back."""
        odd = sorted(i for i in rewards.keys() | self.used.keys() if rewards.get(i) != self.used.get(i))
        number = self.population.number
        return [
            RatedReply(i, number, *rewards[i]) if i in rewards else RatedReply(i, number, self.used[i][0], None)
            for i in odd
        ]


class Learner:
    """The present generation, the rewards that count, and the ledger."""

    def __init__(self, generation: Generation):
        self.generation = generation
        self.ledger = Ledger()
        self.running_share = 1.0
        self.past: dict[int, Past] = {}
        self.rewards: dict[int, Rewards] = {generation.number: {}}
        """By generation, as far back as late ratings are credited."""

    @classmethod
    def resume(cls, saved: Saved) -> Learner:
        """The state at the end of a journal, late ratings that came in the meantime included."""
        learner = cls(saved.generation)
        learner.ledger = Ledger.from_json(saved.entries)
        if learner.ledger.generation != saved.generation.number:
            raise ValueError(
                f"the ledger ends at generation {learner.ledger.generation}, "
                f"the journal is at generation {saved.generation.number}"
            )
        for record in saved.merges:
            learner._remember(record)
        for rated in saved.rewards:
            learner.record(rated.inference_id, rated.generation, rated.member, rated.reward, rated.weight)
        return learner

    def record(
        self, inference_id: str, generation: int, member: int | None, reward: float | None, weight: float = 1.0
    ) -> Credit:
        """Sets or takes back the reward of one reply; one of weight 0 is left out."""
        kept = self.rewards.get(generation)
        kind = "recorded"
        if kept is not None and member is not None:
            if reward is None or weight <= 0:
                kept.pop(inference_id, None)
            else:
                kept[inference_id] = (member, reward, weight)
            if weight > 0:
                kind = "counted" if generation == self.generation.number else "late"
        return Credit(kind, generation, member, self.ratings, self.generation.settings.merge_after)

    @property
    def ratings(self) -> int:
        """Rated replies of the present generation."""
        return len(self.rewards[self.generation.number])

    def fitness(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean reward and count by member of the present generation, see :func:`engine.merge.fitness`."""
        return fitness(self.generation.settings.members, self.rewards[self.generation.number].values())

    def due(self) -> bool:
        """Whether ratings suffice for a merge to happen by itself."""
        s = self.generation.settings
        return self.ratings >= s.merge_after and enough(self.fitness()[0], s.antithetic)

    def plan(self, reason: str, entropy: int, following: Settings | None = None) -> MergeRecord:
        """What a merge now would do; nothing changes before :meth:`commit`. ``following``: settings of the next
        generation; given, the present one ends without a step.

        Raises CannotMerge when fewer than half of the members (pairs) are rated.
        """
        s, number = self.generation.settings, self.generation.number
        fit, counts = self.fitness()
        stepping = following is None
        if stepping and not enough(fit, s.antithetic):
            raise CannotMerge(self._missing(fit))
        share = luck.signal_share(fit, counts) if stepping else None
        running = luck.running_share(self.running_share, share)
        alpha = s.alpha * (luck.shrink(running) if s.step == "shrunk" else 1.0)
        z = zscore(fit, s.antithetic) if stepping else np.zeros(s.members)
        terms = self._terms(self.generation, z, alpha)
        late: list[RatedReply] = []
        for g, past in sorted(self.past.items()):
            if changed := past.changed(self.rewards[g]):
                late += changed
                correction = past.z(self.rewards[g]) - past.z(past.used)
                for direction, c in self._terms(past.population, correction, past.alpha).items():
                    terms[direction] = terms.get(direction, 0.0) + c
        null = stepping and not spread(fit, s.antithetic)
        moved = tuple((d, c) for d, c in terms.items() if c)
        entry = Merge(number, moved, s.decay if moved else 0.0)
        rated = list(self.rewards[number].items())
        rewards = [(r, w) for _, (_, r, w) in rated]
        return MergeRecord(
            generation=number,
            reason=reason,
            entry=entry.to_json(),
            fitness=[None if np.isnan(f) else float(f) for f in fit],
            counts=[int(n) for n in counts],
            z=[float(v) for v in z],
            mean_reward=sum(r * w for r, w in rewards) / sum(w for _, w in rewards) if rewards else None,
            ratings=len(rated),
            null=null,
            signal_share=share,
            late=len(late),
            drift=0.0,
            next=draw(number + 1, following or s, entropy),
            used=late + ([RatedReply(i, number, *credited) for i, credited in rated] if stepping else []),
            merged_at=time.time(),
            population=self.generation,
            alpha=alpha,
            running_share=running,
        )

    def after(self, record: MergeRecord) -> dict[Direction, float]:
        """Unfolded coefficients of the source after a planned merge."""
        trial = Ledger(generation=self.ledger.generation, coefficients=dict(self.ledger.coefficients))
        trial.append(_merge_of(record))
        return trial.coefficients

    def totals_after(self, record: MergeRecord) -> dict[Direction, float]:
        """θ − θ_0 in coordinates after a planned merge, folded or not."""
        total = dict(self.ledger.folded)
        for direction, c in self.after(record).items():
            total[direction] = total.get(direction, 0.0) + c
        return total

    def commit(self, record: MergeRecord) -> None:
        """The merge has happened: its successor is the present generation."""
        self.ledger.append(_merge_of(record))
        self._remember(record)
        self.generation = record.next
        self.rewards.setdefault(record.next.number, {})

    def redraw(self, generation: Generation) -> None:
        """Another population under the same number, before anyone was served."""
        self.generation = generation
        self.rewards[generation.number] = {}

    def _remember(self, record: MergeRecord) -> None:
        assert record.population is not None
        self.past[record.generation] = Past(record.population, record.alpha)
        self.rewards.setdefault(record.generation, {})
        self.running_share = record.running_share
        for u in record.used:
            past = self.past.get(u.generation)
            if past is not None and u.reward is not None:
                past.used[u.inference_id] = (u.member, u.reward, u.weight)
            elif past is not None:
                past.used.pop(u.inference_id, None)
        oldest = record.next.number - record.next.settings.max_staleness
        for number in [n for n in self.past if n < oldest]:
            del self.past[number], self.rewards[number]

    @staticmethod
    def _terms(population: Generation, z: np.ndarray, alpha: float) -> dict[Direction, float]:
        signs = [m.sign for m in population.members]
        coefficients = step(z, signs, population.settings.antithetic, alpha)
        return dict(zip(population.directions, map(float, coefficients), strict=True))

    def _missing(self, fit: np.ndarray) -> str:
        s = self.generation.settings
        rated = int((~np.isnan(fit)).sum())
        if s.antithetic:
            pairs = int(creditable(fit, True).sum()) // 2
            return (
                f"a merge needs ratings for both members of at least half of the {s.members // 2} pairs: "
                f"{pairs} so far, {rated} of {s.members} members are rated. Rate a few more replies."
            )
        return f"a merge needs ratings for at least half of the {s.members} members: {rated} so far. Rate more replies."


def _merge_of(record: MergeRecord) -> Merge:
    entry = entry_from_json(record.entry)
    assert isinstance(entry, Merge)
    return entry


def message_of(record: MergeRecord | dict[str, Any]) -> str:
    """One sentence for people about a merge."""
    r = record if isinstance(record, dict) else {f: getattr(record, f) for f in ("reason", "null", "ratings", "late")}
    if r["reason"] == "settings":
        return "A new population was drawn under other settings."
    if r["null"] and not r["late"]:
        return "Nothing to learn: every reply scored the same. A new population was drawn."
    late = f", {r['late']} of them late" if r["late"] else ""
    return f"Merged {r['ratings'] + r['late']} ratings{late}."
