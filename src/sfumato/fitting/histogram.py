"""Histogram: from shares of bins with noise of a known size to a distribution.

All here is post-processing. Noise on bins is the larger harm the more bins there are, so bins of which the noise leaves
open whether their densities differ are joined: the steps that remain are those that stand out.
Reference: the best partition by dynamic programming, as in Killick, Fearnhead, Eckley 2012; simplex projection, Duchi
et al. 2008; monotone cubics, Fritsch and Carlson 1980.
"""

import numpy as np
from jaxtyping import Float
from scipy.interpolate import PchipInterpolator

Line = tuple[np.ndarray, np.ndarray]
"""Edges of bins, and the share of each."""

_PRICE = 6.0
"""Of a further step, in squared deviations of the noise by which it must bring the histogram closer."""


def distribution(edges: np.ndarray, shares: np.ndarray, noise: float, size: int | None, bins: int) -> Line:
    """The distribution behind noisy shares, in at most so many bins.

    A feature of so many values keeps its edges on their borders; one of points (None) has a density without steps.
    """
    found, sums = joined(*steps(edges, shares, noise), noise)
    kept = onto_simplex(sums)
    return (found, kept) if size is not None else smooth(found, kept, bins)


def steps(edges: np.ndarray, shares: np.ndarray, noise: float) -> Line:
    """The bins joined in the way that explains the shares best at a price for each step of the density.

    >>> edges, shares = steps(np.linspace(0, 1, 5), np.array([0.21, 0.19, 0.31, 0.29]), 0.02)
    >>> edges.tolist(), shares.round(2).tolist()
    ([0.0, 0.5, 1.0], [0.4, 0.6])
    """
    widths, count = np.diff(edges), len(shares)
    before = lambda values: np.concatenate([[0.0], np.cumsum(values)])
    squares, products, scales = before(shares**2), before(widths * shares), before(widths**2)
    best, came_from = np.zeros(count + 1), np.zeros(count + 1, int)
    for stop in range(1, count + 1):
        mass = np.maximum(products[stop] - products[:stop], 0.0)
        explained = mass**2 / np.maximum(scales[stop] - scales[:stop], 1e-300)
        cost = best[:stop] + (squares[stop] - squares[:stop] - explained) / max(noise, 1e-12) ** 2 + _PRICE
        came_from[stop] = np.argmin(cost)
        best[stop] = cost[came_from[stop]]
    cuts = [count]
    while cuts[-1] > 0:
        cuts.append(int(came_from[cuts[-1]]))
    cuts.reverse()
    return edges[cuts], np.add.reduceat(shares, cuts[:-1])


def joined(edges: np.ndarray, shares: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Bins that do not stand out of the noise joined with such neighbours, until together they do.

    What a tail holds is then known, though not where in it. A bin that stands out stays by itself.

    >>> edges, shares = joined(np.linspace(0, 1, 6), np.array([0.01, 0.01, 0.9, 0.04, 0.04]), 0.01)
    >>> edges.round(1).tolist(), shares.round(2).tolist()
    ([0.0, 0.4, 0.6, 0.8, 1.0], [0.02, 0.9, 0.04, 0.04])
    """
    cuts: list[float] = [0.0]
    sums: list[float] = []
    held, count = 0.0, 0
    for place, share in enumerate(shares):
        alone = share >= 3 * noise
        if alone and count:  # what was being joined ends before a bin that stands out
            cuts, sums, held, count = [*cuts, float(edges[place])], [*sums, held], 0.0, 0
        held, count = held + share, count + 1
        if alone or held >= 3 * noise * np.sqrt(count):
            cuts, sums, held, count = [*cuts, float(edges[place + 1])], [*sums, held], 0.0, 0
    if count:
        cuts, sums = [*cuts, 1.0], [*sums, held]
    return np.array(cuts), np.array(sums)


def onto_simplex(values: Float[np.ndarray, " bin"]) -> Float[np.ndarray, " bin"]:
    """The nearest shares: none negative, one in all. Noise on empty bins goes to zero instead of adding up.

    >>> onto_simplex(np.array([0.9, 0.2, -0.1])).round(3).tolist()
    [0.85, 0.15, 0.0]
    """
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
    cut = excess[np.nonzero(ordered > excess)[0][-1]]
    return np.maximum(values - cut, 0.0)


def by_level(edges: np.ndarray, shares: np.ndarray, size: int | None, most: int) -> tuple[np.ndarray, np.ndarray]:
    """A bin for each value of a feature of few, where values were joined in equal parts."""
    if size is None or size > most:
        return edges, shares
    levels = np.linspace(0, 1, size + 1)
    return levels, np.diff(np.interp(levels, edges, np.concatenate([[0.0], np.cumsum(shares)])))


def on_grid(edges: np.ndarray, size: int | None) -> np.ndarray:
    """Edges moved to borders of cells, so that no value is cut in two."""
    return edges if size is None else np.unique(np.round(edges * size)) / size


def smooth(edges: np.ndarray, shares: np.ndarray, bins: int) -> Line:
    """Finer bins under a monotone cubic through the distribution function: the same mass in every old bin.

    >>> edges, shares = smooth(np.array([0.0, 0.4, 0.6, 1.0]), np.array([0.2, 0.6, 0.2]), 12)
    >>> len(shares), shares[:4].round(3).tolist()
    (12, [0.014, 0.04, 0.063, 0.084])
    """
    pieces = max(1, bins // len(shares))
    finer = np.interp(np.arange(pieces * len(shares) + 1) / pieces, np.arange(len(edges)), edges)
    rising = PchipInterpolator(edges, np.concatenate([[0.0], np.cumsum(shares)]))
    return finer, np.maximum(np.diff(rising(finer)), 0.0)
