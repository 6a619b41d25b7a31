"""Detection and efficacy must agree with SDMetrics, given the same rows and the same seed.

SDMetrics draws from NumPy's global generator, so it is seeded first. It is also held to one thread: its logistic
regression stops before it has converged where a column has a few huge values, and then rounding shows (on Adult
the score moved by 4e-4 between one thread and two).
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sdmetrics.single_table import (
    BinaryDecisionTreeClassifier,
    LinearRegression,
    LogisticDetection,
    MulticlassDecisionTreeClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from evaluation.predictable_tables import adult, compare, rows
from sfumato.evaluation.comparison import Comparison, Sample
from sfumato.evaluation.metrics import detection, efficacy
from sfumato.schema import Boolean, Categorical, Continuous, Schema

TOLERANCE = 1e-6

ORACLES = {
    "ill": BinaryDecisionTreeClassifier,
    "income": BinaryDecisionTreeClassifier,
    "sex": BinaryDecisionTreeClassifier,
    "grade": MulticlassDecisionTreeClassifier,
    "education": MulticlassDecisionTreeClassifier,
    "cost": LinearRegression,
    "age": LinearRegression,
    "hours-per-week": LinearRegression,
}
"""The metric of SDMetrics for each target."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The global generator as SDMetrics needs it, and put back afterwards."""
    before = np.random.get_state()
    np.random.seed(seed)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
    np.random.set_state(before)


def frame_of(sample: Sample) -> pd.DataFrame:
    """Dates as moments: as objects, SDMetrics would read them as levels."""
    return sample.table.to_pandas(date_as_object=False)


@cache
def generated() -> Comparison:
    return compare(rows(1_500, 1), rows(1_200, 2, noise=1.5), holdout=rows(700, 3), seed=4)


@cache
def of_adult() -> Comparison:
    """As many rows as the metrics take, so that they take the same."""
    return adult().capped(detection.MOST_ROWS)


TABLES = {"generated": generated, "adult": of_adult}


@pytest.mark.parametrize("table", TABLES)
def test_logistic_detection_agrees(table):
    comparison = TABLES[table]()
    (ours,) = detection.MEASUREMENTS[1].scores(comparison)
    with seeded(comparison.seed):
        theirs = LogisticDetection.compute(frame_of(comparison.real), frame_of(comparison.synthetic))
    assert ours.value == pytest.approx(theirs, abs=TOLERANCE)
    assert min(part.detail["auroc"] for part in ours.parts) > 0.5, "the floor of the score would hide a difference"


def efficacies(comparison: Comparison) -> tuple[float, float, float]:
    """Trained on synthetic rows, by us and by them; trained on real rows, by us."""
    scores = [score for measurement in efficacy.MEASUREMENTS for score in measurement.scores(comparison)]
    (score,) = [score for score in scores if score.applies]
    oracle = ORACLES[comparison.target]
    with seeded(comparison.seed):
        theirs = oracle.compute(frame_of(comparison.holdout), frame_of(comparison.synthetic), target=comparison.target)
    (part,) = score.parts
    return part.value, theirs, part.detail["real"]


@pytest.mark.parametrize(
    ("table", "target"),
    [
        ("generated", "ill"),
        ("generated", "grade"),
        ("generated", "cost"),
        ("adult", "income"),
        ("adult", "sex"),
        ("adult", "education"),
        ("adult", "age"),
        ("adult", "hours-per-week"),
    ],
)
def test_efficacy_agrees(table, target):
    comparison = replace(TABLES[table](), target=target)
    ours, theirs, real = efficacies(comparison)
    assert ours == pytest.approx(theirs, abs=TOLERANCE)
    with seeded(comparison.seed):
        swapped = ORACLES[target].compute(frame_of(comparison.holdout), frame_of(comparison.real), target=target)
    assert real == pytest.approx(swapped, abs=TOLERANCE)


@pytest.mark.parametrize("column", [Boolean(), Categorical(levels=(1, 0)), Categorical(levels=("b", "a"))], ids=repr)
def test_the_class_that_f1_is_of_agrees(column):
    """True, or 1, or the class of the first test row, whichever is rarer."""
    schema = Schema(columns={"x": Continuous(lower=-9, upper=9), "ill": column})
    random = np.random.default_rng(1)
    answers = {Boolean: [False, True]}.get(type(column)) or sorted(column.levels)

    def table(num: int, *, first: int) -> pa.Table:
        x = random.normal(size=num)
        places = (x + random.normal(size=num) > 0.5).astype(int)
        places[0] = first
        return pa.table({"x": x, "ill": [answers[place] for place in places]})

    for first in (0, 1):
        comparison = compare(
            table(300, first=0), table(300, first=1), schema, holdout=table(200, first=first), target="ill"
        )
        ours, theirs, _ = efficacies(comparison)
        assert ours == pytest.approx(theirs, abs=TOLERANCE)
