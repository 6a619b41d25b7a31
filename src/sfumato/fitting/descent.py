"""Descent: the least value of a smooth convex function of many numbers, by L-BFGS.

That of SciPy also keeps bounds on the numbers, which costs several times what a step of it needs to where there are
none: on tables of some ten thousand cells it took most of the time of a fit.

Reference: Nocedal 1980, "Updating quasi-Newton matrices with limited storage"; Lewis and Overton 2013, "Nonsmooth
optimization via quasi-Newton methods" (the line search).
"""

from collections import deque
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " n"]
Objective = Callable[[Vector], tuple[float, Vector]]

_MEMORY = 20
_FALL = 1e-4  # of the slope, that a step must bring
_FLATTER = 0.9  # of the slope, that may be left at its end
_TRIALS = 30


def least(
    objective: Objective,
    begin: Vector,
    *,
    most_steps: int = 1_000,
    least_gain: float = 1e-8,
    least_slope: float = 1e-9,
) -> Vector:
    """Where the objective, which tells value and slope, is least.

    It ends after so many steps, when a step gains less than ``least_gain`` of the value (or of one, where that is
    more), or when no entry of the slope is above ``least_slope``.

    >>> least(lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3)), np.zeros(2)).round(6).tolist()
    [3.0, 3.0]
    """
    x, (value, slope) = begin, objective(begin)
    known: deque[tuple[Vector, Vector, float]] = deque(maxlen=_MEMORY)
    for _ in range(most_steps):
        if np.max(np.abs(slope), initial=0.0) <= least_slope:
            break
        way = _direction(slope, known)
        if not way @ slope < 0:
            known.clear()
            way = -slope
        first = 1.0 if known else min(1.0, 1.0 / float(np.linalg.norm(slope)))
        found = _along(objective, x, value, slope, way, first)
        if found is None:
            break
        length, new_value, new_slope = found
        step, change = length * way, new_slope - slope
        curvature = float(step @ change)
        if curvature > 1e-12 * float(change @ change):
            known.append((step, change, curvature))
        gain = (value - new_value) / max(abs(value), abs(new_value), 1.0)
        x, value, slope = x + step, new_value, new_slope
        if gain <= least_gain:
            break
    return x


def _direction(slope: Vector, known: deque[tuple[Vector, Vector, float]]) -> Vector:
    """Minus the slope, times what is known of the inverse of the second derivatives."""
    way, parts = -slope, []
    for step, change, curvature in reversed(known):
        part = float(step @ way) / curvature
        way = way - part * change
        parts.append(part)
    if known:
        _, change, curvature = known[-1]
        way = way * (curvature / float(change @ change))
    for (step, change, curvature), part in zip(known, reversed(parts), strict=True):
        way = way + (part - float(change @ way) / curvature) * step
    return way


def _along(
    objective: Objective, x: Vector, value: float, slope: Vector, way: Vector, length: float
) -> tuple[float, float, Vector] | None:
    """A length along the way that brings enough and ends flat enough, with value and slope there.

    Where trials end before that, the best one that brings enough; None if there is none.
    """
    steep, low, high = float(slope @ way), 0.0, np.inf
    best: tuple[float, float, Vector] | None = None
    for _ in range(_TRIALS):
        there, new_slope = objective(x + length * way)
        if not there <= value + _FALL * length * steep:
            high = length
        else:
            if best is None or there < best[1]:
                best = length, there, new_slope
            if float(new_slope @ way) >= _FLATTER * steep:
                return length, there, new_slope
            low = length
        length = 2 * low if high == np.inf else (low + high) / 2
    return best
