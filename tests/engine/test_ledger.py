"""The ledger says what was served, and refuses a history that cannot be."""

from __future__ import annotations

import json
import math

import pytest

from engine.ledger import Fold, Ledger, Merge, entry_from_json
from engine.noise import Direction

A, B, G = Direction(1), Direction(2, rank=4), Direction(3, "gaussian", 0)
HISTORY = [
    Merge(0, ((A, 0.1), (B, -0.2)), 0.01),
    Merge(1, ((A, 0.05),), 0.01),
    Fold(2, 0.99 * 0.99),
    Merge(2, ((G, 0.3),), 0.02),
    Fold(3, 1.0),
    Merge(3, ((B, 0.4),), 0.0),
    Fold(4, 0.98),
]


def ledger(entries) -> Ledger:
    made = Ledger()
    for entry in entries:
        made.append(entry)
    return made


def test_coefficients_by_hand():
    l2 = ledger(HISTORY[:2])
    assert l2.generation == 2
    assert l2.coefficients[A] == pytest.approx((0.1 * 0.99 + 0.05) * 0.99)
    assert l2.coefficients[B] == pytest.approx(-0.2 * 0.99**2)
    assert l2.pending_pull == pytest.approx(0.99**2)


def test_a_fold_moves_everything_and_changes_no_total():
    before, after = ledger(HISTORY[:2]), ledger(HISTORY[:3])
    assert after.coefficients == {}
    assert after.folded == before.coefficients
    assert after.totals() == before.totals()
    assert after.generation == before.generation


def test_a_fold_pulls_back_what_was_folded_earlier_when_it_says_so():
    left, pulled = ledger(HISTORY[:5]), ledger(HISTORY)
    assert left.totals()[A] == ledger(HISTORY[:3]).totals()[A]
    assert left.pending_pull == pytest.approx(0.98)
    assert pulled.totals()[A] == pytest.approx(0.98 * left.totals()[A])
    assert pulled.totals()[G] == pytest.approx(0.98 * 0.3 * 0.98)  # decayed by its own merge, pulled by the fold
    assert pulled.totals()[B] == pytest.approx(0.98 * left.totals()[B] + 0.4)
    assert pulled.pending_pull == 1.0


def test_json_rebuilds_the_same_ledger():
    again = Ledger.from_json(json.loads(json.dumps([e.to_json() for e in HISTORY])))
    assert again == ledger(HISTORY)


def test_the_head_names_the_history():
    heads = {ledger(HISTORY[:n]).head for n in range(len(HISTORY) + 1)}
    assert len(heads) == len(HISTORY) + 1
    edited = [Merge(0, ((A, 0.1), (B, math.nextafter(-0.2, 0))), 0.01), *HISTORY[1:]]
    assert ledger(edited[:2]).head != ledger(HISTORY[:2]).head


@pytest.mark.parametrize(
    "entries",
    [
        [HISTORY[1]],
        [HISTORY[0], HISTORY[0]],
        [HISTORY[0], HISTORY[2]],
        [HISTORY[1], HISTORY[0]],
        HISTORY[:2] + HISTORY[3:4] + HISTORY[2:3],
        [*HISTORY[:2], Fold(2, 0.5)],
        [*HISTORY[:3], Fold(2, 0.99 * 0.99)],
        [*HISTORY[:2], *HISTORY[3:4], Fold(3, 0.98)],
        [Merge(0, ((A, math.nan),))],
        [Merge(0, ((A, math.inf),))],
        [Merge(0, ((A, 0.1),), 1.0)],
        [Merge(0, ((A, 0.1),), -0.1)],
    ],
)
def test_a_history_that_cannot_be_is_refused(entries):
    with pytest.raises(ValueError, match="ledger entry"):
        ledger(entries)


def test_a_refused_entry_leaves_the_ledger_as_it_was():
    kept, tried = ledger(HISTORY[:3]), ledger(HISTORY[:3])
    for wrong in (Merge(7, ()), Fold(2, 0.5), Merge(2, ((A, math.nan),))):
        with pytest.raises(ValueError, match="ledger entry"):
            tried.append(wrong)
    assert tried == kept


@pytest.mark.parametrize("data", [{}, {"type": "rollback", "generation": 0}, {"type": None}])
def test_an_unknown_entry_is_refused(data):
    with pytest.raises(ValueError, match="unknown ledger entry"):
        entry_from_json(data)
