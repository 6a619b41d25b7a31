"""Estimators: the classifiers and regressors that judge rows, with what keeps them repeatable and quiet."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from sfumato.evaluation.comparison import Comparison, Floats, Ints
from sfumato.evaluation.metrics.design_matrix import Matrix

Build = Callable[[int, int], Any]
"""Makes an estimator from a seed and the number of classes (1 for regression)."""


@contextmanager
def steady() -> Iterator[None]:
    """One thread, and no word of optimisers that stop early.

    One thread makes sums repeatable on any machine, and on tables of this size it is the fastest: measured on two
    cores, 10,000 rows of Adult took histogram gradient boosting 1.5 s with one thread and 34 s with two.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "Skipping features without any observed values", UserWarning)
        yield


def seed_of(comparison: Comparison) -> int:
    """The seed of a comparison in the range that every library takes."""
    return comparison.seed % 2**31


def _rounds(num_classes: int) -> int:
    # Boosting grows a tree for each class and round: many classes get fewer rounds, so that time stays in bounds.
    return int(np.clip(200 // num_classes, 10, 100))


def _logistic(seed: int, _: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=200, random_state=seed)


def _tree(seed: int, _: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=10, random_state=seed)


def _forest(seed: int, _: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=100, random_state=seed)


def _gradient_boosting(seed: int, num_classes: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    # The penalty is XGBoost's default: without one, rare classes among several make the trees diverge.
    return HistGradientBoostingClassifier(
        max_iter=_rounds(num_classes), learning_rate=0.2, l2_regularization=1.0, early_stopping=False, random_state=seed
    )


def _xgboost(seed: int, num_classes: int) -> Any:
    return xgboost_classifier(seed, rounds=_rounds(num_classes))


def _ada_boost(seed: int, _: int) -> Any:
    from sklearn.ensemble import AdaBoostClassifier

    return AdaBoostClassifier(random_state=seed)


def _bagging(seed: int, _: int) -> Any:
    from sklearn.ensemble import BaggingClassifier

    return BaggingClassifier(random_state=seed)


def _naive_bayes(_: int, __: int) -> Any:
    from sklearn.naive_bayes import BernoulliNB

    return BernoulliNB()


def _perceptron(seed: int, _: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(max_iter=30, random_state=seed)


CLASSIFIERS: Mapping[str, Build] = {
    "logistic regression": _logistic,
    "decision tree": _tree,
    "random forest": _forest,
    "gradient boosting": _gradient_boosting,
    "XGBoost": _xgboost,
    "AdaBoost": _ada_boost,
    "bagging": _bagging,
    "naive Bayes": _naive_bayes,
    "multilayer perceptron": _perceptron,
}
"""The nine classifiers. Gradient boosting is scikit-learn's histogram variant, for speed. Naive Bayes is Bernoulli: a
number counts as above or below its mean, since a Gaussian fits one-hot columns badly.

Reference: Lee et al., DP-HFlow (it averages nine classifiers and names three in the main text; the rest is our choice).
"""


def xgboost_classifier(seed: int, *, rounds: int = 100) -> Any:
    """Gradient-boosted trees at XGBoost's own defaults, on one thread. Reference: Chen, Guestrin 2016."""
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=rounds, random_state=seed, n_jobs=1)


def _linear(_: int, __: int) -> Any:
    from sklearn.linear_model import LinearRegression

    return LinearRegression()


def _neighbours(_: int, __: int) -> Any:
    from sklearn.neighbors import KNeighborsRegressor

    return KNeighborsRegressor(n_neighbors=3)


def _tree_regressor(seed: int, _: int) -> Any:
    from sklearn.tree import DecisionTreeRegressor

    return DecisionTreeRegressor(max_depth=10, random_state=seed)


def _xgboost_regressor(seed: int, _: int) -> Any:
    from xgboost import XGBRegressor

    return XGBRegressor(n_estimators=100, random_state=seed, n_jobs=1)


REGRESSORS: Mapping[str, Build] = {
    "linear regression": _linear,
    "3 nearest neighbours": _neighbours,
    "decision tree": _tree_regressor,
    "XGBoost": _xgboost_regressor,
}
"""Linear regression as in DP-TBART and three nearest neighbours as in DP-NF, and two kinds of trees."""


def probabilities(build: Build, train: Matrix, labels: Ints, test: Matrix, *, num_classes: int, seed: int) -> Floats:
    """Fit a classifier and give the probability of each class for each test row.

    A class that the training rows lack has probability zero; where they have one class alone, it has probability
    one everywhere, without a fit.
    """
    present, places = np.unique(labels, return_inverse=True)
    found = np.zeros((len(test), num_classes))
    if len(present) == 1:
        found[:, present] = 1.0
        return found
    model = build(seed, len(present)).fit(train, places)
    found[:, present] = model.predict_proba(test)
    return found
