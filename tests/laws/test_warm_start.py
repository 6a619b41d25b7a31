"""Laws of the warm start: it knows the pairs that count, at a price that no row changes; and of settling after it."""

from dataclasses import replace
from functools import cache
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sfumato as sf
from sfumato.encoding.layout import layout_of
from sfumato.fitting import settling
from sfumato.fitting.chain_loss import ChainLoss
from sfumato.fitting.codecs import even_codec
from sfumato.fitting.select_measure import CellNumbers
from sfumato.fitting.settling import believed, settled
from sfumato.fitting.warm_start import WarmStart, buy_start
from sfumato.models.codes.chain import Chain, ChainShape
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.codes.together import draw_rows
from sfumato.privacy import Adjacency, Budget, CountQuery, Curator, FlatClip, Ledger, Randomness
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import Counted, exact_sum
from sfumato.privacy.factored import _FINE, factored_sum, factors_of, slack_of
from sfumato.privacy.step import PrivateRows
from sfumato.schema import Integer, Schema

ROWS = 20_000
SCHEMA = Schema(columns={name: Integer(lower=0, upper=7) for name in "abcd"}, rows=ROWS)
SIZES = (8,) * 4


@cache
def codes():
    """A chain a - b - c of columns that mostly agree, and a column d of its own."""
    random = np.random.default_rng(0)
    follow = lambda column: np.where(random.random(ROWS) < 0.6, column, random.integers(0, 8, ROWS))
    a = np.minimum(random.poisson(2, ROWS), 7)
    b = follow(a)
    return np.stack([a, b, follow(b), random.integers(0, 8, ROWS)], axis=1)


def view_of(rows, epsilon=5.0, seed=11):
    low = (rows / 8).astype(np.float32)
    ledger = Ledger(Budget(epsilon=epsilon, delta=1e-6), Adjacency())
    cells = {"low": low, "width": np.full_like(low, 1 / 8)}
    curator = Curator(cells, ledger=ledger, randomness=Randomness.from_seed(seed), public_size=ROWS)
    return curator.through(even_codec(layout_of(SCHEMA), 8).row), ledger


@cache
def bought(label=None):
    view, ledger = view_of(codes())
    return buy_start(view, SIZES, WarmStart(), label=label), ledger


def off(table, pair):
    """Total variation of a pair of columns from that of the rows."""
    joint = np.histogram2d(*codes()[:, pair].T, bins=8, range=[[0, 8]] * 2)[0] / ROWS
    return np.abs(table - joint).sum() / 2


def test_the_pairs_of_the_table_are_measured():
    start, ledger = bought()
    assert {(0, 1), (1, 2)} <= set(start.model.potentials)
    rounds = ["choice of a table", "counts of a chosen table"] * 4
    assert [entry.purpose for entry in ledger.entries] == ["counts of each column", *rounds]


def test_the_start_knows_what_it_measured():
    """Pairs that go together: 0.02 of noise at most, where independent columns are 0.4 off. The one between, too."""
    start, _ = bought()
    drawn = draw_rows(start.tables, jax.random.key(1), 50_000, 50_000)
    for pair in ([0, 1], [1, 2], [0, 2]):
        found = np.histogram2d(*drawn[:, pair].T, bins=8, range=[[0, 8]] * 2)[0] / len(drawn)
        assert off(found, pair) < 0.03
    assert off(np.outer(start.shares[0], start.shares[1]), [0, 1]) > 0.3


def test_a_label_is_known_to_every_column():
    start, ledger = bought(label=3)
    purposes = [entry.purpose for entry in ledger.entries]
    assert purposes[:2] == ["counts of each column", "counts of the label with each column"]
    assert purposes.count("choice of a table") == 2, "six tenths of four rounds"
    assert {(0, 3), (1, 3), (2, 3)} <= set(start.model.potentials)


@pytest.mark.parametrize("label", [None, 1])
def test_its_price_is_the_share_whatever_the_rows_are(label):
    """Gaussian sums and choices in the form of squared mu; settings and the number of columns alone decide."""
    views = [view_of(codes()), view_of(np.random.default_rng(3).integers(0, 8, (50, 4)), seed=4)]
    whole = views[0][0].noise_multiplier(1.0) ** -2
    for view, _ in views:
        buy_start(view, SIZES, WarmStart(), label=label)
    events, others = (ledger.events for _, ledger in views)
    assert events == others
    squared = [
        event.noise_multiplier**-2 if event.kind == "gaussian_sum" else (event.epsilon / 2) ** 2 for event in events
    ]
    assert sum(squared) == pytest.approx(WarmStart().spent * whole, rel=1e-9)


def test_doubts_are_the_noise_of_the_shares():
    """Of 40 starts on the same rows, the spread of a share of the column apart, which no pair says more of.

    A standard deviation of 40 x 8 entries is off by a sixth in one of a million runs; half the doubt is rejected.
    """
    settings, shares, doubts = WarmStart(rounds=1, tables=1e-6), [], []
    for seed in range(40):
        view, _ = view_of(codes(), seed=100 + seed)
        start = buy_start(view, SIZES, settings)
        shares.append(start.shares[3])
        doubts.append(start.doubts[3])
    spread = np.sqrt(np.mean(np.var(shares, axis=0, ddof=1)))
    assert spread == pytest.approx(np.mean(doubts), rel=0.25)
    assert spread != pytest.approx(np.mean(doubts) / 2, rel=0.25)


def test_the_only_column_gets_both_shares():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())
    view = Curator(
        {"codes": codes()[:, :1].astype(np.int32)},
        ledger=ledger,
        randomness=Randomness.from_seed(0),
        public_size=ROWS,
    )
    multiplier = view.noise_multiplier(WarmStart().spent)
    start = buy_start(view, (8,), WarmStart(), label=0)
    assert [event.noise_multiplier for event in ledger.events] == [multiplier]
    assert np.abs(start.shares[0] - np.bincount(codes()[:, 0], minlength=8) / ROWS).max() < 0.02


def test_a_warm_start_leaves_something_for_the_gradients():
    with pytest.raises(sf.ArgumentError, match="95 %"):
        WarmStart(singles=0.5, tables=0.5)
    with pytest.raises(sf.ArgumentError, match="95 %"):
        sf.Chain(warm=WarmStart(tables=0.9))


PAIRS = [(0, 1), (2, 1), (0, 2)]


def test_one_row_moves_a_sum_by_its_bound():
    """Neighbours' exact sums are as far apart as the noise is made for, and further than one pair alone would be."""
    query = CountQuery(function=CellNumbers.of(PAIRS, (5, 5, 5)), sizes=(25,) * len(PAIRS), purpose="test")
    rows = np.random.default_rng(1).integers(0, 5, (40, 3)).astype(np.int32)

    def total(codes):
        with jax.enable_x64(True):
            return np.asarray(exact_sum(Counted(PrivateRows.of({"codes": codes})), query), float) / GRID

    whole = total(rows)
    for left_out in range(5):
        apart = np.linalg.norm(whole - total(np.delete(rows, left_out, axis=0)))
        assert 1 < apart == pytest.approx(query.grid_norm, rel=1e-12)
    assert whole.sum() == 40 * len(PAIRS)  # each row is in one cell of each pair


def test_every_pair_of_codes_is_a_cell_of_its_own():
    numbers = CellNumbers.of(PAIRS, (5, 5, 5))
    every = np.array(list(product(range(5), repeat=3)), np.int32)
    cells = np.asarray(jax.vmap(lambda codes: numbers({"codes": codes}))(every))
    for place, (a, b) in enumerate(PAIRS):
        assert np.array_equal(cells[:, place], 5 * every[:, a] + every[:, b])


# Settling

SHAPE = ChainShape((3, 4, 2), (2, 0, 1), 4)


@cache
def moved_chain():
    """A chain whose every array is random, so that its columns depend on each other and hold other shares."""
    base = ConditionalTables.independent([np.full(size, 1 / size) for size in SHAPE.sizes])
    base = ConditionalTables(tuple(base.tables[c] for c in range(3)), (2, 0, 1), ((), (), ()))
    chain = Chain.start(SHAPE, key=jax.random.key(0), base=base)
    leaves, structure = jax.tree.flatten(chain.trainable())
    random = np.random.default_rng(1)
    leaves = [leaf + 0.4 * jnp.asarray(random.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(structure, leaves), chain)


def masses(chain):
    every = np.array(list(product(*(range(size) for size in SHAPE.sizes))), np.int32)
    mass = np.exp(np.asarray(jax.vmap(chain.log_prob)(every), np.float64))
    return mass.reshape(SHAPE.sizes)


def shares_of(chain):
    mass = masses(chain)
    return [mass.sum(tuple(other for other in range(3) if other != column)) for column in range(3)]


GOALS = [np.array([0.2, 0.5, 0.3]), np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.35, 0.65])]


def test_a_settled_chain_has_the_measured_shares_and_what_it_learnt_of_columns_together():
    chain = moved_chain()
    found = settled(chain, GOALS, [1e-9] * 3, jax.random.key(2))
    apart = lambda one: max(np.abs(a - b).max() for a, b in zip(shares_of(one), GOALS, strict=True))
    assert apart(found) < 0.005 < 0.1 < apart(chain)
    # The odds of the first column's codes given the one before it move alike, whatever that is.
    ratio = np.log(masses(found).sum(1)) - np.log(masses(chain).sum(1))
    assert np.ptp((ratio[1:] - ratio[:1])[:, 0] - (ratio[1:] - ratio[:1])[:, 1]) < 1e-4
    same = lambda tree: eqx.tree_at(lambda chain: chain.head_bias, tree, chain.head_bias)
    assert eqx.tree_equal(same(found), chain), "nothing but biases has moved"


def test_what_is_measured_within_its_noise_moves_nothing():
    """And a settling that believed all that is measured would be seen to move it."""
    chain = moved_chain()
    near = [share + 0.01 * np.array([1.0, -1.0, *[0.0] * (len(share) - 2)]) for share in shares_of(chain)]
    still = settled(chain, near, [0.02] * 3, jax.random.key(2))
    drawn = lambda one: max(np.abs(a - b).max() for a, b in zip(shares_of(one), shares_of(chain), strict=True))
    assert drawn(still) < 0.002 < 0.008 < drawn(settled(chain, near, [1e-9] * 3, jax.random.key(2)))


def test_what_is_believed_lies_between_and_never_leaves_the_simplex():
    random = np.random.default_rng(5)
    for _ in range(200):
        held, measured = random.dirichlet(np.ones(5), 2)
        found = believed(held, measured, 10 ** random.uniform(-6, 1))
        assert found.min() >= 0 and found.sum() == pytest.approx(1)
        low, high = np.minimum(held, measured), np.maximum(held, measured)
        assert np.all(low - 1e-12 <= found) and np.all(found <= high + 1e-12)
    assert np.array_equal(believed(GOALS[0], GOALS[0], 0.0), GOALS[0])


def test_a_fit_of_a_chain_is_settled_on_its_start(monkeypatch):
    """At full participation of few steps the fit is its start, settled; without a warm start nothing is settled."""
    asked = []
    real = settling.settled
    monkeypatch.setattr("sfumato.synthesizers.chain.settled", lambda *given: asked.append(given[1]) or real(*given))
    low = (codes()[:2_000] / 8).astype(np.float32)
    cells = {"low": low, "width": np.full_like(low, 1 / 8)}
    method = sf.Chain(steps=2, width=4, codec=None)
    for each in (method, replace(method, warm=None)):
        ledger = Ledger(Budget(epsilon=3.0, delta=1e-6), Adjacency())
        curator = Curator(cells, ledger=ledger, randomness=Randomness.from_seed(0), public_size=2_000)
        model = each.fit(curator, layout_of(SCHEMA))
    assert len(asked) == 1 and len(asked[0]) == 4
    assert model.joint.base is not None, "columns by themselves are the base where there is no start"


@pytest.mark.parametrize("shared", [False, True])
def test_the_fast_sum_of_a_chain_is_the_loop_over_rows(shared):
    """Every weight, unclipped, partly clipped and all clipped, to 1e-5; a row of NaN counts for nothing."""
    sizes = (4, 4, 4, 4, 4) if shared else (2, 3, 4, 2, 3)
    shape = ChainShape(sizes, (3, 1, 0, 2, 4), 6, shared)
    chain = Chain.start(shape, key=jax.random.key(0))
    leaves, structure = jax.tree.flatten(chain)
    random = np.random.default_rng(2)
    moved = [leaf + 0.3 * jnp.asarray(random.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
    chain = jax.tree.unflatten(structure, moved)
    rows = {"codes": jnp.asarray(np.stack([random.integers(0, size, 24) for size in sizes], axis=1), jnp.int32)}
    loss, keys, valid = ChainLoss(chain), jax.random.split(jax.random.key(1), 24), np.arange(24) < 20
    with jax.enable_x64(True):
        weights = loss.weights(chain.trainable())
        taps = {name: jnp.zeros(size, jnp.float32) for name, size in loss.taps().items()}
        one = lambda weights, row, key: loss.row(weights, row, key, taps)[0]
        looped = jax.jit(jax.vmap(jax.grad(one), (None, 0, 0)))(weights, rows, keys)
        wide = {name: np.asarray(value, np.float64) for name, value in looped.items()}
        norms = np.sqrt(sum(np.sum(value.reshape(24, -1) ** 2, axis=1) for value in wide.values()))
        factors = jax.jit(lambda weights, rows, keys: factors_of(loss, weights, rows, keys))(weights, rows, keys)
        slack = slack_of(sum(weight.size for weight in weights.values()), 5)
        for bound in (0.1, float(np.median(norms)), 1e4):
            factor = np.minimum(1, bound / norms) * (1 - slack) * valid
            fine = factored_sum(loss, weights, FlatClip(bound=bound), factors, jnp.asarray(valid))
            for name, value in wide.items():
                expected = np.tensordot(factor, value, 1)
                error = np.linalg.norm(np.asarray(fine[name]) * bound / _FINE - expected)
                assert error <= 1e-5 * np.linalg.norm(expected) + 1e-9 * bound, (name, bound)
