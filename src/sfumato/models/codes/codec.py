"""Codec: between the cells of a row and its codes, one whole number a column.

The unit interval of a feature is cut into fine bins, and each bin belongs to a code: a level, a range of numbers, a
value that many rows share, or all levels that are rare. A row's code says which; where inside, the shares of its
bins say, and inside a bin all values are alike, but for how round they are. Where a column is nullable, its last code
is "missing". So a distribution over codes is a density on the unit cube, and its likelihood is exact: a cell never
spans two bins.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sfumato.models.codes.bins import ColumnBins
from sfumato.models.codes.roundness import Roundness
from sfumato.models.codes.together import pick


class Codec(eqx.Module):
    """The bins of each column, their codes, and their shares inside a code.

    Rows of the arrays are columns of the table; bins that a column does not use are empty ones at the upper end.
    ``values`` and ``flags`` say which feature of the unit cube holds a column's value and which one says that it is
    missing; None where there is no such feature. ``sizes`` counts the code for missing. ``roundness`` says how much
    more often round values of a bin occur than others; None where they do not.

    >>> codec = Codec.of_levels([2, 3])
    >>> codec.codes(jnp.array([0.5, 0.0]), jnp.array([0.5, 1 / 3])).tolist()
    [1, 0]
    """

    edges: Float[Array, "column edge"]
    inner: Float[Array, "column bin"]
    code_of: Float[Array, "column bin"]
    values: tuple[int | None, ...] = eqx.field(static=True)
    flags: tuple[int | None, ...] = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    roundness: Roundness | None = None

    @classmethod
    def of_levels(cls, levels: list[int]) -> "Codec":
        """A code for each level of columns that are never missing."""
        most = max(levels)
        edges = [np.minimum(np.arange(most + 1) / size, 1.0) for size in levels]
        code_of = [np.minimum(np.arange(most), size - 1) for size in levels]
        none = (None,) * len(levels)
        as_array = lambda rows: jnp.asarray(np.array(rows), jnp.float32)
        inner = jnp.ones((len(levels), most), jnp.float32)
        return cls(as_array(edges), inner, as_array(code_of), tuple(range(len(levels))), none, tuple(levels))

    @property
    def num_features(self) -> int:
        """Features of the unit cube that the columns take up."""
        return sum(place is not None for place in (*self.values, *self.flags))

    def row(self, row: dict[str, Array]) -> dict[str, Array]:
        """The codes of a row in the form that a curator holds, from its cells in that form."""
        return {"codes": self.codes(row["low"], row["width"])}

    def codes(self, low: Float[Array, " feature"], width: Float[Array, " feature"]) -> Int[Array, " column"]:
        """The code of each column of a row, from its cells."""
        present = jnp.take_along_axis(self.code_of, self.bins_of(low, width)[:, None], axis=1)[:, 0]
        last = jnp.asarray(self.sizes, jnp.int32) - 1
        return jnp.where(self.missing(low), last, jnp.clip(present.astype(jnp.int32), 0, last))

    def log_inner(self, low: Float[Array, " feature"], width: Float[Array, " feature"]) -> Float[Array, ""]:
        """The log density on the unit cube of a row's cells, given its codes."""
        bins = self.bins_of(low, width)[:, None]
        share = jnp.take_along_axis(self.inner, bins, axis=1)[:, 0]
        wide = jnp.take_along_axis(jnp.diff(self.edges, axis=1), bins, axis=1)[:, 0]
        inside = jnp.log(jnp.maximum(share, 1e-30)) - jnp.log(jnp.maximum(wide, 1e-30))
        if self.roundness is not None:
            inside += self.roundness.log_weight(self.ends(bins), self.of_values(low))
        halves = sum(flag is not None for flag in self.flags) * np.log(2.0)  # a flag is one half of its interval
        return jnp.sum(jnp.where(self.missing(low), 0.0, inside)) + halves

    def draw(
        self, codes: Int[Array, " column"], uniform: Float[Array, "3 column"]
    ) -> tuple[Int[Array, " column"], Float[Array, " column"]]:
        """A bin for each code, and a place in it from 0 to 1, from three uniform numbers a column."""
        mine = self.inner * (self.code_of == codes[:, None])
        bins = jax.vmap(pick)(mine, uniform[0])
        if self.roundness is None:
            return bins, uniform[1]
        return bins, self.roundness.places(self.ends(bins[:, None]), uniform[1:])

    def columns(self) -> list[ColumnBins]:
        """The bins of each column in the form in which many rows are drawn."""
        edges, inner, code_of = (np.asarray(each) for each in (self.edges, self.inner, self.code_of))
        found = []
        for column, size in enumerate(self.sizes):
            rounded = None if self.roundness is None else self.roundness.of_column(column, edges[column])
            found.append(ColumnBins.of(code_of[column].astype(np.int64), inner[column], size, rounded))
        return found

    def points(
        self, codes: np.ndarray, bins: np.ndarray, places: np.ndarray, levels: tuple[int | None, ...]
    ) -> Float[np.ndarray, "row feature"]:
        """Points of the unit cube of many rows: the middle of a level where a feature has so many ``levels``."""
        points = np.empty((len(codes), self.num_features))
        edges = np.asarray(self.edges, np.float64)
        for column, (value, flag) in enumerate(zip(self.values, self.flags, strict=True)):
            if flag is not None:
                points[:, flag] = np.where(codes[:, column] == self.sizes[column] - 1, 0.75, 0.25)
            if value is not None:
                points[:, value] = _inside(edges[column], bins[:, column], places[:, column], levels[value])
        return points

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild it."""
        round_ones = {} if self.roundness is None else {"roundness": self.roundness.describe()}
        return {
            "bins": int(self.inner.shape[1]),
            "values": list(self.values),
            "flags": list(self.flags),
            "sizes": list(self.sizes),
            **round_ones,
        }

    def bins_of(self, low: Float[Array, " feature"], width: Float[Array, " feature"]) -> Int[Array, " column"]:
        """The bin of each column that a row's cell lies in."""
        # The middle of a cell is far from every edge, whatever was lost in rounding.
        middle = self.of_values(low + width / 2)
        return jnp.sum(middle[:, None] >= self.edges[:, 1:-1], axis=1, dtype=jnp.int32)

    def ends(self, bins: Int[Array, "column 1"]) -> Float[Array, "column 2"]:
        """The lower and the upper edge of a bin of each column."""
        return jnp.take_along_axis(self.edges, jnp.concatenate([bins, bins + 1], axis=1), axis=1)

    def of_values(self, points: Float[Array, " feature"]) -> Float[Array, " column"]:
        """The feature that holds each column's value; 0 where none does."""
        return jnp.stack([jnp.zeros(()) if at is None else points[at] for at in self.values])

    def missing(self, low: Float[Array, " feature"]) -> Bool[Array, " column"]:
        """Which columns of a row have no value."""
        return jnp.stack([jnp.zeros((), bool) if at is None else low[at] >= 0.5 for at in self.flags])


def _inside(edges: np.ndarray, bins: np.ndarray, places: np.ndarray, levels: int | None) -> np.ndarray:
    """Points of bins of one feature; on the middle of a level where there are levels."""
    if levels is None:
        return edges[bins] + places * (edges[bins + 1] - edges[bins])
    borders = np.round(edges * levels)  # 32 bits may have moved an edge a little off its border
    first, past = borders[bins], np.maximum(borders[bins + 1], borders[bins] + 1)
    return np.asarray((np.minimum(first + np.floor(places * (past - first)), levels - 1) + 0.5) / levels)
