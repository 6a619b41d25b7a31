"""Mixed distance: how far rows of numbers and levels lie apart, block by block.

A number counts by its difference over the public range of its column, a level by 0 or 1, and so does a cell that is
missing on one side only; the distance is the mean over the columns. Reference: Gower 1971, with public ranges.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from sfumato.evaluation.comparison import Floats, Ints, Sample
from sfumato.schema import Continuous, Date, Datetime, Integer, Modelled, Schema

_CELLS_AT_ONCE = 2_000_000
"""Distances held at a time: 16 MB, and a few copies of it."""


@dataclass(frozen=True, kw_only=True)
class MixedRows:
    """Rows as numbers within [0, 1], NaN where missing, and as codes of levels."""

    numbers: Floats
    codes: Ints

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.numbers)

    def take(self, places: Ints | slice) -> "MixedRows":
        """Some of the rows."""
        return MixedRows(numbers=self.numbers[places], codes=self.codes[places])


def mixed_rows(sample: Sample, schema: Schema) -> MixedRows:
    """The rows of a sample, each number scaled by the public bounds of its column."""
    columns = dict(schema.modelled)
    scaled = [_scaled(values, columns[name]) for name, values in sample.numbers.items()]
    codes = list(sample.codes.values())
    return MixedRows(
        numbers=np.stack(scaled, axis=1) if scaled else np.zeros((sample.num_rows, 0)),
        codes=np.stack(codes, axis=1) if codes else np.zeros((sample.num_rows, 0), np.int64),
    )


def distances(rows: MixedRows, others: MixedRows) -> Floats:
    """The distance of each row to each other row, all at once.

    >>> one = MixedRows(numbers=np.array([[0.25]]), codes=np.array([[3]]))
    >>> two = MixedRows(numbers=np.array([[0.75], [np.nan]]), codes=np.array([[3], [4]]))
    >>> distances(one, two).tolist()
    [[0.25, 1.0]]
    """
    gaps = np.isnan(np.concatenate([rows.numbers, others.numbers])).any(axis=0, keepdims=True)[0]
    total = np.zeros((len(rows), len(others)))
    if not gaps.all():
        total += cdist(rows.numbers[:, ~gaps], others.numbers[:, ~gaps], "cityblock")
    for place in np.flatnonzero(gaps):
        total += _with_gaps(rows.numbers[:, place], others.numbers[:, place])
    num_codes = rows.codes.shape[1]
    if num_codes:
        total += num_codes * cdist(rows.codes, others.codes, "hamming")
    return total / (len(gaps) + num_codes)


def distance_blocks(rows: MixedRows, others: MixedRows) -> Iterator[tuple[slice, Floats]]:
    """The same in blocks of rows that fit the memory, each with the rows it is of."""
    step = max(1, _CELLS_AT_ONCE // max(1, len(others)))
    for start in range(0, len(rows), step):
        block = slice(start, min(start + step, len(rows)))
        yield block, distances(rows.take(block), others)


def nearest(rows: MixedRows, others: MixedRows, count: int) -> Floats:
    """The distances of each row to the nearest ``count`` other rows, in ascending order."""
    found = np.empty((len(rows), count))
    for block, away in distance_blocks(rows, others):
        found[block] = np.sort(np.partition(away, count - 1, axis=1)[:, :count], axis=1)
    return found


def _with_gaps(values: Floats, others: Floats) -> Floats:
    away = np.abs(values[:, None] - others)
    both: npt.NDArray[np.bool_] = np.isnan(values)[:, None] & np.isnan(others)
    return np.where(both, 0.0, np.where(np.isnan(away), 1.0, away))


def _scaled(values: Floats, column: Modelled) -> Floats:
    lower, upper = _bounds(column)
    return (values - lower) / (upper - lower or 1.0)


def _bounds(column: Modelled) -> tuple[float, float]:
    """The public bounds in the units of a sample: days for dates, seconds for moments."""
    match column:
        case Date():
            return _since_1970(column.lower, "D"), _since_1970(column.upper, "D")
        case Datetime():
            return _since_1970(column.lower, "s"), _since_1970(column.upper, "s")
        case Integer() | Continuous():
            return float(column.lower), float(column.upper)
        case _:
            return 0.0, 1.0


def _since_1970(moment: date, unit: Literal["D", "s"]) -> float:
    return float(np.datetime64(moment, unit).astype(np.int64))
