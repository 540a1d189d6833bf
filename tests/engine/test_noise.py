"""The noise is a pure, versioned function with exact bits, and it is normal and independent."""

from __future__ import annotations

import hashlib
import json
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import noise
from engine.noise import CHUNK, Direction, add_scaled, factors, gaussian, normals

KEY = bytes(range(16))


def bits(array: np.ndarray) -> list[int]:
    return np.ascontiguousarray(array).view(np.uint32).ravel().tolist()


def digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(a.astype("<f4").tobytes() for a in arrays)).hexdigest()[:32]


# Version 1, bit for bit: these may never change, or ledgers in the world would no longer replay.
LOWRANK = [
    ((0, "w", (3, 2), 1), [1062947273, 3214091820], [1021985939, 3212249962], "99b9a3c24fa1881d5ca38f2e34d86613"),
    (
        (1, "model.layers.0.self_attn.q_proj.weight", (576, 576), 1),
        [1059951373, 3208279426],
        [1065602571, 1077582917],
        "8630df2eeadd8c08728c7c2f015325a3",
    ),
    (
        (2**62 + 12345, "model.layers.29.mlp.down_proj.weight", (576, 1536), 4),
        [3188377771, 1050934100],
        [1060794813, 1069490029],
        "23f31981392dea28bf7c8f8365d9627f",
    ),
    (
        (7, "x.weight", (40_001, 3), 1),
        [1070850197, 1066803880],
        [1067959396, 3212859367],
        "8efc59acc990554353582a70ea8f3c8c",
    ),
]
GAUSSIAN = [
    ((0, "w", (3, 2)), [3179432680, 1051528327, 3207376691], "41f72a04a1be82750e106552d1f12d28"),
    ((1, "model.norm.weight", (576,)), [1043325397, 3218770580, 3206718177], "55801e129a9098490021926c395df4a9"),
    ((5, "big", (257, 301)), [1054345114, 3190964157, 1063166596], "6c7f923832bd9622e7b03467ac1d03eb"),
]


@pytest.mark.parametrize(("of", "b2", "a2", "whole"), LOWRANK)
def test_golden_lowrank(of, b2, a2, whole):
    seed, name, shape, rank = of
    b, a = factors(Direction(seed, "lowrank", rank), name, shape)
    assert (b.shape, a.shape) == ((shape[0], rank), (shape[1], rank))
    assert (b.dtype, a.dtype) == (np.float32, np.float32)
    assert bits(b)[:2] == b2
    assert bits(a)[:2] == a2
    assert digest(b, a) == whole


@pytest.mark.parametrize(("of", "first", "whole"), GAUSSIAN)
def test_golden_gaussian(of, first, whole):
    seed, name, shape = of
    e = gaussian(Direction(seed, "gaussian", 0), name, shape)
    assert e.shape == shape
    assert bits(e)[:3] == first
    assert digest(e) == whole


def test_a_draw_is_the_inverse_normal_distribution_of_its_bits():
    raw = np.random.Philox(key=int.from_bytes(KEY, "little")).random_raw(500)
    got = normals(KEY, 1000)
    for i, draw in enumerate(got):
        word = int(raw[i // 2]) >> (32 * (i % 2)) & 0xFFFFFFFF
        if 100 < word >> 16 < 65436:  # where a cell is narrow
            assert draw == pytest.approx(NormalDist().inv_cdf((word + 0.5) / 2**32), abs=2e-5)


@pytest.mark.parametrize("count", [0, 1, 2, 3, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_a_shorter_draw_is_the_beginning_of_a_longer_one(count):
    assert bits(normals(KEY, count)) == bits(normals(KEY, 2 * CHUNK + 5)[:count])


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 700), st.integers(1, 400))
def test_the_size_of_chunks_changes_nothing(count, half):
    expected = bits(normals(KEY, count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "CHUNK", 2 * half)
        assert bits(normals(KEY, count)) == expected


def test_noise_does_not_depend_on_what_was_drawn_before():
    d, e = Direction(1), Direction(2)
    first = digest(*factors(d, "a", (50, 40)))
    factors(e, "b", (9, 9))
    gaussian(Direction(3, "gaussian", 0), "a", (50, 40))
    assert digest(*factors(d, "a", (50, 40))) == first


def test_everything_that_names_a_draw_makes_another_one():
    shape = (400, 200)
    flat = [
        *(x.ravel()[:200] for x in factors(Direction(1), "a", shape)),  # B and A
        *(x.ravel()[:200] for x in factors(Direction(1), "b", shape)),
        *(x.ravel()[:200] for x in factors(Direction(2), "a", shape)),
        *(x.ravel()[:200] for x in factors(Direction(-1), "a", shape)),
        *(x.ravel()[:200] for x in factors(Direction(1 + 2**32), "a", shape)),
        *(x.ravel()[:200] for x in factors(Direction(1 + 2**62), "a", shape)),
        *(x.ravel()[:200] for x in factors(Direction(1), "a", (401, 200))),
        *(x.T.ravel()[:200] for x in factors(Direction(1, rank=2), "a", shape)),
        gaussian(Direction(1, "gaussian", 0), "a", shape).ravel()[:200],
    ]
    assert len({digest(x) for x in flat}) == len(flat)
    worst = max(abs(np.corrcoef(x, y)[0, 1]) for x, y in combinations(flat, 2))
    assert worst < 5 / np.sqrt(200)


def test_moments():
    x = normals(KEY, 1 << 20).astype(np.float64)
    n = len(x)
    assert x.mean() == pytest.approx(0, abs=5 / np.sqrt(n))
    assert x.var() == pytest.approx(1, abs=5 * np.sqrt(2 / n))
    assert (x**3).mean() == pytest.approx(0, abs=5 * np.sqrt(15 / n))
    assert (x**4).mean() == pytest.approx(3, abs=5 * np.sqrt(96 / n))
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / np.sqrt(n)
    assert 4 < np.abs(x).max() < 5.5


@pytest.mark.parametrize("rank", [1, 4])
def test_entries_of_lowrank_noise_have_variance_one(rank):
    squares = []
    for seed in range(300):
        b, a = factors(Direction(seed, "lowrank", rank), "w", (48, 40))
        squares.append(((b @ a.T) ** 2).mean())
    assert np.mean(squares) == pytest.approx(1, abs=5 * np.std(squares) / np.sqrt(len(squares)))
    assert np.std(squares) / np.sqrt(len(squares)) < 0.03


def test_lowrank_noise_has_its_rank():
    b, a = factors(Direction(3, rank=4), "w", (30, 20))
    assert np.linalg.matrix_rank(b @ a.T) == 4


@pytest.mark.parametrize("direction", [Direction(5), Direction(5, rank=4), Direction(5, "gaussian", 0)])
def test_add_scaled_adds_the_noise(direction):
    shape = (33, 17)
    target = np.ones(shape, dtype=np.float32)
    add_scaled(target, direction, "w", -0.25)
    if direction.kind == "gaussian":
        expected = gaussian(direction, "w", shape).astype(np.float64)
    else:
        b, a = factors(direction, "w", shape)
        expected = b.astype(np.float64) @ a.T
    np.testing.assert_allclose(target, 1 - 0.25 * expected, atol=2e-6)


@pytest.mark.parametrize(
    "direction",
    [
        Direction(1, version=2),
        Direction(1, version=0),
        Direction(1, "gaussian", 0, 2),
        Direction(1, "lowrnk"),
        Direction(1, rank=0),
        Direction(1, "gaussian", 1),
    ],
)
def test_noise_that_is_not_defined_is_refused(direction):
    with pytest.raises(ValueError, match=r"noise"):
        add_scaled(np.zeros((4, 4), dtype=np.float32), direction, "w", 1.0)


def test_lowrank_noise_needs_a_matrix():
    with pytest.raises(ValueError, match="matrix"):
        factors(Direction(1), "norm", (4,))


def test_directions_survive_json():
    for d in (Direction(2**63 - 1, rank=4), Direction(0, "gaussian", 0)):
        assert Direction.from_json(json.loads(json.dumps(d.to_json()))) == d
