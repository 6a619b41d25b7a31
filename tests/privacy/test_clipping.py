"""Clipping: hostile vectors (G4), exact sums, and that nothing but the row itself matters."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.errors import ArgumentError
from sfumato.privacy.clipping import GRID, FlatClip


def grid_rows(vectors, bound: float = 1.0, kind: type[FlatClip] = FlatClip) -> np.ndarray:
    """Each row's own whole-number contribution, as float64: one row valid at a time."""
    leaves = jax.tree.leaves(vectors)
    num_rows = leaves[0].shape[0]
    clip = kind(bound=bound)

    def one(i):
        pick = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, i, 1), vectors)
        parts = clip.grid_sum(pick, jnp.ones(1, bool))
        return jnp.concatenate([part.reshape(-1) for part in jax.tree.leaves(parts)])

    with jax.enable_x64(True):
        return np.asarray(jax.lax.map(one, jnp.arange(num_rows), batch_size=512), np.float64)


def hostile(num_rows: int, size: int, seed: int) -> np.ndarray:
    """Vectors that break clipping: all magnitudes, NaN, infinities, denormals, spikes, near-bound norms."""
    random = np.random.default_rng(seed)
    with np.errstate(over="ignore", under="ignore"):
        rows = random.normal(size=(num_rows, size)) * 10.0 ** random.uniform(-45, 38, size=(num_rows, 1))
    kinds = random.integers(0, 8, num_rows)
    for kind, special in enumerate((np.nan, np.inf, -np.inf, 1e20, 1e-40, -0.0)):
        where = np.flatnonzero(kinds == kind)
        rows[where, random.integers(0, size, where.size)] = special
    near = kinds == 6
    rows[near] = random.normal(size=(near.sum(), size))
    rows[near] *= (1 + random.normal(size=(near.sum(), 1)) * 1e-6) / np.linalg.norm(rows[near], axis=1, keepdims=True)
    with np.errstate(over="ignore", under="ignore"):
        return rows.astype(np.float32)


def test_no_row_exceeds_the_bound():
    """10**5 hostile rows over one, two and three leaves: grid norm at most GRID, exactly; all finite."""
    for seed, sizes in enumerate(((7,), (3, 50), (1, 400, 30))):
        rows = hostile(33_400, sum(sizes), seed)
        edges = np.cumsum((0, *sizes))
        tree = [jnp.asarray(rows[:, a:b]) for a, b in pairwise(edges)]
        for bound in (1.0, 1e-3):
            grid = grid_rows(tree, bound)
            assert np.isfinite(grid).all()
            assert np.sum(grid**2, axis=1).max() <= GRID**2
            bad = ~np.isfinite(rows).all(axis=1)
            assert not grid[bad].any()


def test_large_leaves_stay_within_the_bound():
    rows = np.random.default_rng(3).normal(size=(20, 70_000)).astype(np.float32)
    grid = grid_rows(jnp.asarray(rows))
    norms = np.linalg.norm(grid, axis=1)
    assert norms.max() <= GRID
    assert norms.min() > 0.995 * GRID  # and little of the bound is wasted


def test_short_vectors_keep_their_length_and_direction():
    rows = np.random.default_rng(4).normal(size=(100, 20)).astype(np.float32) * 0.05
    grid = grid_rows(jnp.asarray(rows)) / GRID
    assert np.abs(grid - rows).max() < 3 / GRID


def test_sums_are_exact_and_do_not_depend_on_the_order():
    random = np.random.default_rng(5)
    rows = random.normal(size=(1024, 40)).astype(np.float32)
    clip, valid = FlatClip(bound=1.0), jnp.asarray(random.random(1024) < 0.7)
    with jax.enable_x64(True):
        total = np.asarray(clip.grid_sum(jnp.asarray(rows), valid))
        order = random.permutation(1024)
        assert np.array_equal(total, np.asarray(clip.grid_sum(jnp.asarray(rows[order]), valid[order])))
    assert np.array_equal(total, grid_rows(jnp.asarray(rows))[np.asarray(valid)].sum(axis=0))


def test_extreme_rows_do_not_overflow_the_32_bit_sum():
    rows = np.zeros((1024, 3), np.float32)
    rows[:, 0] = 1e10
    with jax.enable_x64(True):
        total = np.asarray(FlatClip(bound=1.0).grid_sum(jnp.asarray(rows), jnp.ones(1024, bool)))
    assert 1023 * GRID < total[0] <= 1024 * GRID


def test_padding_adds_nothing():
    rows = np.full((8, 3), np.nan, np.float32)
    rows[0] = 0.1
    valid = jnp.asarray([True] + [False] * 7)
    with jax.enable_x64(True):
        total = np.asarray(FlatClip(bound=1.0).grid_sum(jnp.asarray(rows), valid))
    assert np.array_equal(total, grid_rows(jnp.asarray(rows[:1]))[0])


def test_impossible_bounds_are_refused():
    for bound in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="bound"):
            FlatClip(bound=bound)
