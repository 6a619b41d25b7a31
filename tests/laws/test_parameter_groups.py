"""Weight clustering: as the quadratic algorithm that is printed, and fast for all parameters of a network."""

import time
from itertools import combinations

import numpy as np
import pytest

from sfumato.errors import ArgumentError
from sfumato.fitting.parameter_groups import weight_clusters


def printed(sizes, num_groups):
    """Algorithm 4, all pairs at every merge."""
    groups = [({place}, float(size)) for place, size in enumerate(sizes)]
    while len(groups) > num_groups:
        one, two = min(
            combinations(range(len(groups)), 2),
            key=lambda pair: max(groups[pair[0]][1] / groups[pair[1]][1], groups[pair[1]][1] / groups[pair[0]][1]),
        )
        joined = (groups[one][0] | groups[two][0], np.sqrt(groups[one][1] ** 2 + groups[two][1] ** 2))
        groups = [group for place, group in enumerate(groups) if place not in (one, two)] + [joined]
    return {frozenset(members) for members, _ in groups}


def as_sets(found):
    return {frozenset(np.flatnonzero(found == group).tolist()) for group in np.unique(found)}


@pytest.mark.parametrize("seed", range(8))
def test_the_heap_merges_what_the_quadratic_algorithm_merges(seed):
    random = np.random.default_rng(seed)
    sizes = np.exp(random.normal(0, 2, 60))
    for num_groups in (1, 2, 5, 20, 60):
        assert as_sets(weight_clusters(sizes, num_groups)) == printed(sizes, num_groups)


def test_a_mutant_that_leaves_merged_groups_where_they_stood_is_told_apart():
    """A merged group is larger than both: it may pass its neighbours, and then others are next to it."""
    sizes = np.array([1.0, 1.05, 1.2, 1.3, 3.0])
    assert as_sets(weight_clusters(sizes, 3)) == printed(sizes, 3) == {
        frozenset({0, 1}), frozenset({2, 3}), frozenset({4}),
    }  # fmt: skip
    assert as_sets(weight_clusters(sizes, 2)) == printed(sizes, 2)


def test_groups_are_in_the_order_of_their_sizes():
    found = weight_clusters(np.array([50.0, 1e-3, 51.0, 1.0, 1.1e-3]), 3)
    assert found.tolist() == [2, 0, 2, 1, 0]


def test_parameters_without_a_gradient_are_one_group():
    found = weight_clusters(np.array([0.0, 2.0, np.nan, np.inf, 2.1]), 4)
    assert found[0] == found[2] == found[3] == 0 and len(np.unique(found)) == 2
    assert weight_clusters(np.zeros(3), 2).tolist() == [0, 0, 0]
    with pytest.raises(ArgumentError):
        weight_clusters(np.ones(3), 0)


def test_a_network_of_many_parameters_takes_seconds():
    """Quadratic work would take hours: 10^5 parameters have 5 * 10^9 pairs at the first merge alone."""
    sizes = np.exp(np.random.default_rng(0).normal(0, 3, 100_000))
    start = time.process_time()
    found = weight_clusters(sizes, 5)
    assert time.process_time() - start < 60
    assert len(np.unique(found)) == 5
