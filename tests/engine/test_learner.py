"""Every rating is credited exactly once, by its own generation's Z, however late it comes, changes or goes."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine.interface import CannotMerge, MergeRecord, RatedReply, Saved
from engine.learner import Learner, message_of
from engine.ledger import Ledger, Merge, entry_from_json
from engine.merge import enough, fitness, step, zscore
from engine.noise import Direction
from engine.population import Generation, Settings, draw, profile

PAIRS = profile("room", members=4, merge_after=4, step="zscore", alpha=0.01, decay=0.0)
SINGLES = replace(PAIRS, antithetic=False)


def start(settings: Settings = SINGLES) -> Learner:
    return Learner(draw(0, settings, 1))


def rate(learner: Learner, generation: int, rewards: dict[int, float | None]):
    for member, reward in rewards.items():
        credit = learner.record(f"g{generation}m{member}", generation, member, reward)
    return credit


def turn(learner: Learner, following: Settings | None = None) -> MergeRecord:
    record = learner.plan("test", 1, following)
    learner.commit(record)
    return record


def terms(record: MergeRecord) -> dict[Direction, float]:
    entry = entry_from_json(record.entry)
    assert isinstance(entry, Merge)
    return dict(entry.terms)


def along(learner: Learner, generation: Generation) -> list[float]:
    totals = learner.ledger.totals()
    return [totals.get(d, 0.0) for d in generation.directions]


def expected(generation: Generation, rewards: dict[int, float]) -> list[float]:
    s = generation.settings
    z = zscore(fitness(s.members, rewards.items())[0], s.antithetic)
    return list(step(z, [m.sign for m in generation.members], s.antithetic, s.alpha))


def roundtrip(record: MergeRecord) -> MergeRecord:
    """As a journal keeps it: JSON."""
    flat = {n: getattr(record, n) for n in MergeRecord.__dataclass_fields__ if n not in ("next", "population", "used")}
    flat = json.loads(json.dumps(flat))
    return MergeRecord(
        **flat,
        next=Generation.from_json(json.loads(json.dumps(record.next.to_json()))),
        population=Generation.from_json(json.loads(json.dumps(record.population.to_json()))),
        used=[RatedReply(**json.loads(json.dumps(asdict(u)))) for u in record.used],
    )


def test_a_merge_is_the_formula():
    learner, first = start(), draw(0, SINGLES, 1)
    rate(learner, 0, {0: 1, 1: 0, 2: 0.5, 3: 0.5})
    assert learner.due()
    record = turn(learner)
    assert record.z == pytest.approx([2**0.5, -(2**0.5), 0, 0])
    assert along(learner, first) == pytest.approx([0.0025 * 2**0.5, -0.0025 * 2**0.5, 0, 0])
    assert (record.generation, record.next.number, learner.generation.number) == (0, 1, 1)
    assert (record.ratings, record.mean_reward, record.late, record.null) == (4, 0.5, 0, False)
    assert record.fitness == [1, 0, 0.5, 0.5]
    assert learner.ratings == 0


def test_a_merge_without_spread_draws_a_new_population_and_nothing_else():
    learner = start(replace(SINGLES, decay=0.1))
    rate(learner, 0, {0: 1, 1: 0})
    turn(learner)
    kept = learner.ledger.totals()
    rate(learner, 1, {0: 1, 1: 1, 2: 1, 3: 1})
    record = turn(learner)
    assert record.null
    assert (terms(record), record.entry["decay"]) == ({}, 0.0)
    assert learner.ledger.totals() == kept
    assert learner.generation.seeds != record.population.seeds
    assert "Nothing to learn: every reply scored the same" in message_of(record)


def test_too_few_rated_members_cannot_merge():
    learner = start(PAIRS)
    for i in range(10):
        learner.record(f"r{i}", 0, 0, 1.0)
    assert not learner.due()
    with pytest.raises(CannotMerge, match=r"at least half of the 2 pairs: 0 so far, 1 of 4 members are rated"):
        learner.plan("button", 1)
    learner.record("other", 0, 1, 0.0)
    assert learner.due()
    singles = start()
    rate(singles, 0, {0: 1})
    with pytest.raises(CannotMerge, match=r"half of the 4 members: 1 so far"):
        singles.plan("button", 1)


def test_planning_changes_nothing():
    learner = start()
    rate(learner, 0, {0: 1, 1: 0})
    before = learner.ledger.totals(), learner.generation, learner.ratings, learner.running_share
    assert terms(learner.plan("a", 5)) == terms(learner.plan("b", 5))
    assert (learner.ledger.totals(), learner.generation, learner.ratings, learner.running_share) == before


def test_after_and_totals_after_foretell_the_commit():
    learner = start(replace(SINGLES, decay=0.01))
    for g in range(2):
        rate(learner, g, {0: 1, 1: 0, 3: 0.3})
        record = learner.plan("test", 1)
        after, totals = learner.after(record), learner.totals_after(record)
        learner.commit(record)
        assert after == learner.ledger.coefficients
        assert totals == learner.ledger.totals()


def test_a_late_rating_corrects_its_own_generation():
    learner, first = start(), draw(0, SINGLES, 1)
    rate(learner, 0, {0: 1, 1: 0})
    turn(learner)
    assert rate(learner, 0, {2: 1}).kind == "late"
    rate(learner, 1, {0: 1, 1: 0})
    record = turn(learner)
    assert record.late == 1
    assert "1 of them late" in message_of(record)
    assert along(learner, first) == pytest.approx(expected(first, {0: 1, 1: 0, 2: 1}))


@pytest.mark.parametrize(
    ("change", "final"),
    [
        ({0: 0.2}, {0: 0.2, 1: 0}),
        ({0: None}, {1: 0}),
        ({0: 0, 1: 1}, {0: 0, 1: 1}),
        ({0: None, 1: None}, {}),
        ({0: 0}, {0: 0, 1: 0}),
    ],
)
def test_changed_and_withdrawn_ratings_leave_what_the_final_ones_would_have_given(change, final):
    learner, first = start(), draw(0, SINGLES, 1)
    rate(learner, 0, {0: 1, 1: 0})
    turn(learner)
    rate(learner, 0, change)
    rate(learner, 1, {0: 1, 1: 1})
    record = turn(learner)
    assert record.late == len(change)
    assert along(learner, first) == pytest.approx(expected(first, final))
    rate(learner, 2, {0: 1, 1: 1})
    assert turn(learner).late == 0, "credited once"


def test_late_credit_uses_the_alpha_of_its_generation():
    learner, first = start(), draw(0, SINGLES, 1)
    rate(learner, 0, {0: 1, 1: 0})
    turn(learner)
    turn(learner, replace(SINGLES, alpha=5.0, members=6))
    rate(learner, 0, {2: 1})
    rate(learner, 2, {0: 1, 1: 1, 2: 1})
    turn(learner)
    assert along(learner, first) == pytest.approx(expected(first, {0: 1, 1: 0, 2: 1}))


def test_a_rating_between_plan_and_commit_is_credited_late():
    learner, first = start(), draw(0, SINGLES, 1)
    rate(learner, 0, {0: 1, 1: 0})
    record = learner.plan("test", 1)
    assert rate(learner, 0, {2: 1, 1: 0.5}).kind == "counted"
    learner.commit(record)
    assert along(learner, first) == pytest.approx(expected(first, {0: 1, 1: 0}))
    rate(learner, 1, {0: 1, 1: 0})
    assert turn(learner).late == 2
    assert along(learner, first) == pytest.approx(expected(first, {0: 1, 1: 0.5, 2: 1}))


def test_older_ratings_are_only_recorded():
    learner, first = start(replace(SINGLES, max_staleness=2)), draw(0, SINGLES, 1)
    for g in range(2):
        rate(learner, g, {0: 1, 1: 0})
        turn(learner)
    assert rate(learner, 0, {2: 1}).kind == "late"  # now generation 2
    learner.record("g0m2", 0, 2, None)
    rate(learner, 2, {0: 1, 1: 0})
    turn(learner)
    assert rate(learner, 0, {2: 1}).kind == "recorded"
    assert learner.record("x", 7, 0, 1.0).kind == "recorded"
    assert learner.record("source", 3, None, 1.0).kind == "recorded"
    rate(learner, 3, {0: 1, 1: 0})
    turn(learner)
    assert along(learner, first) == pytest.approx(expected(first, {0: 1, 1: 0}))


def test_a_change_of_settings_ends_without_a_step_and_loses_no_rating():
    learner, first = start(), draw(0, SINGLES, 1)
    rate(learner, 0, {0: 1, 1: 0, 2: 0.5})
    record = turn(learner, replace(PAIRS, members=6))
    assert (terms(record), record.null, record.used) == ({}, False, [])
    assert "other settings" in message_of({"reason": "settings", "null": False, "ratings": 3, "late": 0})
    assert learner.generation.settings.members == 6
    rate(learner, 1, {0: 1, 1: 0, 2: 1, 3: 0})
    assert turn(learner).late == 3
    assert along(learner, first) == pytest.approx(expected(first, {0: 1, 1: 0, 2: 0.5}))


def test_a_null_merge_still_credits_the_late():
    learner, first = start(), draw(0, SINGLES, 1)
    rate(learner, 0, {0: 1, 1: 0})
    turn(learner)
    rate(learner, 0, {3: 1})
    rate(learner, 1, {0: 1, 1: 1})
    record = turn(learner)
    assert record.null
    assert record.late == 1
    assert message_of(record) == "Merged 3 ratings, 1 of them late."
    assert along(learner, first) == pytest.approx(expected(first, {0: 1, 1: 0, 3: 1}))


def test_luck_shrinks_the_step_and_is_remembered():
    learner = start(replace(SINGLES, step="shrunk"))
    rate(learner, 0, {0: 1, 1: 0, 2: 1, 3: 0})
    record = learner.plan("test", 1)
    # variance (ddof 1) 1/3, within 1/4: a quarter is signal
    assert record.signal_share == pytest.approx(0.25)
    assert record.running_share == pytest.approx(0.85)
    assert record.alpha == pytest.approx(0.01 * 0.85**0.5)
    learner.commit(record)
    assert learner.running_share == record.running_share


def test_resume_refuses_a_ledger_of_another_generation():
    with pytest.raises(ValueError, match="the ledger ends at generation 0, the journal is at generation 3"):
        Learner.resume(Saved(draw(3, SINGLES, 1), [], [], []))


SETTINGS = [
    SINGLES,
    PAIRS,
    replace(PAIRS, members=2, max_staleness=0),
    replace(SINGLES, members=5, max_staleness=1, step="shrunk", alpha=0.3),
    replace(SINGLES, members=3, max_staleness=2, kind="gaussian"),
]


class Crediting(RuleBasedStateMachine):
    """Against brute force: what each generation has contributed is what one merge with the ratings known so far would
    have given, for as long as it can be credited."""

    @initialize(s=st.sampled_from(SETTINGS))
    def begin(self, s):
        self.learner = start(s)
        self.generations = {0: self.learner.generation}
        self.alphas: dict[int, float] = {}
        self.database: dict[str, tuple[int, int, float]] = {}  # all ratings ever: {id: (generation, member, reward)}
        self.contributed: dict[int, list[float]] = {}
        self.creditable: set[int] = set()
        self.merges: list[MergeRecord] = []
        self.entries: list[dict] = []
        self.planned: tuple[MergeRecord, dict] | None = None

    def now(self) -> int:
        return self.learner.generation.number

    def rewards_of(self, generation: int, database=None) -> dict[str, tuple[int, float]]:
        rows = (self.database if database is None else database).items()
        return {i: (m, r) for i, (g, m, r) in rows if g == generation}

    @rule(
        back=st.integers(0, 6),
        member=st.integers(0, 4),
        copy=st.integers(0, 1),
        reward=st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    )
    def record(self, back, member, copy, reward):
        g = self.now() - back
        if g < 0 or member >= self.generations[g].settings.members:
            return
        name = f"g{g}m{member}c{copy}"
        credit = self.learner.record(name, g, member, reward)
        assert credit.kind == ("counted" if back == 0 else "late" if g in self.creditable else "recorded")
        if reward is None:
            self.database.pop(name, None)
        else:
            self.database[name] = (g, member, reward)

    @precondition(lambda self: self.planned is None)
    @rule(following=st.one_of(st.none(), st.none(), st.sampled_from(SETTINGS)))
    def plan(self, following):
        s = self.generations[self.now()].settings
        fit, _ = fitness(s.members, self.rewards_of(self.now()).values())
        if following is None and not enough(fit, s.antithetic):
            with pytest.raises(CannotMerge):
                self.learner.plan("test", 1)
            return
        self.planned = self.learner.plan("settings" if following else "test", 1, following), dict(self.database)

    @precondition(lambda self: self.planned is not None)
    @rule()
    def give_up(self):
        self.planned = None

    @precondition(lambda self: self.planned is not None)
    @rule()
    def commit(self):
        (record, known), self.planned = self.planned, None
        ended = self.now()
        self.learner.commit(record)
        self.merges.append(record)
        self.entries.append(record.entry)
        self.generations[record.next.number] = record.next
        self.alphas[ended] = record.alpha
        credited = set(self.creditable) | ({ended} if record.reason != "settings" else set())
        for g in credited:
            self.contributed[g] = self.brute_force(g, self.rewards_of(g, known))
        self.creditable |= {ended}
        self.creditable = {g for g in self.creditable if g >= self.now() - record.next.settings.max_staleness}
        for g, generation in self.generations.items():
            want = self.contributed.get(g, [0.0] * len(generation.directions))
            assert along(self.learner, generation) == pytest.approx(want, abs=1e-12)

    def brute_force(self, g: int, rewards: dict[str, tuple[int, float]]) -> list[float]:
        generation = self.generations[g]
        s = generation.settings
        z = zscore(fitness(s.members, rewards.values())[0], s.antithetic)
        return list(step(z, [m.sign for m in generation.members], s.antithetic, self.alphas[g]))

    @precondition(lambda self: self.planned is None)
    @rule(move_in=st.booleans())
    def resume(self, move_in):
        """As the application does it: the last merges and ratings by what the present settings say."""
        stale = self.learner.generation.settings.max_staleness
        saved = Saved(
            Generation.from_json(json.loads(json.dumps(self.learner.generation.to_json()))),
            json.loads(json.dumps(self.entries)),
            [roundtrip(r) for r in self.merges[-max(1, stale) :]],
            [RatedReply(i, g, m, r) for i, (g, m, r) in self.database.items() if g >= self.now() - stale],
        )
        other = Learner.resume(saved)
        assert other.generation == self.learner.generation
        assert other.ledger == self.learner.ledger
        assert other.running_share == self.learner.running_share
        assert other.rewards == self.learner.rewards
        assert {g: p.used for g, p in other.past.items()} == {g: p.used for g, p in self.learner.past.items()}
        following = None if self.learner.due() else SINGLES
        ours, theirs = (x.plan("test", 1, following) for x in (self.learner, other))
        assert ours.entry["decay"] == theirs.entry["decay"]
        assert terms(ours) == pytest.approx(terms(theirs), abs=1e-15)
        assert sorted(map(str, ours.used)) == sorted(map(str, theirs.used))
        assert replace(ours, entry={}, used=[], merged_at=0) == replace(theirs, entry={}, used=[], merged_at=0)
        if move_in:
            self.learner = other


TestCrediting = Crediting.TestCase
TestCrediting.settings = hypothesis_settings(max_examples=120, stateful_step_count=40, deadline=None)


def test_the_ledger_of_a_learner_survives_json():
    learner = start(replace(SINGLES, decay=0.01))
    for g in range(3):
        rate(learner, g, {0: 1, 1: 0, 2: 0.3})
        turn(learner)
    entries = json.loads(json.dumps([e.to_json() for e in learner.ledger.entries]))
    assert Ledger.from_json(entries) == learner.ledger
    assert np.isfinite(list(learner.ledger.totals().values())).all()
