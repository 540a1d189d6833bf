"""The float32 master: θ = θ_0 + F + Σ c ε, added elementwise in ledger order, so that a replay gives the same bits.

bf16 loses the step of a merge and rounds decay away; what is served is cast from here, never summed there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from engine.checkpoint import Checkpoint
from engine.ledger import Fold, Ledger
from engine.noise import Direction, add_scaled

Coefficients = Mapping[Direction, float]
THREADS = min(4, os.cpu_count() or 1)


class Master:
    """F by parameter name (absent where nothing was folded) over a checkpoint that is never written."""

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint = checkpoint
        self.folded: dict[str, np.ndarray] = {}

    def fold(self, coefficients: Coefficients, pull_back: float = 1.0) -> None:
        """F ← pull_back · F + Σ c ε, in place."""

        def one(name: str) -> None:
            f = self.folded.get(name)
            if f is None:
                f = self.folded[name] = np.zeros(self.checkpoint.shape(name), dtype=np.float32)
            elif pull_back != 1.0:
                f *= np.float32(pull_back)
            self._add(f, name, coefficients)

        names = self._touched(coefficients) | (set(self.folded) if pull_back != 1.0 else set())
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(one, sorted(names)))

    def weights(self, name: str, coefficients: Coefficients) -> np.ndarray:
        """θ of one parameter, float32."""
        f = self.folded.get(name)
        noisy = [d for d in coefficients if name in self._names(d.kind)]
        theta = self.checkpoint.weights(name)
        if f is None and not noisy:
            return theta
        f = np.zeros_like(theta) if f is None else f.copy()
        self._add(f, name, coefficients)
        theta += f
        return theta

    def all_weights(self, coefficients: Coefficients) -> Iterator[tuple[str, np.ndarray]]:
        """(name, θ float32) for every parameter, sorted by name, computed a few ahead on other threads."""
        names = self.checkpoint.names
        with ThreadPoolExecutor(THREADS) as pool:
            ahead = [pool.submit(self.weights, n, coefficients) for n in names[: 2 * THREADS]]
            for i, name in enumerate(names):
                theta, ahead[i] = ahead[i].result(), None
                if len(ahead) < len(names):
                    ahead.append(pool.submit(self.weights, names[len(ahead)], coefficients))
                yield name, theta

    def digest(self, coefficients: Coefficients) -> str:
        """sha256 over names, shapes and float32 bits of θ: equal digests mean equal weights."""
        h = hashlib.sha256()
        for name, theta in self.all_weights(coefficients):
            h.update(f"{name}{theta.shape}".encode())
            h.update(np.ascontiguousarray(theta, dtype="<f4").data)
        return h.hexdigest()

    def save(self, file: Path, coefficients: Coefficients, dtype: torch.dtype) -> None:
        """Writes θ in ``dtype`` as one safetensors file with the checkpoint's names."""
        save_torch({n: torch.from_numpy(w).to(dtype) for n, w in self.all_weights(coefficients)}, file)

    def export(self, folder: Path, coefficients: Coefficients, dtype: torch.dtype = torch.float32) -> None:
        """Writes a plain Hugging Face folder: weights, config and tokenizer. The folder must not exist."""
        folder.mkdir(parents=True)
        for source in self.checkpoint.folder.iterdir():
            if source.is_file() and not source.name.endswith((".safetensors", ".safetensors.index.json")):
                shutil.copyfile(source, folder / source.name)
        self.save(folder / "model.safetensors", coefficients, dtype)
        config = dict(self.checkpoint.config, dtype=str(dtype).removeprefix("torch."))
        config.pop("torch_dtype", None)
        (folder / "config.json").write_text(json.dumps(config, indent=2))

    def _names(self, kind: str) -> frozenset[str]:
        cache = self.__dict__.setdefault("_kinds", {})
        if kind not in cache:
            cache[kind] = frozenset(self.checkpoint.perturbed(kind))
        return cache[kind]

    def _touched(self, coefficients: Coefficients) -> set[str]:
        return set().union(*(self._names(d.kind) for d in coefficients)) if coefficients else set()

    def _add(self, target: np.ndarray, name: str, coefficients: Coefficients) -> None:
        for direction, c in coefficients.items():
            if c and name in self._names(direction.kind):
                add_scaled(target, direction, name, c)


def replay(checkpoint: Checkpoint, ledger: Ledger, snapshots: Path | None = None) -> Master:
    """The master at the end of a ledger, from the nearest sound snapshot or from θ_0."""
    master = Master(checkpoint)
    start = Ledger()
    for file in sorted(snapshots.glob("*.safetensors"), reverse=True) if snapshots else []:
        position = load_snapshot(master, file, ledger)
        if position is not None:
            start = Ledger()
            for entry in ledger.entries[:position]:
                start.append(entry)
            break
    for entry in ledger.entries[len(start.entries) :]:
        due = dict(start.coefficients)
        start.append(entry)
        if isinstance(entry, Fold):
            master.fold(due, entry.pull_back)
    return master


def save_snapshot(master: Master, folder: Path, position: int, head: str, keep: int = 2) -> Path:
    """Writes F as it is after the first ``position`` ledger entries, whose chain hash is ``head``; only the newest
    ``keep`` snapshots stay. Raises OSError; a half-written one is never taken for whole."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{position:08d}.safetensors"
    partial = file.with_suffix(".partial")
    meta = {"entries": str(position), "head": head, "sha256": _sum(master.folded)}
    try:
        save_file(master.folded, partial, metadata=meta)
        with open(partial, "rb") as f:
            os.fsync(f.fileno())
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
    # Snapshots that seem newer are left over from another history.
    newest = sorted(f for f in folder.glob("*.safetensors") if f <= file)[-keep:]
    for old in set(folder.glob("*.safetensors")) - set(newest):
        old.unlink()
    return file


def load_snapshot(master: Master, file: Path, ledger: Ledger) -> int | None:
    """Sets F from a snapshot and returns its position in the ledger; None (and no change) when it is damaged or
    belongs to another history."""
    try:
        with safe_open(file, framework="numpy") as f:
            meta = f.metadata() or {}
            position = int(meta["entries"])
            if position > len(ledger.entries) or meta["head"] != head_at(ledger, position):
                return None
            folded = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError):
        return None
    if meta.get("sha256") != _sum(folded) or any(
        name not in master.checkpoint.names or f.shape != master.checkpoint.shape(name) for name, f in folded.items()
    ):
        return None
    master.folded = folded
    return position


def head_at(ledger: Ledger, position: int) -> str:
    """The chain hash after the first ``position`` entries."""
    part = Ledger()
    for entry in ledger.entries[:position]:
        part.append(entry)
    return part.head


def _sum(folded: dict[str, np.ndarray]) -> str:
    h = hashlib.sha256()
    for name in sorted(folded):
        h.update(name.encode())
        h.update(np.ascontiguousarray(folded[name], dtype="<f4").data)
    return h.hexdigest()
