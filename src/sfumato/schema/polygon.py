"""Polygon: an outline of rings, and which points lie in it, decided in whole numbers.

Latitudes and longitudes are whole numbers of `UNIT` = 10^-7 degrees, about a centimetre. Products of their differences
fit into 64 bits, so that every comparison is exact: a point on an edge is inside, whichever way the edge runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

DECIMALS = 7
UNIT = 10**DECIMALS
"""Steps of a degree."""

Corner: TypeAlias = tuple[float, float]
Ring: TypeAlias = tuple[Corner, ...]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_AT_ONCE = 1 << 20
"""Comparisons at once: enough to be fast, little enough to stay in memory."""

_MOST_SLABS, _MOST_LINES, _EDGES_AT_ONCE = 1_024, 4_096, 128


def in_units(degrees: float) -> int:
    """A number of degrees as a whole number of units.

    >>> in_units(47.5), in_units(-0.00000004)
    (475000000, 0)
    """
    return round(degrees * UNIT)


@dataclass(frozen=True, kw_only=True, eq=False)
class Polygon:
    """The edges of all rings, each from its southern end to its northern one, in units.

    What lies in an odd number of rings is inside, and so is every edge: a ring in another is a hole, one beside it an
    island. Guarantees: `contains` is exact. Latitudes differ by 180 degrees at most and longitudes by 360.

    >>> square = Polygon.of([((0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0))])
    >>> square.contains(np.array([0, UNIT // 2, UNIT + 1]), np.array([0, UNIT // 2, 0])).tolist()
    [True, True, False]
    """

    south: Ints
    south_x: Ints
    north: Ints
    north_x: Ints

    @classmethod
    def of(cls, rings: Sequence[Ring]) -> "Polygon":
        """The polygon of rings of (latitude, longitude) corners in degrees, the last joined to the first."""
        starts, ends = [], []
        for ring in rings:
            corners = [(in_units(latitude), in_units(longitude)) for latitude, longitude in ring]
            starts += corners
            ends += corners[1:] + corners[:1]
        one, two = (np.array(side, np.int64).reshape(-1, 2) for side in (starts, ends))
        one, two = (side[np.any(one != two, axis=1)] for side in (one, two))
        up = (one[:, 0] <= two[:, 0])[:, None]
        south, north = np.where(up, one, two), np.where(up, two, one)
        return cls(south=south[:, 0], south_x=south[:, 1], north=north[:, 0], north_x=north[:, 1])

    @cached_property
    def box(self) -> tuple[int, int, int, int]:
        """The least and greatest latitude and longitude."""
        x = np.concatenate([self.south_x, self.north_x])
        return int(self.south.min()), int(self.north.max()), int(x.min()), int(x.max())

    def contains(self, y: Ints, x: Ints) -> Mask:
        """Whether each point lies inside, edges included. Each point is judged by itself."""
        low, high, left, right = self.box
        found = np.zeros(len(y), np.bool_)
        near = np.flatnonzero((y >= low) & (y <= high) & (x >= left) & (x <= right))
        num_slabs = min(max(1, len(self.south) // 2), _MOST_SLABS)
        slab_of = lambda lines: (lines - low) * num_slabs // (high - low + 1)
        slab = slab_of(y[near])
        order = np.argsort(slab, kind="stable")
        ends = np.searchsorted(slab[order], np.arange(num_slabs + 1))
        first, last = slab_of(self.south), slab_of(self.north)
        for at in np.flatnonzero(np.diff(ends)):
            mine = near[order[ends[at] : ends[at + 1]]]
            edges = np.flatnonzero((first <= at) & (at <= last))
            for some in np.array_split(mine, 1 + len(mine) * len(edges) // _AT_ONCE):
                found[some] = self._inside(y[some, None], x[some, None], edges)
        return found

    def _inside(self, y: Ints, x: Ints, edges: Ints) -> Mask:
        south, south_x, north, north_x = self.south[edges], self.south_x[edges], self.north[edges], self.north_x[edges]
        along, across = (y - south) * (north_x - south_x), (x - south_x) * (north - south)
        past = np.sum((across < along) & (south <= y) & (y < north), axis=1) % 2 == 1
        west, east = np.minimum(south_x, north_x), np.maximum(south_x, north_x)
        on = (across == along) & (south <= y) & (y <= north) & (west <= x) & (x <= east)
        return np.asarray(past | np.any(on, axis=1))

    def crosses_itself(self) -> bool:
        """Whether two edges cross in a point that is inside both of them; edges may touch.

        >>> Polygon.of([((0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.0, 1.0))]).crosses_itself()
        True
        """
        order = np.argsort(self.south, kind="stable")
        # Only edges that begin before another ends can meet it, and they follow it in this order.
        ends = np.searchsorted(self.south[order], self.north[order], side="right")
        for start in range(0, len(order), _EDGES_AT_ONCE):
            block = slice(start, start + _EDGES_AT_ONCE)
            if self._cross(order[block, None], order[None, start : int(ends[block].max())]):
                return True
        return False

    def _cross(self, one: Ints, two: Ints) -> bool:
        def side(edge: Ints, y: Ints, x: Ints) -> Ints:
            along = (y - self.south[edge]) * (self.north_x[edge] - self.south_x[edge])
            across = (x - self.south_x[edge]) * (self.north[edge] - self.south[edge])
            return np.asarray(np.sign((across > along).astype(np.int64) - (across < along)))

        apart = side(one, self.south[two], self.south_x[two]) * side(one, self.north[two], self.north_x[two]) < 0
        again = side(two, self.south[one], self.south_x[one]) * side(two, self.north[one], self.north_x[one]) < 0
        return bool(np.any(apart & again))

    def stretches(self, y_step: int, x_step: int) -> Iterator[tuple[int, int, int]]:
        """Stretches (latitude, first and last longitude) of grid points that are all inside, from south to north.

        Of a grid with more than 4,096 latitudes in the polygon, some: spread evenly, and those next to corners.
        """
        low, high, _, _ = self.box
        first, last = -(-low // y_step), high // y_step
        lines = np.arange(first, last + 1) if last - first < _MOST_LINES else self._some_lines(first, last, y_step)
        for line in (lines * y_step).tolist():
            # An edge that lies on the line belongs to the inside, above it or below.
            below = self._row((self.south <= line) & (line < self.north), line, x_step)
            above = self._row((self.south < line) & (line <= self.north), line, x_step)
            for left, right in sorted({*below, *above}):
                yield line, left, right

    def _some_lines(self, first: int, last: int, y_step: int) -> Ints:
        corners = np.unique(self.south)
        corners = corners[:: -(-len(corners) // (_MOST_LINES // 4))]
        spread = np.linspace(first, last, _MOST_LINES // 2).astype(np.int64)
        lines = np.concatenate([spread, corners // y_step, -(-corners // y_step)])
        return np.unique(lines[(lines >= first) & (lines <= last)])

    def _row(self, crossed: Mask, line: int, x_step: int) -> list[tuple[int, int]]:
        south, south_x = self.south[crossed], self.south_x[crossed]
        run, rise = self.north_x[crossed] - south_x, self.north[crossed] - south
        floor, ceil = south_x + (line - south) * run // rise, south_x - (-(line - south) * run // rise)
        order = np.lexsort((ceil, floor))
        left, right = -(-ceil[order][0::2] // x_step) * x_step, floor[order][1::2] // x_step * x_step
        return [(int(a), int(b)) for a, b in zip(left, right, strict=True) if a <= b]
