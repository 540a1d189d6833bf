"""A column is never given to another direction while a request can refer to it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from engine.backends.rows import NoRoom, Rows
from engine.noise import Direction

A, B, C = Direction(1), Direction(2), Direction(3)
WIDE = Direction(4, rank=3)


def test_a_direction_takes_a_column_a_rank():
    rows = Rows(4)
    placed = rows.allocate([A, WIDE])
    assert [len(placed[d]) for d in (A, WIDE)] == [1, 3]
    assert sorted(c for columns in placed.values() for c in columns) == [0, 1, 2, 3]
    assert rows.of(WIDE) == placed[WIDE]
    assert rows.missing([A, B]) == [B]


def test_no_room_changes_nothing():
    rows = Rows(3)
    rows.allocate([A])
    with pytest.raises(NoRoom, match="3 noise rows are needed, 2 of 3 are free"):
        rows.allocate([WIDE])
    assert A in rows
    assert WIDE not in rows
    assert len(rows.allocate([B, C])) == 2


def test_columns_wait_for_the_requests_of_their_time():
    rows = Rows(1)
    rows.allocate([A])
    early = rows.enter()
    rows.keep_only([B])
    late = rows.enter()
    with pytest.raises(NoRoom):
        rows.allocate([B])
    rows.leave(early)
    assert rows.allocate([B]) == {B: [0]}
    assert A not in rows
    rows.leave(late)
    assert rows.running == 0


def test_a_retired_direction_that_is_needed_again_stays():
    rows = Rows(1)
    rows.allocate([A])
    rows.keep_only([])
    rows.keep_only([A])
    with pytest.raises(NoRoom):
        rows.allocate([B])
    assert rows.of(A) == [0]


def test_noise_that_was_never_placed_is_forgotten():
    rows = Rows(3)
    rows.allocate([WIDE])
    rows.forget([WIDE])
    assert WIDE not in rows
    assert len(rows.allocate([A, B, C])) == 3


class Serving(RuleBasedStateMachine):
    """Requests refer to what was wanted when they were admitted, for as long as they run."""

    requests = Bundle("requests")

    def __init__(self):
        super().__init__()
        self.rows = Rows(6)
        self.wanted: set[Direction] = set()
        self.running: dict[int, tuple[int, dict[Direction, list[int]]]] = {}
        self.serial = 0

    @rule(seeds=st.lists(st.integers(0, 9), unique=True, max_size=4), ranks=st.integers(1, 2), keep=st.booleans())
    def turn(self, seeds, ranks, keep):
        new = [Direction(s, rank=ranks) for s in seeds]
        kept = self.wanted if keep else set()
        self.rows.keep_only(kept | set(new))
        missing = self.rows.missing(new)
        before = {d: list(c) for d, c in self.rows._resident.items()}
        try:
            self.rows.allocate(missing)
        except NoRoom:
            assert not any(d in self.rows for d in missing)
            assert all(before[d] == c for d, c in self.rows._resident.items())
            self.wanted = {d for d in kept | set(new) if d in self.rows}
            self.rows.keep_only(self.wanted)
        else:
            self.wanted = kept | set(new)

    @rule(target=requests)
    def admit(self):
        self.serial += 1
        refers = {d: list(self.rows.of(d)) for d in self.wanted}
        self.running[self.serial] = (self.rows.enter(), refers)
        return self.serial

    @rule(request=consumes(requests))
    def end(self, request):
        epoch, _ = self.running.pop(request)
        self.rows.leave(epoch)

    @invariant()
    def what_requests_refer_to_is_where_it_was(self):
        for _, refers in self.running.values():
            for direction, columns in refers.items():
                assert self.rows.of(direction) == columns

    @invariant()
    def every_column_has_one_owner(self):
        owned = [c for columns in self.rows._resident.values() for c in columns]
        assert sorted(owned + self.rows._free) == list(range(6))
        assert self.rows.running == len(self.running)

    def teardown(self):
        for epoch, _ in self.running.values():
            self.rows.leave(epoch)
        self.rows.keep_only([])
        assert len(self.rows.allocate([Direction(99, rank=6)])) == 1, "nothing leaks"


TestServing = Serving.TestCase
TestServing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
