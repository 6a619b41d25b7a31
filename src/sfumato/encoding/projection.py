"""Projection: the nearest grid point of a polygon, for points that lie outside of it.

The nearest point of the outline is found in floats, by halving boxes of points until few edges can be nearest to any of
them. The grid points around it are then held against the polygon in whole numbers, so that what comes out is inside,
whatever was lost in rounding. Near is meant as on a map that is true at the polygon's middle latitude.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.schema.polygon import UNIT, Ints, Polygon

Floats: TypeAlias = npt.NDArray[np.float64]

_AT_ONCE, _FEW_EDGES, _REACH = 1 << 17, 8, 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """A polygon, and the steps in units at which latitudes and longitudes lie.

    Guarantees: every point that comes out is inside the polygon and on the grid; a point that is both is left as it is.
    Each point is moved by itself: what it becomes depends on no other.

    >>> square = Polygon.of([((0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0))])
    >>> y, x = Projection(polygon=square, y_step=1, x_step=1).nearest(np.array([5, 2 * UNIT]), np.array([5, UNIT // 2]))
    >>> y.tolist(), x.tolist()
    ([5, 10000000], [5, 5000000])
    """

    polygon: Polygon
    y_step: int
    x_step: int

    def nearest(self, y: Ints, x: Ints) -> tuple[Ints, Ints]:
        """For each grid point itself where it is inside, else one that is about nearest among those that are."""
        out = ~self.polygon.contains(y, x)
        if not out.any():
            return y, x
        # Points of coarse grids are often the same: each is moved once.
        first, width = int(x[out].min()), int(np.ptp(x[out])) + 1
        asked, places = np.unique(y[out] * width + (x[out] - first), return_inverse=True)
        moved = self._moved(asked // width, asked % width + first)
        y, x = y.copy(), x.copy()
        y[out], x[out] = (part[places] for part in moved)
        return y, x

    def _moved(self, y: Ints, x: Ints) -> tuple[Ints, Ints]:
        foot_y, foot_x = self._feet(y, x)
        near_y = np.rint(foot_y / self.y_step).astype(np.int64)
        near_x = np.rint(foot_x / self.x_step).astype(np.int64)
        found_y, found_x, left = np.empty_like(y), np.empty_like(x), np.arange(len(y))
        for up, right in self._around:
            try_y, try_x = (near_y[left] + up) * self.y_step, (near_x[left] + right) * self.x_step
            inside = self.polygon.contains(try_y, try_x)
            found_y[left[inside]], found_x[left[inside]] = try_y[inside], try_x[inside]
            left = left[~inside]
        if left.size:
            found_y[left], found_x[left] = self._on_stretches(y[left], x[left])
        return found_y, found_x

    @cached_property
    def _shrink(self) -> float:
        """How long a degree of longitude is, of one of latitude, in the middle of the polygon."""
        low, high, _, _ = self.polygon.box
        return float(np.cos(np.deg2rad((low + high) / 2 / UNIT)))

    @cached_property
    def _around(self) -> list[tuple[int, int]]:
        """Steps to the grid points about one, the nearest first."""
        steps = range(-_REACH, _REACH + 1)
        return sorted(
            product(steps, steps), key=lambda at: (at[0] * self.y_step) ** 2 + (at[1] * self.x_step * self._shrink) ** 2
        )

    @cached_property
    def _stretches(self) -> Ints:
        """What the polygon holds of the grid, as far as it is listed; a schema makes sure that it is something."""
        return np.array(list(self.polygon.stretches(self.y_step, self.x_step)), np.int64)

    def _on_stretches(self, y: Ints, x: Ints) -> tuple[Ints, Ints]:
        """The nearest points of stretches: for the tips and necks that no grid point around is in."""
        line, left, right = self._stretches.T
        best = self._closest(y, x, np.stack([line, left, line, right]))
        return line[best], np.clip(x, left[best], right[best])

    def _feet(self, y: Ints, x: Ints) -> tuple[Floats, Floats]:
        """The nearest point of the outline to each point."""
        polygon = self.polygon
        edges = np.stack([polygon.south, polygon.south_x, polygon.north, polygon.north_x])
        y0, x0, y1, x1 = edges[:, self._closest(y, x, edges)].astype(np.float64)
        share = _share(y, x * self._shrink, y0, x0 * self._shrink, y1 - y0, (x1 - x0) * self._shrink)
        return y0 + share * (y1 - y0), x0 + share * (x1 - x0)

    def _closest(self, y: Ints, x: Ints, edges: Ints) -> Ints:
        """Which of the edges [south, its x, north, its x] is nearest to each point."""
        map_scale = np.array([1.0, self._shrink, 1.0, self._shrink])[:, None]
        return closest(np.stack([y, x]) * map_scale[:2], edges * map_scale)


def closest(points: Floats, edges: Floats) -> Ints:
    """Which of the edges [4, edge] is nearest to each of the points [2, point]; the first of several.

    >>> closest(np.array([[0.0, 5.0], [1.0, 5.0]]), np.array([[0.0, 4.0], [0.0, 0.0], [0.0, 4.0], [3.0, 9.0]])).tolist()
    [0, 1]
    """
    found = np.empty(points.shape[1], np.int64)
    waiting = [(np.arange(points.shape[1]), np.arange(edges.shape[1]))]
    while waiting:
        mine, near = waiting.pop()
        low, high = points[:, mine].min(axis=1), points[:, mine].max(axis=1)
        middle, radius = (low + high) / 2, float(np.hypot(*(high - low))) / 2
        apart = np.sqrt(_squares(middle[:, None], edges[:, near])[0])
        # No other edge can be nearest to a point of this box; the slack is for rounding.
        near = near[apart <= (apart.min() + 2 * radius) * (1 + 1e-9) + 1e-3]
        if len(mine) * len(near) <= _AT_ONCE or len(near) <= _FEW_EDGES or radius < 1:
            for some in np.array_split(mine, 1 + len(mine) * len(near) // _AT_ONCE):
                found[some] = near[np.argmin(_squares(points[:, some], edges[:, near]), axis=1)]
            continue
        axis = int(np.argmax(high - low))
        below = points[axis, mine] < middle[axis]
        waiting += [(part, near) for part in (mine[below], mine[~below]) if part.size]
    return found


def _squares(points: Floats, edges: Floats) -> Floats:
    """The squared distance of each point from each edge."""
    (y, x), (y0, x0, y1, x1) = points[:, :, None], edges
    rise, run = y1 - y0, x1 - x0
    share = _share(y, x, y0, x0, rise, run)
    return np.asarray((y - y0 - share * rise) ** 2 + (x - x0 - share * run) ** 2)


def _share(y: Any, x: Any, y0: Any, x0: Any, rise: Any, run: Any) -> Floats:
    """How far along an edge its nearest point lies; an edge may be a point."""
    length = np.maximum(rise**2 + run**2, 1e-300)
    return np.asarray(np.clip(((y - y0) * rise + (x - x0) * run) / length, 0.0, 1.0))
