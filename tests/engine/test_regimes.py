"""The four data regimes ask what their names say."""

from __future__ import annotations

import pytest

from engine.regimes import REGIMES, UnevenRatings, plan


def generations(regime, count=5, members=4, ratings=8):
    first, asked = 0, []
    for _ in range(count):
        asks = plan(regime, members, ratings, first)
        first = max(first, *(ask.index + 1 for ask in asks))
        asked.append(asks)
    return asked


@pytest.mark.parametrize("regime", REGIMES)
def test_a_generation_gets_exactly_its_ratings(regime):
    assert all(len(asks) == 8 for asks in generations(regime))


@pytest.mark.parametrize("regime", ["fixed", "fresh"])
def test_all_members_get_the_same_requests_greedily(regime):
    for asks in generations(regime):
        by_member = {m: [a.index for a in asks if a.member == m] for m in range(4)}
        assert len({tuple(indices) for indices in by_member.values()}) == 1
        assert {a.temperature for a in asks} == {0.0}


def test_fixed_comes_back_and_fresh_does_not():
    fixed, fresh = generations("fixed"), generations("fresh")
    assert fixed[0] == fixed[1] == fixed[4]
    used = [{a.index for a in asks} for asks in fresh]
    assert sum(map(len, used)) == len(set.union(*used)) == 5 * 2


@pytest.mark.parametrize(("regime", "temperature"), [("hetero", 0.0), ("hetero+sample", None)])
def test_hetero_never_asks_twice_and_lets_the_router_choose(regime, temperature):
    asks = [a for generation in generations(regime) for a in generation]
    assert [a.index for a in asks] == list(range(40))
    assert {(a.member, a.temperature) for a in asks} == {(None, temperature)}


def test_an_uneven_generation_is_refused_with_a_number_that_works():
    with pytest.raises(UnevenRatings, match="for example 32"):
        plan("fixed", 16, 40, 0)
    assert len(plan("hetero", 16, 40, 0)) == 40
