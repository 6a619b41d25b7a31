"""What fast clipping makes of a row does not depend on its place in a chunk: the sensitivity rests on it.

A row that is left out moves all later ones up. If that changed a bit of theirs, neighbours' sums would differ in every
row.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.fitting.flow_loss import FlowLoss
from sfumato.models.flows.dequantiser import DequantiserShape
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.privacy import FlatClip
from sfumato.privacy.factored import _scales, chunk_rows, factors_of

FEATURES = 7


def flow_of(linear, dequantised):
    """A flow whose every array is random, in 32 bits."""
    shape = SplineFlowShape(FEATURES, 2, 30, 2, 4, 8, 1, linear)
    learned = DequantiserShape((0, 2, 4), width=8, summary=4, couplings=2) if dequantised else None
    flow = SplineFlow.start(shape, key=jax.random.key(0), dequantiser=learned)
    leaves, structure = jax.tree.flatten(flow.trainable())
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [
        leaf + 0.3 * jax.random.normal(key, leaf.shape, jnp.float32) for leaf, key in zip(leaves, keys, strict=True)
    ]
    trained = jax.tree.unflatten(structure, moved)
    return jax.tree.map(lambda new, old: old if new is None else new, trained, flow, is_leaf=lambda x: x is None)


def at_every_place(loss, weights, num):
    """The factors of one row, and what it is scaled by, at each of so many places."""
    low = jnp.asarray(np.random.default_rng(num).uniform(0.1, 0.8, FEATURES), jnp.float32)
    rows = {"low": jnp.tile(low, (num, 1)), "width": jnp.full((num, FEATURES), 0.05, jnp.float32)}
    keys = jnp.tile(jax.random.key_data(jax.random.key(5)), (num, 1))

    def found(weights, rows, keys):
        factors = factors_of(loss, weights, rows, jax.random.wrap_key_data(keys))
        scales = _scales(loss, weights, FlatClip(bound=0.1), factors.cut(), jnp.ones(num, bool), 0.0)
        return {"notes": factors.notes, "backs": factors.backs, "scales": scales}

    return jax.jit(found)(weights, rows, keys)


def moved_by_place(found):
    """The names of what is not the same, to the last bit, at every place."""
    leaves = jax.tree_util.tree_leaves_with_path(found)
    return [str(path) for path, leaf in leaves if np.any(np.asarray(leaf) != np.asarray(leaf)[:1])]


@pytest.mark.parametrize("batch", [20, 90, 512])
@pytest.mark.parametrize(("linear", "dequantised"), [("low-rank", False), ("plu", False), ("low-rank", True)], ids=str)
def test_a_row_comes_out_alike_at_every_place(linear, dequantised, batch):
    with jax.enable_x64(True):
        flow = flow_of(linear, dequantised)
        loss = FlowLoss(skeleton=flow)
        found = at_every_place(loss, loss.weights(flow), chunk_rows(batch))
    assert np.all(np.asarray(found["scales"]["last"]) < 1), "norms count"
    assert moved_by_place(found) == []


def test_one_bit_at_one_place_is_seen():
    """The mutant of the comparison."""
    values = np.full((32, 3), 0.1, np.float32)
    values[31, 2] = np.nextafter(values[31, 2], np.float32(1))
    assert len(moved_by_place({"notes": {"first": values}, "backs": {"first": values[:31]}})) == 1
