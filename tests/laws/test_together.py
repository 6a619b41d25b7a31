"""Rows that are drawn together: each has the law of the model, and together they scatter less than single draws.

False alarms: seeds are fixed. The chi-square tests of a single row's law reject at 1e-7, and ship a mutant each.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sfumato.models.codes import together
from sfumato.models.codes.chain import Chain, ChainShape
from sfumato.models.codes.codec import Codec
from sfumato.models.codes.coded import CodedModel
from sfumato.models.codes.roundness import GRAINS, Roundness
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.codes.together import Stepwise, draw_row, draw_rows, evenly
from sfumato.models.codes.transformer import Transformer, TransformerShape

FALSE_ALARM = 1e-7
SIZES = (3, 2, 4)


def tables() -> ConditionalTables:
    """Two columns that hang on the first."""
    draw = np.random.default_rng(5)
    given = [
        jnp.asarray(draw.dirichlet(np.full(size, 0.7), rows), jnp.float32) for size, rows in ((3, 1), (2, 3), (4, 6))
    ]
    return ConditionalTables(tuple(given), (0, 1, 2), ((), (0,), (0, 1)))


def chain() -> Chain:
    """A chain on those tables whose heads say something of their own."""
    found = Chain.start(ChainShape(SIZES, (0, 1, 2), 4), key=jax.random.key(2), base=tables())
    noise = jax.random.normal(jax.random.key(3), found.head.shape)
    return jax.tree.map(lambda leaf: noise if leaf is found.head else leaf, found)


def transformer() -> Transformer:
    """A distribution that is not drawn step by step."""
    shape = TransformerShape(sizes=SIZES, order=(0, 1, 2), layers=1, width=8, heads=2)
    return Transformer.start(shape, key=jax.random.key(4))


CASES = {"tables": tables, "chain": chain}


def every_row() -> np.ndarray:
    return np.array(np.meshgrid(*map(np.arange, SIZES), indexing="ij")).reshape(3, -1).T


def numbers(codes: np.ndarray) -> np.ndarray:
    return np.ravel_multi_index(codes.T, SIZES)


def chance(joint) -> np.ndarray:
    return np.exp(np.asarray(jax.vmap(joint.log_prob)(jnp.asarray(every_row())), float))


def p_values(joint, rows: int = 4, draws: int = 700) -> list[float]:
    """Of the first and of the last of a few rows drawn together, over many draws: does it have the model's law?"""
    keys, expected = jax.random.split(jax.random.key(11), draws), chance(joint)
    found = np.array([draw_rows(joint, key, rows, rows + 1) for key in keys])
    counts = [np.bincount(numbers(found[:, row]), minlength=24) for row in (0, rows - 1)]
    return [float(stats.chisquare(each, expected / expected.sum() * draws).pvalue) for each in counts]


@pytest.mark.parametrize("case", CASES)
def test_each_row_has_the_law_of_the_model(case):
    assert min(p_values(CASES[case]())) > FALSE_ALARM


def test_steps_without_a_random_offset_are_found(monkeypatch):
    """The mutant: every group begins at zero, so that codes at the lower end come too often."""

    def without(random, group):
        step = evenly(random, group)
        sizes = np.sum(group[:, None] == group[None, :], axis=1)
        return np.floor(step * sizes) / sizes

    monkeypatch.setattr(together, "evenly", without)
    assert max(p_values(tables())) < FALSE_ALARM


def test_counts_are_those_expected_up_to_one_or_two():
    joint, rows = tables(), 1_000
    codes = draw_rows(joint, jax.random.key(1), rows, 1_024)
    for column, parents in enumerate(joint.parents):
        group = (
            np.ravel_multi_index(codes[:, parents].T, [SIZES[p] for p in parents]) if parents else np.zeros(rows, int)
        )
        for value in np.unique(group):
            mine = codes[group == value, column]
            expected = np.asarray(joint.tables[column][value], float) * mine.size
            assert np.abs(np.bincount(mine, minlength=expected.size) - expected).max() < 2


def test_single_draws_scatter_more():
    """The mutant of the test above: counts of rows that are drawn one by one are off by far more."""
    joint, rows = tables(), 1_000
    codes = np.asarray(jax.jit(jax.vmap(joint.sample))(jax.random.split(jax.random.key(1), rows)))
    expected = np.asarray(joint.tables[0][0], float) * rows
    assert np.abs(np.bincount(codes[:, 0], minlength=3) - expected).max() > 2


def test_rows_of_one_group_agree_on_an_offset_and_groups_do_not():
    group = np.array([0, 1] * 8)
    uniform = evenly(np.random.default_rng(3), group)
    assert sorted(np.floor(8 * uniform[::2]).tolist()) == list(range(8))
    offset = uniform * 8 % 1
    assert np.ptp(offset[::2]) < 1e-5 and np.ptp(offset[1::2]) < 1e-5
    assert abs(offset[0] - offset[1]) > 1e-3


@pytest.mark.parametrize("num", [0, 1])
def test_few_rows_are_drawn_as_well(num):
    assert draw_rows(tables(), jax.random.key(0), num, 8).shape == (num, 3)
    assert evenly(np.random.default_rng(0), np.zeros(num, int)).shape == (num,)


def test_what_is_not_drawn_step_by_step_is_drawn_row_by_row():
    joint, key = transformer(), jax.random.key(6)
    assert isinstance(tables(), Stepwise) and isinstance(chain(), Stepwise) and not isinstance(joint, Stepwise)
    one_by_one = jax.vmap(joint.sample)(jax.random.split(key, 4))
    assert np.array_equal(draw_rows(joint, key, 2, 4), one_by_one[:2])


def test_bins_of_a_code_are_evenly_filled():
    """A column of one code in eight bins: each bin has its share of the rows, up to one."""
    shares = np.array([0.3, 0.05, 0.05, 0.2, 0.1, 0.1, 0.1, 0.1])
    as_row = lambda values: jnp.asarray(np.asarray(values)[None], jnp.float32)
    codec = Codec(as_row(np.linspace(0, 1, 9)), as_row(shares), as_row(np.zeros(8)), (0,), (None,), (1,))
    model = CodedModel(codec, ConditionalTables.independent([np.ones(1)]))
    _, bins, _ = model.draw_rows(jax.random.key(0), 1_000, 1_024)
    counts = np.bincount(bins[:, 0], minlength=8)
    assert np.abs(counts - 1_000 * shares).max() < 2


def test_one_row_from_given_numbers():
    """The code at place p is the one that its uniform number falls on."""
    joint = tables()
    codes = np.asarray(draw_row(joint, jnp.asarray([0.999999, 0.0, 0.999999])))
    first = int(np.flatnonzero(np.asarray(joint.tables[0][0]) > 1e-6)[-1])
    assert codes[0] == first and codes[1] == 0


def wide_codec() -> Codec:
    """Numbers in bins of several codes, some of no share, round ones often; a nullable column; levels alone."""
    inner = [[0.5, 0.0, 0.5, 0.25, 0.75, 1.0, 0.0], [1.0, 1.0, 0, 0, 0, 0, 0], [0.5, 0.5, 1.0, 0, 0, 0, 0]]
    code_of = [[0, 0, 0, 2, 2, 1, 1], [0, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1]]
    edges = [np.array([0, 1, 7, 20, 45, 50, 60, 80]) / 80, [0, 0.5, *[1] * 6], [0, 0.25, 0.5, *[1] * 5]]
    weights = np.stack([np.geomspace(1, 9, len(GRAINS)), *np.ones((2, len(GRAINS)))])
    as_array = lambda rows: jnp.asarray(np.array(rows), jnp.float32)
    plain = Codec(as_array(edges), as_array(inner), as_array(code_of), (0, 1, 2), (None, None, 3), (3, 2, 3))
    rounded = Roundness(as_array(weights), (-3, 0, 0), (80, 0, 0))
    return eqx.tree_at(lambda each: each.roundness, plain, rounded, is_leaf=lambda part: part is None)


def test_many_rows_get_what_one_row_gets_from_the_same_numbers():
    """Bins and places of 20,000 rows against the program for one row; the last code of the third column is missing."""
    codec, random = wide_codec(), np.random.default_rng(8)
    codes = np.stack([random.integers(0, size, 20_000) for size in codec.sizes], axis=1)
    uniform = random.random((20_000, 3, 3), np.float32)
    bins, places = (np.asarray(part) for part in jax.vmap(codec.draw)(jnp.asarray(codes), jnp.asarray(uniform)))
    columns = codec.columns()
    assert [each.alone for each in columns] == [False, True, False]
    for column, each in enumerate(columns):
        there = codes[:, column] < (2 if column == 2 else 9)
        found = each.draw(codes[:, column], uniform[:, 0, column])
        assert np.array_equal(found[there], bins[there, column])
        np.testing.assert_allclose(
            each.places(found, uniform[:, 1:, column].T)[there], places[there, column], atol=1e-6
        )
    assert set(np.unique(bins[:, 0])) == {0, 2, 3, 4, 5}, "all bins that have a share, and no others"


def test_columns_of_tables_are_those_of_one_row():
    joint, random = tables(), np.random.default_rng(9)
    codes = np.stack([random.integers(0, size, 5_000) for size in SIZES], axis=1)
    for place, column in enumerate(joint.order):
        uniform = random.random(5_000, np.float32)
        chances = lambda row, number, place=place: together.pick(joint.chances(place, row, ()), number)
        one = jax.jit(jax.vmap(chances))(jnp.asarray(codes), jnp.asarray(uniform))
        assert np.array_equal(joint.draw_column(column, codes, uniform), one)


def test_a_code_without_a_share_is_not_drawn():
    joint = ConditionalTables.independent([np.array([0.0, 0.5, 0.5, 0.0])])
    codes = joint.draw_column(0, np.zeros((4, 1), int), np.array([1e-9, 0.4, 0.6, 1 - 2.0**-24]))
    assert codes.tolist() == [1, 1, 2, 2]
