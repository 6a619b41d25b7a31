"""Membership: the smoke test must find copied rows, and leave independent ones alone as often as it says."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import kstest

from evaluation.predictable_tables import SCHEMA, compare, rows
from sfumato.evaluation.comparison import sample_of
from sfumato.evaluation.metrics import mixed_distance
from sfumato.evaluation.metrics.membership import MEASUREMENTS
from sfumato.evaluation.metrics.mixed_distance import distance_blocks, distances, mixed_rows, nearest
from sfumato.schema import Boolean, Categorical, Continuous, Schema

CLOSEST, RATIO = MEASUREMENTS
NUM = 600

over_tests = pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda measurement: measurement.metrics[0].name)


def part_of(measurement, comparison):
    (score,) = measurement.scores(comparison)
    (part,) = score.parts
    assert part.failure is None
    return part


def flags(part):
    """The alarm of the smoke test: 3.1 standard errors, by chance once in a thousand."""
    return part.value > 0.5 + 3.1 * part.detail["standard_error"]


@over_tests
def test_copied_training_rows_are_found_and_independent_rows_are_not(measurement):
    """False-alarm rate: one in a thousand, for a fixed seed. The mutant hands out training rows."""
    training, held_out = rows(NUM, 1), rows(NUM, 2)
    copies = training.take(pa.array(np.random.default_rng(0).integers(0, NUM, NUM)))
    caught = part_of(measurement, compare(training, copies, holdout=held_out))
    assert flags(caught) and caught.detail["p_value"] < 1e-6
    assert caught.value > (0.97 if measurement is CLOSEST else 0.75)
    assert not flags(part_of(measurement, compare(training, rows(NUM, 3), holdout=held_out)))


@over_tests
def test_training_rows_with_a_little_noise_are_found_too(measurement):
    training = rows(NUM, 1)
    values = training["dose"].to_numpy() + np.random.default_rng(0).normal(0, 0.05, NUM)
    place = training.column_names.index("dose")
    near = training.set_column(place, "dose", pa.array(values))
    assert flags(part_of(measurement, compare(training, near, holdout=rows(NUM, 2))))


@over_tests
def test_copies_of_held_out_rows_are_no_alarm(measurement):
    held_out = rows(NUM, 2)
    part = part_of(measurement, compare(rows(NUM, 1), held_out, holdout=held_out))
    assert part.value < 0.5 and not flags(part)


@over_tests
def test_p_values_of_independent_rows_are_even(measurement):
    """150 tables of one law: their p-values against the even law by Kolmogorov-Smirnov, an alarm in a thousand.

    Halving or doubling the standard error is what it must notice.
    """
    z = []
    for seed in range(150):
        training, held_out, synthetic = (rows(60, 10_000 * side + seed) for side in (1, 2, 3))
        part = part_of(measurement, compare(training, synthetic, holdout=held_out, seed=seed))
        z.append((part.value - 0.5) / part.detail["standard_error"])
    z = np.array(z)
    assert kstest(z, "norm").pvalue > 1e-3
    assert kstest(2 * z, "norm").pvalue < 1e-3
    assert kstest(z / 2, "norm").pvalue < 1e-3


def test_the_binomial_error_would_raise_false_alarms():
    """A record that is closest to many synthetic rows counts once, not many times."""
    schema = Schema(columns={"x": Continuous(lower=0, upper=100)})
    random = np.random.default_rng(0)
    real, held_out = (pa.table({"x": random.random(50) * 10}) for _ in range(2))
    far = pa.table({"x": 50 + random.random(1_000)})
    part = part_of(CLOSEST, compare(real, far, schema, holdout=held_out))
    assert part.value in (0.0, 1.0), "one record, the largest, is closest to all"
    assert part.detail["standard_error"] == pytest.approx(0.5)
    assert not flags(part)


def test_ties_are_shared():
    schema = Schema(columns={"a": Boolean()})
    half = pa.table({"a": [True, False] * 20})
    part = part_of(CLOSEST, compare(half, half, schema, holdout=half))
    assert part.value == pytest.approx(0.5)
    assert part.detail["standard_error"] == pytest.approx(0.0, abs=1e-12)
    assert part.detail["p_value"] == pytest.approx(0.5, abs=0.5)


@over_tests
def test_it_does_not_apply_without_held_out_rows_and_fails_with_too_few(measurement):
    comparison = compare(rows(50, 1), rows(50, 2), holdout=rows(10, 3))
    (score,) = measurement.scores(comparison)
    assert "at least 20 rows" in score.parts[0].failure
    assert not measurement.scores(replace(comparison, holdout=None))[0].applies


@over_tests
def test_it_calls_itself_a_smoke_test(measurement):
    (metric,) = measurement.metrics
    assert "smoke test" in metric.title.lower() and "proves nothing" in metric.about
    assert metric.ideal == 0.5 and metric.direction == "lower"


@over_tests
def test_the_seed_fixes_the_value(measurement):
    training, synthetic, held_out = rows(120, 1), rows(100, 2), rows(80, 3)
    one, again, other = (
        part_of(measurement, compare(training, synthetic, holdout=held_out, seed=seed)).value for seed in (1, 1, 2)
    )
    assert one == again != other


# --- the distance ---------------------------------------------------------------------------------------------


def slow_distance(one, two):
    """Cell by cell, as the definition says."""
    spans = {"age": 100, "dose": 20, "since": 7670, "cost": 200}
    total = 0.0
    for name, _ in SCHEMA.modelled:
        a, b = one[name], two[name]
        if a is None or b is None:
            total += (a is None) != (b is None)
        elif name == "since":
            total += abs((a - b).days) / spans[name]
        elif name in spans:
            total += abs(a - b) / spans[name]
        else:
            total += a != b
    return total / len(SCHEMA.modelled)


def test_the_distance_is_that_of_its_definition():
    first, second = (sample_of(rows(num, seed, missing=0.3), SCHEMA) for num, seed in ((7, 1), (9, 2)))
    found = distances(mixed_rows(first, SCHEMA), mixed_rows(second, SCHEMA))
    slow = [[slow_distance(a, b) for b in second.table.to_pylist()] for a in first.table.to_pylist()]
    assert np.allclose(found, slow)
    assert np.allclose(np.diag(distances(*[mixed_rows(first, SCHEMA)] * 2)), 0)


@pytest.mark.parametrize("columns", [{"x": Continuous(lower=0, upper=2)}, {"a": Categorical(levels=("p", "q"))}])
def test_tables_of_one_kind_have_a_distance(columns):
    schema = Schema(columns=columns)
    values = {"x": [0.0, 1.0], "a": ["p", "q"]}
    sample = sample_of(pa.table({name: values[name] for name in columns}), schema)
    found = distances(mixed_rows(sample, schema), mixed_rows(sample, schema))
    assert found[0, 1] == (0.5 if "x" in columns else 1.0)


def test_blocks_are_the_whole_in_pieces(monkeypatch):
    one, two = (mixed_rows(sample_of(rows(num, seed), SCHEMA), SCHEMA) for num, seed in ((50, 1), (30, 2)))
    whole = distances(one, two)
    monkeypatch.setattr(mixed_distance, "_CELLS_AT_ONCE", 200)
    blocks = list(distance_blocks(one, two))
    assert max(away.size for _, away in blocks) <= 200
    # Where a block has no missing cell the columns are added in another order: equal but for rounding.
    assert np.allclose(np.concatenate([away for _, away in blocks]), whole, rtol=0, atol=1e-12)
    assert np.allclose(nearest(one, two, 3), np.sort(whole, axis=1)[:, :3], rtol=0, atol=1e-12)
