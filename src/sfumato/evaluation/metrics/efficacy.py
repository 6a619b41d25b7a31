"""Efficacy: one model trained on synthetic rows and tested on real rows, to the letter of SDMetrics.

The features are those of SDMetrics (missing numbers as the mean, one column a level, robust scaling), and so are the
models and their scores, so that the figures agree with it. Trees and linear models on features of ours are found in
``utility``. Where SDMetrics stops (a level that the synthetic rows lack), there is a value here.
References: SDMetrics 0.32, ``BinaryDecisionTreeClassifier``, ``MulticlassDecisionTreeClassifier`` and
``LinearRegression``; Castellon et al., DP-TBART (ML efficacy).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.evaluation.comparison import Comparison, Ints, Sample
from sfumato.evaluation.metric import Measurement, Metric, Part
from sfumato.evaluation.metrics.design_matrix import plain
from sfumato.evaluation.metrics.estimators import seed_of, steady
from sfumato.evaluation.metrics.prediction import Prediction, prediction_of
from sfumato.schema import Boolean, Categorical

MOST_ROWS = 20_000
"""Most rows of each table that a model is trained on, and tested on."""

TREE_F1 = Metric(
    name="tree_f1",
    title="Decision tree F1 (SDMetrics)",
    direction="higher",
    range=(0, 1),
    scope="table",
    reference="SDMetrics 0.32, BinaryDecisionTreeClassifier and MulticlassDecisionTreeClassifier; DP-TBART",
    about="F1 on real rows of a decision tree trained on synthetic rows, as SDMetrics counts it: of two classes, that "
    "of the first test row (true, or 1, where classes are so called), of several the mean. The detail f1_rarer is "
    "the F1 of the rarer class.",
)
LINEAR_R2 = Metric(
    name="linear_r2",
    title="Linear regression R² (SDMetrics)",
    direction="higher",
    range=(-np.inf, 1),
    scope="table",
    reference="SDMetrics 0.32, LinearRegression; DP-TBART",
    about="The share of the target's variance in real rows that a linear model trained on synthetic rows explains, "
    "as SDMetrics counts it.",
)


def _tree(comparison: Comparison) -> dict[str, list[Part]]:
    target = comparison.target
    if target is None or target not in comparison.discrete:
        return {}
    rows = prediction_of(comparison, target)
    truth = rows.labels(rows.test)
    positive = _positive(comparison, target, truth)
    value = _tree_score(comparison, rows, rows.synthetic, positive)
    real = _tree_score(comparison, rows, rows.real, positive)
    detail = {"real": real["f1"], "held_out": float(rows.held_out)}
    if "f1_rarer" in value:
        detail |= {"f1_rarer": value["f1_rarer"], "real_f1_rarer": real["f1_rarer"]}
    return {TREE_F1.name: [Part(of=("decision tree",), value=value["f1"], detail=detail)]}


def _positive(comparison: Comparison, target: str, truth: Ints) -> int | None:
    """The class to find where the test rows have two; None where they do not."""
    column = dict(comparison.schema.modelled)[target]
    if len(np.unique(truth)) != 2:
        return None
    if isinstance(column, Boolean):
        return 1
    if isinstance(column, Categorical) and set(column.levels) == {0, 1}:
        return column.levels.index(1)
    return int(truth[0])


def _tree_score(comparison: Comparison, rows: Prediction, train: Sample, positive: int | None) -> dict[str, float]:
    from sklearn.metrics import f1_score
    from sklearn.tree import DecisionTreeClassifier

    names = np.array(comparison.levels(rows.target))
    classes, truth = names[rows.labels(train)], names[rows.labels(rows.test)]
    if positive is not None:
        classes, truth = classes == names[positive], truth == names[positive]
    depth = 30 if positive is None else 15
    model = DecisionTreeClassifier(max_depth=depth, class_weight="balanced", random_state=seed_of(comparison))
    found = _predicted(comparison, rows, train, classes, model)
    if positive is None:
        return {"f1": float(f1_score(truth, found, average="macro", zero_division=0.0))}
    rarer = bool(np.mean(truth) < 0.5)
    return {
        "f1": float(f1_score(truth, found, zero_division=0.0)),
        "f1_rarer": float(f1_score(truth, found, pos_label=rarer, zero_division=0.0)),
    }


def _linear(comparison: Comparison) -> dict[str, list[Part]]:
    target = comparison.target
    if target is None or target not in comparison.numeric:
        return {}
    rows = prediction_of(comparison, target)
    detail = {"real": _linear_score(comparison, rows, rows.real), "held_out": float(rows.held_out)}
    value = _linear_score(comparison, rows, rows.synthetic)
    return {LINEAR_R2.name: [Part(of=("linear regression",), value=value, detail=detail)]}


def _linear_score(comparison: Comparison, rows: Prediction, train: Sample) -> float:
    from sklearn.linear_model import LinearRegression
    from sklearn.metrics import r2_score

    found = _predicted(comparison, rows, train, rows.amounts(train), LinearRegression())
    return float(r2_score(rows.amounts(rows.test), found))


def _predicted(
    comparison: Comparison, rows: Prediction, train: Sample, answers: npt.NDArray[Any], model: Any
) -> npt.NDArray[Any]:
    """Predictions for the test rows; where the training rows give one answer, that."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import RobustScaler

    if len(np.unique(answers)) == 1:
        return np.full(rows.test.num_rows, answers[0])
    learnt, asked = plain(comparison, train, rows.test, without=rows.target)
    with steady():
        fitted = make_pipeline(SimpleImputer(), RobustScaler(), model).fit(learnt, answers)
        return np.asarray(fitted.predict(asked))


MEASUREMENTS = (
    Measurement(metrics=(TREE_F1,), run=_tree, cap=MOST_ROWS),
    Measurement(metrics=(LINEAR_R2,), run=_linear, cap=MOST_ROWS),
)
"""The measurements that agree with SDMetrics; ``utility`` lists them among its own."""
