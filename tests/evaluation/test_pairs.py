"""Metrics of pairs: worked cases, and agreement with slower definitions."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from scipy.stats.contingency import association

from evaluation.mixed_tables import compare, mixed
from sfumato.evaluation.comparison import Comparison
from sfumato.evaluation.metric import Part, Score
from sfumato.evaluation.metrics import binning, divergence, pairs, subsets
from sfumato.evaluation.metrics.correlation import kendall, pearson, ranks, spearman
from sfumato.evaluation.metrics.divergence import cramers_v
from sfumato.schema import Boolean, Categorical, Continuous, Integer, Schema


def scores(comparison: Comparison) -> dict[str, Score]:
    return {
        metric.name: Score(metric=metric, parts=tuple(measurement.run(comparison).get(metric.name, ())))
        for measurement in pairs.MEASUREMENTS
        for metric in measurement.metrics
    }


def part(comparison: Comparison, name: str, *of: str) -> Part:
    (found,) = [part for part in scores(comparison)[name].parts if part.of == of]
    return found


def three_numbers(synthetic_z: list[int]) -> Comparison:
    """x and y rise together in both tables; z rises with them in the real table."""
    schema = Schema(columns={name: Integer(lower=0, upper=9, nullable=True) for name in "xyz"})
    real = pa.table({"x": [1, 2, 3], "y": [2, 4, 6], "z": [1, 2, 3]})
    return compare(real, pa.table({"x": [1, 2, 3], "y": [2, 4, 6], "z": synthetic_z}), schema)


def test_correlations_by_hand():
    comparison = three_numbers([1, 3, 2])
    pearson_part = part(comparison, "correlation_similarity", "x", "z")
    assert pearson_part.detail == pytest.approx({"real": 1.0, "synthetic": 0.5})
    assert pearson_part.value == pytest.approx(0.75)
    kendall_part = part(comparison, "kendall_tau", "x", "z")
    assert kendall_part.detail == pytest.approx({"real": 1.0, "synthetic": 1 / 3})
    assert kendall_part.value == pytest.approx(2 / 3)
    assert part(comparison, "kendall_tau", "x", "y").value == 0


def test_kendall_matrices_by_hand():
    """The matrices differ by 2/3 in four of nine entries; the diagonal counts."""
    found = scores(three_numbers([1, 3, 2]))
    assert found["kendall_tau_mae"].value == pytest.approx(4 * (2 / 3) / 9)
    assert found["kendall_tau_rmse"].value == pytest.approx(math.sqrt(4 * (2 / 3) ** 2 / 9))


def test_kendall_matrices_are_those_of_the_numeric_columns():
    comparison = mixed()
    names = comparison.numeric
    assert len(names) == 4

    def matrix(rows):
        return np.array(
            [
                [stats.kendalltau(rows.numbers[a], rows.numbers[b], nan_policy="omit").statistic for b in names]
                for a in names
            ]
        )

    gap = matrix(comparison.real) - matrix(comparison.synthetic)
    found = scores(comparison)
    assert found["kendall_tau_mae"].value == pytest.approx(np.abs(gap).mean(), abs=1e-12)
    assert found["kendall_tau_rmse"].value == pytest.approx(np.sqrt((gap**2).mean()), abs=1e-12)
    ordered = {name for part in found["kendall_tau"].parts for name in part.of}
    assert ordered == {*names, "grade"}


def test_kendall_matrices_say_what_they_leave_out():
    found = scores(three_numbers([4, 4, 4]))
    assert [part.failure for part in found["kendall_tau"].parts] == [
        None,
        "'z' is constant in the synthetic table where both values are present",
        "'z' is constant in the synthetic table where both values are present",
    ]
    matrix, *left_out = found["kendall_tau_mae"].parts
    assert matrix.value == 0
    assert matrix.detail == {"pairs": 1.0, "pairs without tau": 2.0}
    assert left_out == list(found["kendall_tau"].failures)
    assert found["kendall_tau_mae"].text == "0.000 (2 of 3 failed)"


def test_missing_rows_of_a_pair_do_not_count():
    schema = Schema(columns={name: Continuous(lower=0, upper=9, nullable=True) for name in "xy"})
    real = pa.table({"x": [1.0, 2.0, 3.0, 9.0, None], "y": [1.0, 3.0, 2.0, None, 9.0]})
    comparison = compare(real, pa.table({"x": [1.0, 2.0], "y": [5.0, 6.0]}), schema)
    for name, expected in (("correlation_similarity", 0.75), ("spearman_similarity", 0.75), ("kendall_tau", 2 / 3)):
        assert part(comparison, name, "x", "y").value == pytest.approx(expected), name
    lonely = compare(pa.table({"x": [1.0, 2.0, None], "y": [None, 3.0, 4.0]}), real, schema)
    for name in ("correlation_similarity", "spearman_similarity", "kendall_tau"):
        assert part(lonely, name, "x", "y").failure == "fewer than two rows of the real table have both values"


def levels_of(*counts: list[list[int]]) -> Comparison:
    """Two tables of two columns of levels with these cross tables."""
    schema = Schema(columns={name: Categorical(levels=("a", "b", "c"), nullable=True) for name in "xy"})
    tables = []
    for table in counts:
        cells = [(i, j) for i, row in enumerate(table) for j, number in enumerate(row) for _ in range(number)]
        tables.append(pa.table({"x": ["abc"[i] for i, _ in cells], "y": ["abc"[j] for _, j in cells]}))
    return compare(*tables, schema)


def test_cross_tables_by_hand():
    comparison = levels_of([[4, 0], [0, 4]], [[2, 1], [1, 4]])
    # V of two by two is |ad - bc| over the root of the product of the margins.
    assert part(comparison, "cramers_v", "x", "y").detail == pytest.approx({"real": 1.0, "synthetic": 7 / 15})
    assert part(comparison, "cramers_v", "x", "y").value == pytest.approx(8 / 15)
    assert part(comparison, "contingency_similarity", "x", "y").value == 0.75
    assert part(comparison, "tv2_binned", "x", "y").value == 0.25


def test_margins_may_agree_where_pairs_do_not():
    comparison = levels_of([[5, 0], [0, 5]], [[0, 5], [5, 0]])
    assert part(comparison, "tv2_binned", "x", "y").value == 1
    assert part(comparison, "cramers_v", "x", "y").value == 0


@pytest.mark.parametrize("most", [binning.MOST_CELLS, 1], ids=["dense", "sparse"])
def test_cramers_v_against_scipy(most, monkeypatch):
    monkeypatch.setattr(divergence, "MOST_CELLS", most)
    random = np.random.default_rng(0)
    for _ in range(20):
        left = random.integers(0, 4, 60)
        right = (left * (random.random(60) < 0.5) + random.integers(0, 3, 60)) * 2
        table = np.zeros((4, 12))
        np.add.at(table, (left, right), 1)
        table = table[:, table.sum(axis=0) > 0]
        assert cramers_v(left, right) == pytest.approx(association(table.astype(int), method="cramer"), abs=1e-7)


def test_coefficients_against_scipy():
    random = np.random.default_rng(1)
    for num in (2, 3, 50):
        left, right = random.integers(0, 6, num) + np.arange(num), random.integers(0, 6, num) - np.arange(num) / 3
        assert pearson(left, right) == pytest.approx(stats.pearsonr(left, right).statistic, abs=1e-12)
        assert spearman(left, right) == pytest.approx(stats.spearmanr(left, right).statistic, abs=1e-12)
        assert ranks(left).tolist() == stats.rankdata(left).tolist()
        assert kendall(left, right) == pytest.approx(stats.kendalltau(left, right).statistic, abs=1e-12)


def test_kendall_counts_ties():
    """Tau-b of (1, 1, 2) and (1, 2, 3): two concordant pairs of three, one tie, so 2 / sqrt(2 * 3)."""
    tied = kendall(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    assert tied == pytest.approx(2 / math.sqrt(6))


@pytest.mark.parametrize("coefficient", [pearson, spearman, kendall])
def test_constants_have_no_coefficient(coefficient):
    for left, right in (([1.0, 1.0], [1.0, 2.0]), ([1.0], [2.0]), ([], [])):
        assert coefficient(np.array(left), np.array(right)) is None


def test_short_way_and_long_way_agree():
    """A pair without missing cells takes a short way; one missing cell in a third row sends it the long way."""
    random = np.random.default_rng(2)
    schema = Schema(columns={name: Continuous(lower=-9, upper=9, nullable=True) for name in "xy"})
    real, synthetic = (
        {"x": random.normal(size=40).round(1).tolist(), "y": random.normal(size=40).round(1).tolist()} for _ in "ab"
    )
    whole = compare(pa.table(real), pa.table(synthetic), schema)
    holed = compare(
        *(pa.table({"x": [*side["x"], None], "y": [*side["y"], 3.0]}) for side in (real, synthetic)), schema
    )
    for name in ("correlation_similarity", "spearman_similarity"):
        assert part(whole, name, "x", "y").value == pytest.approx(part(holed, name, "x", "y").value, abs=1e-12)


def test_many_pairs_are_chosen_and_the_score_says_so(monkeypatch):
    monkeypatch.setattr(pairs, "MOST_PAIRS", 5)
    comparison = mixed()
    found = scores(comparison)["tv2_binned"]
    assert len(found.parts) == 6
    assert [part.failure for part in found.failures] == ["only 5 of 28 pairs were measured"]


def test_subsets_are_public_and_fixed():
    names = [f"x{i}" for i in range(40)]
    chosen = subsets.choose_subsets(names, 3, 64, seed=5)
    assert chosen == subsets.choose_subsets(names, 3, 64, seed=5)
    assert chosen != subsets.choose_subsets(names, 3, 64, seed=6)
    assert len(set(chosen)) == 64
    assert all(sorted(subset, key=names.index) == list(subset) and len(set(subset)) == 3 for subset in chosen)
    # Every name has its chance: that one of 40 is in none of 320 subsets has probability 40 * 0.925^320 < 1e-9.
    seen = {name for seed in range(5) for subset in subsets.choose_subsets(names, 3, 64, seed) for name in subset}
    assert seen == set(names)


def test_large_tables_are_sampled_for_kendall():
    schema = Schema(columns={"x": Integer(lower=0, upper=9), "y": Integer(lower=0, upper=9), "on": Boolean()})
    random = np.random.default_rng(3)
    num = pairs.KENDALL_ROWS + 1
    table = pa.table({"x": random.integers(0, 9, num), "y": random.integers(0, 9, num), "on": random.random(num) < 0.5})
    (measurement,) = [m for m in pairs.MEASUREMENTS if pairs.KENDALL_TAU in m.metrics]
    score = measurement.scores(compare(table, table, schema))[0]
    assert score.rows == "sampled: 10,000 of 10,001 real rows, 10,000 of 10,001 synthetic rows"
