"""Correlation: the coefficients of two arrays of numbers that belong together row by row."""

import numpy as np

from sfumato.evaluation.comparison import Floats, Ints


def pearson(left: Floats, right: Floats) -> float | None:
    """Pearson's r, in [-1, 1]; None for a constant array or fewer than two rows.

    >>> round(pearson(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])), 12)
    0.5
    """
    x, y = unit(left), unit(right)
    return None if x is None or y is None else product(x, y)


def spearman(left: Floats, right: Floats) -> float | None:
    """Spearman's rho: Pearson's r of the ranks, ties sharing their mean rank.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0]))
    1.0
    """
    return pearson(ranks(left), ranks(right))


def kendall(left: Floats, right: Floats) -> float | None:
    """Kendall's tau-b, in [-1, 1], which allows for ties; None for a constant array or fewer than two rows.

    Reference: Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945).

    >>> round(kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])), 12)
    0.333333333333
    """
    # Here and not above: it takes a second to import, and only this function needs it.
    from scipy import stats

    if is_constant(left) or is_constant(right):
        return None
    return float(stats.kendalltau(left, right).statistic)


def ranks(values: Floats) -> Floats:
    """The rank of each value, from 1; equal values share the mean of their ranks.

    >>> ranks(np.array([5.0, 7.0, 5.0])).tolist()
    [1.5, 3.0, 1.5]
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means = np.cumsum(counts) - (counts - 1) / 2
    return means[places].astype(np.float64)


def is_constant(values: Floats | Ints) -> bool:
    """Whether there are no two different values, an empty array included."""
    return len(values) == 0 or bool(values.min() == values.max())


def unit(values: Floats) -> Floats | None:
    """The values shifted to mean 0 and scaled to length 1, of which Pearson's r is a product; None if constant.

    >>> unit(np.array([3.0, 3.0])) is None
    True
    """
    if is_constant(values):
        return None
    # Scaled first, so that neither the sum nor the squares of large numbers overflow.
    scaled = values / np.abs(values).max()
    centred = scaled - scaled.mean()
    length = float(np.linalg.norm(centred))
    return centred / length if length > 0 else None


def product(left: Floats, right: Floats) -> float:
    """The inner product of two arrays of length 1, kept in [-1, 1] against rounding."""
    return float(np.clip(left @ right, -1.0, 1.0))
