"""A merge points where the reward rises, on a quadratic whose gradient is known.

The populations, their noise and the merge are the real ones; only the model is small: D weights, the reward of a
member is minus its squared distance to a goal. Source: the source text on members that get easier requests, and on the
population size.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.merge import fitness, step, zscore
from engine.noise import gaussian
from engine.population import Generation, Settings, draw

D = 30
SIGMA = 0.01
GOAL = np.linspace(-1.0, 1.0, D)
MERGES = 30


def population(number: int, members: int, antithetic: bool, entropy: int = 7) -> Generation:
    settings = Settings(members=members, antithetic=antithetic, kind="gaussian", sigma=SIGMA)
    return draw(number, settings, entropy)


def noise(generation: Generation) -> np.ndarray:
    """ε of every direction, (directions, D)."""
    return np.stack([np.asarray(gaussian(d, "w", (D,)), dtype=np.float64) for d in generation.directions])


def merged(generation: Generation, theta: np.ndarray, bonus: float = 0.0, slot: int = 3) -> np.ndarray:
    """The step (D,) of one merge at ``theta``, α = 1; ``slot`` gets requests that pay ``bonus`` more."""
    eps = noise(generation)
    per_direction = 2 if generation.settings.antithetic else 1
    rated = []
    for m in generation.members:
        weights = theta + m.sign * SIGMA * eps[m.index // per_direction]
        reward = -float(((weights - GOAL) ** 2).sum()) + (bonus if m.index == slot else 0.0)
        rated.append((m.index, reward))
    z = zscore(fitness(len(generation.members), rated)[0], generation.settings.antithetic)
    return step(z, [m.sign for m in generation.members], generation.settings.antithetic, 1.0) @ eps


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def spread_of_rewards() -> float:
    """Standard deviation of a member's reward: σ |gradient|."""
    return SIGMA * float(np.linalg.norm(2 * GOAL))


@pytest.mark.parametrize("antithetic", [True, False])
def test_a_slot_with_easier_requests_does_not_bias_thirty_merges(antithetic):
    theta, gradient = np.zeros(D), 2 * GOAL
    populations = [population(number, 16, antithetic) for number in range(MERGES)]
    bonus = 4 * spread_of_rewards()
    fair = sum(merged(p, theta) for p in populations)
    favoured = sum(merged(p, theta, bonus) for p in populations)
    assert cosine(fair, gradient) > 0.9
    # the slot's share of every single step is large, its direction is another one each time
    assert cosine(merged(populations[0], theta, bonus), merged(populations[0], theta)) < 0.9
    assert cosine(favoured, gradient) > 0.95 * cosine(fair, gradient)
    assert all(cosine(favoured, noise(p)[3 // (2 if antithetic else 1)]) < 0.5 for p in populations)


def test_the_same_would_be_biased_if_populations_came_back():
    """What the test above guards against: members that keep their noise keep their advantage."""
    same = population(0, 16, False)
    fair = sum(merged(same, np.zeros(D)) for _ in range(MERGES))
    favoured = sum(merged(same, np.zeros(D), 8 * spread_of_rewards()) for _ in range(MERGES))
    assert cosine(favoured, noise(same)[3]) > 0.6
    assert cosine(favoured, 2 * GOAL) < 0.9 * cosine(fair, 2 * GOAL)


def test_the_favoured_slot_does_not_keep_the_model_from_its_goal():
    theta, start = np.zeros(D), float((GOAL**2).sum())
    for number in range(MERGES):
        theta = theta + 0.15 * merged(population(number, 16, True), theta, 4 * spread_of_rewards())
    assert float(((theta - GOAL) ** 2).sum()) < 0.7 * start


@pytest.mark.parametrize("antithetic", [True, False])
def test_the_direction_gets_truer_as_the_population_grows(antithetic):
    gradient = 2 * GOAL

    def typical(members: int) -> float:
        steps = [merged(population(number, members, antithetic, members), np.zeros(D)) for number in range(20)]
        return float(np.mean([cosine(s, gradient) for s in steps]))

    by_size = [typical(members) for members in (4, 16, 64, 256)]
    directions = np.array([2, 8, 32, 128] if antithetic else [4, 16, 64, 256])
    # k random directions span that much of the gradient: k / (k + D) of its square
    assert by_size == pytest.approx(list(np.sqrt(directions / (directions + D))), abs=0.08)
    assert by_size == sorted(by_size)
