"""Counting: how many rows fall into each cell of a table of counts, exactly, and what the doors make of it."""

from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int64

from sfumato.errors import ArgumentError
from sfumato.privacy.clipping import GRID
from sfumato.privacy.programs import Programs
from sfumato.privacy.queries import CountQuery, DistanceQuery, NamedTables, ScoreQuery, SumQuery
from sfumato.privacy.step import PrivateRows, grid_total


def cell_counts(
    rows: PrivateRows, function: Callable[[Any], Int[Array, " table"]], sizes: tuple[int, ...]
) -> Int64[np.ndarray, " cell"]:
    """How many rows fall into each cell of tables of these sizes, one table after another.

    Guarantees: a row adds one to at most one cell of each table, whatever ``function`` returns: a number outside its
    table counts for nothing, and neither does padding. Needs 64-bit mode.

    The rows are an argument of the compiled function and never a constant in it, as in ``grid_total``.
    """
    ends = np.cumsum(sizes)
    num_cells = int(ends[-1])
    # Room in powers of two, so that the next sizes are likely to find the program compiled; at least one cell is spare.
    counts = _counts(function, rows, jnp.asarray(ends - sizes), jnp.asarray(sizes), 1 << num_cells.bit_length())
    return np.asarray(counts)[:num_cells]


@eqx.filter_jit
def _counts(
    function: Callable[[Any], Array], rows: PrivateRows, starts: Array, sizes: Array, room: int
) -> Int64[Array, " cell"]:
    def add(place: Array, counts: Array) -> Array:
        take = lambda column: jax.lax.dynamic_slice_in_dim(column, place * rows.micro, rows.micro)
        cells = jax.vmap(function)(jax.tree.map(take, rows.columns))
        if cells.shape != (rows.micro, sizes.size) or not jnp.issubdtype(cells.dtype, jnp.signedinteger):
            raise ArgumentError(f"Expected a query function that returns {sizes.size} whole numbers a row.")
        inside = take(rows.real)[:, None] & (cells >= 0) & (cells < sizes)
        # What counts for nothing is added to a cell past the last of all tables, which is then dropped.
        return counts.at[jnp.where(inside, starts + cells, room - 1)].add(1)

    num_chunks = rows.real.shape[0] // rows.micro
    return jax.lax.fori_loop(0, num_chunks, add, jnp.zeros(room, jnp.int64))


class Counted:
    """Private rows and the exact counts of them, where what was counted before is not counted again.

    Methods that choose in rounds ask for the same counts in each of them. They stay behind the doors, and only a
    function that names its tables (``NamedTables``) has any of them kept.
    Guarantees: those of ``cell_counts``, since each table comes from it, whatever its name says.
    """

    def __init__(self, rows: PrivateRows) -> None:
        self.rows = rows
        self._found: dict[tuple[Hashable, int], Int64[np.ndarray, " cell"]] = {}

    def __repr__(self) -> str:
        return "Counted()"

    def of(self, function: Callable[[Any], Int[Array, " table"]], sizes: tuple[int, ...]) -> Int64[np.ndarray, " cell"]:
        """What ``cell_counts`` gives, one table after another. Needs 64-bit mode where something is to be counted."""
        if not isinstance(function, NamedTables):
            return cell_counts(self.rows, function, sizes)
        keys = list(zip(function.names, sizes, strict=True))
        new = [place for place, key in enumerate(keys) if key not in self._found]
        if new:
            self._count(function.only(new, _room(len(new))), [keys[place] for place in new])
        return np.concatenate([self._found[key] for key in keys])

    def _count(self, function: Callable[[Any], Array], keys: list[tuple[Hashable, int]]) -> None:
        sizes = [size for _, size in keys]
        # Tables that are there to fill the room have no cells, and nothing is counted in them.
        counts = cell_counts(self.rows, function, (*sizes, *[0] * (_room(len(keys)) - len(keys))))
        self._found |= zip(keys, np.split(counts, np.cumsum(sizes)[:-1]), strict=True)


def _room(num: int) -> int:
    """A power of two, so that the next number is likely to find its program compiled."""
    return 1 << (num - 1).bit_length()


def exact_sum(
    held: Counted, query: SumQuery | CountQuery, programs: Programs | None = None
) -> Int64[np.ndarray, " entry"]:
    """The sum that a query asks for, in grid steps: a row moves it by at most ``GRID * query.grid_norm``."""
    if isinstance(query, CountQuery):
        return held.of(query.function, query.sizes) * GRID
    return np.asarray(grid_total(held.rows, query.function, query.clip, query.num_entries, programs))


def exact_scores(held: Counted, query: ScoreQuery | DistanceQuery, programs: Programs | None = None) -> list[int]:
    """The scores that a query asks for, in grid steps: a row moves each by at most ``GRID``."""
    if isinstance(query, DistanceQuery):
        return query.scores(held.of(query.function, query.sizes))
    return [int(score) for score in grid_total(held.rows, query.function, None, query.num_candidates, programs)]
