"""Learning: levels and bounds that nobody could declare, bought before anything else of a fit.

Levels are the texts that reach a threshold (``privacy/levels.py``). Bounds come from noisy counts on a public grid that
covers all numbers (``encoding/unknown.py``): octaves whose counts stand out of the noise by ``_CLEAR`` deviations, as
noise alone does in fewer than one of ten thousand columns; with octaves beside them that stand out by ``_BESIDE``; less
the outer half of the outermost, and so on five times, where it does not stand out by ``_INSIDE``. So a bound is off by
a 32nd of its size at best. What lies past it are about as many rows as a count has noise; they are clamped, as past
declared bounds. All after the two sums is post-processing.

What is bought for depends on the schema and the settings alone: every learnt column keeps one feature that can vary, or
the fit is refused. So no charge that comes later depends on what was learnt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from jaxtyping import Array, Int32

from sfumato.checks import between, whole
from sfumato.encoding.unknown import DEPTH, Grid, grid_of, read_numbers, read_texts
from sfumato.errors import BudgetError
from sfumato.privacy import CountQuery, Curator, Texts
from sfumato.schema import (
    Categorical,
    Column,
    Continuous,
    Integer,
    LearntCategorical,
    LearntContinuous,
    LearntInteger,
    Schema,
)

_CLEAR, _BESIDE, _INSIDE = 5.0, 2.0, 1.0
"""By how many deviations of the noise a count must stand out: of any octave, of one beside such, of a half inside."""

_NEAR_ZERO = 16
"""A bound that is so many times nearer to zero than the other one may as well be zero."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What the columns with ``learn = true`` may cost together, and how many levels each may get.

    ``share`` is theirs of the budget, in equal parts. ``delta_share`` of delta is the chance that a text comes out that
    only one unit has; it is spent only where levels are learnt.

    >>> Learning(share=0.05).most_levels
    100
    """

    share: float = 0.1
    delta_share: float = 0.1
    most_levels: int = 100

    def __post_init__(self) -> None:
        between(1e-6, 0.5, share=self.share)
        between(1e-4, 0.5, delta_share=self.delta_share)
        whole(1, most_levels=self.most_levels)
        between(1, 1_000, most_levels=self.most_levels)


LEARNING = Learning()
"""The defaults."""


def unknown_rows(table: pa.Table, schema: Schema) -> Int32[np.ndarray, "row place"]:
    """What the curator holds of numbers to be learnt: their places on public grids."""
    found = [read_numbers(table.column(name), column) for name, column in _numbers(schema).items()]
    return np.concatenate([np.zeros((table.num_rows, 0), np.int32), *found], axis=1).astype(np.int32)


def unknown_texts(table: pa.Table, schema: Schema) -> tuple[Texts, ...]:
    """What the curator holds of columns whose levels are to be learnt: their texts."""
    return tuple(Texts(*read_texts(table.column(name), column)) for name, column in _categories(schema).items())


def learn(curator: Curator, schema: Schema, settings: Learning, delta: float) -> Schema:
    """The schema with the levels and bounds that a curator over ``unknown_rows`` and ``unknown_texts`` was asked for.

    Cost: one Gaussian sum for all bounds, and one with an ``Exposure`` at ``delta_share`` of ``delta`` for all levels;
    together ``share`` of the budget. A schema without columns to learn comes back as it is, at no cost.
    """
    categories, numbers = _categories(schema), _numbers(schema)
    part = settings.share / max(1, len(categories) + len(numbers))
    found: dict[str, Column | None] = dict(schema.columns)
    if numbers:
        found |= _bought_bounds(curator, numbers, part * len(numbers))
    if categories:
        purpose = f"levels of {_listed(categories)}"
        told = curator.noisy_levels(share=part * len(categories), delta=settings.delta_share * delta, purpose=purpose)
        for (name, column), counts in zip(categories.items(), told, strict=True):
            found[name] = _levelled(column, counts, settings.most_levels)
    lost = [name for name, column in found.items() if column is None]
    if lost:
        raise BudgetError(
            f"Nothing of {_listed(lost)} stands out of the noise, so nothing can be learnt: declare levels or bounds, "
            "or raise epsilon. What was asked of the rows counts as spent."
        )
    return replace(schema, columns={name: column for name, column in found.items() if column is not None})


def _categories(schema: Schema) -> dict[str, LearntCategorical]:
    return {name: column for name, column in schema.learnt.items() if isinstance(column, LearntCategorical)}


def _numbers(schema: Schema) -> dict[str, LearntInteger | LearntContinuous]:
    return {name: column for name, column in schema.learnt.items() if not isinstance(column, LearntCategorical)}


def _listed(names: Mapping[str, object] | list[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(repr(name) for name in names)


def _levelled(column: LearntCategorical, counts: Mapping[str, int], most: int) -> Categorical | None:
    """The column with the levels of the largest noisy counts; None if there is none but ``other``."""
    kept = sorted(counts, key=lambda text: (-counts[text], text))[:most]
    known = column.known(kept if isinstance(column.other, str) else [int(text) for text in kept])
    return known if len(known.levels) > 1 else None


def _places(row: Array) -> Array:
    return row


def _bought_bounds(
    curator: Curator, columns: Mapping[str, LearntInteger | LearntContinuous], share: float
) -> dict[str, Integer | Continuous | None]:
    """The columns with their bounds, from one noisy sum over all of their grids."""
    grids = {name: grid_of(column) for name, column in columns.items()}
    sizes = tuple(size for grid in grids.values() for size in grid.sizes)
    query = CountQuery(function=_places, sizes=sizes, purpose=f"bounds of {_listed(columns)}")
    noise = curator.noise_of(query.grid_norm, share)
    tables = np.split(curator.noisy_sum(query, share=share), np.cumsum(sizes)[:-1])
    found: dict[str, Integer | Continuous | None] = {}
    for place, (name, column) in enumerate(columns.items()):
        ends = find_range(tables[place * (DEPTH + 1) : (place + 1) * (DEPTH + 1)], noise, grids[name])
        found[name] = None if ends is None else _bounded(column, *ends)
    return found


def find_range(counts: list[np.ndarray], noise: float, grid: Grid) -> tuple[float, float] | None:
    """The least and greatest number on the scale of a grid, as far as noisy counts of its places tell; or None.

    >>> grid = Grid(octaves=4, scale=1.0, stepped=True)
    >>> places = grid.places(np.repeat([3.0, 5.0, 11.0], 50))
    >>> find_range([np.bincount(at[at >= 0], minlength=size) for at, size in zip(places.T, grid.sizes)], 1.0, grid)
    (3.0, 11.0)
    """
    octaves = counts[0]
    clear = np.flatnonzero(octaves > _CLEAR * noise)
    if not clear.size:
        return None
    first, last = int(clear[0]), int(clear[-1])
    while first > 0 and octaves[first - 1] > _BESIDE * noise:
        first -= 1
    while last < len(octaves) - 1 and octaves[last + 1] > _BESIDE * noise:
        last += 1
    low = _outermost(counts, noise, grid, first, upper=False)
    high = _outermost(counts, noise, grid, last, upper=True)
    if low > high:  # one octave, in which no half stands out from the other: all of it
        place = first - (first > grid.octaves)
        return grid.ends(place << DEPTH)[0], grid.ends(((place + 1) << DEPTH) - 1)[1]
    return low, high


def _outermost(counts: list[np.ndarray], noise: float, grid: Grid, octave: int, *, upper: bool) -> float:
    """The end of an octave on one side, cut by half as often as the outer half does not stand out."""
    if octave == grid.octaves:
        return 0.0
    place = octave - (octave > grid.octaves)  # the parts of octaves are without zero
    for table in counts[1:]:
        place = 2 * place + upper
        if not table[place] > _INSIDE * noise:
            place += -1 if upper else 1
    return grid.ends(place)[upper]


def _bounded(column: LearntInteger | LearntContinuous, low: float, high: float) -> Integer | Continuous:
    """The column between two numbers on the scale of its grid; at least one step apart, and to zero if that is near."""
    if 0 < low * _NEAR_ZERO <= high:
        low = 0.0
    elif low <= high * _NEAR_ZERO < 0:
        high = 0.0
    grid = grid_of(column)
    high = high if low < high else low + (1.0 if grid.stepped else grid.scale)
    if isinstance(column, LearntInteger):
        return column.known(int(low), int(high))
    return column.known(low / grid.scale, high / grid.scale)
