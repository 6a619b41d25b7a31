"""Divergence: how far apart two empirical distributions are. Pure functions of counts or of values."""

import math

import numpy as np
from scipy import special

from sfumato.evaluation.comparison import Floats, Ints
from sfumato.evaluation.metrics.binning import MOST_CELLS

UNSEEN = 1e-6
"""What SDMetrics counts for a level that no real row has, so that its frequency can be divided by."""


def total_variation(first: Floats, second: Floats) -> float:
    """Half the sum of absolute differences of the shares, in [0, 1]; the arguments are counts of the same cells.

    >>> total_variation(np.array([1.0, 1.0]), np.array([4.0, 0.0]))
    0.5
    """
    distance = 0.5 * float(np.abs(first / first.sum() - second / second.sum()).sum())
    return min(max(distance, 0.0), 1.0)


def jensen_shannon(first: Floats, second: Floats) -> float:
    """Jensen-Shannon distance: the square root of the divergence in bits, so that it is a metric, in [0, 1].

    Reference: Endres, Schindelin, "A new metric for probability distributions", IEEE Trans. Inf. Theory 49 (2003).

    >>> jensen_shannon(np.array([2.0, 0.0]), np.array([0.0, 5.0]))
    1.0
    """
    p, q = first / first.sum(), second / second.sum()
    middle = (p + q) / 2
    nats = 0.5 * float((special.rel_entr(p, middle) + special.rel_entr(q, middle)).sum())
    return math.sqrt(min(max(nats / math.log(2), 0.0), 1.0))


def kolmogorov_smirnov(first: Floats, second: Floats) -> float:
    """The largest gap between two empirical distribution functions, in [0, 1]; neither may be empty.

    >>> kolmogorov_smirnov(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    0.5
    """
    first, second = np.sort(first), np.sort(second)
    points = np.concatenate([first, second])
    below_first = np.searchsorted(first, points, side="right") / len(first)
    below_second = np.searchsorted(second, points, side="right") / len(second)
    return float(np.abs(below_first - below_second).max())


def frequency_test(real: Floats, synthetic: Floats) -> float:
    """The p-value of Pearson's chi-square test run on shares instead of counts, as SDMetrics' CSTest runs it.

    The number of rows does not enter, so this is no test in the statistical sense; it is a figure that published
    tables report. Cells that neither side has do not count.

    >>> frequency_test(np.array([5.0, 5.0, 0.0]), np.array([5.0, 5.0, 0.0]))
    1.0
    """
    seen = (real > 0) | (synthetic > 0)
    if seen.sum() < 2:
        return 1.0
    expected = np.where(real > 0, real, UNSEEN)[seen]
    expected = expected / expected.sum()
    observed = synthetic[seen] / synthetic.sum()
    return _tail(float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1)


def homogeneity_test(first: Floats, second: Floats) -> float:
    """The p-value of Pearson's chi-square test that two samples have one distribution, from their counts.

    Reference: Agresti, "Categorical Data Analysis", 3rd ed., 2013, section 3.2.

    >>> round(homogeneity_test(np.array([10.0, 20.0]), np.array([20.0, 10.0])), 6)
    0.009823
    """
    table = np.stack([first, second])[:, (first > 0) | (second > 0)]
    if table.shape[1] < 2:
        return 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return _tail(float(((table - expected) ** 2 / expected).sum()), table.shape[1] - 1)


def cramers_v(left: Ints, right: Ints) -> float | None:
    """Cramér's V of two arrays of levels, without correction of bias, in [0, 1]; None where one has a single level.

    Levels that no row has do not count.
    Reference: Cramér, "Mathematical Methods of Statistics", 1946, section 21.9.

    >>> cramers_v(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    if not len(left):
        return None
    rows, columns = np.bincount(left), np.bincount(right)
    least = min(np.count_nonzero(rows), np.count_nonzero(columns))
    if least < 2:
        return None
    cells, observed = _seen_cells(left * len(columns) + right, len(rows) * len(columns))
    expected = rows[cells // len(columns)] * columns[cells % len(columns)] / len(left)
    # A cell without rows adds what is expected of it; together they add what the others leave over.
    statistic = float(((observed - expected) ** 2 / expected).sum()) + len(left) - float(expected.sum())
    return math.sqrt(min(max(statistic / len(left) / (least - 1), 0.0), 1.0))


def _seen_cells(cells: Ints, size: int) -> tuple[Ints, Ints]:
    if size > MOST_CELLS:
        seen, counts = np.unique(cells, return_counts=True)
        return seen, counts
    counts = np.bincount(cells)
    seen = np.flatnonzero(counts)
    return seen, counts[seen]


def _tail(statistic: float, degrees: int) -> float:
    return float(special.chdtrc(degrees, statistic))
