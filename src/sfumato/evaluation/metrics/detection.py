"""Detection: can a classifier tell real rows from synthetic ones?

Both detectors see the two tables mixed, over three folds: they learn on two thirds and are asked about the rest.
References: SDMetrics, ``LogisticDetection``; Castellon et al., DP-TBART, which detects by XGBoost and reports
1 - AUROC; Lopez-Paz, Oquab 2017, classifier two-sample tests.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import Comparison, Floats
from sfumato.evaluation.metric import Measurement, Metric, Part
from sfumato.evaluation.metrics.design_matrix import plain
from sfumato.evaluation.metrics.estimators import seed_of, steady, xgboost_classifier
from sfumato.evaluation.metrics.roc import auroc

FOLDS = 3

MOST_ROWS = 20_000
"""Most rows of each table that a detector sees."""

DETECTION_XGBOOST = Metric(
    name="detection_xgboost",
    title="Detection by XGBoost",
    direction="higher",
    range=(0, 1),
    scope="table",
    reference="Castellon et al., DP-TBART (which reports 1 - AUROC); scale of SDMetrics detection",
    about="1 where boosted trees cannot tell real from synthetic rows, 0 where they always can: 2 - 2 max(AUROC, 0.5).",
)
DETECTION_LOGISTIC = Metric(
    name="detection_logistic",
    title="Detection by logistic regression",
    direction="higher",
    range=(0, 1),
    scope="table",
    reference="SDMetrics 0.32, LogisticDetection",
    about="1 where a linear model cannot tell real from synthetic rows, 0 where it always can. A weak detector.",
)


def _by_xgboost(comparison: Comparison) -> dict[str, list[Part]]:
    matrix = np.concatenate(plain(comparison, comparison.real, comparison.synthetic, fill=False))
    build = partial(xgboost_classifier, seed_of(comparison))
    return {DETECTION_XGBOOST.name: list(_parts(comparison, matrix, build))}


def _by_logistic(comparison: Comparison) -> dict[str, list[Part]]:
    matrix = np.concatenate(plain(comparison, comparison.real, comparison.synthetic))
    return {DETECTION_LOGISTIC.name: list(_parts(comparison, matrix, _logistic))}


def _logistic() -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import RobustScaler

    return make_pipeline(SimpleImputer(), RobustScaler(), LogisticRegression(solver="lbfgs"))


def _parts(comparison: Comparison, matrix: Floats, build: Callable[[], Any]) -> Iterator[Part]:
    """One part a fold, real rows being the class to find."""
    from sklearn.model_selection import StratifiedKFold

    if min(comparison.real.num_rows, comparison.synthetic.num_rows) < FOLDS:
        raise ArgumentError(f"Detection needs at least {FOLDS} rows of each table.")
    is_real = np.arange(len(matrix)) < comparison.real.num_rows
    folds = StratifiedKFold(n_splits=FOLDS, shuffle=True, random_state=seed_of(comparison))
    with steady():
        for number, (train, test) in enumerate(folds.split(matrix, is_real), start=1):
            scores = build().fit(matrix[train], is_real[train]).predict_proba(matrix[test])[:, 1]
            area = auroc(scores[is_real[test]], scores[~is_real[test]])
            yield Part(of=(f"fold {number}",), value=2 - 2 * max(0.5, area), detail={"auroc": area})


MEASUREMENTS = (
    Measurement(metrics=(DETECTION_XGBOOST,), run=_by_xgboost, cap=MOST_ROWS),
    Measurement(metrics=(DETECTION_LOGISTIC,), run=_by_logistic, cap=MOST_ROWS),
)
"""The measurements of this group."""
