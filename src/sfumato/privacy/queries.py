"""Queries: per-row vectors whose sum, or per-row scores whose arg-max, may be asked for through a door."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.checks import between, whole
from sfumato.errors import ArgumentError
from sfumato.privacy.clipping import GRID, FlatClip

_WEIGHT_BITS = 20
_MOST_EXPECTED = 2.0**40
"""Rows that are expected at most, so that distances in grid steps stay far below 2**63."""


@dataclass(frozen=True, kw_only=True)
class SumQuery:
    """The sum over all rows of a vector of one row, clipped to a norm.

    Guarantees: whatever ``function`` returns, one row moves the sum by at most the norm of ``clip``; a bound
    that is too small costs accuracy, never privacy.
    """

    function: Callable[[Any], Float[Array, " entry"]]
    num_entries: int
    clip: FlatClip
    purpose: str
    grid_norm: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        whole(1, num_entries=self.num_entries)

    @property
    def grid_unit(self) -> float:
        """What ``GRID`` grid steps are worth."""
        return self.clip.bound

    @property
    def num_draws(self) -> int:
        """The draws of noise."""
        return self.num_entries


@dataclass(frozen=True, kw_only=True)
class CountQuery:
    """Tables of counts: how many rows fall into each cell of each of several tables, one after another.

    ``function`` gives the number of a row's cell in each table, and ``sizes`` are the cells of each table.

    Guarantees: whatever ``function`` returns, a row adds one to at most one cell of each table, so it moves the sum by
    at most the square root of the number of tables.
    """

    function: Callable[[Any], Int[Array, " table"]]
    sizes: tuple[int, ...]
    purpose: str
    grid_unit: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        whole(1, tables=len(self.sizes), **{f"sizes[{place}]": size for place, size in enumerate(self.sizes)})

    @property
    def num_entries(self) -> int:
        """The cells of all tables."""
        return sum(self.sizes)

    @property
    def grid_norm(self) -> float:
        """By how many times ``GRID`` a row moves the sum in grid steps at most."""
        return sqrt(len(self.sizes))

    @property
    def clip(self) -> FlatClip:
        """The bound that rows keep without being clipped."""
        return FlatClip(bound=self.grid_norm)

    @property
    def num_draws(self) -> int:
        """The draws of noise: a power of two, which settles what a seed gives. What is not needed is thrown away."""
        return 1 << (self.num_entries - 1).bit_length()


@runtime_checkable
class NamedTables(Protocol):
    """A function that gives the number of a row's cell in each of several tables, each known by a name.

    Over the same rows, tables of one name and size are the same table, so that the doors may count it once.
    """

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The name of each table."""

    def only(self, places: Sequence[int], room: int) -> Callable[[Any], Int[Array, " table"]]:
        """The function of the tables at these places, followed by any tables at all, ``room`` in all."""

    def __call__(self, row: Any) -> Int[Array, " table"]: ...


@dataclass(frozen=True, kw_only=True)
class ScoreQuery:
    """Scores of public candidates, summed over the rows; each row's score is cut to [-1, 1].

    Guarantees: one row moves each candidate's score by at most one.
    """

    function: Callable[[Any], Float[Array, " candidate"]]
    num_candidates: int
    purpose: str

    def __post_init__(self) -> None:
        whole(1, num_candidates=self.num_candidates)


@dataclass(frozen=True, kw_only=True)
class DistanceQuery:
    """Scores of public candidates: how far the counts of a table of cells lie from what is expected of them.

    The score of a candidate is weight * (sum over cells of |count - expected| - penalty). Expected counts, weights
    (from 0 to 1) and penalties are public; ``function`` gives the number of a row's cell in each candidate's table.

    Guarantees: one row moves each candidate's score by at most one, and k rows by at most k, after all rounding.
    Proof: in grid steps, counts are multiples of ``GRID``, and expected counts and penalties are rounded once, so the
    distance is an exact whole number, which a row moves by at most ``GRID``, since it adds one to at most one count.
    The weight is a whole number w of at most 2**20, so w * distance / 2**20 moves by at most k * ``GRID``, too. That is
    a whole number, so rounding down keeps it: from a <= b <= a + m follows floor(a) <= floor(b) <= floor(a) + m.
    Reference: the scores of MST and AIM; McKenna, Miklau, Sheldon 2021; McKenna, Mullins, Sheldon, Miklau 2022.
    """

    function: Callable[[Any], Int[Array, " candidate"]]
    expected: tuple[Float[np.ndarray, " cell"], ...]
    weights: tuple[float, ...]
    penalties: tuple[float, ...]
    purpose: str

    def __post_init__(self) -> None:
        whole(1, num_candidates=self.num_candidates)
        if not len(self.expected) == len(self.weights) == len(self.penalties):
            raise ArgumentError("Expected a table, a weight and a penalty for each candidate.")
        for expected, weight, penalty in zip(self.expected, self.weights, self.penalties, strict=True):
            between(0, 1, weight=weight)
            if expected.ndim != 1 or not expected.size or not np.sum(np.abs(expected)) <= _MOST_EXPECTED:
                raise ArgumentError("Expected flat tables of counts that are finite and not past all sense.")
            if not isfinite(penalty):
                raise ArgumentError("Expected finite penalties.")

    @property
    def num_candidates(self) -> int:
        """How many candidates there are."""
        return len(self.expected)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The cells of each candidate's table."""
        return tuple(expected.size for expected in self.expected)

    def scores(self, counts: Int[np.ndarray, " cell"]) -> list[int]:
        """The scores in grid steps, from the exact counts of all tables, one after another."""
        tables = np.split(counts.astype(np.int64) * GRID, np.cumsum(self.sizes)[:-1])
        found = []
        for table, expected, weight, penalty in zip(tables, self.expected, self.weights, self.penalties, strict=True):
            distance = int(np.abs(table - np.rint(expected.astype(np.float64) * GRID).astype(np.int64)).sum())
            whole_weight = int(weight * 2**_WEIGHT_BITS)
            found.append((whole_weight * (distance - round(penalty * GRID))) >> _WEIGHT_BITS)
        return found


def count_query() -> SumQuery:
    """How many rows there are: a sum of ones."""
    return SumQuery(function=_one, num_entries=1, clip=FlatClip(bound=1.0), purpose="row count")


def _one(_: Any) -> Float[Array, " entry"]:
    return jnp.ones(1, jnp.float32)
