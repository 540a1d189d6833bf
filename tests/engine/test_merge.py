"""The merge is the formula, and what the formula leaves open is as decided."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint import Checkpoint
from engine.merge import creditable, decayed, drift, enough, fitness, spread, step, zscore
from engine.noise import Direction, factors, gaussian

nan = math.nan


def test_fitness_is_the_mean_reward_of_a_member():
    fit, counts = fitness(4, [(0, 1.0), (0, 0.0), (0, 0.5), (2, 0.25), (3, 1.0)])
    assert fit[[0, 2, 3]].tolist() == [0.5, 0.25, 1.0]
    assert np.isnan(fit[1])
    assert counts.tolist() == [3, 0, 1, 1]


def test_z_by_hand():
    # mean 0.5, deviations −0.5 −0.25 0.25 0.5, variance (ddof 0) 0.15625
    z = zscore(np.array([0.0, 0.25, 0.75, 1.0]), antithetic=False)
    assert z == pytest.approx([-1.2649111, -0.6324555, 0.6324555, 1.2649111])


def test_one_thumbs_down_among_sixteen():
    z = zscore(np.array([1.0] * 15 + [0.0]), antithetic=False)
    assert z[15] == pytest.approx(-3.873, abs=5e-4)
    assert z[:15] == pytest.approx([0.2582] * 15, abs=5e-5)


def test_unrated_members_get_zero_and_do_not_count():
    z = zscore(np.array([1.0, nan, 0.0, nan]), antithetic=False)
    assert z == pytest.approx([1, 0, -1, 0])


def test_half_rated_pairs_get_zero_and_do_not_count():
    fit = np.array([1.0, 0.0, 0.9, nan, nan, nan, 0.5, 0.5])
    assert creditable(fit, True).tolist() == [True, True, False, False, False, False, True, True]
    # over 1, 0, 0.5, 0.5: mean 0.5, std √(1/8)
    assert zscore(fit, True) == pytest.approx([math.sqrt(2), -math.sqrt(2), 0, 0, 0, 0, 0, 0])


def test_the_divisor_stays_the_population_size():
    z = zscore(np.array([1.0, nan, 0.0, nan]), antithetic=False)
    assert step(z, [1, 1, 1, 1], False, 0.4) == pytest.approx([0.1, 0, -0.1, 0])


def test_a_pair_shares_its_direction_with_opposite_signs():
    z = np.array([1.0, -1.0, 0.5, 0.25])
    assert step(z, [1, -1, 1, -1], True, 0.8) == pytest.approx([0.2 * 2.0, 0.2 * 0.25])


@pytest.mark.parametrize("fit", [[0.7] * 4, [1.0] * 4, [0.1 + 0.2, 0.3, 0.3, 0.3], [0.5, nan, nan, nan], [nan] * 4])
def test_no_spread_no_step(fit):
    assert not spread(np.array(fit), False)
    assert not zscore(np.array(fit), False).any()


@pytest.mark.parametrize(
    ("fit", "antithetic", "expected"),
    [
        ([1, nan, nan, nan], False, False),
        ([1, 0, nan, nan], False, True),
        ([1, nan, 0, nan], True, False),
        ([1, 0, nan, nan], True, True),
        ([1, 0, nan, nan, nan, nan], True, False),
        ([nan, nan], False, False),
    ],
)
def test_at_least_half_must_be_rated(fit, antithetic, expected):
    assert enough(np.array(fit, dtype=float), antithetic) is expected


rewards = st.lists(st.one_of(st.just(nan), st.floats(0, 1)), min_size=2, max_size=24).filter(lambda f: len(f) % 2 == 0)


@given(rewards, st.booleans())
def test_z_has_mean_zero_and_deviation_one(fit, antithetic):
    fit = np.array(fit)
    z = zscore(fit, antithetic)
    ok = creditable(fit, antithetic)
    assert not z[~ok].any()
    if spread(fit, antithetic) and fit[ok].std() > 1e-4:
        assert z[ok].mean() == pytest.approx(0, abs=1e-6)
        assert z[ok].std() == pytest.approx(1, rel=1e-3)


@given(rewards, st.floats(0.1, 10), st.floats(-5, 5))
def test_only_the_order_and_the_gaps_of_rewards_count(fit, scale, shift):
    fit = np.array(fit)
    if spread(fit, False) and np.nanstd(fit) > 1e-3:
        assert zscore(fit * scale + shift, False) == pytest.approx(zscore(fit, False), abs=1e-3)


@pytest.mark.parametrize("members", [4, 16, 64])
def test_root_mean_square_of_a_step(members):
    rng, alpha = np.random.default_rng(3), 0.01
    single, paired = [], []
    for _ in range(400):
        z = zscore(rng.normal(size=members), False)
        single.append((step(z, [1] * members, False, alpha) ** 2).sum())
        paired.append((step(z, [1, -1] * (members // 2), True, alpha) ** 2).sum())
    assert math.sqrt(np.mean(single)) == pytest.approx(alpha / math.sqrt(members), rel=1e-6)
    # Independent halves: the same length on average, and at most √2 more when the halves disagree.
    assert alpha / math.sqrt(members) * 0.9 < math.sqrt(np.mean(paired)) <= alpha / math.sqrt(members) * 1.45
    opposed = np.tile([1.0, -1.0], members // 2)
    longest = math.sqrt((step(opposed, [1, -1] * (members // 2), True, alpha) ** 2).sum())
    assert longest == pytest.approx(math.sqrt(2) * alpha / math.sqrt(members))


def test_decay_pulls_towards_the_anchor():
    assert decayed(0.2, 0.005) == pytest.approx(0.199)
    assert decayed(0.2, 0.0) == 0.2


def test_drift_of_lowrank_terms_is_within_two_percent(embedded):
    checkpoint = Checkpoint(embedded)
    terms = {Direction(seed): c for seed, c in enumerate([0.01, -0.004, 0.007])} | {Direction(9, rank=4): 0.006}
    exact = 0.0
    for name in checkpoint.perturbed("lowrank"):
        drawn = [(c, *factors(d, name, checkpoint.shape(name))) for d, c in terms.items()]
        # ‖Σ c B Aᵀ‖² without building it: Σ c c′ tr(Bᵀ B′ A′ᵀ A)
        exact += sum(c * k * float(((b.T @ q) * (a.T @ p)).sum()) for c, b, a in drawn for k, q, p in drawn)
    estimate = drift(terms.values(), checkpoint.size("lowrank"), 3.0)
    assert estimate == pytest.approx(math.sqrt(exact) / 3.0, rel=0.02)


def test_drift_of_gaussian_terms_is_within_two_percent(checkpoint):
    c, direction = 0.003, Direction(4, "gaussian", 0)
    exact = sum(float((gaussian(direction, n, checkpoint.shape(n)) ** 2).sum()) for n in checkpoint.names)
    estimate = drift([c], checkpoint.size("gaussian"), checkpoint.norm)
    assert estimate == pytest.approx(c * math.sqrt(exact) / checkpoint.norm, rel=0.02)


def test_no_drift_without_terms():
    assert drift([], 100, 3.0) == 0.0
