"""Laws of bought correlations: what cells hide is found again, noise does no harm, levels are put in order.

Noise has a fixed key, so each test either always or never fails.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy.special import ndtr

from sfumato.encoding.features import encode_features
from sfumato.encoding.layout import layout_of
from sfumato.errors import ArgumentError
from sfumato.fitting.correlations import _ROOM, CorrelationShare, buy_correlations, nearest_correlation
from sfumato.fitting.histogram import distribution, joined, smooth, steps
from sfumato.fitting.level_order import _ordered, level_scores, order_levels
from sfumato.fitting.marginals import MarginalShare, buy_marginals
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
from sfumato.privacy.clipping import GRID
from sfumato.privacy.step import PrivateRows, grid_total
from sfumato.schema import Boolean, Categorical, Continuous, Integer, Schema
from sfumato.synthesizers import HFlow

ROWS = 20_000
LEVELS = ("d", "a", "c", "b")  # in the order in which they go along with the others: a, b, c, d
SCHEMA = Schema(
    columns={
        "rare": Boolean(),
        "few": Integer(lower=0, upper=4),
        "size": Continuous(lower=0, upper=1),
        "name": Categorical(levels=LEVELS),
        "gap": Continuous(lower=0, upper=1, nullable=True),
    },
    rows=ROWS,
)
TRUE = np.array(
    [
        [1.0, 0.6, 0.4, 0.3, 0.0],
        [0.6, 1.0, 0.5, 0.5, 0.2],
        [0.4, 0.5, 1.0, 0.6, 0.5],
        [0.3, 0.5, 0.6, 1.0, 0.3],
        [0.0, 0.2, 0.5, 0.3, 1.0],
    ]
)


@cache
def table_of(rows=ROWS, seed=1):
    """A normal copula seen through cells; a third of the gaps is missing."""
    random = np.random.default_rng(seed)
    u = ndtr(random.normal(size=(rows, 5)) @ np.linalg.cholesky(TRUE).T)
    table = {
        "rare": u[:, 0] > 0.95,
        "few": np.digitize(u[:, 1], [0.1, 0.5, 0.7, 0.9]),
        "size": u[:, 2] ** 2,
        "name": np.array(sorted(LEVELS))[np.digitize(u[:, 3], [0.2, 0.6, 0.8])],
        "gap": [
            None if missing else value for value, missing in zip(u[:, 4], random.random(rows) < 1 / 3, strict=True)
        ],
    }
    cells = encode_features(pa.table(table), SCHEMA)
    return {"low": cells.low.astype(np.float32), "width": cells.width.astype(np.float32)}


def made_up():
    """A copy of the table, which a test may spoil."""
    return {name: part.copy() for name, part in table_of().items()}


def curator_of(rows, epsilon=20.0, size=ROWS):
    ledger = Ledger(Budget(epsilon=epsilon, delta=1e-5), Adjacency())
    return Curator(rows, ledger=ledger, randomness=Randomness.from_seed(7), public_size=size), ledger


@cache
def usual(order=True):
    """What is bought of the whole table; once for all tests that only look at it."""
    return bought(made_up(), order=order)


def bought(rows, epsilon=20.0, size=ROWS, order=True):
    curator, ledger = curator_of(rows, epsilon, size)
    layout = layout_of(SCHEMA)
    marginals = buy_marginals(curator, layout, MarginalShare(share=0.3))
    if order:
        marginals = order_levels(curator, layout, marginals, 0.1, 128)
    copula = buy_correlations(curator, layout, marginals, 0.3)
    return marginals, np.asarray(copula.factor @ copula.factor.T, float), ledger


PLACES = [0, 1, 2, 3, 5]  # the fifth feature is the flag of the missing gaps


def test_correlations_behind_the_cells_are_found():
    """Within 0.05, four deviations at this size of what the rarest flag leaves. The mutant that takes products as they
    are is off by a quarter and more."""
    _, found, _ = usual()
    found = found[np.ix_(PLACES, PLACES)].copy()
    sign = np.sign(found[3, 1])  # an order and its reverse are the same
    found[3, :3] *= sign
    found[:3, 3] *= sign
    found[3, 4] *= sign
    found[4, 3] *= sign
    assert np.allclose(found, TRUE, atol=0.05)


def test_a_missing_value_goes_along_with_nothing():
    _, found, _ = usual()
    assert np.all(np.abs(found[4, [0, 1, 2, 3, 5]]) < 0.05)


def test_levels_come_to_stand_in_the_order_of_what_goes_along_with_them():
    marginals, _, _ = usual()
    place = 3
    order = [LEVELS[level] for level in np.argsort(np.asarray(marginals.starts[place])[: len(LEVELS)])]
    assert order in (sorted(LEVELS), sorted(LEVELS, reverse=True))
    kept, _, _ = usual(order=False)
    assert [LEVELS[level] for level in np.argsort(np.asarray(kept.starts[place])[: len(LEVELS)])] == list(LEVELS)


def test_levels_in_no_order_hide_what_goes_along_with_them():
    """Why levels are ordered at all: as the schema lists them, the correlation with sizes falls from 0.6 to near 0."""
    _, ordered, _ = usual()
    _, listed, _ = usual(order=False)
    assert abs(ordered[3, 2]) > 0.55
    assert abs(listed[3, 2]) < 0.3


@pytest.mark.parametrize("size", [2, 50])
def test_noise_larger_than_the_table_leaves_a_copula(size):
    rows = {name: part[:size] for name, part in made_up().items()}
    _, found, _ = bought(rows, epsilon=0.1, size=size)
    assert np.allclose(np.diag(found), 1, atol=1e-4)
    assert np.linalg.eigvalsh(found)[0] > 0.001
    assert np.abs(found - np.eye(6)).max() < 0.995


def test_cells_that_are_no_numbers_leave_a_copula():
    """A row of NaN is a row of no scores: it moves nothing, and the answer stays a matrix of numbers."""
    rows = made_up()
    rows["low"][0] = np.nan
    _, found, _ = bought(rows)
    assert np.isfinite(found).all()


def test_each_purchase_is_charged_under_its_name():
    _, _, ledger = usual()
    purposes = [entry.purpose for entry in ledger.entries]
    assert purposes[-2:] == ["order of the levels of nominal columns", "correlations of all pairs"]
    assert len(purposes) == 5


class _Enough(Exception):
    """All has been bought but the gradients."""


def events_before_descent(rows, adjacency):
    """What a fit of a table of undeclared size charges before its gradients."""
    ledger = Ledger(Budget(epsilon=0.3, delta=1e-5), adjacency)
    curator = Curator(rows, ledger=ledger, randomness=Randomness.from_seed(len(rows["low"])))

    def enough(*_, **__):
        raise _Enough

    curator.noisy_descent = enough
    with pytest.raises(_Enough):
        HFlow().fit(curator, layout_of(SCHEMA))
    return [(entry.purpose, entry.event) for entry in ledger.entries]


@pytest.mark.parametrize("adjacency", [Adjacency(), Adjacency(unit="person", max_rows=3)], ids=["rows", "persons"])
def test_what_is_charged_does_not_depend_on_the_rows(adjacency):
    """No rows, few rows, rows of NaN, many rows: the noisy size differs, and the events are the same."""
    few = {name: part[:40] for name, part in made_up().items()}
    nothing = {name: part[:0] for name, part in few.items()}
    broken = {name: np.full_like(part, np.nan) for name, part in few.items()}
    found = [events_before_descent(rows, adjacency) for rows in (few, nothing, broken, made_up())]
    assert len(found[0]) == 6, "a count, three rounds, the order, the correlations"
    assert all(events == found[0] for events in found)


def queries_of(rows):
    """Every sum that a fit asks for before its gradients."""
    curator, _ = curator_of(rows, size=len(rows["low"]))
    asked, answer = [], curator.noisy_sum

    def noisy_sum(query, *, share):
        asked.append(query)
        return answer(query, share=share)

    curator.noisy_sum = noisy_sum
    HFlow()._fixed_maps(curator, layout_of(SCHEMA))
    return asked


def test_a_row_moves_each_sum_by_at_most_its_bound():
    """Rows left out one by one, cells of no sense among them. Some of every kind of sum reach the bound, or nearly."""
    rows = {name: part[:40] for name, part in made_up().items()}
    hostile = [(np.nan, 0.1), (0.5, np.nan), (np.inf, 0.5), (0.5, -np.inf), (1e38, 1e38), (-5.0, 0.2), (1e-40, 1e-40)]
    for place, (low, width) in enumerate(hostile):
        rows["low"][place], rows["width"][place] = low, width
    rows["low"][7], rows["width"][7] = [0.5, 0.8, 0.99, 0.0, 0.0, 0.99], [0.5, 0.2, 0.0, 0.25, 0.5, 0.0]
    asked = queries_of(rows)
    assert len(asked) == 5
    for query in asked:
        with jax.enable_x64(True):
            total = lambda kept, query=query: np.asarray(
                grid_total(
                    PrivateRows.of({name: part[kept] for name, part in rows.items()}),
                    query.function,
                    query.clip,
                    query.num_entries,
                ),
                float,
            )
            everyone = total(np.arange(40))
            moved = [np.linalg.norm(everyone - total(np.arange(40) != place)) / GRID for place in (*range(8), 20)]
        assert max(moved) <= 1
        assert max(moved) > 0.5, "the bound is not far above what a row can do"
    assert max(moved) > 0.99, "a row of many large scores is clipped"


def test_clipping_leaves_correlations_room():
    """Fifteen features of correlation 0.5 lose less than 2 % of their products; without room, more than 10 %."""
    factor = np.linalg.cholesky(0.5 * np.eye(15) + 0.5)
    scores = np.clip(np.random.default_rng(0).normal(size=(20_000, 15)) @ factor.T, -1.5, 1.5)
    first, second = np.triu_indices(15, 1)
    products = scores[:, first] * scores[:, second]
    norms, spread = np.linalg.norm(products, axis=1), np.sum(np.mean(scores**2, axis=0))
    kept = lambda room: np.mean(products * np.minimum(1, room * spread / norms)[:, None]) / np.mean(products)
    assert kept(_ROOM) > 0.98
    assert kept(1.0) < 0.9


def test_the_largest_of_very_many_levels_stay_as_they_are():
    columns = {f"c{k}": Categorical(levels=tuple(range(3 + k))) for k in range(130)}
    sizes = _ordered(layout_of(Schema(columns=columns)), 128)
    assert 0 < sum(sizes.values()) * 130 <= 2**18
    assert max(sizes.values()) < 128
    assert _ordered(layout_of(Schema(columns={"one": columns["c5"]})), 128) == {}
    assert _ordered(layout_of(Schema(columns={"one": columns["c5"], "two": columns["c9"]})), 8) == {0: 8}


def test_without_nominal_columns_no_order_is_asked_for():
    schema = Schema(columns={"few": Integer(lower=0, upper=4), "size": Continuous(lower=0, upper=1)}, rows=ROWS)
    rows = {name: part[:, 1:3] for name, part in made_up().items()}
    curator, ledger = curator_of(rows)
    marginals = buy_marginals(curator, layout_of(schema), MarginalShare())
    before = len(ledger.entries)
    assert order_levels(curator, layout_of(schema), marginals, 0.1, 128) is marginals
    assert len(ledger.entries) == before


def test_a_single_feature_has_no_correlations():
    schema = Schema(columns={"size": Continuous(lower=0, upper=1)}, rows=ROWS)
    rows = {name: part[:, 2:3] for name, part in made_up().items()}
    curator, ledger = curator_of(rows)
    marginals = buy_marginals(curator, layout_of(schema), MarginalShare())
    before = len(ledger.entries)
    assert np.asarray(buy_correlations(curator, layout_of(schema), marginals, 0.1).factor).tolist() == [[1.0]]
    assert len(ledger.entries) == before


def test_correlations_need_marginals():
    with pytest.raises(ArgumentError, match="need marginals"):
        HFlow(marginals=None)
    with pytest.raises(ArgumentError, match="share"):
        CorrelationShare(share=0.0)
    with pytest.raises(ArgumentError, match="95 %"):
        HFlow(marginals=MarginalShare(share=0.5), correlations=CorrelationShare(share=0.46))


@pytest.mark.parametrize("name", ["size", "clipping", "optimiser", "marginals", "correlations", "dequantisation"])
def test_a_word_in_the_place_of_a_group_of_settings_is_refused_at_once(name):
    with pytest.raises(ArgumentError, match=f"Expected {name}='layer' to be a"):
        HFlow(**{name: "layer"})


def test_rare_levels_lie_in_the_middle():
    """A level that the noise hides says nothing: the mutant that divides by its share sends it to an end."""
    sums = np.array([[0.2, 0.0], [-0.2, 0.0], [0.004, 0.003]])
    masses, noise = np.array([0.5, 0.499, 0.001]), 0.004
    found = level_scores(sums, masses, noise)
    assert np.argmin(np.abs(found)) == 2
    assert np.argmax(np.abs((sums / masses[:, None])[:, 0])) == 2


def test_the_nearest_correlation_matrix_is_one():
    broken = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    assert np.linalg.eigvalsh(broken)[0] < -0.5
    found = nearest_correlation(broken)
    assert np.allclose(np.diag(found), 1)
    assert np.linalg.eigvalsh(found)[0] > 0
    assert np.allclose(nearest_correlation(TRUE), TRUE)


# --- histograms -----------------------------------------------------------------------------------------------


def test_steps_that_stand_out_stay_and_others_go():
    """Flat but for one heavy bin, 64 bins with noise: the best partition has three parts, far closer than the bins."""
    edges, noise = np.linspace(0, 1, 65), 0.004
    true = np.full(64, 0.7 / 63)
    true[20] = 0.3
    noisy = true + noise * np.random.default_rng(0).normal(size=64)
    found, sums = steps(edges, noisy, noise)
    assert 3 <= len(sums) <= 6
    assert {20 / 64, 21 / 64} <= set(found)
    spread = np.interp(edges, found, np.concatenate([[0], np.cumsum(sums)]))
    assert np.sum((np.diff(spread) - true) ** 2) < 0.2 * np.sum((noisy - true) ** 2)


def test_without_noise_every_step_stays():
    shares = np.array([0.1, 0.4, 0.2, 0.3])
    edges = np.linspace(0, 1, 5)
    assert np.allclose(steps(edges, shares, 1e-9)[1], shares)
    assert np.allclose(distribution(edges, shares, 1e-9, 4, 8)[1], shares)


def test_smooth_lines_keep_the_mass_of_every_bin():
    edges, shares = np.array([0, 0.3, 0.5, 0.6, 1.0]), np.array([0.05, 0.5, 0.4, 0.05])
    finer, parts = smooth(edges, shares, 64)
    assert len(parts) <= 64
    assert np.all(parts >= 0)
    total = np.interp(edges, finer, np.concatenate([[0], np.cumsum(parts)]))
    assert np.allclose(np.diff(total), shares)


def test_light_bins_are_joined_and_nothing_is_lost():
    edges, shares = np.linspace(0, 1, 9), np.array([0.0, 0.01, -0.01, 0.5, 0.0, 0.02, 0.48, 0.0])
    found, sums = joined(edges, shares, 0.01)
    assert sums.sum() == pytest.approx(shares.sum())
    assert {3 / 8, 4 / 8} <= set(found)
    assert len(sums) < len(shares)
    assert jnp.asarray(found)[0] == 0
