"""Settings are checked in one place; a population is a pure function of entropy and number."""

from __future__ import annotations

import json
import math

import pytest

from engine.noise import Direction
from engine.population import PROFILES, Generation, Settings, draw, profile


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": 1}, "members"),
        ({"members": 513}, "members"),
        ({"members": 7}, "even"),
        ({"kind": "uniform"}, "kind"),
        ({"rank": 0}, "rank"),
        ({"rank": 65}, "rank"),
        ({"sigma": 0}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"alpha": -1}, "alpha"),
        ({"alpha": math.inf}, "alpha"),
        ({"decay": 1}, "decay"),
        ({"decay": math.nan}, "decay"),
        ({"merge_after": 0}, "merge_after"),
        ({"max_staleness": -1}, "max_staleness"),
        ({"max_staleness": 65}, "max_staleness"),
        ({"step": "adam"}, "step"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        profile("room", **changes)


def test_the_profiles_are_the_ones_promised():
    room, traffic, reference = (PROFILES[n] for n in ("room", "traffic", "reference"))
    assert 4 <= room.members <= 8
    assert 8 <= room.merge_after <= 16
    assert room.antithetic
    assert (traffic.members, traffic.merge_after, traffic.antithetic) == (16, 64, True)
    assert (reference.members, reference.merge_after, reference.antithetic) == (30, 6000, False)
    assert all(name == s.profile for name, s in PROFILES.items())
    with pytest.raises(ValueError, match="room, traffic, reference"):
        profile("huge")


def test_settings_survive_json_and_name_what_is_unknown():
    for s in PROFILES.values():
        assert Settings.from_json(json.loads(json.dumps(s.to_json()))) == s
    with pytest.raises(ValueError, match="unknown setting sigmma"):
        Settings.from_json({"sigmma": 1})


def test_pairs_share_a_direction():
    g = draw(3, profile("room", members=6), 11)
    assert [m.sign for m in g.members] == [1, -1] * 3
    assert [m.direction.seed for m in g.members] == [s for s in g.seeds for _ in "+-"]
    assert len(g.directions) == 3


def test_independent_members_have_their_own():
    g = draw(0, profile("reference"), 11)
    assert len(g.directions) == 30
    assert {m.sign for m in g.members} == {1}


def test_gaussian_directions_have_no_rank():
    g = draw(0, profile("room", kind="gaussian", rank=4), 11)
    assert g.directions[0] == Direction(g.seeds[0], "gaussian", 0)


def test_seeds_are_a_function_of_entropy_and_number_and_never_meet():
    s = profile("reference")
    assert draw(4, s, 99) == draw(4, s, 99)
    seeds = [seed for entropy in range(20) for number in range(20) for seed in draw(number, s, entropy).seeds]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62


def test_two_members_never_become_one():
    with pytest.raises(ValueError, match="distinct"):
        Generation(0, profile("room", members=4), (1, 1))
    with pytest.raises(ValueError, match="2 distinct"):
        Generation(0, profile("room", members=4), (1, 2, 3))


def test_generations_survive_json():
    g = draw(12, profile("traffic", rank=2), 5)
    again = Generation.from_json(json.loads(json.dumps(g.to_json())))
    assert again == g
    assert again.members == g.members
