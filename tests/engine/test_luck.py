"""Luck: how much of a spread is direction and how much is dice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.luck import running_share, shrink, signal_share


def test_share_by_hand():
    # variance (ddof 1) of 0, 0.5, 1 is 0.25; within 0.5 · 0.5 / 4 = 0.0625
    assert signal_share(np.array([0.0, 0.5, 1.0]), np.array([4, 4, 4])) == pytest.approx(0.75)


def test_members_with_few_replies_are_mostly_luck():
    # mean over replies (0·1 + 1·4) / 5 = 0.8; within 0.16 · (1 + 1/4) / 2 = 0.1; between 0.5
    assert signal_share(np.array([0.0, 1.0]), np.array([1, 4])) == pytest.approx(0.8)


def test_no_share_is_negative():
    assert signal_share(np.array([0.4, 0.5, 0.6]), np.array([2, 2, 2])) == 0.0


@pytest.mark.parametrize(("fit", "counts"), [([0.5, 0.5], [3, 3]), ([0.5, np.nan], [3, 0]), ([np.nan, np.nan], [0, 0])])
def test_nothing_to_tell(fit, counts):
    assert signal_share(np.array(fit), np.array(counts)) is None


def test_unrated_members_do_not_count():
    some = signal_share(np.array([0.0, np.nan, 0.5, 1.0]), np.array([4, 0, 4, 4]))
    assert some == pytest.approx(0.75)


def test_pure_dice_have_little_share_and_true_differences_much():
    rng = np.random.default_rng(0)
    n = 50

    def mean_share(rates):
        draws = [rng.binomial(n, rates) / n for _ in range(200)]
        return np.mean([signal_share(f, np.full(len(rates), n)) or 0.0 for f in draws])

    assert mean_share(np.full(16, 0.5)) < 0.25
    assert mean_share(np.linspace(0.1, 0.9, 16)) > 0.85


def test_the_running_share_remembers_four_fifths():
    assert running_share(1.0, 0.0) == pytest.approx(0.8)
    assert running_share(0.5, 1.0) == pytest.approx(0.6)
    assert running_share(0.37, None) == 0.37


@given(st.floats(-1, 2))
def test_a_step_only_shrinks(share):
    assert shrink(share) == pytest.approx(min(1.0, max(0.0, share)) ** 0.5)
