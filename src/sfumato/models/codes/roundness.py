"""Roundness: how much more often the values of a column are multiples of 5, 10, 50, 100 and so on than by chance.

Prices, areas and doses are mostly round numbers. A bin of a codec spans many values, and to draw any of them alike
would give a table whose numbers look made up. So each value of a bin has a weight that depends on how round it is.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.errors import ArgumentError
from sfumato.models.codes.together import pick

GRAINS = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 50_000, 100_000)
"""What a round number is a multiple of, in steps of its column; each divides the next one."""

MOST_LEVELS = 2**23
"""The most values of a column whose cells 32 bits still tell apart."""

MOST_VALUE = 2**30
"""The largest value, in steps of its column, that may be the first: with all the others it fits 32 bits."""

_NEXT = np.array([GRAINS[place + 1] // grain if place + 1 < len(GRAINS) else 0 for place, grain in enumerate(GRAINS)])


class Roundness(eqx.Module):
    """The weight of a value by the largest grain that divides it, for each column.

    ``firsts`` is the first value of a column in its steps (4.50 of a column with two decimals is 450), ``levels`` the
    number of its values; a column of 0 levels has no round values.

    >>> tens = Roundness(jnp.asarray([[0.0, 0.0, 1.0, *[1.0] * 8]]), (1,), (25,))
    >>> tens.grains(jnp.array([9]) / 25).tolist()  # the tenth value is 10, divided by 1, 5 and 10
    [2]
    >>> round(float(tens.log_weight(jnp.array([[0.0, 1.0]]), jnp.array([9]) / 25)[0]), 2)  # one of two, where 25 are
    2.53
    """

    weights: Float[Array, "column grain"]
    firsts: tuple[int, ...] = eqx.field(static=True)
    levels: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if len(self.firsts) != len(self.levels):
            raise ArgumentError("Expected a first value and a number of values for each column.")

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the weights, to rebuild it."""
        return {"firsts": list(self.firsts), "levels": list(self.levels)}

    def grains(self, points: Float[Array, " column"]) -> Int[Array, " column"]:
        """Which grain the value of each column has, from the lower end of its cell."""
        values = jnp.asarray(self.firsts, jnp.int32) + self._cells(points)
        divided = values[:, None] % jnp.asarray(GRAINS, jnp.int32) == 0
        return jnp.sum(divided, axis=1, dtype=jnp.int32) - 1

    def log_weight(self, bins: Float[Array, "column 2"], points: Float[Array, " column"]) -> Float[Array, " column"]:
        """The log density of a value in its bin, against that of a bin whose values are all alike."""
        counts = self.counts(bins)
        mass = jnp.sum(counts * self.weights, axis=1)
        mine = jnp.take_along_axis(self.weights, self.grains(points)[:, None], axis=1)[:, 0]
        ratio = mine * jnp.sum(counts, axis=1) / jnp.maximum(mass, 1e-30)
        return jnp.where(self._none(), 0.0, jnp.log(jnp.maximum(ratio, 1e-30)))

    def places(self, bins: Float[Array, "column 2"], uniform: Float[Array, "2 column"]) -> Float[Array, " column"]:
        """The place in its bin, from 0 to 1, of a value that is drawn for each column."""
        counts = self.counts(bins)
        grain = jax.vmap(pick)(counts * self.weights, uniform[0])
        count = jnp.take_along_axis(counts, grain[:, None], axis=1)[:, 0]
        number = jnp.minimum((uniform[1] * count).astype(jnp.int32), count - 1)
        start, stop = self._ends(bins)
        value = _numbered(number, start, grain, jnp)
        place = (value - start + 0.5) / jnp.maximum(stop - start, 1)
        return jnp.where(self._none(), uniform[1], place.astype(jnp.float32))

    def counts(self, bins: Float[Array, "column 2"]) -> Int[Array, "column grain"]:
        """How many values of each grain a bin of each column has."""
        return _counted(*self._ends(bins), jnp)

    def of_column(self, column: int, edges: Float[np.ndarray, " edge"]) -> "RoundBins | None":
        """How round the values of each bin of one column are; None where it has no round values."""
        if self.levels[column] == 0:
            return None
        borders = self.firsts[column] + np.round(np.asarray(edges, np.float64) * self.levels[column]).astype(np.int64)
        counts = _counted(borders[:-1], borders[1:], np)
        return RoundBins(borders[:-1], np.diff(borders), counts, np.asarray(self.weights[column], np.float64))

    def _ends(self, bins: Float[Array, "column 2"]) -> tuple[Int[Array, " column"], Int[Array, " column"]]:
        first = jnp.asarray(self.firsts, jnp.int32)
        return first + self._cells(bins[:, 0]), first + self._cells(bins[:, 1])

    def _cells(self, points: Float[Array, " column"]) -> Int[Array, " column"]:
        """The number of the border that a point stands for: that whose place comes nearest, since 32 bits are few."""
        levels = jnp.maximum(jnp.asarray(self.levels, jnp.int32), 1)
        near = jnp.floor(points * levels).astype(jnp.int32)[:, None] + jnp.arange(-1, 2)
        gaps = jnp.abs(near / levels[:, None] - points[:, None])
        return jnp.clip(jnp.take_along_axis(near, jnp.argmin(gaps, axis=1)[:, None], axis=1)[:, 0], 0, levels)

    def _none(self) -> Array:
        return jnp.asarray(self.levels, jnp.int32) == 0


@dataclass(frozen=True)
class RoundBins:
    """The bins of one column by their first value, in steps of the column: how many values each has, and how many of
    each grain. What ``Roundness`` says of one row, for many rows at once."""

    starts: Int[np.ndarray, " bin"]
    sizes: Int[np.ndarray, " bin"]
    counts: Int[np.ndarray, "bin grain"]
    weights: Float[np.ndarray, " grain"]

    def places(self, bins: Int[np.ndarray, " row"], uniform: Float[np.ndarray, "2 row"]) -> Float[np.ndarray, " row"]:
        """The place of each row in its bin, from 0 to 1, from two uniform numbers."""
        below = np.cumsum(self.counts * self.weights, axis=1)[bins]
        grain = np.sum((uniform[0] * below[:, -1])[:, None] >= below[:, :-1], axis=1)
        count = self.counts[bins, grain]
        number = np.minimum((uniform[1] * count).astype(np.int64), count - 1)
        starts = self.starts[bins]
        value = _numbered(number, starts, grain, np)
        return np.asarray((value - starts + 0.5) / np.maximum(self.sizes[bins], 1))


def _counted(start: Any, stop: Any, library: ModuleType) -> Any:
    """How many values of each grain there are from a start to before a stop, with an axis for grains behind."""
    grains = library.asarray(GRAINS, start.dtype)
    multiples = (stop[:, None] - 1) // grains - (start[:, None] - 1) // grains
    return multiples - library.pad(multiples[:, 1:], ((0, 0), (0, 1)))


def _numbered(number: Any, start: Any, grain: Any, library: ModuleType) -> Any:
    """The value of that number among those of a grain, from a start on: multiples of it, and not of the next grain."""
    size, ratio = (library.asarray(table, start.dtype)[grain] for table in (GRAINS, _NEXT))
    first = -((-start) // size)  # in multiples of the grain
    below = first - -((-first) // library.maximum(ratio, 2))  # of these, how many before the first are not of the next
    among = below + number
    passed = among + among // library.maximum(ratio - 1, 1) + 1
    return size * library.where(ratio == 0, first + number, passed)
