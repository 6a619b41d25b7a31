"""Detection: what it must say of tables that are alike, apart, and alike in every column but not in pairs."""

import numpy as np
import pyarrow as pa
import pytest

from evaluation.predictable_tables import compare, rows
from sfumato.evaluation.metrics.detection import MEASUREMENTS
from sfumato.evaluation.metrics.roc import null_error
from sfumato.schema import Categorical, Continuous, Schema

NUM = 900

over_detectors = pytest.mark.parametrize(
    "measurement", MEASUREMENTS, ids=lambda measurement: measurement.metrics[0].name
)


def alarm(score, num_rows):
    """Whether the folds find more than four standard errors of chance on average."""
    areas = [part.detail["auroc"] for part in score.parts]
    return np.mean(areas) > 0.5 + 4 * null_error(num_rows, num_rows)


@over_detectors
def test_rows_of_one_law_pass_and_moved_rows_do_not(measurement):
    """Four standard errors: an alarm of a right table in 30,000. The mutant adds half a deviation to one column."""
    alike = compare(rows(NUM, 1), rows(NUM, 2))
    (score,) = measurement.scores(alike)
    assert not score.failures and not alarm(score, NUM)
    assert score.value > 0.85
    moved = rows(NUM, 2).to_pydict()
    moved["dose"] = [value + 0.5 for value in moved["dose"]]
    (score,) = measurement.scores(compare(rows(NUM, 1), pa.table(moved)))
    assert alarm(score, NUM)


@over_detectors
def test_identical_tables_are_not_told_apart(measurement):
    """A classifier that learnt a row as real meets its twin as synthetic: it does worse than a coin."""
    (score,) = measurement.scores(compare(rows(NUM, 1), rows(NUM, 1)))
    assert score.value > 0.9


@over_detectors
def test_disjoint_tables_are_always_told_apart(measurement):
    schema = Schema(columns={"x": Continuous(lower=0, upper=4), "y": Categorical(levels=("a", "b"))})
    table = pa.table({"x": np.tile([0.0, 0.5, 1.0], 100), "y": ["a"] * 300})
    other = pa.table({"x": np.tile([3.0, 3.5, 4.0], 100), "y": ["a"] * 300})
    (score,) = measurement.scores(compare(table, other, schema))
    assert score.value == pytest.approx(0.0, abs=1e-12)


def test_only_trees_see_that_pairs_are_broken():
    """Columns shuffled each by itself keep their marginals: a linear model is blind to that, and says so."""
    real = rows(NUM, 1)
    random = np.random.default_rng(3)
    shuffled = pa.table({name: real[name].take(pa.array(random.permutation(NUM))) for name in real.column_names})
    xgboost, logistic = (measurement.scores(compare(real, shuffled))[0] for measurement in MEASUREMENTS)
    assert xgboost.value < 0.5
    assert logistic.value > 0.85


def test_missing_cells_give_a_table_away():
    xgboost = MEASUREMENTS[0]
    (score,) = xgboost.scores(compare(rows(NUM, 1, missing=0.3), rows(NUM, 2, missing=0.0)))
    assert score.value < 0.5


@over_detectors
def test_the_parts_are_three_folds_with_their_auroc(measurement):
    (score,) = measurement.scores(compare(rows(200, 1), rows(150, 2, noise=3.0)))
    assert [part.of for part in score.parts] == [("fold 1",), ("fold 2",), ("fold 3",)]
    for part in score.parts:
        assert part.value == pytest.approx(1 - (2 * max(0.5, part.detail["auroc"]) - 1))


@over_detectors
def test_the_seed_fixes_the_score(measurement):
    real, synthetic = rows(300, 1), rows(300, 2, noise=2.0)
    first, again, other = (measurement.scores(compare(real, synthetic, seed=seed))[0].value for seed in (5, 5, 6))
    assert first == again != other


@over_detectors
def test_odd_tables_give_a_value_or_say_why_not(measurement):
    schema = Schema(
        columns={"y": Categorical(levels=("a", "b", "c"), nullable=True), "x": Continuous(lower=0, upper=1)}
    )
    real = pa.table({"y": ["a", "b"] * 50, "x": pa.array(np.linspace(0, 1, 100))})
    unseen = pa.table({"y": ["c", None] * 50, "x": pa.array(np.linspace(0, 1, 100))})
    (score,) = measurement.scores(compare(real, unseen, schema))
    assert score.value == pytest.approx(0.0, abs=1e-12)
    (score,) = measurement.scores(compare(real, unseen.slice(0, 2), schema))
    assert score.text == "failed" and "at least 3 rows" in score.parts[0].failure


@over_detectors
def test_a_column_without_any_value_is_no_crash(measurement):
    schema = Schema(columns={"x": Continuous(lower=0, upper=1, nullable=True), "y": Continuous(lower=0, upper=1)})
    table = pa.table({"x": pa.array([None] * 60, pa.float64()), "y": pa.array(np.linspace(0, 1, 60))})
    (score,) = measurement.scores(compare(table, table, schema))
    assert not score.failures


@over_detectors
def test_large_tables_are_sampled_and_the_score_says_so(measurement):
    schema = Schema(columns={"x": Continuous(lower=0, upper=1)})
    random = np.random.default_rng(0)
    large, small = (pa.table({"x": random.random(num)}) for num in (20_500, 100))
    (score,) = measurement.scores(compare(large, small, schema))
    assert score.rows == "sampled: 20,000 of 20,500 real rows"


def test_matrices_past_the_memory_are_refused_in_words(monkeypatch):
    monkeypatch.setattr("sfumato.evaluation.metrics.design_matrix.MOST_CELLS", 1_000)
    (score,) = MEASUREMENTS[0].scores(compare(rows(100, 1), rows(100, 2)))
    assert "too many levels" in score.parts[0].failure
