"""The noise ε: a pure, versioned function of (member seed, parameter name, shape, kind, rank).

Drawn on the CPU by Philox 4x64-10 (numpy's bit generator, whose stream is guaranteed) and turned into normals by a
table of the inverse normal distribution, with operations that IEEE 754 rounds the same everywhere. So the bits do not
depend on device, model dtype, order, batch, sharding or library release; the tests hold golden vectors.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Literal

import numpy as np

Kind = Literal["lowrank", "gaussian"]

NOISE_VERSION = 1
CELLS = 1 << 16
CHUNK = 1 << 15
"""Draws made at once: they stay in the cache. Even, so that chunking does not change the stream."""
TABLE_DIGEST = "2694667c2277f27033fe038843781151d46c0b22c209ca034cb6177c69a8be61"


@dataclass(frozen=True, order=True)
class Direction:
    """One ε over the whole model. ``rank`` is 0 for gaussian noise, which has none."""

    seed: int
    kind: Kind = "lowrank"
    rank: int = 1
    version: int = NOISE_VERSION

    def to_json(self) -> list:
        return [self.seed, self.kind, self.rank, self.version]

    @classmethod
    def from_json(cls, data: list) -> Direction:
        seed, kind, rank, version = data
        return cls(int(seed), kind, int(rank), int(version))


@cache
def _quantiles() -> tuple[np.ndarray, np.ndarray]:
    """The inverse normal distribution at the CELLS + 1 cell edges, and the cell widths (float32).

    The outermost edges lie 0.15 of a cell from the end of the distribution, which makes the variance 1 to 1e-6.
    """
    normal = NormalDist()
    half = [normal.inv_cdf(k / CELLS) for k in range(CELLS // 2 + 1, CELLS)]
    half.append(normal.inv_cdf(1 - 0.15 / CELLS))
    edges = np.array([-z for z in reversed(half)] + [0.0] + half, dtype=np.float32)
    table = np.ascontiguousarray(edges[:-1]), np.diff(edges)
    digest = hashlib.sha256(edges.astype("<f4").tobytes()).hexdigest()
    if digest != TABLE_DIGEST:
        raise RuntimeError(
            f"this platform computes other noise than version {NOISE_VERSION} defines (table {digest[:12]}, "
            f"expected {TABLE_DIGEST[:12]}): ledgers would not replay here"
        )
    return table


def normals(key: bytes, count: int) -> np.ndarray:
    """``count`` draws from N(0, 1), float32, determined by the 16-byte ``key``.

    The upper 16 bits of a 32-bit draw choose a cell of equal probability, the lower 16 the place inside it.
    """
    left, width = _quantiles()
    source = np.random.Philox(key=int.from_bytes(key, "little"))
    out = np.empty(count, dtype=np.float32)
    for start in range(0, count, CHUNK):
        part = out[start : start + CHUNK]
        bits = source.random_raw((len(part) + 1) // 2).astype("<u8", copy=False).view("<u4")[: len(part)]
        cell = (bits >> np.uint32(16)).astype(np.intp)
        np.multiply(bits & np.uint32(0xFFFF), np.float32(2.0**-16), out=part, dtype=np.float32, casting="unsafe")
        part *= width[cell]
        part += left[cell]
    return out


def _key(direction: Direction, name: str, shape: tuple[int, ...], part: str) -> bytes:
    if direction.version != NOISE_VERSION:
        raise ValueError(f"noise version {direction.version} is not known here (this is version {NOISE_VERSION})")
    d = direction
    if d.kind not in ("lowrank", "gaussian") or (d.kind == "lowrank") != (d.rank > 0):
        raise ValueError(f"there is no noise of kind {d.kind!r} and rank {d.rank}")
    text = f"popserve-noise/{d.version}/{d.kind}/{d.rank}/{d.seed}/{name}/{shape}/{part}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def factors(direction: Direction, name: str, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """B (out × r) and A (in × r), float32, of a low-rank ε = B Aᵀ / √r for a weight of ``shape`` (out, in).

    1/√r is already in B. Entries of ε have variance 1 (EGGROLL). Raises ValueError for a weight without two axes.
    """
    if len(shape) != 2:
        raise ValueError(f"low-rank noise needs a matrix, {name} has shape {shape}")
    out, into = shape
    r = direction.rank
    b = normals(_key(direction, name, shape, "B"), out * r).reshape(out, r)
    a = normals(_key(direction, name, shape, "A"), into * r).reshape(into, r)
    if r > 1:
        b *= np.float32(1.0 / math.sqrt(r))
    return b, a


def gaussian(direction: Direction, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """ε ~ N(0, I) of ``shape``, float32."""
    return normals(_key(direction, name, shape, "E"), math.prod(shape)).reshape(shape)


def add_scaled(target: np.ndarray, direction: Direction, name: str, coefficient: float) -> None:
    """``target += coefficient · ε`` in place, float32, elementwise (no fused multiply-add, no reduction), so that
    replaying the same sequence gives the same bits everywhere."""
    c = np.float32(coefficient)
    if direction.kind == "gaussian":
        noise = gaussian(direction, name, target.shape)
        noise *= c
        target += noise
        return
    b, a = factors(direction, name, target.shape)
    b *= c
    for k in range(direction.rank):
        target += np.multiply.outer(b[:, k], a[:, k])
