"""Counts of Life Science rows: what figures 3, 4 and 11 of the DP-NF paper are drawn from, small enough for JSON.

Bins and principal components are those of the real training rows of the first split, which are public here. A count of
rows outside the bins is what is missing to the number of rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

BINS, CELLS = 60, 48
_REACH, _MARGIN = (0.1, 99.9), 0.08
"""Bins span these percentiles and a margin, so that a few far rows do not flatten the picture."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Edges of the bins of each feature, the projection to two components, and the edges of the cells there."""

    edges: np.ndarray
    centre: np.ndarray
    directions: np.ndarray
    borders: np.ndarray

    def histograms(self, rows: np.ndarray) -> list[str]:
        """Counts of every feature, one line each."""
        return [line_of(np.histogram(rows[:, i], edges)[0]) for i, edges in enumerate(self.edges)]

    def cells(self, rows: np.ndarray) -> list[str]:
        """Counts on the plane of the first two components, one line a step of the second."""
        first, second = ((rows - self.centre) @ self.directions.T).T
        return [line_of(line) for line in np.histogram2d(second, first, [self.borders[1], self.borders[0]])[0]]

    def written(self) -> dict[str, Any]:
        """The frame as it stands in a JSON file."""
        first_and_last = lambda edges: np.round(edges[:, [0, -1]], 5).tolist()
        return {
            "bins": BINS,
            "histogram_ranges": first_and_last(self.edges),
            "cells": CELLS,
            "cell_ranges": first_and_last(self.borders),
            "centre": np.round(self.centre, 5).tolist(),
            "directions": np.round(self.directions, 5).tolist(),
        }


def frame_of(rows: np.ndarray) -> Frame:
    """The frame of real rows."""
    centre = rows.mean(axis=0)
    directions = np.linalg.svd(rows - centre, full_matrices=False)[2][:2]
    largest = np.abs(directions).argmax(axis=1)
    directions = -directions * np.sign(directions[[0, 1], largest])[:, None]  # a sign is free: the paper's narrow left
    return Frame(
        edges=spans(rows, BINS),
        centre=centre,
        directions=directions,
        borders=spans((rows - centre) @ directions.T, CELLS),
    )


def spans(rows: np.ndarray, num: int) -> np.ndarray:
    """Edges of so many even bins for each column."""
    low, high = np.percentile(rows, _REACH, axis=0)
    margin = _MARGIN * (high - low)
    return np.linspace(low - margin, high + margin, num + 1, axis=1)


def line_of(counts: np.ndarray) -> str:
    """Whole numbers in one line.

    >>> line_of(np.array([3.0, 0.0, 12.0]))
    '3 0 12'
    """
    return " ".join(str(int(count)) for count in counts)


def counts_of(lines: list[str]) -> np.ndarray:
    """The numbers of such lines.

    >>> counts_of(["3 0", "1 2"]).tolist()
    [[3, 0], [1, 2]]
    """
    return np.array([[int(count) for count in line.split()] for line in lines])


def variation(counts: np.ndarray, others: np.ndarray, num: int, num_others: int) -> float:
    """The total variation between two groups of rows by their counts; those outside the bins are one bin more.

    >>> variation(np.array([2, 2]), np.array([4, 0]), 4, 8)
    0.5
    """
    mine, theirs = (np.append(c.ravel(), n - c.sum()) / n for c, n in ((counts, num), (others, num_others)))
    return float(np.abs(mine - theirs).sum() / 2)


def chance(counts: np.ndarray, num: int) -> float:
    """The total variation between two samples of so many rows whose law is that of the counts, drawn with a fixed seed.

    >>> chance(np.array([50, 50]), 10_000_000) < 0.01
    True
    """
    shares = np.append(counts.ravel(), num - counts.sum()) / num
    one, other = np.random.default_rng(0).multinomial(num, shares, size=2)
    return variation(one, other, num, num)
