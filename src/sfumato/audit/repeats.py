"""Repeats: noise that is used twice. Lines of noise must not resemble each other, nor themselves when shifted."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.stats import norm

_ERROR = 1e-6
"""The chance of a false alarm, over all comparisons together: too small to count beside those of the bounds."""


def repeats(lines: Sequence[np.ndarray]) -> list[str]:
    """What is wrong with lines of standard normal noise: a pair of lines, or a line and itself shifted, correlate.

    Sound noise passes but for a chance of 1e-6. The correlation of independent lines of n numbers is nearly normal
    with deviation 1 / sqrt(n); the limit allows for the number of comparisons.

    >>> random = np.random.default_rng(0)
    >>> line = random.normal(size=2_000)
    >>> repeats([line, random.normal(size=2_000)])
    []
    >>> repeats([line, line])
    ['the noise of two answers is related']
    """
    standard = [_standard(line) for line in lines]
    comparisons = len(standard) * (len(standard) - 1) / 2 + sum(line.size for line in standard)
    limit = float(norm.isf(_ERROR / (2 * max(1.0, comparisons))))
    faults = []
    if any(abs(left @ right) > limit / np.sqrt(left.size) for left, right in combinations(standard, 2)):
        faults.append("the noise of two answers is related")
    if any(np.max(np.abs(_shifted(line))) > limit / np.sqrt(line.size) for line in standard):
        faults.append("the noise of two coordinates is related")
    return faults


def _standard(line: np.ndarray) -> np.ndarray:
    centred = np.asarray(line, np.float64) - np.mean(line)
    return centred / max(float(np.linalg.norm(centred)), 1e-300)


def _shifted(line: np.ndarray) -> np.ndarray:
    """The correlation of a line with itself at every shift but none, around the circle."""
    power = np.abs(np.fft.rfft(line)) ** 2
    return np.fft.irfft(power, line.size)[1:]
