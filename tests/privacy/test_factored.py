"""Fast clipping: equal to the loop over rows, bounded for any factors, and never rounded past its slack."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from sfumato.fitting.flow_loss import FlowLoss
from sfumato.models.flows.dequantiser import DequantiserShape
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.privacy import FlatClip, LayerClip, PoissonSampling, Randomness, SgdPlan, step
from sfumato.privacy.clipping import GRID
from sfumato.privacy.factored import _FINE, MOST_DRAWN, _joined, factored_sum, factors_of, most_drawn, slack_of, to_grid
from sfumato.privacy.factors import MatrixRule, Stairs, VectorRule

CASES = [
    (1, 1, "low-rank", 0),
    (5, 2, "plu", 0),
    (5, 2, "low-rank", 2),
]
"""Features, draws, linear part, and couplings of a dequantiser of all features but one; 0 for none.

A case takes half a minute to compile. The last two are clipped by layer, unit and sparsified layer as well.
"""


BLOCKS = 2
"""How often a row uses each weight of a flow, so that norms have cross terms; more would take longer to compile."""


def key_of(number):
    return jax.random.wrap_key_data(jnp.array([3, number], jnp.uint32))


def flow_of(features, linear, size=0.1, couplings=0):
    """A flow whose every array is random, its last layer too."""
    shape = SplineFlowShape(features, BLOCKS, 12, 3, 4, 8, min(2, features), linear)
    discrete = tuple(range(max(1, features - 1)))[::-1]
    learned = DequantiserShape(discrete, width=7, summary=3, couplings=couplings) if couplings else None
    flow = SplineFlow.start(shape, key=key_of(0), dequantiser=learned)
    leaves, structure = jax.tree.flatten(flow)
    marginals = len(jax.tree.leaves(flow.marginals))
    keys = jax.random.split(key_of(1), len(leaves))
    moved = [
        leaf if place < marginals else leaf + size * jax.random.normal(key, leaf.shape, jnp.float32)
        for place, (key, leaf) in enumerate(zip(keys, leaves, strict=True))
    ]
    return jax.tree.unflatten(structure, moved)


def rows_of(features, num=24):
    random = np.random.default_rng(2)
    low = random.uniform(0.05, 0.9, (num, features)).astype(np.float32)
    return {"low": jnp.asarray(low), "width": jnp.full((num, features), 0.05, jnp.float32)}


def fast_sum(loss, weights, clip, rows, keys, valid, drawn=MOST_DRAWN):
    return factored_sum(loss, weights, clip, factors_of(loss, weights, rows, keys), valid, drawn)


def compiled_sum(loss, weights, clip, *given):
    """As one program: op by op, each layer would be compiled a hundred times."""
    return jax.jit(lambda *given: factored_sum(loss, weights, clip, *given))(*given)


def compiled_factors(loss, weights, rows, keys):
    return jax.jit(lambda weights, rows, keys: factors_of(loss, weights, rows, keys))(weights, rows, keys)


def looped(loss, weights, rows, keys):
    """The gradient of each row in the weights, masked entries left out, one row at a time."""
    taps = {name: jnp.zeros(shape, jnp.float32) for name, shape in loss.taps().items()}
    whole = lambda weights, row, key: loss.row(weights, row, key, taps)[0] + loss.common(weights)
    found = jax.jit(jax.vmap(jax.grad(whole), (None, 0, 0)))(weights, rows, keys)
    masks = {name: getattr(rule, "stairs", None) for name, rule in loss.rules.items()}
    wide = {name: np.asarray(value, np.float64) for name, value in found.items()}
    return {
        name: value if masks[name] is None else value * masks[name].mask(*value.shape[-2:])
        for name, value in wide.items()
    }


@cache
def both_ways(features, draws, linear, couplings):
    """A loss, its weights, the keys of 24 rows, and their gradients: one row at a time, and as factors."""
    flow = flow_of(features, linear, couplings=couplings)
    loss, rows, keys = FlowLoss(skeleton=flow, draws=draws), rows_of(features), jax.random.split(key_of(5), 24)
    with jax.enable_x64(True):
        weights = loss.weights(flow)
        given = loss, weights, rows, keys
        return loss, weights, keys, looped(*given), compiled_factors(*given)


@pytest.mark.parametrize(("features", "draws", "linear", "couplings"), CASES, ids=str)
def test_the_fast_sum_is_the_loop_over_rows(features, draws, linear, couplings):
    """For every layer of the flow, unclipped, partly clipped and all clipped, to 1e-5 of each layer."""
    loss, weights, _, gradients, factors = both_ways(features, draws, linear, couplings)
    valid = np.arange(24) < 20
    with jax.enable_x64(True):
        norms = np.sqrt(sum(np.sum(value.reshape(24, -1) ** 2, axis=1) for value in gradients.values()))
        slack = slack_of(sum(weight.size for weight in weights.values()), BLOCKS * draws)
        for bound in (0.1, float(np.median(norms)), 1e4):
            factor = np.minimum(1, bound / norms) * (1 - slack) * valid
            fine = compiled_sum(loss, weights, FlatClip(bound=bound), factors, jnp.asarray(valid))
            for name, value in gradients.items():
                expected = np.tensordot(factor, value, 1)
                error = np.linalg.norm(np.asarray(fine[name]) * bound / _FINE - expected)
                assert error <= 1e-5 * np.linalg.norm(expected) + 1e-9 * bound, (name, bound)


class Given:
    """A loss of one matrix and one bias whose factors are the rows themselves, whatever they are."""

    def __init__(self, rule, shape):
        self.rules = {"matrix": rule, "bias": VectorRule(target="out")}
        self.shape = shape

    common_names = ()

    def weights(self, params):
        return params

    def taps(self):
        return {"out": (self.shape[0], self.shape[1], self.shape[2])}

    def row(self, weights, row, key, taps):
        return jnp.sum(row["back"] * taps["out"]), {"into": row["into"]}

    def common(self, weights):
        return jnp.zeros((), jnp.float32)


class Sided(Given):
    """The same with a second layer, which has a part of its gradient in common with all rows."""

    common_names = ("side",)

    def __init__(self, rule, shape):
        super().__init__(rule, shape)
        self.rules |= {"side": VectorRule(target="side")}

    def taps(self):
        return super().taps() | {"side": (1, 1, 3)}

    def row(self, weights, row, key, taps):
        value, notes = super().row(weights, row, key, taps)
        return value + jnp.sum(row["side"] * taps["side"]), notes

    def common(self, weights):
        return 5.0 * jnp.sum(weights["side"])


def hostile(random, shape, kind):
    values = random.normal(size=shape) * 10.0 ** random.uniform(-30, 18, size=(shape[0], 1, 1, 1))
    if kind == "cancel":  # the uses of a row all but cancel
        values[:, :, 1::2] = -values[:, :, ::2] * (1 + 1e-6 * random.normal(size=values[:, :, ::2].shape))
    if kind == "odd":
        values[::3, 0, 0, 0] = np.nan
        values[1::3, 0, 0, -1] = np.inf
    return values.astype(np.float32)


def longest_alone(kind, stairs):
    """How much of the bound the longest of 288 hostile rows takes, each by itself, in exact arithmetic."""
    random, num, clip = np.random.default_rng(7), 288, FlatClip(bound=0.7)
    loss = Given(MatrixRule(source="into", target="out", stairs=stairs), (1, 4, 4))
    weights = {"matrix": jnp.zeros((4, 6), jnp.float32), "bias": jnp.zeros(4, jnp.float32)}
    into, back = hostile(random, (num, 1, 4, 6), kind), hostile(random, (num, 1, 4, 4), kind)
    with jax.enable_x64(True):

        @jax.jit
        def alone(into, back, valid):
            rows = {"into": into, "back": back}
            return fast_sum(loss, weights, clip, rows, jnp.zeros((num, 2), jnp.uint32), valid)

        longest = 0.0
        for place in range(num):
            found = alone(into, back, jnp.arange(num) == place)
            flat = np.concatenate([np.asarray(value, np.float64).ravel() for value in found.values()])
            assert np.all(np.isfinite(flat))
            longest = max(longest, float(np.linalg.norm(flat)) / _FINE)
    return longest


WHOLE = 1 - slack_of(28, 4) + np.sqrt(28) / _FINE
"""Of the bound, what a row of those can take at most."""


@pytest.mark.parametrize("kind", ["plain", "cancel", "odd"])
@pytest.mark.parametrize("stairs", [None, Stairs(inputs=3, outputs=2)], ids=["dense", "stairs"])
def test_no_row_adds_more_than_the_bound(kind, stairs):
    """Rows from 1e-30 to 1e18, with NaN and infinity, with uses that cancel."""
    longest = longest_alone(kind, stairs)
    assert longest <= WHOLE
    if kind == "plain":
        assert longest > 0.99, "a long row is scaled to the bound and no further"


def test_norms_in_32_bits_need_their_margin(monkeypatch):
    """The mutant: without what rounding may take, a row adds more than its bound."""
    monkeypatch.setattr(MatrixRule, "_margin", lambda *_: 0.0)
    assert longest_alone("plain", Stairs(inputs=3, outputs=2)) > WHOLE


@pytest.mark.parametrize("small", [2.0**-60, 2.0**-75, 2.0**-130])
def test_small_factors_do_not_hide_large_ones(small):
    """What a product of small factors loses in 32 bits would be a norm of zero; large ones on the other side make it
    more than the bound."""
    rule = MatrixRule(source="into", target="out", stairs=Stairs(inputs=3, outputs=2))
    weights = {"matrix": jnp.zeros((4, 6), jnp.float32), "bias": jnp.zeros(4, jnp.float32)}
    with jax.enable_x64(True):
        rows = {
            "into": jnp.full((96, 1, 4, 6), small, jnp.float32),
            "back": jnp.full((96, 1, 4, 4), 2.0**62, jnp.float32),
        }
        found = fast_sum(
            Given(rule, (1, 4, 4)),
            weights,
            FlatClip(bound=0.7),
            rows,
            jnp.zeros((96, 2), jnp.uint32),
            jnp.arange(96) < 1,
        )
    flat = np.concatenate([np.asarray(value, np.float64).ravel() for value in found.values()])
    assert np.linalg.norm(flat) / _FINE <= WHOLE


over_stairs = pytest.mark.parametrize("stairs", [None, Stairs(inputs=3, outputs=2)], ids=["dense", "stairs"])


@over_stairs
def test_rows_that_are_no_numbers_leave_the_others_as_they_are(stairs):
    """The sum with rows of NaN and infinity among the others is to the last bit the sum without them."""
    random = np.random.default_rng(10)
    loss = Given(MatrixRule(source="into", target="out", stairs=stairs), (1, 4, 4))
    weights = {"matrix": jnp.zeros((4, 6), jnp.float32), "bias": jnp.zeros(4, jnp.float32)}
    rows = {"into": hostile(random, (96, 1, 4, 6), "odd"), "back": hostile(random, (96, 1, 4, 4), "odd")}
    finite = np.all([np.isfinite(value).all(axis=(1, 2, 3)) for value in rows.values()], axis=0)
    assert 0 < finite.sum() < 96
    with jax.enable_x64(True):
        keys, clip = jnp.zeros((96, 2), jnp.uint32), FlatClip(bound=0.7)
        total = jax.jit(lambda rows, valid: fast_sum(loss, weights, clip, rows, keys, valid))
        others = {name: np.where(finite[:, None, None, None], value, 0) for name, value in rows.items()}
        everyone, others = total(rows, jnp.ones(96, bool)), total(others, jnp.asarray(finite))
    for name, value in others.items():
        assert np.array_equal(everyone[name], value) and np.asarray(value).any()


@pytest.mark.parametrize("clip", [FlatClip(bound=0.7), LayerClip(bound=0.7)], ids=["flat", "layer"])
def test_no_row_adds_more_than_the_bound_with_what_is_common(clip):
    """Two layers, one of which has a common part past the bound: each row by itself, in exact arithmetic.

    Clipped by layers, both of them come to bounds of their own.
    """
    random = np.random.default_rng(9)
    loss, num = Sided(MatrixRule(source="into", target="out"), (1, 2, 4)), 96
    weights = {name: jnp.zeros(size, jnp.float32) for name, size in (("matrix", (4, 6)), ("bias", 4), ("side", 3))}
    rows = {name: hostile(random, (num, 1, uses, size), "plain") for name, uses, size in SIDED}
    slack = slack_of(31, 2)
    with jax.enable_x64(True):
        alone = jax.jit(lambda valid: fast_sum(loss, weights, clip, rows, jnp.zeros((num, 2), jnp.uint32), valid))
        found = [alone(jnp.arange(num) == place) for place in range(num)]
    flat = [np.concatenate([np.asarray(one[name], np.float64).ravel() for name in sorted(one)]) for one in found]
    norms = np.linalg.norm(flat, axis=1) / _FINE
    assert norms.max() <= 1 - slack + np.sqrt(31) / _FINE
    assert norms.max() > 0.99, "a long row is scaled to the bound and no further"


SIDED = (("into", 2, 6), ("back", 2, 4), ("side", 1, 3))


@over_stairs
@pytest.mark.parametrize("drawn", [2**17, MOST_DRAWN])
def test_the_slack_covers_what_rounding_can_do(stairs, drawn):
    """Neighbours' sums on the grid: never further apart than the bound, for sums of any rows in any order.

    In groups of more rows where few may be drawn, and of fewer where many may.
    """
    random = np.random.default_rng(8)
    loss = Given(MatrixRule(source="into", target="out", stairs=stairs), (1, 1, 4))
    weights = {"matrix": jnp.zeros((4, 6), jnp.float32), "bias": jnp.zeros(4, jnp.float32)}
    clip, num = FlatClip(bound=1.0), 256
    with jax.enable_x64(True):
        keys = jnp.zeros((num, 2), jnp.uint32)
        total = jax.jit(lambda rows, valid: to_grid(fast_sum(loss, weights, clip, rows, keys, valid, drawn)))
        for _ in range(20):
            rows = {"into": random.normal(size=(num, 1, 1, 6)), "back": 100 * random.normal(size=(num, 1, 1, 4))}
            rows = {name: value.astype(np.float32) for name, value in rows.items()}
            order = random.permutation(num)
            other = {name: value[order] for name, value in rows.items()}
            with_row, without = total(rows, jnp.ones(num, bool)), total(other, jnp.asarray(order != 3))
            gap = np.concatenate([np.asarray(with_row[name] - without[name]).ravel() for name in with_row])
            assert 0.99 * GRID < np.linalg.norm(gap) <= GRID


def test_every_weight_needs_a_rule():
    from sfumato.errors import ArgumentError

    loss = Given(VectorRule(target="out"), (1, 1, 4))
    with pytest.raises(ArgumentError, match="one rule"), jax.enable_x64(True):
        factors_of(loss, {"bias": jnp.zeros(4)}, {}, jnp.zeros((1, 2)))


@pytest.mark.parametrize(
    "stairs",
    [Stairs(inputs=6, outputs=7), Stairs(inputs=6, outputs=7, strict=True), Stairs(inputs=8, outputs=6, upper=True)],
    ids=["stairs", "strict", "upper"],
)
def test_sums_by_slabs_are_sums_of_outer_products(stairs, monkeypatch):
    """What a mask hides need not be made; what it leaves is there. One slab too short would lose the last inputs."""
    random = np.random.default_rng(4)
    inputs, outputs, num = 2 * stairs.inputs, 3 * stairs.outputs, 96
    into = random.normal(size=(num, 1, 2, inputs)).astype(np.float32)
    back = random.normal(size=(num, 1, 2, outputs)).astype(np.float32)
    factor = random.uniform(size=num)
    rule = MatrixRule(source="into", target="out", stairs=stairs)
    expected = np.einsum("n,nduo,ndui->oi", factor, back.astype(np.float64), into.astype(np.float64))
    expected *= stairs.mask(outputs, inputs)
    with jax.enable_x64(True):
        found = rule.total(jnp.asarray(factor), {"into": jnp.asarray(into)}, {"out": jnp.asarray(back)})
        np.testing.assert_allclose(np.sum(found, axis=0), expected, atol=1e-9)
        both = rule.total_with_bias(jnp.asarray(factor), {"into": jnp.asarray(into)}, {"out": jnp.asarray(back)})
        np.testing.assert_allclose(np.sum(both[0], axis=0), expected, atol=1e-9)
        of_bias = np.einsum("n,nduo->o", factor, back.astype(np.float64))
        np.testing.assert_allclose(np.sum(both[1], axis=0), of_bias, atol=1e-9)
        shorter = [(first, last, seen - 2) for first, last, seen in rule._slabs(inputs, outputs)]
        monkeypatch.setattr(MatrixRule, "_slabs", lambda *_: shorter)
        found = rule.total(jnp.asarray(factor), {"into": jnp.asarray(into)}, {"out": jnp.asarray(back)})
        assert np.abs(np.sum(found, axis=0) - expected).max() > 1e-3


def test_a_bias_has_its_norm_with_its_matrix_unless_all_rows_share_a_part_of_it():
    rules = {
        "matrix": MatrixRule(source="into", target="out"),
        "bias": VectorRule(target="out"),
        "other": MatrixRule(source="into", target="blocks", blocked=True),
        "shift": VectorRule(target="blocks", blocked=True),
        "scale": VectorRule(target="out", source="into"),
        "own": VectorRule(target="out", blocked=True),
    }
    assert _joined(rules, set()) == {"matrix": "bias", "other": "shift"}
    assert _joined(rules, {"shift"}) == {"matrix": "bias"}
    assert _joined(rules, {"matrix"}) == {"other": "shift"}


@pytest.mark.parametrize("rate", [1e-5, 0.01, 0.1, 0.999])
def test_the_slack_covers_what_the_rate_draws_of_tables_far_larger_than_declared(rate):
    """A declared size may be wrong; the draw follows from the true one. Covering twice the expectation would not do."""
    assert binom.logsf(most_drawn(rate, 256.0), 2**20, rate) < -230
    large = 2.0**22 * rate
    covered = most_drawn(rate, large)
    assert covered == MOST_DRAWN or binom.logsf(covered, 64 * 2**22, rate) < -230
    assert rate * 2**20 < 2 * 256 or binom.logsf(2 * 256, 2**20, rate) > -1


def test_the_slack_covers_more_rows_where_more_are_expected():
    assert most_drawn(None, 2.0**20) == 2**21 and most_drawn(None, 1.0) == 2**17
    assert slack_of(30_000, 3, most_drawn(1.0, 2.0**18)) > 10 * slack_of(30_000, 3, most_drawn(0.01, 512.0))
    assert slack_of(30_000, 3) == slack_of(30_000, 3, MOST_DRAWN), "where nothing is said, the most"


def test_a_step_covers_the_draw_of_a_table_that_is_larger_than_declared(monkeypatch):
    """Its rate decides, and not the batch that the declared size makes it expect."""
    seen = []
    monkeypatch.setattr(step, "factored_sum", lambda *given: seen.append(given[-1]) or factored_sum(*given))
    loss = Given(MatrixRule(source="into", target="out"), (1, 1, 4))
    weights = {"matrix": jnp.zeros((4, 6), jnp.float32), "bias": jnp.zeros(4, jnp.float32)}
    with jax.enable_x64(True):
        rows = step.PrivateRows.of(
            {"into": np.ones((8, 1, 1, 6), np.float32), "back": np.ones((8, 1, 1, 4), np.float32)}
        )
        plan = SgdPlan(sampling=PoissonSampling(rate=0.5), clip=FlatClip(bound=1.0), steps=1)
        step.batch_total(loss, weights, plan, rows, Randomness.from_os().key, 1, jnp.asarray(0), 4.0)
    assert set(seen) == {most_drawn(0.5, 4.0)} and seen[0] > 2**19
