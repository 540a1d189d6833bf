"""What a backend is: something that answers with any model of the family θ_0 + F + Σ c ε."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.checkpoint import Checkpoint
from engine.interface import Delta, Sampling
from engine.master import Master
from engine.noise import Direction


@dataclass(frozen=True)
class Weights:
    """One model of the family: θ_0 + F after ``basis`` folds, plus ``coefficients`` along directions."""

    coefficients: Mapping[Direction, float]
    basis: int
    source: str
    """Names what the coefficients are counted from (the ledger's head): equal sources, equal θ."""

    def plus(self, direction: Direction, c: float) -> Weights:
        moved = dict(self.coefficients)
        moved[direction] = moved.get(direction, 0.0) + c
        return Weights(moved, self.basis, self.source)

    @property
    def key(self) -> str:
        """Equal keys mean equal weights: salts the prefix cache, names what is loaded."""
        text = ";".join(f"{d.to_json()}={c!r}" for d, c in sorted(self.coefficients.items()) if c)
        return hashlib.sha256(f"{self.source}|{text}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class BackendConfig:
    """What a backend needs to know; names are vLLM's where vLLM has the option."""

    folder: Path
    """The checkpoint, a Hugging Face folder."""
    scratch: Path
    """A folder for weights on their way to the engine; memory-backed where there is one."""
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    rows: int = 32
    """Columns of noise that can be resident; a direction of rank r takes r. Too few for two generations and a merge
    waits for running requests."""
    enforce_eager: bool = False
    kv_cache_gib: float = 1.0
    extra: Mapping[str, Any] | None = None
    """Further engine arguments, passed to vLLM as they are."""


class Stream(Protocol):
    """One running request. Closing it (or leaving it unread and closing) stops the generation at once."""

    def __aiter__(self) -> AsyncIterator[Delta]: ...

    async def close(self) -> None: ...


class Backend(Protocol):
    """Serves any of the family's models side by side. All methods belong to one event loop."""

    name: str
    checkpoint: Checkpoint
    max_model_len: int

    async def start(self, say: Callable[[str], None]) -> None:
        """Loads the model; ``say`` is told what is being waited for. Raises EngineError."""

    async def close(self) -> None: ...

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        """The prompt of a conversation by the model's chat template. Raises BadRequest."""

    async def draw(self, directions: list[Direction], keep: set[Direction]) -> None:
        """Makes directions servable beside those in ``keep``; others may be dropped once no request refers to
        them. Raises NoRoom."""

    def open(
        self, tokens: list[int], sampling: Sampling, weights: Weights, *, request_id: str, priority: int = 0
    ) -> Stream:
        """Admits a request; it is served with ``weights`` to its end, whatever merges or folds meanwhile."""

    async def score(self, tokens: list[int], weights: Weights) -> list[float]:
        """Teacher-forced log-probabilities (natural) of tokens[1:]."""

    async def fold(self, master: Master, coefficients: Mapping[Direction, float]) -> None:
        """``master`` has folded ``coefficients``: serve from it; the basis is one more. Running requests go on with
        the output they would have had."""

    @property
    def basis(self) -> int:
        """Folds since :meth:`start`."""

    @property
    def running(self) -> int: ...

    @property
    def alive(self) -> bool: ...
