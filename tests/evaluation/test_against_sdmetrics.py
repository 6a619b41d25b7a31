"""The metrics of columns and pairs that SDMetrics has too must agree with it, part by part and in the mean."""

import math
import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sdmetrics.column_pairs import ContingencySimilarity, CorrelationSimilarity
from sdmetrics.errors import ConstantInputError, IncomputableMetricError
from sdmetrics.single_column import (
    CategoryCoverage,
    CSTest,
    KSComplement,
    MissingValueSimilarity,
    RangeCoverage,
    TVComplement,
)

import sfumato
from evaluation.mixed_tables import compare, mixed
from sfumato.evaluation.comparison import Comparison, Sample, sample_of
from sfumato.evaluation.metric import Score
from sfumato.evaluation.metrics import columns, pairs
from sfumato.evaluation.metrics.binning import count
from sfumato.evaluation.metrics.divergence import homogeneity_test
from sfumato.schema import Boolean, Categorical

TOLERANCE = 1e-6

Oracle = Callable[[pd.DataFrame, pd.DataFrame], float]


def of_column(metric: type) -> Oracle:
    return lambda real, synthetic: metric.compute(real.iloc[:, 0], synthetic.iloc[:, 0])


ORACLES: dict[str, Oracle] = {
    "ks_complement": of_column(KSComplement),
    "range_coverage": of_column(RangeCoverage),
    "chi_square_p": of_column(CSTest),
    "tv_complement": of_column(TVComplement),
    "category_coverage": of_column(CategoryCoverage),
    "missing_similarity": of_column(MissingValueSimilarity),
    "correlation_similarity": CorrelationSimilarity.compute,
    "spearman_similarity": lambda real, synthetic: CorrelationSimilarity.compute(real, synthetic, "Spearman"),
    "contingency_similarity": ContingencySimilarity.compute,
}


def frame_of(rows: Sample, comparison: Comparison) -> pd.DataFrame:
    """The frame that SDMetrics takes: missing levels are None, so that they count as one; dates are moments."""
    series = {}
    for name, column in comparison.schema.modelled:
        cells = rows.table.column(name)
        if isinstance(column, Categorical | Boolean):
            series[name] = pd.Series(cells.to_pylist(), dtype=object)
        elif pa.types.is_temporal(cells.type):
            series[name] = pd.Series(pd.to_datetime(cells.to_pandas()))
        else:
            series[name] = pd.Series(rows.numbers[name])
    return pd.DataFrame(series)


def expected(oracle: Oracle, real: pd.DataFrame, synthetic: pd.DataFrame) -> float:
    with warnings.catch_warnings():
        # What SciPy remarks on within SDMetrics where a column has no value.
        warnings.filterwarnings("ignore", message="One or more sample arguments is too small")
        try:
            return float(oracle(real, synthetic))
        except (ConstantInputError, IncomputableMetricError, ZeroDivisionError, ValueError):
            # What SDMetrics has no value for; here that must be a failed part. Anything else is an error of the test.
            return math.nan


def measured(comparison: Comparison, name: str) -> Score:
    """The score on all rows: ``run`` and not ``scores``, so that nothing is sampled and no exception is caught."""
    for measurement in (*columns.MEASUREMENTS, *pairs.MEASUREMENTS):
        for metric in measurement.metrics:
            if metric.name == name:
                return Score(metric=metric, parts=tuple(measurement.run(comparison)[name]))
    raise KeyError(name)


def gap(comparison: Comparison, name: str) -> float:
    """The largest difference from SDMetrics over all parts and the mean; infinite where one has a value and the other
    has none."""
    real, synthetic = (frame_of(rows, comparison) for rows in (comparison.real, comparison.synthetic))
    score = measured(comparison, name)
    assert score.parts
    theirs = {part.of: expected(ORACLES[name], real[list(part.of)], synthetic[list(part.of)]) for part in score.parts}
    gaps = [0.0]
    for part in score.parts:
        if (part.value is None) != math.isnan(theirs[part.of]):
            return math.inf
        if part.value is not None:
            gaps.append(abs(part.value - theirs[part.of]))
    assert len(gaps) > 1, "no part has a value, so that nothing was compared"
    return max(*gaps, abs(score.value - float(np.nanmean(list(theirs.values())))))


def data_folder() -> Path:
    return Path(os.environ.get("SFUMATO_DATA") or Path(__file__).parents[3] / "shared" / "data")


@cache
def adult() -> Comparison:
    """Real: the first 80 % of Adult. Synthetic: the rest, each column shuffled by itself and then perturbed."""
    path = data_folder() / "adult.parquet"
    if not path.exists():
        pytest.skip("the Adult data are not here; set SFUMATO_DATA to their folder")
    table = pq.read_table(path)
    schema = sfumato.draft(table).schema
    cut = table.num_rows * 4 // 5
    random = np.random.default_rng(0)
    rest = sample_of(table.slice(cut), schema).table
    shuffled = {}
    for name in rest.column_names:
        cells = rest.column(name).combine_chunks().take(pa.array(random.permutation(rest.num_rows)))
        if pa.types.is_string(cells.type):
            changed = random.choice(np.array(cells.to_pylist())[: rest.num_rows // 50], rest.num_rows)
            keep = random.random(rest.num_rows) < 0.8
            cells = pa.array(np.where(keep, np.array(cells.to_pylist()), changed))
        else:
            values = cells.to_numpy(zero_copy_only=False).astype(np.float64)
            cells = pa.array(np.rint(values * random.uniform(0.8, 1.1, rest.num_rows)))
        shuffled[name] = cells
    synthetic = sample_of(pa.table(shuffled), schema)
    return Comparison(schema=schema, real=sample_of(table.slice(0, cut), schema), synthetic=synthetic)


@pytest.mark.parametrize("name", list(ORACLES))
def test_agrees_on_mixed_table(name):
    assert gap(mixed(), name) <= TOLERANCE


@pytest.mark.parametrize("name", [name for name in ORACLES if name != "missing_similarity"])
def test_agrees_on_adult(name):
    # No column of Adult misses a cell: its unknowns are the level "?".
    assert gap(adult(), name) <= TOLERANCE


@pytest.mark.parametrize("name", list(ORACLES))
def test_agrees_on_what_has_no_value(name):
    """Columns that are constant or all missing on one side: a part fails here where SDMetrics has no value either."""
    good, bad = mixed(), compare(*(damaged(side) for side in (mixed().real.table, mixed().synthetic.table)))
    sides = [(bad.real, good.synthetic), (good.real, bad.synthetic), (bad.real, bad.synthetic)]
    for real, synthetic in sides:
        assert gap(Comparison(schema=good.schema, real=real, synthetic=synthetic), name) <= TOLERANCE


def damaged(table: pa.Table) -> pa.Table:
    """Some columns emptied and one held constant."""
    for name in ("age", "colour"):
        table = table.set_column(table.column_names.index(name), name, pa.nulls(table.num_rows))
    constant = pa.array([7.0] * table.num_rows)
    return table.set_column(table.column_names.index("income"), "income", constant)


@pytest.mark.parametrize("name", list(ORACLES))
def test_values_are_not_trivial(name):
    """Agreement says nothing of figures that are all 1; each metric must see a difference in the mixed table."""
    values = [part.value for part in measured(mixed(), name).parts if part.value is not None]
    assert min(values) < 0.99


def l1(first, second):
    return float(np.abs(first / first.sum() - second / second.sum()).sum())


def one_sided(first, second):
    points = np.concatenate([first, second])
    gaps = [(first <= point).mean() - (second <= point).mean() for point in points]
    return max(0.0, *gaps)


def without_missing(binned):
    return tuple(np.append(cells[:-1], 0.0) for cells in count(binned))


MUTANTS = {
    "total variation without the half": (columns, "total_variation", l1, "tv_complement"),
    "one-sided Kolmogorov-Smirnov": (columns, "kolmogorov_smirnov", one_sided, "ks_complement"),
    "chi-square on counts": (columns, "frequency_test", homogeneity_test, "chi_square_p"),
    "chi-square the other way round": (
        columns,
        "frequency_test",
        lambda real, synthetic, test=columns.frequency_test: test(synthetic, real),
        "chi_square_p",
    ),
    "chi-square without the missing": (columns, "count", without_missing, "chi_square_p"),
    "coverage the other way round": (
        columns,
        "count",
        lambda binned: count(binned)[::-1],
        "category_coverage",
    ),
    "correlation without its sign": (pairs, "product", lambda x, y: abs(float(x @ y)), "correlation_similarity"),
    "rank correlation without its sign": (pairs, "product", lambda x, y: abs(float(x @ y)), "spearman_similarity"),
    "difference of correlations not halved": (
        pairs,
        "_gap",
        lambda detail: 2 * abs(detail["real"] - detail["synthetic"]),
        "correlation_similarity",
    ),
    "two-way total variation without the half": (pairs, "total_variation", l1, "contingency_similarity"),
}


@pytest.mark.parametrize("mutant", list(MUTANTS))
def test_agreement_rejects(mutant, monkeypatch):
    module, attribute, broken, name = MUTANTS[mutant]
    comparison = mixed_without_missing_numbers() if attribute == "product" else mixed()
    assert gap(comparison, name) <= TOLERANCE
    monkeypatch.setattr(module, attribute, broken)
    assert gap(comparison, name) > TOLERANCE


def mixed_without_missing_numbers() -> Comparison:
    """Numbers of all signs of correlation and none missing, so that pairs take the short way."""
    comparison = mixed()
    keep = {
        side: np.flatnonzero(~(rows.missing("age") | rows.missing("income") | rows.missing("day")))
        for side, rows in (("real", comparison.real), ("synthetic", comparison.synthetic))
    }
    return Comparison(
        schema=comparison.schema,
        real=comparison.real.take(keep["real"]),
        synthetic=comparison.synthetic.take(keep["synthetic"]),
    )
