"""ROC: how well a score tells one group of rows from another."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import Floats


@dataclass(frozen=True, kw_only=True)
class RocCurve:
    """Points of a curve from (0, 0) to (1, 1): false alarms on one axis, finds on the other."""

    false_positive: tuple[float, ...]
    true_positive: tuple[float, ...]


def auroc(positives: Floats, negatives: Floats) -> float:
    """The chance that a positive scores above a negative, ties counting half: the area under the ROC curve.

    Infinite scores are fine; NaN is refused. Reference: Hanley, McNeil 1982 (the Mann-Whitney statistic).

    >>> auroc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    scores = _checked(positives, negatives)
    num_positives, num_negatives = len(positives), len(negatives)
    ranks = float(rankdata(scores)[:num_positives].sum())
    return (ranks - num_positives * (num_positives + 1) / 2) / (num_positives * num_negatives)


def null_error(num_positives: int, num_negatives: int) -> float:
    """The standard error of an AUROC when both groups score alike (ties make it smaller).

    Reference: Mann, Whitney 1947.

    >>> round(null_error(1_000, 1_000), 4)
    0.0129
    """
    return float(np.sqrt((num_positives + num_negatives + 1) / (12 * num_positives * num_negatives)))


def roc_curve(positives: Floats, negatives: Floats, *, most: int = 200) -> RocCurve:
    """The ROC curve, thinned to at most so many points spread evenly along it.

    >>> roc_curve(np.array([2.0]), np.array([1.0])).true_positive
    (0.0, 1.0, 1.0)
    """
    scores = _checked(positives, negatives)
    order = np.argsort(-scores, kind="stable")
    is_positive = order < len(positives)
    # A point for each distinct score: rows that tie are found together.
    last = np.flatnonzero(np.append(scores[order][1:] != scores[order][:-1], True))
    true = np.append(0.0, np.cumsum(is_positive)[last] / len(positives))
    false = np.append(0.0, np.cumsum(~is_positive)[last] / len(negatives))
    kept = _thinned(true + false, most)
    return RocCurve(false_positive=tuple(false[kept].tolist()), true_positive=tuple(true[kept].tolist()))


def _checked(positives: Floats, negatives: Floats) -> Floats:
    scores = np.concatenate([positives, negatives]).astype(np.float64)
    if not len(positives) or not len(negatives):
        raise ArgumentError("An ROC curve needs rows of both kinds.")
    if np.isnan(scores).any():
        raise ArgumentError("Some scores are not numbers.")
    return scores


def _thinned(length: Floats, most: int) -> np.ndarray:
    """Places of at most so many points, even in the length of the curve; the ends are among them."""
    if len(length) <= most:
        return np.arange(len(length))
    return np.unique(np.searchsorted(length, np.linspace(0.0, length[-1], most)))
