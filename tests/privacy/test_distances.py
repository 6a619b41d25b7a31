"""Choices by distance and sums of counts: exact counts, a bound that holds after rounding, and broken twins."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise, product
from math import exp, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privacy.doors import WIDE, curator_of
from sfumato.errors import ArgumentError
from sfumato.privacy import Adjacency, Budget, CountQuery, DistanceQuery, Relation
from sfumato.privacy.choice import exponential_weights
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import Counted, cell_counts, exact_scores, exact_sum
from sfumato.privacy.step import PrivateRows

SIZES = (3, 1, 7)
HOSTILE = (-(2**31), -1, 0, 1, 2, 6, 7, 11, 2**31 - 1)


def cells_of(row):
    return row["cells"]


def query_of(random, weights=None):
    """Expected counts that lie on no grid, so that everything is rounded; the largest weight is one."""
    return DistanceQuery(
        function=cells_of,
        expected=tuple(random.uniform(-2, 9, size) for size in SIZES),
        weights=weights or (1.0, float(random.random()), float(random.random())),
        penalties=tuple(random.uniform(-3, 3, len(SIZES)).tolist()),
        purpose="test",
    )


def scores_of(query, cells):
    with jax.enable_x64(True):
        return np.array(exact_scores(Counted(PrivateRows.of({"cells": cells})), query))


def counts_of(cells, sizes=SIZES):
    with jax.enable_x64(True):
        return np.asarray(cell_counts(PrivateRows.of({"cells": cells}), cells_of, sizes))


def moves(make, tries, seed):
    """The largest move of a score, in rows, when one row is added, replaced, or three are added."""
    random, worst = np.random.default_rng(seed), np.zeros(3)
    for _ in range(tries):
        query = make(random)
        rows = random.choice(HOSTILE, (4, 3)).astype(np.int32)
        tables = (rows[:3], np.concatenate([rows[:2], rows[3:]]), np.concatenate([rows, rows[3:], rows[3:]]))
        with_, replaced, many = (scores_of(query, table) for table in tables)
        added = scores_of(query, rows)
        found = [np.abs(one - other).max() / GRID for one, other in ((with_, added), (with_, replaced), (with_, many))]
        worst = np.maximum(worst, found)
    return worst


def test_one_row_moves_a_score_by_at_most_one_and_may_do_so():
    worst = moves(query_of, 150, 0)
    assert (worst <= [1, 2, 3]).all()
    assert (worst > [0.999, 1.5, 2.5]).all(), "the bound is reached, so a larger sensitivity would show"


def test_a_weight_past_one_is_refused_and_would_break_the_bound():
    with pytest.raises(ArgumentError, match="weight"):
        query_of(np.random.default_rng(0), (1.0, 1.5, 0.1))

    def unnormalised(random):
        query = query_of(random)
        object.__setattr__(query, "weights", (1.5, 0.5, 0.5))
        return query

    assert moves(unnormalised, 40, 0)[0] > 1


def test_chances_of_neighbours_stay_within_epsilon():
    """All tables of up to three rows over 2 x 2 cells against all with one row more, by exact integer weights."""
    query = DistanceQuery(
        function=cells_of,
        expected=(np.array([1.3, 0.2]), np.array([0.1, 2.7]), np.full(4, 0.6)),
        weights=(1.0, 0.37, 0.9),
        penalties=(0.0, 1.1, -0.4),
        purpose="test",
    )

    def chances(rows, epsilon):
        counts = [sum(1 for row in rows if cell_of(row) == cell) for cell_of, size in TABLES for cell in range(size)]
        weights = exponential_weights(query.scores(np.array(counts)), GRID, epsilon)
        return [Fraction(weight, sum(weights)) for weight in weights]

    domain = list(product(range(2), range(2)))
    tables = [rows for size in range(3) for rows in product(domain, repeat=size)]
    worst = dict.fromkeys((0.2, 1.0, 3.0), 0.0)
    for epsilon in worst:
        for rows in tables:
            for new in domain:
                pairs = zip(chances(rows, epsilon), chances((*rows, new), epsilon), strict=True)
                worst[epsilon] = max(worst[epsilon], *(float(max(a / b, b / a)) for a, b in pairs))
        assert worst[epsilon] <= exp(epsilon) * (1 + 1e-9)
    assert worst[1.0] > exp(0.5), "more than half of epsilon is used, so a score of half the weight would show"


TABLES = [(lambda row: row[0], 2), (lambda row: row[1], 2), (lambda row: 2 * row[0] + row[1], 4)]


def test_counts_are_exact_and_leave_out_padding_and_numbers_outside():
    random = np.random.default_rng(1)
    cells = random.integers(-2, 9, (1_000, 3)).astype(np.int32)
    expected = [[np.sum(cells[:, place] == cell) for cell in range(size)] for place, size in enumerate(SIZES)]
    assert counts_of(cells).tolist() == np.concatenate(expected).tolist()
    assert counts_of(np.zeros((0, 3), np.int32)).tolist() == [0] * sum(SIZES)
    with pytest.raises(ArgumentError, match="whole numbers"):
        counts_of(cells.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Named:
    """Tables of a row's cells, known by the numbers of their columns, and which of them were asked for."""

    columns: tuple[int, ...]
    asked: list = field(default_factory=list)

    @property
    def names(self):
        return self.columns

    def only(self, places, room):
        self.asked.append(tuple(self.columns[place] for place in places))
        return Named(tuple([self.columns[place] for place in places] + [0] * (room - len(places))), self.asked)

    def __call__(self, row):
        (cells,) = row.values()
        return cells[jnp.array(self.columns)].astype(jnp.int32)


def test_tables_are_counted_once_and_are_those_that_counting_anew_gives():
    cells = np.random.default_rng(3).integers(-2, 9, (500, 3)).astype(np.int32)
    rows, asked = PrivateRows.of({"cells": cells}), []
    counted = Counted(rows)
    with jax.enable_x64(True):
        for columns in ((0,), (2, 0), (0, 1, 2), (1, 1), (2,)):
            function, sizes = Named(columns, asked), tuple(SIZES[column] for column in columns)
            query = CountQuery(function=function, sizes=sizes, purpose="test")
            found = exact_sum(counted, query)
            assert found.tolist() == (np.asarray(cell_counts(rows, function, sizes)) * GRID).tolist()
        assert asked == [(0,), (2,), (1,)], "only what is new"
        other = counted.of(Named((0,), asked), (5,))
        assert len(other) == 5, "a table of another size is another table"


def test_distances_are_those_of_counts_that_were_kept():
    random = np.random.default_rng(4)
    cells = random.choice(HOSTILE, (60, 3)).astype(np.int32)
    rows = PrivateRows.of({"cells": cells})
    counted = Counted(rows)
    with jax.enable_x64(True):
        for _ in range(3):
            plain = query_of(random)
            named = replace(plain, function=Named((0, 1, 2)))
            assert exact_scores(counted, named) == exact_scores(Counted(rows), plain)


def test_other_rows_and_other_views_have_counts_of_their_own():
    """The same table by name, of rows, of a view and of rows held later: 10, 40 and 3 rows in its first cell."""
    query = CountQuery(function=Named((0,)), sizes=(2,), purpose="test")
    curator = curator_of(np.array([[0]] * 10 + [[1]] * 40), budget=Budget(epsilon=200, delta=1e-5))
    turned = curator.through(lambda row: {"x": 1 - row["x"]})
    later = curator.holding({"x": np.zeros((3, 1), np.float32)})
    found = [np.round(each.noisy_sum(query, share=0.2)).tolist() for each in (curator, turned, later, curator)]
    np.testing.assert_allclose(found, [[10, 40], [40, 10], [3, 0], [10, 40]], atol=4)


def test_a_row_moves_counts_by_the_root_of_the_tables():
    random = np.random.default_rng(2)
    query = CountQuery(function=cells_of, sizes=SIZES, purpose="test")
    rows = random.choice(HOSTILE, (200, 3)).astype(np.int32)
    with jax.enable_x64(True):
        totals = [
            np.asarray(exact_sum(Counted(PrivateRows.of({"cells": rows[:size]})), query)) for size in range(1, 60)
        ]
    found = [np.linalg.norm((more - less).astype(float)) / GRID for less, more in pairwise(totals)]
    assert max(found) <= query.grid_norm == sqrt(3)
    assert max(found) > 1.4


@pytest.mark.parametrize(
    "adjacency", [Adjacency(), Adjacency(unit="p", max_rows=4), Adjacency(relation=Relation.REPLACE_ONE)]
)
def test_the_noise_of_counts_has_the_stated_deviation(adjacency):
    """4,000 cells: the deviation is within 5 % of the stated one; a false alarm is past 4 standard errors, 1e-4."""
    query = CountQuery(function=lambda row: row["x"].astype(jnp.int32), sizes=(2_000, 2_000), purpose="test")
    curator = curator_of(np.zeros((30, 2)), budget=WIDE, adjacency=adjacency)
    answer = curator.noisy_sum(query, share=0.25)
    stated = curator.noise_of(sqrt(2), 0.25)
    noise = answer - np.where(np.arange(4_000) % 2_000 == 0, 30, 0)
    assert abs(np.std(noise) / stated - 1) < 0.05
    assert abs(np.std(noise) / (stated / sqrt(2)) - 1) > 0.05, "noise for one table in place of two would show"


def test_the_door_chooses_the_table_that_is_far_off():
    query = DistanceQuery(
        function=lambda row: row["x"].astype(jnp.int32),
        expected=(np.array([60.0, 0.0]), np.array([0.0, 60.0]), np.array([60.0, 0.0])),
        weights=(1.0, 1.0, 1.0),
        penalties=(0.0, 0.0, 0.0),
        purpose="test",
    )
    curator = curator_of(np.zeros((60, 3)), budget=Budget(epsilon=5, delta=1e-5))
    assert curator.noisy_choice(query, epsilon=2.0) == 1


@pytest.mark.parametrize(
    "broken",
    [
        {"expected": (np.array([np.nan]),)},
        {"expected": (np.array([1e30]),)},
        {"penalties": (np.inf,)},
        {"weights": (2,)},
    ],
    ids=["nan", "huge", "penalty", "weight"],
)
def test_what_is_no_question_is_refused(broken):
    sound = {"expected": (np.array([1.0]),), "weights": (1.0,), "penalties": (0.0,)}
    DistanceQuery(function=cells_of, purpose="test", **sound)
    with pytest.raises(ArgumentError):
        DistanceQuery(function=cells_of, purpose="test", **{**sound, **broken})
