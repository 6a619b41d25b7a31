"""Graphical models: tables by messages equal those of the whole joint; estimates agree with another implementation."""

from itertools import combinations
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.fitting.beliefs import Passing
from sfumato.fitting.graphical import Measurement, estimate, total_of
from sfumato.fitting.junction_tree import junction_tree, megabytes_with
from sfumato.fitting.queried import Queried, conditional_tables

SIZES = (2, 4, 3, 2, 3, 2)
STRUCTURES = {
    "nothing": [],
    "singles": [(column,) for column in range(6)],
    "chain": [(0, 1), (2, 1), (2, 3), (3, 4), (4, 5)],
    "star and triangle": [(0, 1), (0, 2), (1, 2), (3, 1), (1, 5)],
    "cycle": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)],
    "triples": [(0, 1, 2), (3, 2), (2, 4, 5), (5,)],
    "two parts": [(0, 3), (3, 5), (0, 5), (1, 2)],
    "all pairs": list(combinations(range(6), 2)),
}
over_structures = pytest.mark.parametrize("groups", STRUCTURES.values(), ids=list(STRUCTURES))


def potentials_of(groups, seed=0):
    random = np.random.default_rng(seed)
    return [2 * random.normal(size=[SIZES[column] for column in group]) for group in groups]


def whole_joint(groups, potentials):
    """Every row of codes by itself: what the messages must come to."""
    grid = np.indices(SIZES)
    logs = sum(
        (potential[tuple(grid[c] for c in group)] for group, potential in zip(groups, potentials, strict=True)),
        np.zeros(SIZES),
    )
    return np.exp(logs) / np.exp(logs).sum(), np.log(np.exp(logs).sum())


def summed(joint, columns):
    rest = tuple(axis for axis in range(joint.ndim) if axis not in columns)
    kept = sorted(columns)
    return joint.sum(axis=rest).transpose([kept.index(column) for column in columns])


@over_structures
def test_a_junction_tree_holds_what_was_measured_and_runs_together(groups):
    tree = junction_tree(SIZES, groups)
    assert set().union(*tree.groups) == set(range(6))
    assert all(tree.home(group) is not None for group in groups)
    before = set()
    for group, shared in zip(tree.groups, tree.shared, strict=True):
        assert set(group) & before == set(shared)
        before |= set(group)
    assert tree.num_cells == sum(prod(SIZES[column] for column in group) for group in tree.groups)
    assert megabytes_with(SIZES, groups) == tree.megabytes == tree.num_cells * 8 / 2**20


def test_a_tree_of_pairs_stays_a_tree():
    tree = junction_tree([10] * 5, [(0, 1), (1, 2), (1, 3), (3, 4)])
    assert sorted(map(sorted, tree.groups)) == [[0, 1], [1, 2], [1, 3], [3, 4]]


@over_structures
def test_messages_give_the_tables_of_the_joint(groups):
    potentials = potentials_of(groups)
    joint, log_constant = whole_joint(groups, potentials)
    tree = junction_tree(SIZES, groups)
    beliefs = Passing(tree, groups)(potentials)
    for group, table in zip(tree.groups, beliefs.tables, strict=True):
        np.testing.assert_allclose(table, summed(joint, group), atol=1e-12)
    for group, table in zip(groups, beliefs.asked, strict=True):
        np.testing.assert_allclose(table, summed(joint, group), atol=1e-12)
    # A column that no potential speaks of is spread evenly, which takes no constant of its own potentials.
    assert beliefs.log_constant == pytest.approx(log_constant)


def measured(groups, deviation=20.0, seed=1):
    random = np.random.default_rng(seed)
    joint, _ = whole_joint(groups, potentials_of(groups, seed))
    noisy = lambda group: 5_000 * summed(joint, group) + random.normal(0, deviation, [SIZES[c] for c in group])
    return [Measurement(columns=group, counts=noisy(group), deviation=deviation) for group in groups], joint


@over_structures
def test_pairs_and_released_tables_are_those_of_the_model(groups):
    measurements, _ = measured(groups or [(0,)])
    model = estimate(SIZES, measurements)
    joint, _ = whole_joint(list(model.potentials), list(model.potentials.values()))
    queried = Queried(model)
    for pair, table in queried.pairs().items():
        np.testing.assert_allclose(table, summed(joint, pair), atol=1e-10)
    for column, table in enumerate(queried.singles):
        np.testing.assert_allclose(table, summed(joint, (column,)), atol=1e-10)
    rows = jnp.asarray(np.random.default_rng(0).integers(0, SIZES, (40, 6)), jnp.int32)
    released = conditional_tables(model)
    found = np.exp(np.asarray(jax.jit(jax.vmap(released.log_prob))(rows)))
    expected = joint[tuple(np.asarray(rows).T)]
    likely = expected > 1e-12  # released tables say no conditional probability below it, so that no row is impossible
    np.testing.assert_allclose(found[likely], expected[likely], rtol=1e-4)
    assert (found[~likely] < 2e-12).all()


def test_little_noise_gives_back_the_distribution():
    """A model of the same structure, measured with next to no noise, is found again; with a wrong pair it is not."""
    groups = STRUCTURES["cycle"]
    measurements, joint = measured(groups, deviation=1e-3)
    model = estimate(SIZES, measurements)
    for pair, table in Queried(model).pairs().items():
        assert np.abs(table - summed(joint, pair)).sum() < 1e-3
    missing = Queried(estimate(SIZES, measurements[1:])).pairs()
    assert max(np.abs(table - summed(joint, pair)).sum() for pair, table in missing.items()) > 0.05
    assert model.total == pytest.approx(5_000, abs=0.1)


def test_what_was_measured_twice_counts_by_its_noise():
    twice = [
        Measurement(columns=(0,), counts=np.array([300.0, 700.0]), deviation=1.0),
        Measurement(columns=(0,), counts=np.array([500.0, 500.0]), deviation=1e3),
    ]
    model = estimate((2,), twice)
    assert model.shares[0] == pytest.approx([0.3, 0.7], abs=1e-3)
    assert total_of([*twice, Measurement(columns=(0,), counts=np.array([0.0, 0.0]), deviation=1e4)]) == pytest.approx(
        1_000, abs=0.1
    )


def test_a_start_changes_where_it_begins_and_not_where_it_ends():
    measurements, _ = measured(STRUCTURES["cycle"])
    first = estimate(SIZES, measurements[:-1])
    warm, cold = (estimate(SIZES, measurements, start=start) for start in (first, None))
    for one, other in zip(warm.shares, cold.shares, strict=True):
        assert np.abs(one - other).sum() < 2e-3


def test_nothing_but_noise_gives_a_sound_model():
    random = np.random.default_rng(5)
    groups = STRUCTURES["all pairs"]
    measurements = [
        Measurement(columns=g, counts=random.normal(0, 50, [SIZES[c] for c in g]), deviation=50.0) for g in groups
    ]
    tables = conditional_tables(estimate(SIZES, measurements)).tables
    for table in tables:
        assert np.all(np.isfinite(table)) and np.all(np.asarray(table) >= 0)
        np.testing.assert_allclose(np.asarray(table).sum(axis=1), 1, atol=1e-5)
