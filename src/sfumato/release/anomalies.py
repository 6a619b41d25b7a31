"""Anomalies: from scores to a threshold, and how well a threshold tells labelled rows apart.

A score is minus the log-likelihood of a row; a row is flagged where its score lies above the threshold. All of this is
post-processing of a released density and costs no privacy.

Reference: Waites and Cummings 2021, section 5, the first of its two ways.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from sfumato.checks import between
from sfumato.errors import ArgumentError


@dataclass(frozen=True, kw_only=True)
class Separation:
    """A threshold on labelled rows: the shares of anomalies and of normal rows above it."""

    threshold: float
    true_positives: float
    false_positives: float


def threshold_of_share(scores: Float[np.ndarray, " row"], share: float) -> float:
    """The score that this share of the rows lies above.

    >>> threshold_of_share(np.arange(100.0), 0.05)
    94.0
    """
    between(0, 1, share=share)
    if not 0 < share < 1:
        raise ArgumentError(f"Expected share={share!r} between 0 and 1, both left out.")
    return float(np.quantile(_finite(scores), 1 - share, method="inverted_cdf"))


def threshold_of_labels(scores: Float[np.ndarray, " row"], labels: Bool[np.ndarray, " row"]) -> Separation:
    """The threshold at which the shares of flagged anomalies and of flagged normal rows lie furthest apart.

    That is Youden's index, which does not depend on how many anomalies there are among the labelled rows.

    >>> threshold_of_labels(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, False, True, True])).threshold
    2.5
    """
    if scores.shape != labels.shape or not labels.any() or labels.all():
        raise ArgumentError("Labelled rows need a label each, and both kinds among them: anomalies and normal rows.")
    order = np.argsort(_finite(scores), kind="stable")
    scores, labels = _finite(scores)[order], labels[order]
    # A threshold after row i flags all later rows; between equal scores there is none.
    between_rows = np.concatenate([[True], scores[1:] > scores[:-1], [True]])
    caught = (labels.sum() - np.concatenate([[0], np.cumsum(labels)])) / labels.sum()
    alarms = ((~labels).sum() - np.concatenate([[0], np.cumsum(~labels)])) / (~labels).sum()
    best = int(np.argmax(np.where(between_rows, caught - alarms, -1.0)))
    low = scores[best - 1] if best > 0 else scores[0] - 1
    high = scores[best] if best < len(scores) else scores[-1] + 1
    return Separation(
        threshold=float((low + high) / 2), true_positives=float(caught[best]), false_positives=float(alarms[best])
    )


def roc_area(scores: Float[np.ndarray, " row"], labels: Bool[np.ndarray, " row"]) -> float:
    """The area under the curve of true against false positives: the chance that an anomaly scores above a normal row.

    >>> roc_area(np.array([1.0, 2.0, 2.0, 4.0]), np.array([False, False, True, True]))
    0.875
    """
    found, alarms = roc_curve(scores, labels)
    return float(np.trapezoid(found, alarms))


def roc_curve(
    scores: Float[np.ndarray, " row"], labels: Bool[np.ndarray, " row"]
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """True and false positive rates at every threshold, from the highest down."""
    order = np.argsort(-_finite(scores), kind="stable")
    scores, labels = _finite(scores)[order], labels[order]
    last = np.concatenate([scores[1:] < scores[:-1], [True]])  # one point a threshold, not a row
    found = np.concatenate([[0], np.cumsum(labels)[last]]) / max(1, labels.sum())
    alarms = np.concatenate([[0], np.cumsum(~labels)[last]]) / max(1, (~labels).sum())
    return found, alarms


def _finite(scores: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """Scores of impossible rows are infinite, and so above every threshold; what is no number counts the same."""
    return np.nan_to_num(np.asarray(scores, np.float64), nan=1e300, posinf=1e300, neginf=-1e300)
