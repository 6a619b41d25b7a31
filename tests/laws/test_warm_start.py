"""Laws of the warm start: the tree is the best one, margins are kept, and one row moves the sums by what was said."""

from functools import cache
from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.encoding.layout import layout_of
from sfumato.fitting.chain_loss import ChainLoss
from sfumato.fitting.codecs import Coded, even_codec
from sfumato.fitting.dependence import GROUPS, _Grouped, buy_dependence, coarse
from sfumato.fitting.select_measure import CellNumbers
from sfumato.fitting.warm_start import WarmStart, best_tree, buy_tree, shrunk
from sfumato.models.codes.chain import Chain, ChainShape
from sfumato.privacy import Adjacency, Budget, CountQuery, Curator, FlatClip, Ledger, Randomness
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import Counted, exact_sum
from sfumato.privacy.factored import _FINE, factored_sum, factors_of, slack_of
from sfumato.privacy.step import PrivateRows
from sfumato.schema import Integer, Schema

ROWS = 20_000
SCHEMA = Schema(columns={name: Integer(lower=0, upper=7) for name in "abcd"}, rows=ROWS)


@cache
def codes():
    """A chain a - b - c of columns that mostly agree, and a column d of its own."""
    random = np.random.default_rng(0)
    follow = lambda column: np.where(random.random(ROWS) < 0.6, column, random.integers(0, 8, ROWS))
    a = np.minimum(random.poisson(2, ROWS), 7)
    b = follow(a)
    return np.stack([a, b, follow(b), random.integers(0, 8, ROWS)], axis=1)


def curator_of(epsilon=5.0):
    low = (codes() / 8).astype(np.float32)
    ledger = Ledger(Budget(epsilon=epsilon, delta=1e-6), Adjacency())
    rows = {"low": low, "width": np.full_like(low, 1 / 8)}
    return Curator(rows, ledger=ledger, randomness=Randomness.from_seed(11), public_size=ROWS), ledger


@cache
def bought():
    curator, ledger = curator_of()
    codec = even_codec(layout_of(SCHEMA), 8)
    shares = tuple(np.bincount(column, minlength=8) / ROWS for column in codes().T)
    view = curator.through(codec.row)
    return buy_tree(view, Coded(codec=codec, shares=shares), WarmStart(), ordered=[True] * 4), ledger, view, shares


def test_the_tree_is_that_of_the_table():
    tree, ledger, _, _ = bought()
    edges = {frozenset((child, *above)) for child, above in enumerate(tree.parents) if above}
    assert {frozenset((0, 1)), frozenset((1, 2))} <= edges
    assert [entry.purpose for entry in ledger.entries] == [
        "dependence of all pairs of columns",
        "pairs of a tree of columns",
    ]


def test_the_tree_knows_what_it_measured():
    """Total variation of the pair (a, b): 0.01 of noise at most, where independent columns are 0.5 off."""
    tree, _, _, shares = bought()
    drawn = np.asarray(jax.jit(jax.vmap(tree.sample))(jax.random.split(jax.random.key(1), 50_000)))
    joint = lambda rows: np.histogram2d(rows[:, 0], rows[:, 1], bins=8, range=[[0, 8]] * 2)[0] / len(rows)
    off = lambda table: np.abs(table - joint(codes())).sum() / 2
    assert off(joint(drawn)) < 0.03 < off(np.outer(shares[0], shares[1]))


def test_the_best_tree_is_the_best_of_all():
    random = np.random.default_rng(3)
    for _ in range(5):
        pairs = list(combinations(range(5), 2))
        worth = dict(zip(pairs, random.random(len(pairs)), strict=True))
        found = sum(worth[min(edge), max(edge)] for edge in best_tree(worth, 5))
        assert found == pytest.approx(
            max(sum(worth[e] for e in each) for each in combinations(pairs, 4) if spans(each))
        )


def spans(edges):
    near = {0}
    for _ in range(5):
        near |= {column for edge in edges if near & set(edge) for column in edge}
    return len(near) == 5


def test_shrinking_keeps_margins_and_follows_noise():
    random = np.random.default_rng(5)
    joint = random.dirichlet(np.full(24, 0.3)).reshape(4, 6)
    rows, columns = joint.sum(1), joint.sum(0)
    alone = np.outer(rows, columns)
    exact = shrunk(joint, alone, 1e-9, rows, columns)
    drowned = shrunk(alone + random.normal(0, 0.1, (4, 6)) * 1e-3, alone, 0.1, rows, columns)
    assert np.allclose(exact, joint, atol=1e-3)
    assert np.allclose(drowned, alone, atol=1e-6)
    noisy = shrunk(joint + random.normal(0, 0.02, (4, 6)), alone, 0.02, rows, columns)
    assert np.allclose(noisy.sum(1), rows) and np.allclose(noisy.sum(0), columns)
    assert np.abs(noisy - joint).sum() < np.abs(alone - joint).sum()


COUNTED = {"dependence": [(0, 1), (0, 2), (1, 2)], "tree": [(0, 1), (2, 1)]}


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_one_row_moves_a_sum_by_its_bound(name):
    """Neighbours' exact sums are as far apart as the noise is made for, and further than one pair alone would be."""
    pairs = COUNTED[name]
    query = CountQuery(function=CellNumbers.of(pairs, (5, 5, 5)), sizes=(25,) * len(pairs), purpose="test")
    rows = np.random.default_rng(1).integers(0, 5, (40, 3)).astype(np.int32)

    def total(codes):
        with jax.enable_x64(True):
            return np.asarray(exact_sum(Counted(PrivateRows.of({"codes": codes})), query), float) / GRID

    whole = total(rows)
    for left_out in range(5):
        apart = np.linalg.norm(whole - total(np.delete(rows, left_out, axis=0)))
        assert 1 < apart == pytest.approx(query.grid_norm, rel=1e-12)
    assert whole.sum() == 40 * len(pairs)  # each row is in one cell of each pair


def test_every_pair_of_codes_is_a_cell_of_its_own():
    numbers = CellNumbers.of(COUNTED["tree"], (5, 5, 5))
    every = np.array(list(product(range(5), repeat=3)), np.int32)
    cells = np.asarray(jax.vmap(lambda codes: numbers({"codes": codes}))(every))
    for place, (a, b) in enumerate(COUNTED["tree"]):
        assert np.array_equal(cells[:, place], 5 * every[:, a] + every[:, b])


def test_codes_are_seen_as_their_groups():
    grouped = _Grouped.of((np.array([0, 0, 1]), np.array([1, 0])))
    assert grouped({"codes": jnp.array([2, 0])})["codes"].tolist() == [1, 1]


def test_coarse_groups_hold_the_codes_together():
    shares = np.array([0.05, 0.5, 0.05, 0.1, 0.1, 0.1, 0.1])
    for in_order in (True, False):
        groups = coarse(shares, in_order=in_order)
        assert groups.max() < GROUPS and set(groups) == set(range(groups.max() + 1))
    assert np.all(np.diff(coarse(shares, in_order=True)) >= 0)


def test_dependence_is_found_and_noise_is_not():
    _, _, _, shares = bought()
    curator, _ = curator_of()
    fresh = curator.through(even_codec(layout_of(SCHEMA), 8).row)
    found = buy_dependence(fresh, shares, share=0.2, ordered=[True] * 4).information()
    assert min(found[0, 1], found[1, 2]) > 0.1
    assert max(found[0, 3], found[1, 3], found[2, 3]) < 0.01


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
