"""Density: likelihoods and anomalies by a fitted release, and by stand-ins whose answers are known."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

import sfumato as sf
from evaluation.predictable_tables import compare
from sfumato.errors import ArgumentError
from sfumato.evaluation.metrics.density import MEASUREMENTS, anomaly_curve
from sfumato.evaluation.metrics.roc import auroc, null_error, roc_curve
from sfumato.schema import Categorical, Continuous, Schema
from sfumato.synthesizers import Maf

LIKELIHOOD, ANOMALIES = MEASUREMENTS

SCHEMA = Schema(columns={"u": Continuous(lower=-5, upper=5), "a": Categorical(levels=("x", "y"))}, rows=400)


def table(num, seed, shift=0.0):
    random = np.random.default_rng(seed)
    return pa.table({"u": random.normal(shift, 1, num), "a": random.choice(["x", "y"], num)})


@dataclass(frozen=True)
class StandIn:
    """A release that scores a row by its column u; past ``impossible`` the likelihood is zero."""

    impossible: float = np.inf
    abilities: tuple = ("sample", "log_prob")

    def log_prob(self, rows):
        values = rows["u"].to_numpy()
        return np.where(values > self.impossible, -np.inf, -values)


@cache
def fitted():
    return sf.fit(
        # A small epsilon keeps the accounting short; what is learnt does not matter.
        table(300, 0),
        SCHEMA,
        method=Maf(steps=2, blocks=2, width=4, depth=1),
        epsilon=0.05,
        delta=1e-5,
        seed=1,
    )


def comparison_of(release, **rest):
    return compare(table(300, 0), table(50, 1), SCHEMA, release=release, **rest)


def applying(measurement, comparison):
    return {score.metric.name: score.parts[0] for score in measurement.scores(comparison) if score.applies}


def test_the_log_likelihood_is_that_of_the_release():
    held_out = table(120, 2)
    comparison = comparison_of(fitted(), holdout=held_out)
    found = applying(LIKELIHOOD, comparison)
    assert set(found) == {"log_likelihood"}
    part, scores = found["log_likelihood"], fitted().log_prob(held_out)
    assert part.of == ("held-out rows",)
    assert part.value == pytest.approx(scores.mean())
    assert part.detail["standard_error"] == pytest.approx(scores.std() / np.sqrt(120))
    assert part.detail["training"] == pytest.approx(fitted().log_prob(table(300, 0)).mean())


def test_without_held_out_rows_it_goes_by_another_name():
    found = applying(LIKELIHOOD, comparison_of(StandIn()))
    assert set(found) == {"log_likelihood_training"}
    assert found["log_likelihood_training"].value == pytest.approx(-table(300, 0)["u"].to_numpy().mean())


def test_rows_of_likelihood_zero_are_a_visible_failure():
    held_out = table(100, 2)
    (share,) = {float(np.mean(held_out["u"].to_numpy() > 1.0))}
    (score, _) = LIKELIHOOD.scores(comparison_of(StandIn(impossible=1.0), holdout=held_out))
    assert score.value is None and score.text == "failed"
    assert score.parts[0].detail["impossible"] == pytest.approx(share)
    assert "likelihood zero" in score.parts[0].failure and f"{share:.2%}" in score.parts[0].failure
    assert "training" not in score.parts[0].detail


def test_likelihoods_that_are_no_numbers_are_a_failure():
    class Broken(StandIn):
        def log_prob(self, rows):
            return np.full(rows.num_rows, np.nan)

    for score in LIKELIHOOD.scores(comparison_of(Broken(), holdout=table(20, 2))):
        assert "not numbers" in score.parts[0].failure


def test_anomalies_are_found_by_their_likelihood():
    """The stand-in holds large u unlikely: rows shifted up are odd, rows shifted down are not."""
    usual = table(400, 2)
    for shift in (2.0, -2.0):
        odd = table(300, 3, shift)
        comparison = comparison_of(StandIn(), holdout=usual, anomalies=odd)
        part = applying(ANOMALIES, comparison)["anomaly_auroc"]
        truth = np.repeat([1, 0], [300, 400])
        scores = np.concatenate([odd["u"].to_numpy(), usual["u"].to_numpy()])
        assert part.value == pytest.approx(roc_auc_score(truth, scores))
        assert (part.value > 0.9) == (shift > 0)
        assert part.detail["held_out"] == 1


def test_anomalies_without_held_out_rows_are_told_from_real_ones():
    part = applying(ANOMALIES, comparison_of(fitted(), anomalies=table(40, 3)))["anomaly_auroc"]
    odd, usual = (-fitted().log_prob(rows) for rows in (table(40, 3), table(300, 0)))
    assert part.value == pytest.approx(auroc(odd, usual))
    assert part.detail["held_out"] == 0


def test_rows_of_likelihood_zero_are_the_oddest():
    odd = pa.table({"u": [4.5] * 10, "a": ["x"] * 10})
    comparison = comparison_of(StandIn(impossible=4.0), holdout=table(100, 2), anomalies=odd)
    assert applying(ANOMALIES, comparison)["anomaly_auroc"].value == 1.0


def test_nothing_applies_without_a_density_or_without_anomalies():
    for release in (None, StandIn(abilities=("sample",))):
        comparison = comparison_of(release, holdout=table(20, 2), anomalies=table(20, 3))
        assert not applying(LIKELIHOOD, comparison) and not applying(ANOMALIES, comparison)
    assert not applying(ANOMALIES, comparison_of(StandIn(), holdout=table(20, 2)))


def test_the_curve_for_a_plot():
    comparison = comparison_of(StandIn(), holdout=table(2_000, 2), anomalies=table(2_000, 3, 1.0))
    curve = anomaly_curve(comparison)
    assert len(curve.false_positive) <= 200
    area = np.trapezoid(curve.true_positive, curve.false_positive)
    assert area == pytest.approx(applying(ANOMALIES, comparison)["anomaly_auroc"].value, abs=2e-3)
    with pytest.raises(ArgumentError, match="no anomalies"):
        anomaly_curve(replace(comparison, anomalies=None))


@pytest.mark.parametrize("seed", range(3))
def test_areas_and_curves_agree_with_scikit_learn_ties_included(seed):
    random = np.random.default_rng(seed)
    positives, negatives = random.integers(0, 9, 60) + 1.0, random.integers(0, 9, 80) * 1.0
    truth = np.repeat([1, 0], [60, 80])
    area = auroc(positives, negatives)
    assert area == pytest.approx(roc_auc_score(truth, np.concatenate([positives, negatives])))
    curve = roc_curve(positives, negatives)
    assert (curve.false_positive[0], curve.true_positive[0]) == (0, 0)
    assert (curve.false_positive[-1], curve.true_positive[-1]) == (1, 1)
    assert np.trapezoid(curve.true_positive, curve.false_positive) == pytest.approx(area)


def test_areas_refuse_what_has_no_order():
    with pytest.raises(ArgumentError, match="both kinds"):
        auroc(np.array([]), np.array([1.0]))
    with pytest.raises(ArgumentError, match="not numbers"):
        roc_curve(np.array([np.nan]), np.array([1.0]))


def test_the_null_error_is_the_spread_of_areas_by_chance():
    """The deviation of 2,000 areas lies within 8 % of its law: a false alarm in 2,000 (5 standard errors of 1.6 %)."""
    random = np.random.default_rng(0)
    areas = [auroc(random.random(30), random.random(50)) for _ in range(2_000)]
    assert np.std(areas) == pytest.approx(null_error(30, 50), rel=0.08)
    assert np.std(areas) != pytest.approx(null_error(30, 30), rel=0.08), "the error of other sizes is told apart"
