"""What fast clipping makes of a row does not depend on its place in a chunk: the sensitivity rests on it.

A row that is left out moves all later ones up. If that changed a bit of theirs, neighbours' sums would differ in every
row.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.fitting.chain_loss import ChainLoss
from sfumato.fitting.flow_loss import FlowLoss
from sfumato.fitting.graphical import Measurement, estimate
from sfumato.fitting.queried import conditional_tables
from sfumato.fitting.transformer_loss import TransformerLoss
from sfumato.models.codes.chain import Chain, ChainShape
from sfumato.models.codes.transformer import Transformer, TransformerShape
from sfumato.models.flows.dequantiser import DequantiserShape
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.privacy import FlatClip
from sfumato.privacy.factored import _scales, chunk_rows, factors_of

FEATURES = 7


SIZES = (20, 7, 21, 3, 2, 13, 20, 9)


def moved(model):
    """The model with every array that is trained random, in 32 bits."""
    leaves, structure = jax.tree.flatten(model.trainable())
    keys = jax.random.split(jax.random.key(1), len(leaves))
    leaves = [
        leaf + 0.3 * jax.random.normal(key, leaf.shape, jnp.float32) for leaf, key in zip(leaves, keys, strict=True)
    ]
    trained = jax.tree.unflatten(structure, leaves)
    return jax.tree.map(lambda new, old: old if new is None else new, trained, model, is_leaf=lambda x: x is None)


def flow(linear, dequantised):
    shape = SplineFlowShape(FEATURES, 2, 30, 2, 4, 8, 1, linear)
    learned = DequantiserShape((0, 2, 4), width=8, summary=4, couplings=2) if dequantised else None
    model = moved(SplineFlow.start(shape, key=jax.random.key(0), dequantiser=learned))
    return FlowLoss(skeleton=model), model


def chain(width):
    """On tables of a graphical model in which columns hang on two others."""
    random, last = np.random.default_rng(0), len(SIZES)
    pairs = [(c, c + d) for d in (1, 2) for c in range(last - d)]
    measured = [
        Measurement(columns=(a, b), counts=100 * random.random((SIZES[a], SIZES[b])), deviation=1.0) for a, b in pairs
    ]
    base = conditional_tables(estimate(SIZES, measured, most_steps=20))
    assert max(map(len, base.parents)) == 2
    model = moved(Chain.start(ChainShape(SIZES, base.order, width), key=jax.random.key(0), base=base))
    return ChainLoss(model), model.trainable()


def transformer(width):
    shape = TransformerShape(sizes=SIZES, order=tuple(range(len(SIZES))), layers=2, width=width, heads=2)
    model = moved(Transformer.start(shape, key=jax.random.key(0)))
    return TransformerLoss(skeleton=model), model.trainable()


LOSSES = {
    "low-rank flow": lambda: flow("low-rank", False),
    "PLU flow": lambda: flow("plu", False),
    "dequantised flow": lambda: flow("low-rank", True),
    "chain": lambda: chain(32),
    "transformer": lambda: transformer(16),
}


def one_row(loss, random):
    """A row in the form that a loss takes."""
    if isinstance(loss, FlowLoss):
        low = random.uniform(0.1, 0.8, FEATURES).astype(np.float32)
        return {"low": low, "width": np.full(FEATURES, 0.05, np.float32)}
    return {"codes": np.array([random.integers(0, size) for size in SIZES], np.int32)}


def at_every_place(loss, weights, num):
    """The factors of one row, and what it is scaled by, at each of so many places."""
    row = one_row(loss, np.random.default_rng(num))
    rows = {name: jnp.tile(jnp.asarray(part), (num, 1)) for name, part in row.items()}
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
@pytest.mark.parametrize("name", LOSSES)
def test_a_row_comes_out_alike_at_every_place(name, batch):
    with jax.enable_x64(True):
        loss, params = LOSSES[name]()
        found = at_every_place(loss, loss.weights(params), chunk_rows(batch))
    assert all(np.all(np.asarray(scale) < 1) for scale in found["scales"].values()), "norms count"
    assert moved_by_place(found) == []


def test_one_bit_at_one_place_is_seen():
    """The mutant of the comparison."""
    values = np.full((32, 3), 0.1, np.float32)
    values[31, 2] = np.nextafter(values[31, 2], np.float32(1))
    assert len(moved_by_place({"notes": {"first": values}, "backs": {"first": values[:31]}})) == 1
