"""The transformer: a distribution, drawn as it is scored; its fast clipped sum is that of the loop over rows."""

import itertools
import json
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from privacy.test_factored import Given, compiled_factors, fast_sum, hostile, key_of, looped
from sfumato.errors import ArgumentError
from sfumato.fitting.codes_loss import fast_or_plain
from sfumato.fitting.transformer_loss import TransformerLoss
from sfumato.models.codes.joint import CodeDistribution
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.codes.transformer import Transformer, TransformerShape
from sfumato.privacy import FlatClip, LayerClip
from sfumato.privacy.clipping import GRID
from sfumato.privacy.factored import (
    _FINE,
    MOST_DRAWN,
    factored_sum,
    factors_of,
    most_drawn,
    row_gradients,
    slack_of,
    to_grid,
)
from sfumato.privacy.factors import MANY, EmbeddingRule, FactoredLoss, MatrixRule, VectorRule

SIZES = (2, 4, 1, 3, 1, 1, 1)
ORDER = (6, 3, 0, 4, 2, 1, 5)
EVERY = np.array(list(itertools.product(*map(range, SIZES))), np.int32)
SHAPE = TransformerShape(sizes=SIZES, order=ORDER, layers=2, width=8, heads=2)


def base_of():
    """Column 1 given columns 3 and 0, in that order, and the others by themselves."""
    random = np.random.default_rng(4)
    parents = ((), (3, 0), (), (), (), (), ())
    rows = (1, 6, 1, 1, 1, 1, 1)
    tables = [random.dirichlet(np.ones(size), count) for size, count in zip(SIZES, rows, strict=True)]
    return ConditionalTables(tuple(jnp.asarray(table, jnp.float32) for table in tables), ORDER, parents)


def drawn_of(shape, base=None):
    """A model whose every parameter is random."""
    random = np.random.default_rng(1)
    shapes = jax.eval_shape(lambda: Transformer.start(shape, key=key_of(0)))
    draw = lambda leaf: jnp.asarray(0.4 * random.normal(size=leaf.shape), jnp.float32)
    return replace(jax.tree.map(draw, shapes), base=base)


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "on a base"])
def model(request):
    """One layer by itself, or two on a base."""
    return drawn_of(SHAPE, base_of()) if request.param else drawn_of(replace(SHAPE, layers=1))


@pytest.fixture(scope="module")
def chances(model):
    return np.exp(np.asarray(jax.jit(jax.vmap(model.log_prob))(EVERY), np.float64))


# --- the distribution -----------------------------------------------------------------------------------------


def test_the_probabilities_of_all_rows_add_up_to_one(model, chances):
    assert isinstance(model, CodeDistribution)
    assert chances.sum() == pytest.approx(1, abs=1e-5)
    assert chances.max() / chances.min() > 3, "and it is no uniform distribution"


def test_rows_are_drawn_as_they_are_scored(model, chances):
    """Pearson's test at a false-alarm rate of 1e-6; draws of columns in a wrong order must not pass it."""
    num = 20_000
    drawn = np.asarray(jax.jit(jax.vmap(model.sample))(jax.random.split(key_of(7), num)))
    assert drawn.min() >= 0 and np.all(drawn < SIZES)
    limit = chi2.isf(1e-6, len(EVERY) - 1)
    assert _pearson(drawn, chances) < limit
    swapped = drawn.copy()
    swapped[:, 0] = np.roll(drawn[:, 0], 1)  # a column drawn without regard to the others
    assert _pearson(swapped, chances) > limit


def _pearson(drawn, chances):
    found = np.bincount(np.ravel_multi_index(drawn.T, SIZES), minlength=len(EVERY))
    expected = len(drawn) * chances / chances.sum()
    return float(np.sum((found - expected) ** 2 / expected))


def test_a_model_starts_as_its_base():
    base = base_of()
    model = Transformer.start(replace(SHAPE, layers=1), key=key_of(0), base=base)
    both = jax.jit(lambda codes: (jax.vmap(model.log_prob)(codes), jax.vmap(base.log_prob)(codes)))
    found, expected = both(EVERY)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.ptp(found) > 1


def test_codes_that_there_are_not_are_impossible(model):
    odd = jnp.zeros((3, 7), jnp.int32).at[jnp.arange(3), jnp.array([0, 1, 3])].set(jnp.array([2, -1, 3]))
    assert np.all(np.asarray(jax.jit(jax.vmap(model.log_prob))(odd)) == -np.inf)


def test_a_description_is_text_and_has_all_sizes(model):
    text = json.loads(json.dumps(model.describe()))
    assert text["kind"] == "transformer"
    assert ("base" in text) == (model.base is not None)
    names = ("sizes", "order", "layers", "width", "heads")
    shape = TransformerShape(**{name: tuple(v) if isinstance(v := text[name], list) else v for name in names})
    assert shape == model.shape


@pytest.mark.parametrize(
    "wrong",
    [{"order": (0, 1)}, {"order": (0, 0, 1, 2, 3, 4, 5)}, {"heads": 3}, {"layers": 0}, {"sizes": (0,) * 7}],
    ids=str,
)
def test_wrong_sizes_are_refused(wrong):
    right = {"sizes": SIZES, "order": ORDER, "layers": 1, "width": 8, "heads": 2}
    with pytest.raises(ArgumentError):
        TransformerShape(**{**right, **wrong})


def test_a_base_that_does_not_fit_is_refused():
    start = lambda shape, base: jax.eval_shape(lambda: Transformer.start(shape, key=key_of(0), base=base))
    with pytest.raises(ArgumentError, match="before"):
        start(replace(SHAPE, order=tuple(range(7))), base_of())
    with pytest.raises(ArgumentError, match="same columns"):
        start(SHAPE, ConditionalTables.independent([np.ones(1)] * 7))


# --- fast clipping --------------------------------------------------------------------------------------------


def test_the_fast_sum_is_the_loop_over_rows(model):
    """For every weight by itself, half of the rows clipped, to 1e-5 of each."""
    loss, num = TransformerLoss(skeleton=model), 64
    assert isinstance(loss, FactoredLoss)
    rows = {"codes": jnp.asarray(EVERY[np.random.default_rng(2).integers(0, len(EVERY), num)])}
    keys, valid = jax.random.split(key_of(5), num), np.arange(num) < 50
    with jax.enable_x64(True):
        weights = jax.jit(lambda params: loss.weights(params))(model.trainable())
        gradients, factors = looped(loss, weights, rows, keys), compiled_factors(loss, weights, rows, keys)
        norms = np.sqrt(sum(np.sum(value.reshape(num, -1) ** 2, axis=1) for value in gradients.values()))
        bound = float(np.median(norms))
        factor = np.minimum(1, bound / norms) * valid
        factor *= 1 - slack_of(sum(weight.size for weight in weights.values()), len(SIZES))
        clip = FlatClip(bound=bound)
        total = jax.jit(
            lambda factors: (factored_sum(loss, weights, clip, factors, valid), row_gradients(loss, factors))
        )
        fine, single = total(factors)
    for name, value in gradients.items():
        expected = np.tensordot(factor, value, 1)
        error = np.linalg.norm(np.asarray(fine[name]) * bound / _FINE - expected)
        # The queries and keys of a row's first place move nothing, and what the loop finds of such is rounding.
        assert error <= 1e-5 * np.linalg.norm(expected) + 1e-7 * bound, name
        np.testing.assert_allclose(single[name], value, atol=1e-5 * np.abs(value).max() + 1e-7)


def test_the_way_back_to_the_parameters_is_the_gradient_of_the_plain_loss(model):
    """Weights pad the head; what is padding never comes back, whatever noise is on it."""
    loss, row, params = TransformerLoss(skeleton=model), {"codes": jnp.asarray(EVERY[11])}, model.trainable()
    taps = {name: jnp.zeros(size, jnp.float32) for name, size in loss.taps().items()}

    def found(params):
        weights, pull_back = jax.vjp(loss.weights, params)
        gradient = jax.grad(lambda weights: loss.row(weights, row, None, taps)[0])(weights)
        for name in ("head", "head_bias"):
            gradient[name] = gradient[name] + jnp.where(weights[name] == 0, 1e6, 0.0)
        return pull_back(gradient)[0]

    both = jax.jit(lambda params: (found(params), jax.grad(loss.plain)(params, row, None)))(params)
    for one, other in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_models_too_large_for_fast_clipping_go_row_by_row():
    def start(sizes, layers, width, heads):
        shape = TransformerShape(sizes=sizes, order=tuple(range(len(sizes))), layers=layers, width=width, heads=heads)
        return jax.eval_shape(lambda: Transformer.start(shape, key=key_of(0)))

    small, paper = start((32,) * 15, 2, 64, 4), start((100,) * 15, 3, 768, 12)
    assert isinstance(fast_or_plain(TransformerLoss(small), small, MOST_DRAWN), FactoredLoss)
    assert isinstance(fast_or_plain(TransformerLoss(paper), paper, most_drawn(0.01, 256.0)), FactoredLoss)
    by_row = fast_or_plain(TransformerLoss(paper), paper, MOST_DRAWN)
    assert callable(by_row) and not isinstance(by_row, FactoredLoss)


def test_the_loss_row_by_row_survives_what_a_door_does_to_it(model):
    """A door takes the arrays out of a loss, hands them to the compiled loop, and puts them back there."""
    arrays, rest = eqx.partition(TransformerLoss(skeleton=model).plain, eqx.is_array)
    row = {"codes": jnp.asarray(EVERY[5])}
    found = jax.jit(lambda arrays, params: eqx.combine(arrays, rest)(params, row, None))(arrays, model.trainable())
    assert float(found) == pytest.approx(-float(jax.jit(lambda codes: model.log_prob(codes))(row["codes"])), abs=1e-5)


@pytest.mark.parametrize("kind", ["plain", "cancel", "odd"])
def test_no_row_adds_more_than_the_bound_to_a_matrix_of_many_uses(kind):
    """Rows from 1e-30 to 1e18, with NaN and infinity, with uses that cancel: each by itself, exactly."""
    random, num, uses, clip = np.random.default_rng(7), 96, MANY + 1, FlatClip(bound=0.7)
    loss = Given(MatrixRule(source="into", target="out"), (1, uses, 4))
    weights = {"matrix": jnp.zeros((4, 6), jnp.float32), "bias": jnp.zeros(4, jnp.float32)}
    rows = {"into": hostile(random, (num, 1, uses, 6), "plain"), "back": hostile(random, (num, 1, uses, 4), kind)}
    if kind == "cancel":
        rows["into"][:, :, 1::2] = rows["into"][:, :, ::2]
    norms = norms_alone(loss, weights, clip, rows, num)
    assert norms.max() <= 1 - slack_of(28, uses) + np.sqrt(28) / _FINE
    if kind == "plain":
        assert norms.max() > 0.99, "a long row is scaled to the bound and no further"


def norms_alone(loss, weights, clip, rows, num):
    """The norm of what each row adds by itself, in bounds."""
    with jax.enable_x64(True):
        keys = jnp.zeros((num, 2), jnp.uint32)
        alone = jax.jit(lambda valid: fast_sum(loss, weights, clip, rows, keys, valid))
        found = [alone(jnp.arange(num) == place) for place in range(num)]
    flat = np.array([np.concatenate([np.asarray(part, np.float64).ravel() for part in one.values()]) for one in found])
    return np.linalg.norm(flat, axis=1) / _FINE


class LookedUp:
    """A loss of one table of vectors and one bias whose factors are the rows themselves, whatever they are."""

    common_names = ()
    sizes = (3, 0, 4)
    rules = {"table": EmbeddingRule(source="which", target="out", sizes=sizes), "bias": VectorRule(target="out")}  # noqa: RUF012

    def weights(self, params):
        return params

    def taps(self):
        return {"out": (1, 3, 5)}

    def row(self, weights, row, key, taps):
        return jnp.sum(row["back"] * taps["out"]), {"which": row["which"]}

    def common(self, weights):
        return jnp.zeros((), jnp.float32)


class Leaning(LookedUp):
    """The same, with a part of the table's gradient in common to all rows."""

    common_names = ("table",)

    def common(self, weights):
        return 0.3 * jnp.sum(weights["table"])


ZEROS = {"table": jnp.zeros((7, 5), jnp.float32), "bias": jnp.zeros(5, jnp.float32)}
ENTRIES = 40


def lookups(random, num, odd=False):
    """Numbers of vectors; if odd, among them some that there are not."""
    some = random.integers(0, [3, 1, 4], (num, 3)).astype(np.float32)
    if odd:
        strange = np.array([-1, 3, 4, 1e9, 0.5, -0.5, np.inf, 2.0**24], np.float32)
        some = np.where(random.random((num, 3)) < 0.5, random.choice(strange, (num, 3)), some)
    return some[:, None, :, None]


def dense(which, back, sizes=LookedUp.sizes):
    """The gradient in the table of each row, by the definition."""
    found, first = np.zeros((len(which), sum(sizes), back.shape[-1])), np.cumsum(sizes) - sizes
    for row, block in itertools.product(range(len(which)), range(len(sizes))):
        number = which[row, 0, block, 0]
        if number in range(sizes[block]):
            found[row, first[block] + int(number)] += back[row, 0, block]
    return found


@pytest.mark.parametrize("loss", [LookedUp(), Leaning()], ids=["alone", "with a common part"])
@pytest.mark.parametrize("clip", [FlatClip(bound=0.7), LayerClip(bound=0.7)], ids=["flat", "layer"])
def test_looked_up_vectors_are_summed_as_by_definition(loss, clip):
    """Among them numbers that are none of a block's; layers of one name are clipped together either way."""
    random, num = np.random.default_rng(3), 96
    rows = {"which": lookups(random, num, odd=True), "back": random.normal(size=(num, 1, 3, 5)).astype(np.float32)}
    table = dense(rows["which"], rows["back"].astype(np.float64)) + (0.3 if loss.common_names else 0.0)
    bias = rows["back"].astype(np.float64).sum(axis=(1, 2))
    norms = np.sqrt((table**2).sum((1, 2)) + (bias**2).sum(1))
    factor = np.minimum(1, 0.7 / norms) * (1 - slack_of(ENTRIES, 3))
    with jax.enable_x64(True):
        keys = jnp.zeros((num, 2), jnp.uint32)
        found = jax.jit(lambda rows: fast_sum(loss, ZEROS, clip, rows, keys, jnp.ones(num, bool)))(rows)
        single = row_gradients(loss, factors_of(loss, ZEROS, rows, keys))
    np.testing.assert_allclose(np.asarray(found["table"]) * 0.7 / _FINE, np.tensordot(factor, table, 1), atol=1e-6)
    np.testing.assert_allclose(np.asarray(found["bias"]) * 0.7 / _FINE, np.tensordot(factor, bias, 1), atol=1e-6)
    np.testing.assert_allclose(single["table"], table, atol=1e-6)


@pytest.mark.parametrize("kind", ["plain", "odd"])
def test_no_row_adds_more_than_the_bound(kind):
    """Rows from 1e-30 to 1e18, with NaN and infinity, and numbers of no vector: each by itself, exactly."""
    random, num, clip = np.random.default_rng(5), 96, FlatClip(bound=0.7)
    rows = {"which": lookups(random, num, odd=kind == "odd"), "back": hostile(random, (num, 1, 3, 5), kind)}
    if kind == "odd":
        rows["which"][::5, 0, 0, 0] = np.nan
    norms = norms_alone(LookedUp(), ZEROS, clip, rows, num)
    assert norms.max() <= 1 - slack_of(ENTRIES, 3) + np.sqrt(ENTRIES) / _FINE
    assert norms.max() > 0.99, "a long row is scaled to the bound and no further"
    finite = np.isfinite(rows["back"]).all(axis=(1, 2, 3))
    assert np.all(norms[~finite] == 0) and (kind == "plain") == finite.all()


def test_rows_that_are_no_numbers_leave_the_others_as_they_are():
    random, num, clip = np.random.default_rng(10), 96, FlatClip(bound=0.7)
    rows = {"which": lookups(random, num), "back": hostile(random, (num, 1, 3, 5), "odd")}
    finite = np.isfinite(rows["back"]).all(axis=(1, 2, 3))
    assert 0 < finite.sum() < num
    with jax.enable_x64(True):
        total = jax.jit(
            lambda rows, valid: fast_sum(LookedUp(), ZEROS, clip, rows, jnp.zeros((num, 2), jnp.uint32), valid)
        )
        others = {name: np.where(finite[:, None, None, None], value, 0) for name, value in rows.items()}
        everyone, others = total(rows, jnp.ones(num, bool)), total(others, jnp.asarray(finite))
    for name, value in others.items():
        assert np.array_equal(everyone[name], value) and np.asarray(value).any()


def test_neighbours_are_never_further_apart_than_the_bound():
    """Sums on the grid of all rows, and of all but one in another order: the slack covers what rounding can do."""
    random, num, clip = np.random.default_rng(8), 256, FlatClip(bound=1.0)
    with jax.enable_x64(True):
        keys = jnp.zeros((num, 2), jnp.uint32)
        total = jax.jit(lambda rows, valid: to_grid(fast_sum(LookedUp(), ZEROS, clip, rows, keys, valid)))
        for _ in range(20):
            back = (100 * random.normal(size=(num, 1, 3, 5))).astype(np.float32)
            rows, order = {"which": lookups(random, num), "back": back}, random.permutation(num)
            other = {name: value[order] for name, value in rows.items()}
            with_row, without = total(rows, jnp.ones(num, bool)), total(other, jnp.asarray(order != 3))
            gap = np.concatenate([np.asarray(with_row[name] - without[name]).ravel() for name in with_row])
            assert 0.99 * GRID < np.linalg.norm(gap) <= GRID


@pytest.mark.parametrize(
    ("weight", "note", "tap"),
    [
        ((7, 5), (2, 3, 1), (2, 3, 5)),
        ((7, 5), (1, 3, 2), (1, 3, 5)),
        ((8, 5), (1, 3, 1), (1, 3, 5)),
        ((7, 5), None, (1, 3, 5)),
    ],
    ids=["two draws", "two numbers", "a vector too many", "no note"],
)
def test_a_table_that_its_rule_does_not_fit_is_refused(weight, note, tap):
    rule = LookedUp.rules["table"]
    assert rule.agrees((7, 5), (1, 3, 1), (1, 3, 5))
    assert not rule.agrees(weight, note, tap)
