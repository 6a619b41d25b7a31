"""Utility: what models learnt from synthetic rows are worth on real rows.

Each model is trained on synthetic rows and tested on real ones. Beside it, in the detail ``real``, stands the same
model trained on real rows: the difference is what the synthetic rows cost. The features are ours (standardised
numbers, one column a level). The metrics of the same kind that agree with SDMetrics are in ``efficacy``.
Reference: Esteban, Hyland, Rätsch 2017 (train on synthetic, test on real); Lee et al., DP-HFlow (nine classifiers,
macro F1, AUROC and average precision); Waites, Cummings, DP-NF (regression by three nearest neighbours).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.evaluation.comparison import Comparison, Floats, Ints, Sample
from sfumato.evaluation.metric import Measurement, Metric, Part
from sfumato.evaluation.metrics import efficacy
from sfumato.evaluation.metrics.design_matrix import Matrix, standardised
from sfumato.evaluation.metrics.estimators import CLASSIFIERS, REGRESSORS, Build, probabilities, seed_of, steady
from sfumato.evaluation.metrics.prediction import Prediction, prediction_of
from sfumato.evaluation.metrics.roc import auroc

MOST_ROWS = 10_000
"""Most rows of each table that models are trained on, and tested on."""

_TESTED = (
    "Tested on held-out rows; without them on a fifth of the real rows, which the synthesizer may have seen. "
    "Features and settings are ours, so the figures are not those of SDMetrics."
)

UTILITY_MACRO_F1 = Metric(
    name="utility_macro_f1",
    title="Classification: macro F1",
    direction="higher",
    range=(0, 1),
    scope="table",
    reference="Lee et al., DP-HFlow",
    about=f"How well nine classifiers trained on synthetic rows label real ones, every class counting alike. {_TESTED}",
)
UTILITY_AUROC = Metric(
    name="utility_auroc",
    title="Classification: AUROC",
    direction="higher",
    range=(0, 1),
    scope="table",
    reference="Lee et al., DP-HFlow",
    about=f"How well nine classifiers trained on synthetic rows rank real ones (several classes: mean of each "
    f"against the rest); a coin has 0.5. {_TESTED}",
)
UTILITY_AVERAGE_PRECISION = Metric(
    name="utility_average_precision",
    title="Classification: average precision",
    direction="higher",
    range=(0, 1),
    scope="table",
    reference="Lee et al., DP-HFlow",
    about=f"How pure the top of the ranking is for the rarer class (several classes: mean of each against the rest); "
    f"a coin has the share of that class. {_TESTED}",
)
UTILITY_R2 = Metric(
    name="utility_r2",
    title="Regression: R²",
    direction="higher",
    range=(-np.inf, 1),
    scope="table",
    reference="Castellon et al., DP-TBART; Waites, Cummings, DP-NF (the detail mse)",
    about=f"The share of the target's variance that four regressors trained on synthetic rows explain in real rows; "
    f"the mean has 0. {_TESTED}",
)

Judgement = Mapping[str, float | str]
"""The value of each metric by its name, or why it has none."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Rows to learn from, and the features of these and of the test rows."""

    rows: Sample
    train: Matrix
    test: Matrix


def macro_f1(truth: Ints, found: Floats) -> float:
    """The mean F1 of the classes that occur in the test rows or were predicted."""
    from sklearn.metrics import f1_score

    return float(f1_score(truth, found.argmax(axis=1), average="macro", zero_division=0.0))


def mean_auroc(truth: Ints, found: Floats, classes: Ints) -> float | str:
    """The mean AUROC of each class against the rest, over the classes that can be told apart in the test rows."""
    areas = [auroc(found[truth == code, code], found[truth != code, code]) for code in _rankable(truth, classes)]
    return float(np.mean(areas)) if areas else "the test rows have one class only"


def mean_precision(truth: Ints, found: Floats, classes: Ints) -> float | str:
    """The mean average precision of each class against the rest."""
    from sklearn.metrics import average_precision_score

    values = [average_precision_score(truth == code, found[:, code]) for code in _rankable(truth, classes)]
    return float(np.mean(values)) if values else "the test rows have one class only"


def _rankable(truth: Ints, classes: Ints) -> Ints:
    return classes[[0 < np.mean(truth == code) < 1 for code in classes]]


def positives(*labels: Ints) -> Ints:
    """The classes that ranking metrics look for: of two the rarer one, otherwise each.

    >>> positives(np.array([4, 4, 2])).tolist(), positives(np.array([0, 1, 2])).tolist()
    ([2], [0, 1, 2])
    """
    classes, counts = np.unique(np.concatenate(labels), return_counts=True)
    return classes[[int(np.argmin(counts))]] if len(classes) == 2 else classes


def _classification(comparison: Comparison) -> dict[str, list[Part]]:
    target = comparison.target
    if target is None or target not in comparison.discrete:
        return {}
    rows = prediction_of(comparison, target)
    num_classes, truth = comparison.num_levels(target), rows.labels(rows.test)
    looked_for = positives(rows.labels(rows.real), truth)

    def judge(build: Build, lesson: Lesson) -> Judgement:
        found = probabilities(
            build,
            lesson.train,
            rows.labels(lesson.rows),
            lesson.test,
            num_classes=num_classes,
            seed=seed_of(comparison),
        )
        return {
            UTILITY_MACRO_F1.name: macro_f1(truth, found),
            UTILITY_AUROC.name: mean_auroc(truth, found, looked_for),
            UTILITY_AVERAGE_PRECISION.name: mean_precision(truth, found, looked_for),
        }

    return _parts(rows, CLASSIFIERS, judge, (UTILITY_MACRO_F1, UTILITY_AUROC, UTILITY_AVERAGE_PRECISION))


def _regression(comparison: Comparison) -> dict[str, list[Part]]:
    target = comparison.target
    if target is None or target not in comparison.numeric:
        return {}
    rows = prediction_of(comparison, target)
    truth = rows.amounts(rows.test)
    spread = float(np.mean((truth - truth.mean()) ** 2))

    def judge(build: Build, lesson: Lesson) -> Judgement:
        # Double precision: columns that add up to each other (levels always do) wreck least squares in single.
        train, test = lesson.train.astype(np.float64), lesson.test.astype(np.float64)
        model = build(seed_of(comparison), 1).fit(train, rows.amounts(lesson.rows))
        error = float(np.mean((truth - model.predict(test)) ** 2))
        return {"mse": error, UTILITY_R2.name: 1 - error / spread if spread else "the target is constant in the test"}

    return _parts(rows, REGRESSORS, judge, (UTILITY_R2,))


def _parts(
    rows: Prediction,
    estimators: Mapping[str, Build],
    judge: Callable[[Build, Lesson], Judgement],
    metrics: Sequence[Metric],
) -> dict[str, list[Part]]:
    """One part an estimator, trained on synthetic rows; trained on real rows in the detail."""
    found: dict[str, list[Part]] = {metric.name: [] for metric in metrics}
    lessons = _lesson(rows, rows.synthetic), _lesson(rows, rows.real)
    with steady():
        for name, build in estimators.items():
            synthetic, real = (_attempt(judge, build, lesson, metrics) for lesson in lessons)
            for metric in metrics:
                found[metric.name].append(_part(name, metric, synthetic, real, held_out=rows.held_out))
    return found


def _lesson(rows: Prediction, train: Sample) -> Lesson:
    features = standardised(train, without=rows.target)
    return Lesson(rows=train, train=features.matrix(train), test=features.matrix(rows.test))


def _attempt(
    judge: Callable[[Build, Lesson], Judgement], build: Build, lesson: Lesson, metrics: Sequence[Metric]
) -> Judgement:
    """A judgement, or the type of the error: the message of another library may quote cells."""
    try:
        return judge(build, lesson)
    except Exception as error:
        return {metric.name: type(error).__name__ for metric in metrics}


def _part(name: str, metric: Metric, synthetic: Judgement, real: Judgement, *, held_out: bool) -> Part:
    value, baseline = synthetic[metric.name], real[metric.name]
    extras = {"real": baseline, "mse": synthetic.get("mse", ""), "real_mse": real.get("mse", "")}
    detail = {key: number for key, number in extras.items() if isinstance(number, float) and np.isfinite(number)}
    detail["held_out"] = float(held_out)
    if isinstance(value, str):
        return Part(of=(name,), failure=value, detail=detail)
    return Part(of=(name,), value=value, detail=detail)


MEASUREMENTS = (
    Measurement(
        metrics=(UTILITY_MACRO_F1, UTILITY_AUROC, UTILITY_AVERAGE_PRECISION),
        run=_classification,
        cap=MOST_ROWS,
    ),
    Measurement(metrics=(UTILITY_R2,), run=_regression, cap=MOST_ROWS),
    *efficacy.MEASUREMENTS,
)
"""The measurements of this group, those that agree with SDMetrics among them."""
