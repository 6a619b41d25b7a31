"""Clipping by layer, unit and sparsified layer: hostile rows, neighbours, NaN, every draw, and the fast path."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privacy.test_clipping import hostile
from privacy.test_factored import BLOCKS, both_ways, compiled_sum, key_of
from sfumato.errors import ArgumentError
from sfumato.fitting.clipping import Clipping
from sfumato.privacy import FlatClip, LayerClip, PoissonSampling, SgdPlan, SparseClip, UnitClip, factored
from sfumato.privacy.clipping import GRID, Part
from sfumato.privacy.factored import _FINE, row_gradients, shaped_sum, slack_of
from sfumato.privacy.fine_clipping import sparsified
from sfumato.privacy.step import PrivateRows, batch_total

PARTS = (
    Part(layer="one", entries=12, fan=1),
    Part(layer="one", entries=4, fan=0),
    Part(layer="two", entries=6, fan=1),
)
SHAPES = ((4, 3), (4,), (2, 3))
CLIPS = {
    "flat": FlatClip(bound=0.7),
    "layer": LayerClip(bound=0.7),
    "unit": UnitClip(bound=0.7),
    "sparse": SparseClip(bound=0.7, sparsity=0.6),
    "all sparse": SparseClip(bound=0.7, sparsity=1.0),
}


def arrays_of(rows):
    edges = np.cumsum([0, *(int(np.prod(shape)) for shape in SHAPES)])
    return [
        jnp.asarray(rows[:, a:b].reshape(len(rows), *shape))
        for a, b, shape in zip(edges[:-1], edges[1:], SHAPES, strict=True)
    ]


def keys_of(num):
    return jax.random.split(key_of(11), num)


def shaped(clip, rows, keys=None):
    with jax.enable_x64(True):
        found = clip.shaped(arrays_of(rows), PARTS, keys_of(len(rows)) if keys is None else keys)
        return np.concatenate([np.asarray(array).reshape(len(rows), -1) for array in found], axis=1)


def grid_rows(clip, rows):
    """What each row adds by itself, in grid units."""
    arrays, keys = arrays_of(rows), keys_of(len(rows))
    with jax.enable_x64(True):

        def alone(row, key):
            one = [array[None] for array in row]
            parts = clip.grid_sum(clip.shaped(one, PARTS, key[None]), jnp.ones(1, bool))
            return jnp.concatenate([part.reshape(-1) for part in parts])

        return np.asarray(jax.jit(jax.vmap(alone))(arrays, keys), np.float64)


@pytest.mark.parametrize("name", CLIPS)
def test_no_row_exceeds_the_bound(name):
    """20,000 hostile rows: norm at most GRID, all finite, rows with a NaN or an infinity add nothing."""
    rows = hostile(20_000, 22, 1)
    grid = grid_rows(CLIPS[name], rows)
    assert np.isfinite(grid).all()
    assert np.sum(grid**2, axis=1).max() <= GRID**2
    assert not grid[~np.isfinite(rows).all(axis=1)].any()
    assert np.linalg.norm(grid, axis=1).max() > 0.9 * GRID * (0.5 if name == "all sparse" else 1)


@pytest.mark.parametrize("name", CLIPS)
def test_shapes_stay_below_the_bound_by_themselves(name):
    """The final flat clipping is a guard and no part of the rule: shaped rows that are finite need none of it."""
    if name == "flat":
        return
    rows = np.random.default_rng(3).normal(size=(2_000, 22)).astype(np.float32) * 50
    assert np.linalg.norm(shaped(CLIPS[name], rows), axis=1).max() <= 0.7 * (1 + 1e-5)


def test_layers_have_bounds_by_their_parameters():
    rows = np.random.default_rng(4).normal(size=(500, 22)).astype(np.float32) * 100
    found = shaped(LayerClip(bound=0.7), rows)
    assert np.allclose(np.linalg.norm(found[:, :16], axis=1), 0.7 * np.sqrt(16 / 22), rtol=1e-5)
    assert np.allclose(np.linalg.norm(found[:, 16:], axis=1), 0.7 * np.sqrt(6 / 22), rtol=1e-5)
    assert sum(bound**2 for bound in LayerClip(bound=0.7).bounds(PARTS).values()) == pytest.approx(0.49)


def test_units_have_bounds_by_their_own_gradient():
    """Against the formula of the paper, unit by unit, in double precision."""
    rows = np.random.default_rng(5).normal(size=(50, 22)).astype(np.float32)
    found = shaped(UnitClip(bound=0.7), rows)
    for row, out in zip(rows.astype(np.float64), found, strict=True):
        units = [*(slice(3 * i, 3 * i + 3) for i in range(4)), *(slice(12 + i, 13 + i) for i in range(4))]
        total = np.abs(row[:16]).sum()
        for unit in units:
            bound = 0.7 * np.sqrt(16 / 22) * np.sqrt(np.abs(row[unit]).sum() / total)
            expected = row[unit] * min(1, bound / np.linalg.norm(row[unit]))
            assert np.allclose(out[unit], expected, rtol=1e-5)


def test_sparsification_by_enumeration():
    """Over all thresholds gamma on a fine grid: entries are x, tau or 0, and their mean is the gradient itself."""
    vector = np.array([[3.0, -1.5, 0.5, -0.25, 2.0]], np.float32)
    gammas = (np.arange(4_000) + 0.5) / 4_000
    found = np.concatenate(
        [np.asarray(sparsified(jnp.asarray(vector), jnp.array([2.0]), jnp.array([gamma]))) for gamma in gammas[::10]]
    )
    for entry, column in zip(vector[0], found.T, strict=True):
        allowed = {float(entry)} if abs(entry) > 2 else {float(np.sign(entry) * 2), 0.0}
        assert set(np.unique(column).tolist()) <= allowed
        assert column.mean() == pytest.approx(entry, abs=0.011)


def test_sparsity_keeps_the_largest_entries_and_none_is_per_layer():
    rows = np.random.default_rng(6).normal(size=(400, 22)).astype(np.float32) * 1e-3
    found = shaped(SparseClip(bound=0.7, sparsity=0.5), rows)
    for part in (slice(0, 16), slice(16, 22)):
        order = np.argsort(-np.abs(rows[:, part]), axis=1)[:, : (part.stop - part.start) // 2 - 1]
        kept = np.take_along_axis(found[:, part], order, axis=1)
        assert np.allclose(kept, np.take_along_axis(rows[:, part], order, axis=1))
    assert (found == 0).mean() > 0.1
    assert np.array_equal(shaped(SparseClip(bound=0.7, sparsity=0.0), rows), shaped(LayerClip(bound=0.7), rows))


def test_a_row_is_shaped_alike_in_every_batch():
    """What a row becomes depends on the row and its key alone: the mutant draws one threshold for the whole batch."""
    rows, keys = np.random.default_rng(7).normal(size=(40, 22)).astype(np.float32), keys_of(40)
    for clip in CLIPS.values():
        whole = shaped(clip, rows, keys)
        assert np.array_equal(shaped(clip, rows[7:9], keys[7:9]), whole[7:9])
        assert np.array_equal(shaped(clip, rows[::-1], keys[::-1]), whole[::-1])

    class OneDraw(SparseClip):
        def shaped(self, vectors, parts, keys):
            return super().shaped(vectors, parts, jnp.broadcast_to(keys[:1], keys.shape))

    mutant = OneDraw(bound=0.7, sparsity=0.6)
    assert not np.array_equal(shaped(mutant, rows[7:9], keys[7:9]), shaped(mutant, rows, keys)[7:9])


@pytest.mark.parametrize("name", CLIPS)
def test_neighbours_differ_by_one_bounded_row(name):
    """Sums over all rows through the compiled step, with and without one row, for 20 pairs: at most GRID apart."""
    random = np.random.default_rng(8)
    plan = SgdPlan(sampling=PoissonSampling(rate=1.0), clip=CLIPS[name], steps=1)
    params = {"one": {"weight": jnp.zeros((4, 3)), "bias": jnp.zeros(4)}, "two": {"weight": jnp.zeros((2, 3))}}

    def loss(params, row, key):
        pull = row["x"] * 10.0 ** jnp.float32(3)
        flat = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(params)])
        return jnp.sum(pull * flat)

    key = jnp.arange(8, dtype=jnp.uint32)
    with jax.enable_x64(True):
        total = jax.jit(lambda rows: batch_total(loss, params, plan, rows, key, 1, 0, 60.0))
        furthest = 0.0
        for _ in range(20):
            rows = random.normal(size=(60, 22)).astype(np.float32)
            sums = [np.asarray(total(PrivateRows.of({"x": some})), np.float64) for some in (rows, rows[:-1])]
            furthest = max(furthest, float(np.linalg.norm(sums[0] - sums[1])))
    assert 0.5 * GRID < furthest <= GRID


over_flows = pytest.mark.parametrize(("linear", "couplings"), [("low-rank", 2), ("plu", 0)])
"""Flows of ``test_factored``, so that their gradients are compiled once."""


@over_flows
def test_fast_clipping_by_layer_is_the_loop_over_rows(linear, couplings):
    """Every layer of the flow, against gradients of single rows that are clipped one by one, to 1e-5."""
    loss, weights, keys, gradients, factors = both_ways(5, 2, linear, couplings)
    valid, names = np.arange(24) < 20, sorted(weights)
    with jax.enable_x64(True):
        norms = np.sqrt(sum(np.sum(value.reshape(24, -1) ** 2, axis=1) for value in gradients.values()))
        slack = slack_of(sum(weight.size for weight in weights.values()), 2 * BLOCKS)
        parts = [loss.rules[name].part(weights[name]) for name in names]
        vectors = [jnp.asarray(gradients[name], jnp.float64) for name in names]
        for bound in (0.1, float(np.median(norms))):
            clip = LayerClip(bound=bound)
            fine = compiled_sum(loss, weights, clip, factors, jnp.asarray(valid))
            for name, part in zip(names, jax.jit(partial(clip.shaped, parts=parts))(vectors, keys=keys), strict=True):
                wanted = np.tensordot(valid * (1 - slack), np.asarray(part), 1)
                error = np.linalg.norm(np.asarray(fine[name]) * bound / _FINE - wanted)
                assert error <= 1e-5 * np.linalg.norm(wanted) + 1e-9 * bound, (name, bound)


def _on_grid(clip, parts, vectors, valid, keys):
    return clip.grid_sum(clip.shaped(vectors, parts, keys), valid)


@over_flows
def test_gradients_made_from_factors_are_those_of_the_loop(linear, couplings, monkeypatch):
    """Weight by weight, to 1e-5 over all rows; and what is summed of them is exactly what clipping says."""
    loss, weights, keys, expected, factors = both_ways(5, 2, linear, couplings)
    valid, names = jnp.arange(24) < 20, sorted(weights)
    with jax.enable_x64(True):
        found = jax.jit(partial(row_gradients, loss))(factors)
        parts = [loss.rules[name].part(weights[name]) for name in names]
        for name, value in expected.items():
            error = np.linalg.norm(np.asarray(found[name]) - value)
            assert error <= 1e-5 * np.linalg.norm(value), name
        for kind in ("unit", "sparse"):
            clip = Clipping(kind=kind, bound=0.5).clip()
            # Those gradients go in: made within the program, a compiler may round them in another way.
            with monkeypatch.context() as patch:
                patch.setattr(factored, "row_gradients", lambda _, given: given)
                total = jax.jit(partial(shaped_sum, loss, weights, clip))(found, valid, keys)
            vectors = [found[name] for name in names]
            wanted = jax.jit(partial(_on_grid, clip, parts))(vectors, valid, keys)
            for name, part in zip(names, wanted, strict=True):
                assert np.array_equal(np.asarray(total[name]), np.asarray(part, np.int64) * (_FINE // GRID))


def test_settings_say_what_they_build():
    assert Clipping(kind="sparse", sparsity=0.2).clip() == SparseClip(bound=2.0, sparsity=0.2)
    for wrong in ({"kind": "other"}, {"bound": 0.0}, {"sparsity": 1.5}):
        with pytest.raises(ArgumentError):
            Clipping(**wrong)
