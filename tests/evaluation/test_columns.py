"""Metrics of single columns: worked cases, and the laws that every metric of columns, pairs and workloads keeps."""

import math
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial import distance

from evaluation.mixed_tables import compare, mixed, rows
from sfumato.evaluation.comparison import Comparison
from sfumato.evaluation.metric import Metric, Part, Score
from sfumato.evaluation.metrics import columns, pairs, workload
from sfumato.evaluation.metrics.binning import BINS, MOST_CELLS, Binned, bin_column, bounds_of, count, join
from sfumato.evaluation.metrics.divergence import homogeneity_test, jensen_shannon, kolmogorov_smirnov
from sfumato.schema import Boolean, Categorical, Continuous, Date, Datetime, Integer, Schema

ALL = (*columns.MEASUREMENTS, *pairs.MEASUREMENTS, *workload.MEASUREMENTS)
ONE_WAY = {"chi_square_p", "range_coverage", "category_coverage"}
"""Metrics that ask how well the second table covers the first, and are not symmetric."""


def run_all(comparison: Comparison) -> dict[str, tuple[Metric, tuple[Part, ...]]]:
    """All parts of all metrics, from ``run`` itself: what it raises is not caught, and nothing is sampled."""
    found = {}
    for measurement in ALL:
        parts = measurement.run(comparison)
        assert set(parts) <= {metric.name for metric in measurement.metrics}
        found |= {metric.name: (metric, tuple(parts.get(metric.name, ()))) for metric in measurement.metrics}
    return found


def value(comparison: Comparison, name: str) -> float | None:
    metric, parts = run_all(comparison)[name]
    return Score(metric=metric, parts=parts).value


def numbers(real: list, synthetic: list) -> Comparison:
    schema = Schema(columns={"x": Continuous(lower=0, upper=20, nullable=True)})
    return compare(*(pa.table({"x": pa.array(side, pa.float64())}) for side in (real, synthetic)), schema)


def levels(real: list, synthetic: list) -> Comparison:
    schema = Schema(columns={"x": Categorical(levels=("a", "b", "c"), nullable=True)})
    return compare(*(pa.table({"x": pa.array(side, pa.string())}) for side in (real, synthetic)), schema)


@pytest.mark.parametrize(
    ("real", "synthetic", "expected"),
    [
        ([1, 2, 3, 4], [3, 4, 5, 6], 0.5),
        ([1, 2, 3, 4, None], [None, 3, 4, 5, 6], 0.5),
        ([3, 4, 5, 6], [1, 2, 3, 4], 0.5),
        ([1, 1], [2], 0.0),
        ([1, 2, 2, 2], [2, 2, 1, 2, 2, 2, 1, 2], 1.0),
    ],
    ids=["shifted", "missing left out", "shifted back", "apart", "same shares"],
)
def test_ks_complement(real, synthetic, expected):
    assert value(numbers(real, synthetic), "ks_complement") == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("synthetic", "expected"),
    [([4, 8], 0.4), ([0, 20], 1.0), ([2, 12], 1.0), ([7], 0.0), ([12, None, 20], 0.0)],
    ids=["inside", "beyond", "exact", "a point", "at the end"],
)
def test_range_coverage(synthetic, expected):
    assert value(numbers([2, 5, 12], synthetic), "range_coverage") == pytest.approx(expected, abs=1e-15)


def test_discrete_by_hand():
    comparison = levels(["a", "a", "b", "b"], ["a", "a", "a", "b"])
    assert value(comparison, "tv_complement") == 0.75
    assert value(comparison, "tv_binned") == 0.25
    # Shares (1/2, 1/2) and (3/4, 1/4): the statistic is 1/4 with one degree of freedom.
    assert value(comparison, "chi_square_p") == pytest.approx(math.erfc(math.sqrt(1 / 8)), abs=1e-12)
    # Counts (2, 2) and (3, 1): expected 5/2 and 3/2 on both sides, so the statistic is 1/5 + 1/3.
    assert value(comparison, "chi_square_counts_p") == pytest.approx(math.erfc(math.sqrt(4 / 15)), abs=1e-12)
    assert value(comparison, "category_coverage") == 1.0


def test_missing_is_a_cell_or_left_out():
    comparison = levels(["a", "b", None, None], ["a", "b", "b", "a"])
    assert value(comparison, "tv_complement") == 1.0
    assert value(comparison, "tv_binned") == 0.5
    assert value(comparison, "missing_similarity") == 0.5
    (part,) = run_all(comparison)["missing_similarity"][1]
    assert part.detail == {"real": 0.5, "synthetic": 0.0}


def test_category_coverage_by_hand():
    assert value(levels(["a", "b", "c"], ["c", "c", None]), "category_coverage") == pytest.approx(1 / 3)
    assert value(levels(["a", "b"], [None]), "category_coverage") == 0.0


def test_level_that_no_real_row_has():
    assert value(levels(["a"] * 9, ["a"] * 8 + ["b"]), "chi_square_p") < 1e-9


def test_counts_matter_only_to_the_test_on_counts():
    few, many = (levels(["a", "b"] * n, ["a", "a", "b"] * n) for n in (5, 500))
    assert value(few, "chi_square_p") == pytest.approx(value(many, "chi_square_p"))
    assert value(few, "chi_square_counts_p") > 0.3
    assert value(many, "chi_square_counts_p") < 1e-9


def test_bins_are_equal_in_width_and_public():
    comparison = numbers([0, 0.99, 1, 19.5, 20, None], [5])
    assert bin_column(comparison, "x").real.tolist() == [0, 0, 1, 19, 19, 20]
    # One value a bin on both sides, nine bins apart.
    assert value(numbers([1.1], [1.9]), "tv_binned") == 0
    assert value(numbers([1.9], [2.1]), "tv_binned") == 1


def test_whole_numbers_on_edges_stay_there():
    schema = Schema(columns={"x": Integer(lower=0, upper=100)})
    rows = pa.table({"x": list(range(101))})
    cells = bin_column(compare(rows, rows, schema), "x", bins=100).real.tolist()
    assert cells == [*range(100), 99]


def test_bounds_in_units_of_a_sample():
    schema = Schema(
        columns={
            "day": Date(lower=date(1969, 12, 31), upper=date(2023, 5, 6)),
            "time": Datetime(lower=datetime(1969, 12, 31, 23), upper=datetime(2023, 5, 6, 7, 8, 9)),
        }
    )
    ends = pa.table({name: [column.lower, column.upper] for name, column in schema.modelled})
    comparison = compare(ends, ends, schema)
    for name, column in schema.modelled:
        assert bounds_of(column) == tuple(comparison.real.numbers[name].tolist())
        assert bin_column(comparison, name).real.tolist() == [0, BINS - 1]


def test_jensen_shannon_against_scipy():
    random = np.random.default_rng(0)
    for _ in range(20):
        first, second = (random.multinomial(30, random.dirichlet(np.ones(6))).astype(float) for _ in "ab")
        assert jensen_shannon(first, second) == pytest.approx(distance.jensenshannon(first, second, base=2), abs=1e-9)
    # Shares (1, 0) and (1/2, 1/2): the divergence is 3/2 - 3/4 log2(3) bits.
    by_hand = math.sqrt(1.5 - 0.75 * math.log2(3))
    assert jensen_shannon(np.array([2.0, 0.0]), np.array([1.0, 1.0])) == pytest.approx(by_hand, abs=1e-12)


def test_statistics_against_scipy():
    random = np.random.default_rng(1)
    for _ in range(20):
        first, second = random.integers(0, 9, 40).astype(float), random.integers(0, 12, 25).astype(float)
        assert kolmogorov_smirnov(first, second) == pytest.approx(stats.ks_2samp(first, second).statistic, abs=1e-12)
        table = random.integers(1, 30, (2, 5)).astype(float)
        expected = stats.chi2_contingency(table, correction=False).pvalue
        assert homogeneity_test(*table) == pytest.approx(expected, abs=1e-12)


def test_test_on_counts_has_its_level():
    """Under one distribution a p-value below 0.05 comes up in 5 % of the cases, here in 400 of 8,000.

    Bounds at 4 standard deviations (78): false-alarm rate 6e-5. The figure on frequencies, which is no test, must
    fall outside of them.
    """
    random = np.random.default_rng(2)
    shares = np.array([0.5, 0.3, 0.2])
    tables = random.multinomial(200, shares, (8_000, 2)).astype(float)
    rejected = sum(homogeneity_test(*table) < 0.05 for table in tables)
    assert abs(rejected - 400) <= 78
    broken = sum(columns.frequency_test(*table) < 0.05 for table in tables)
    assert abs(broken - 400) > 78


@pytest.mark.parametrize("size", [1000, MOST_CELLS], ids=["few cells", "many cells"])
def test_join_keeps_counts_whatever_the_domain(size):
    """With many cells only those with rows are kept; the counts of these are the same."""
    random = np.random.default_rng(3)
    left, right, third = (Binned(real=random.integers(0, 3, 50), synthetic=random.integers(0, 3, 40), size=size),) * 3
    real, synthetic = count(join(left, right, third))
    assert real.sum() == 50
    assert synthetic.sum() == 40
    expected = sorted(np.unique(left.real, return_counts=True)[1].tolist())
    assert sorted(real[real > 0].tolist()) == expected
    assert len(real) <= max(MOST_CELLS, 90)


def check_ranges(comparison: Comparison) -> None:
    for metric, parts in run_all(comparison).values():
        low, high = metric.range
        for part in parts:
            assert (part.value is None) == (part.failure is not None), (metric.name, part)
            assert part.value is None or low <= part.value <= high, (metric.name, part)


def check_identity(comparison: Comparison) -> None:
    same = Comparison(schema=comparison.schema, real=comparison.real, synthetic=comparison.real)
    for metric, parts in run_all(same).values():
        for part in parts:
            assert part.value is None or part.value == pytest.approx(metric.ideal, abs=1e-9), (metric.name, part)


def check_symmetry(comparison: Comparison) -> None:
    swapped = Comparison(schema=comparison.schema, real=comparison.synthetic, synthetic=comparison.real)
    there, back = run_all(comparison), run_all(swapped)
    for name in there.keys() - ONE_WAY:
        for part, other in zip(there[name][1], back[name][1], strict=True):
            assert (part.value is None) == (other.value is None)
            assert part.value is None or part.value == pytest.approx(other.value, abs=1e-9), (name, part)


def check_order(comparison: Comparison, seed: int) -> None:
    """The order of the rows does not matter."""
    random = np.random.default_rng(seed)
    turned = Comparison(
        schema=comparison.schema,
        real=comparison.real.take(random.permutation(comparison.real.num_rows)),
        synthetic=comparison.synthetic.take(random.permutation(comparison.synthetic.num_rows)),
    )
    there, back = run_all(comparison), run_all(turned)
    for name, (_, parts) in there.items():
        for part, other in zip(parts, back[name][1], strict=True):
            assert part.failure == other.failure
            assert part.value is None or part.value == pytest.approx(other.value, abs=1e-9), (name, part)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    num_real=st.sampled_from([1, 2, 3, 30]),
    num_synthetic=st.sampled_from([1, 2, 5, 40]),
    missing=st.sampled_from([0.0, 0.3, 1.0]),
    tilt=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 2**31),
)
def test_laws(num_real, num_synthetic, missing, tilt, seed):
    """One row, all missing, constant columns and all between: values stay in range and laws hold; nothing is raised."""
    comparison = compare(
        rows(num_real, seed, missing=missing), rows(num_synthetic, seed + 1, tilt=tilt, missing=missing, unused="red")
    )
    check_ranges(comparison)
    check_identity(comparison)
    check_symmetry(comparison)
    check_order(comparison, seed)


def l1(first, second):
    return float(np.abs(first / first.sum() - second / second.sum()).sum())


def one_sided(first, second):
    return max(0.0, *((first <= point).mean() - (second <= point).mean() for point in np.append(first, second)))


@pytest.mark.parametrize(
    ("attribute", "broken", "law"),
    [
        ("total_variation", l1, check_ranges),
        ("kolmogorov_smirnov", one_sided, check_symmetry),
        ("jensen_shannon", lambda first, second: 0.5, check_identity),
        ("count", lambda binned: (binned.real[:3] + 1.0, binned.synthetic[:3] + 1.0), lambda c: check_order(c, 0)),
    ],
    ids=["range", "symmetry", "identity", "order"],
)
def test_laws_reject(attribute, broken, law, monkeypatch):
    """Each law finds a metric that breaks it."""
    comparison = compare(rows(30, 0), rows(40, 1, tilt=2.0, missing=0.9, unused="red"))
    law(comparison)
    monkeypatch.setattr(columns, attribute, broken)
    with pytest.raises(AssertionError):
        law(comparison)


def test_laws_at_the_largest_numbers():
    """Sums, squares and spans of the largest floats overflow; a metric must not."""
    schema = Schema(columns={name: Continuous(lower=-8e307, upper=8e307, nullable=True) for name in "xyz"})
    random = np.random.default_rng(4)
    real, synthetic = (
        pa.table({name: random.uniform(-1, 1, 30) * 8e307 for name in "xyz"}) for _ in ("real", "synthetic")
    )
    comparison = compare(real, synthetic, schema)
    check_ranges(comparison)
    check_identity(comparison)
    assert all(part.value is not None for _, parts in run_all(comparison).values() for part in parts)


def test_every_part_is_there():
    """A column or a pair that cannot be measured is a failed part, not a gap in the list."""
    comparison = compare(rows(1, 0, missing=1.0), rows(1, 1, missing=1.0))
    found = run_all(comparison)
    num_numeric, num_discrete, num_all = 4, 4, 8
    expected = {
        "ks_complement": num_numeric,
        "range_coverage": num_numeric,
        "tv_complement": num_discrete,
        "chi_square_p": num_discrete,
        "category_coverage": num_discrete,
        "tv_binned": num_all,
        "missing_similarity": 5,
        "correlation_similarity": 6,
        "spearman_similarity": 6,
        "kendall_tau": 10,
        "cramers_v": 6,
        "contingency_similarity": 6,
        "tv2_binned": 28,
        "kway_error": 56,
        "range_query_error": 3,
    }
    assert {name: len(found[name][1]) for name in expected} == expected
    reasons = {part.of: part.failure for part in found["ks_complement"][1] if part.failure}
    assert reasons == {(name,): "no present value in the real table" for name in ("age", "income", "day")}


def test_no_failure_in_whole_tables():
    """A broken metric would hide behind its failures: on tables in order only what must fail does."""
    failed = {part.of for _, parts in run_all(mixed()).values() for part in parts if part.failure}
    assert failed == {("colour", "kind"), ("grade", "kind"), ("on", "kind")}


def test_names_differ_and_every_metric_explains_itself():
    metrics = [metric for measurement in ALL for metric in measurement.metrics]
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert metric.about.endswith(".")
        assert metric.reference
        assert metric.title
        similarity = any(word in metric.name for word in ("complement", "similarity", "coverage", "_p"))
        assert (metric.direction == "higher") == similarity


def test_single_column_has_no_pairs():
    schema = Schema(columns={"on": Boolean()})
    table = pa.table({"on": [True, False]})
    found = run_all(compare(table, table, schema))
    assert {name for name, (_, parts) in found.items() if parts} == {
        "tv_complement",
        "chi_square_p",
        "chi_square_counts_p",
        "category_coverage",
        "tv_binned",
        "jensen_shannon",
        "range_query_error",
    }
