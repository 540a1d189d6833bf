"""Requests spread over the members; sessions stay."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine import router as module
from engine.population import draw, profile
from engine.router import Router


def make(members: int = 4, number: int = 0) -> Router:
    return Router(draw(number, profile("room", members=members), 1))


NONE = np.zeros(4, dtype=int)


def test_the_least_rated_member_answers():
    router = make()
    assert router.choose(np.array([2, 1, 0, 1])) == 2


def test_a_person_who_chats_without_rating_meets_every_member():
    router, met = make(), []
    for _ in range(8):
        met.append(router.choose(NONE))
        router.done(0, met[-1])
    assert met == [0, 1, 2, 3] * 2


def test_requests_in_flight_count_like_ratings():
    router = make()
    assert [router.choose(NONE) for _ in range(5)] == [0, 1, 2, 3, 0]


@given(st.lists(st.booleans(), max_size=60))
def test_no_member_is_more_than_one_reply_ahead(rates):
    router, counts = make(), np.zeros(4, dtype=int)
    for rate in rates:
        member = router.choose(counts)
        router.done(0, member)
        counts[member] += rate
    assert counts.max() - counts.min() <= 1


def test_a_session_stays_on_its_member_within_a_generation():
    router = make()
    first = router.choose(NONE, "a")
    router.choose(NONE, "b")
    assert [router.choose(np.array([9, 0, 0, 0]), "a") for _ in range(3)] == [first] * 3
    router.turn(draw(1, profile("room", members=4), 1))
    assert router.choose(np.array([9, 0, 0, 0]), "a") == 1


def test_sessions_that_never_end_cost_nothing(monkeypatch):
    monkeypatch.setattr(module, "SESSIONS", 3)
    router = make()
    kept = router.choose(NONE, "s0")
    for i in range(1, 20):
        router.choose(NONE, f"s{i}")
        router.choose(NONE, "s0")
    assert len(router._sessions) == 3
    assert router.choose(NONE, "s0") == kept


def test_done_counts_for_its_own_generation_only():
    router = make()
    member = router.choose(NONE)
    router.turn(draw(1, profile("room", members=4), 1))
    router.choose(NONE)
    router.done(0, member)
    assert router.running == [1, 0, 0, 0]
    router.done(1, 0)
    assert router.running == [0] * 4


def test_untouched_until_somebody_is_served():
    router = make()
    assert router.untouched
    router.choose(NONE)
    assert not router.untouched
    router.turn(draw(1, profile("room", members=4), 1), fresh=False)
    assert not router.untouched, "after a restart one cannot know"


def test_load_spreads_evenly():
    router = make(16)
    met = Counter(router.choose(np.zeros(16, dtype=int)) for _ in range(64))
    assert set(met.values()) == {4}
