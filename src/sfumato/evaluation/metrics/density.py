"""Density: how likely a release holds real rows to be, and whether it finds rows that do not belong.

These need the release itself, not its synthetic rows. Reference: Waites, Cummings, DP-NF (test log-likelihood; ROC
curves of anomalies by thresholded likelihood).
"""

import numpy as np

from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import Comparison, Floats, Sample
from sfumato.evaluation.metric import Measurement, Metric, Part
from sfumato.evaluation.metrics.roc import RocCurve, auroc, null_error, roc_curve

MOST_ROWS = 5_000
"""Most rows of each table that are scored."""

LOG_LIKELIHOOD = Metric(
    name="log_likelihood",
    title="Held-out log-likelihood",
    direction="higher",
    range=(-np.inf, np.inf),
    scope="table",
    reference="Waites, Cummings, DP-NF",
    about="The mean log-likelihood in nats that the release gives to real rows it never saw. It depends on the "
    "units of the columns, so it compares releases of one table only.",
)
LOG_LIKELIHOOD_TRAINING = Metric(
    name="log_likelihood_training",
    title="Training log-likelihood",
    direction="higher",
    range=(-np.inf, np.inf),
    scope="table",
    reference="Waites, Cummings, DP-NF",
    about="The mean log-likelihood in nats of the very rows that the release was fitted to, for want of held-out ones: "
    "a model that learns rows by heart does well here.",
)
ANOMALY_AUROC = Metric(
    name="anomaly_auroc",
    title="Anomaly detection: AUROC",
    direction="higher",
    range=(0, 1),
    scope="table",
    reference="Waites, Cummings, DP-NF",
    about="The chance that an anomaly is less likely under the release than a real row (held out, where there are "
    "such); a coin has 0.5.",
)


def can_score(comparison: Comparison) -> bool:
    """Whether there is a release that gives likelihoods."""
    release = comparison.release
    return release is not None and callable(getattr(release, "log_prob", None)) and _is_density(release)


def anomaly_curve(comparison: Comparison, *, most: int = 200) -> RocCurve:
    """The ROC curve of telling anomalies from real rows by their likelihood, for a plot."""
    return roc_curve(*_oddness(comparison.capped(MOST_ROWS)), most=most)


def _is_density(release: object) -> bool:
    # A release without a density says so; one that says nothing has it.
    return "log_prob" in getattr(release, "abilities", ("log_prob",))


def _likelihood(comparison: Comparison) -> dict[str, list[Part]]:
    if not can_score(comparison):
        return {}
    training = _scores(comparison, comparison.real)
    if comparison.holdout is None:
        return {LOG_LIKELIHOOD_TRAINING.name: [_mean_part("training rows", training)]}
    held_out = _scores(comparison, comparison.holdout)
    detail = {"training": float(training.mean())} if np.isfinite(training).all() else {}
    return {LOG_LIKELIHOOD.name: [_mean_part("held-out rows", held_out, detail)]}


def _mean_part(of: str, scores: Floats, detail: dict[str, float] | None = None) -> Part:
    """The mean with its standard error, or the share of rows that make it infinite."""
    lost = float(np.mean(~np.isfinite(scores)))
    if lost:
        shares = {"impossible": lost} | (detail or {})
        return Part(
            of=(of,), failure=f"likelihood zero for {lost:.2%} of the rows: the mean is infinite", detail=shares
        )
    error = float(scores.std() / np.sqrt(len(scores)))
    return Part(of=(of,), value=float(scores.mean()), detail={"standard_error": error} | (detail or {}))


def _anomalies(comparison: Comparison) -> dict[str, list[Part]]:
    if not can_score(comparison) or comparison.anomalies is None:
        return {}
    odd, usual = _oddness(comparison)
    detail = {"null_error": null_error(len(odd), len(usual)), "held_out": float(comparison.holdout is not None)}
    return {ANOMALY_AUROC.name: [Part(of=("anomalies",), value=auroc(odd, usual), detail=detail)]}


def _oddness(comparison: Comparison) -> tuple[Floats, Floats]:
    """Minus the log-likelihood of the anomalies, and of real rows; a row of likelihood zero is the oddest."""
    if comparison.anomalies is None:
        raise ArgumentError("There are no anomalies to find.")
    usual = comparison.real if comparison.holdout is None else comparison.holdout
    return -_scores(comparison, comparison.anomalies), -_scores(comparison, usual)


def _scores(comparison: Comparison, sample: Sample) -> Floats:
    if comparison.release is None:
        raise ArgumentError("There is no release to score rows with.")
    scores = np.asarray(comparison.release.log_prob(sample.table), np.float64)
    if np.isnan(scores).any():
        raise ArgumentError("The release gives likelihoods that are not numbers.")
    return scores


MEASUREMENTS = (
    Measurement(metrics=(LOG_LIKELIHOOD, LOG_LIKELIHOOD_TRAINING), run=_likelihood, cap=MOST_ROWS),
    Measurement(metrics=(ANOMALY_AUROC,), run=_anomalies, cap=MOST_ROWS),
)
"""The measurements of this group."""
