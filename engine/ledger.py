"""The ledger: what was merged, from which any generation is rebuilt with the same digest.

θ_0 and the entries say everything. Between folds the source model is

    θ = θ_0 + F + Σ_k c_k ε_k

with F what has been folded into the weights and c_k the coefficients merged since. A **merge** adds terms to c and
decays it; a **fold** moves Σ c ε into F, and pulls F back by the decays that fell due since the last fold where it
says so (F cannot decay at a merge without touching every weight). So the ledger tells what was really served.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

from engine.merge import decayed
from engine.noise import Direction

Terms = tuple[tuple[Direction, float], ...]


@dataclass(frozen=True)
class Merge:
    """Ends ``generation``: the next source is this one plus ``terms``, decayed by λ = ``decay``."""

    generation: int
    terms: Terms
    decay: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "merge",
            "generation": self.generation,
            "terms": [[d.to_json(), c] for d, c in self.terms],
            "decay": self.decay,
        }


@dataclass(frozen=True)
class Fold:
    """During ``generation`` all coefficients were moved into the weights. ``pull_back`` is the product of the decays
    that F received with it (1 when it was left alone because requests were running)."""

    generation: int
    pull_back: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return {"type": "fold", "generation": self.generation, "pull_back": self.pull_back}


Entry = Merge | Fold


def entry_from_json(data: dict[str, Any]) -> Entry:
    """Raises ValueError for an entry of an unknown type."""
    if data.get("type") == "merge":
        terms = tuple((Direction.from_json(d), float(c)) for d, c in data["terms"])
        return Merge(int(data["generation"]), terms, float(data["decay"]))
    if data.get("type") == "fold":
        return Fold(int(data["generation"]), float(data["pull_back"]))
    raise ValueError(f"unknown ledger entry type {data.get('type')!r}")


@dataclass
class Ledger:
    """The entries and the state that follows from them, in numbers only (no weights).

    Raises ValueError when an entry does not follow its predecessors (a merge of another generation, a fold out of
    turn): a ledger that was edited or lost an entry is refused, not guessed at.
    """

    entries: list[Entry] = field(default_factory=list)
    generation: int = 0
    head: str = hashlib.sha256(b"popserve-ledger/1").hexdigest()
    """Chain hash over the entries: names the present source model."""
    coefficients: dict[Direction, float] = field(default_factory=dict)
    """c: merged since the last fold, in order of first appearance."""
    folded: dict[Direction, float] = field(default_factory=dict)
    """F in coordinates: what has been folded, along each direction."""
    pending_pull: float = 1.0
    """Product of the decays that F has not received yet."""

    def append(self, entry: Entry) -> None:
        if entry.generation != self.generation:
            raise ValueError(
                f"ledger entry {len(self.entries)} belongs to generation {entry.generation}, expected {self.generation}"
            )
        if isinstance(entry, Merge):
            if not (0 <= entry.decay < 1 and all(math.isfinite(c) for _, c in entry.terms)):
                raise ValueError(f"ledger entry {len(self.entries)} holds numbers that no merge makes")
            for direction, c in entry.terms:
                self.coefficients[direction] = self.coefficients.get(direction, 0.0) + c
            if entry.decay:
                for direction, c in self.coefficients.items():
                    self.coefficients[direction] = decayed(c, entry.decay)
                self.pending_pull = decayed(self.pending_pull, entry.decay)
            self.generation += 1
        else:
            if entry.pull_back not in (1.0, self.pending_pull):
                raise ValueError(f"ledger entry {len(self.entries)}: fold pulls back by {entry.pull_back}, not due")
            if entry.pull_back != 1.0:
                self.folded = {d: c * entry.pull_back for d, c in self.folded.items()}
                self.pending_pull = 1.0
            for direction, c in self.coefficients.items():
                self.folded[direction] = self.folded.get(direction, 0.0) + c
            self.coefficients = {}
        self.entries.append(entry)
        line = json.dumps(entry.to_json(), separators=(",", ":"), sort_keys=True)
        self.head = hashlib.sha256(f"{self.head}\n{line}".encode()).hexdigest()

    def totals(self) -> dict[Direction, float]:
        """θ − θ_0 in coordinates: the coefficient of every direction, folded or not."""
        total = dict(self.folded)
        for direction, c in self.coefficients.items():
            total[direction] = total.get(direction, 0.0) + c
        return total

    @classmethod
    def from_json(cls, entries: list[dict[str, Any]]) -> Ledger:
        ledger = cls()
        for entry in entries:
            ledger.append(entry_from_json(entry))
        return ledger
