"""The noisy choice: exact probabilities, by enumeration, and the draw that realises them."""

from fractions import Fraction
from math import exp

import jax.numpy as jnp
import numpy as np

from privacy.doors import curator_of
from sfumato.privacy import Budget, ScoreQuery
from sfumato.privacy.choice import draw_index, exponential_weights
from sfumato.privacy.clipping import GRID


def test_probability_ratios_of_neighbours_stay_within_epsilon():
    """10,000 neighbour pairs over 3-6 candidates: every ratio at most exp(epsilon) to one part in 10**9."""
    random = np.random.default_rng(0)
    for _ in range(10_000):
        epsilon, size = random.uniform(0.05, 4), random.integers(3, 7)
        scores = random.integers(0, 20 * GRID, size)
        other = scores + random.integers(-GRID, GRID + 1, size)
        first = exponential_weights([int(s) for s in scores], GRID, epsilon)
        second = exponential_weights([int(s) for s in other], GRID, epsilon)
        total, other_total = sum(first), sum(second)
        worst = max(
            max(Fraction(a * other_total, b * total), Fraction(b * total, a * other_total))
            for a, b in zip(first, second, strict=True)
        )
        assert float(worst) <= exp(epsilon) * (1 + 1e-9)


def test_every_ticket_falls_on_its_weight():
    weights = [3, 1, 4]
    drawn = [draw_index(weights, bits, 5) for bits in range(32)]
    assert drawn.count(None) == 32 % 8
    assert [drawn.count(i) for i in range(3)] == [12, 4, 16]


def test_the_door_chooses_with_the_stated_probabilities():
    """Frequencies of 150 choices against the formula; five standard errors, fixed keys."""
    rows = np.array([[1.0, 0.0, 0.5]] * 4)
    query = ScoreQuery(function=lambda row: row["x"], num_candidates=3, purpose="test")
    curators = [curator_of(rows, budget=Budget(epsilon=5, delta=1e-5), seed=seed) for seed in range(150)]
    for curator in curators:
        curator._programs = curators[0]._programs  # fits have programs of their own, which would take 15 seconds
    chosen = [curator.noisy_choice(query, epsilon=1.0) for curator in curators]
    weights = np.exp(np.array([4.0, 0.0, 2.0]) / 2)
    expected = weights / weights.sum()
    found = np.bincount(chosen, minlength=3) / 150
    assert (np.abs(found - expected) < 5 * np.sqrt(expected * (1 - expected) / 150)).all()


def test_scores_of_one_row_are_cut_and_never_nan():
    def wild(row):
        return jnp.array([jnp.nan, 1e9, -jnp.inf]) * row["x"][0]

    query = ScoreQuery(function=wild, num_candidates=3, purpose="test")
    assert curator_of(np.ones((1, 1)), budget=Budget(epsilon=50, delta=1e-5)).noisy_choice(query, epsilon=45.0) == 1
