"""Cells to the public domain of their column and back: where the rules for faulty rows live.

A fault that depends on a single row is never an error and never counted, as both would tell of the row:

- a number, date or moment out of bounds (an infinite one too) becomes the nearest bound;
- a number between two values of the grid becomes the nearest; a moment becomes the start of its step;
- what is no number, no date, no truth value is missing, and so are NaN and words such as NA, null, None;
- a level that the schema does not have becomes `other` where that is declared, else missing;
- missing in a column that is not nullable becomes a public stand-in: `other`, else the first level; false;
  the middle of the bounds.

Each row is read on its own: what a cell becomes depends on the schema and on that cell only. Places are the exception,
where both cells of the row count: `places` goes on from here.
"""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sfumato.encoding.levels import ABSENT, find_levels
from sfumato.encoding.parsing import Mask, parse_flags, parse_floats, parse_seconds
from sfumato.errors import TableError
from sfumato.schema import Boolean, Categorical, Continuous, Date, Datetime, Integer, Modelled
from sfumato.schema.columns import SECONDS

Numbers: TypeAlias = npt.NDArray[Any]

_DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The cells of one column, all within its domain.

    `values` holds places on the grid of the column (int64, from 0 to num_values - 1), or the numbers
    themselves (float64) where the column has no grid; what stands at a missing cell is a stand-in.
    """

    values: Numbers
    missing: Mask


def read_column(table: pa.Table, name: str, column: Modelled) -> Reading:
    """Read one column of a table by the rules above."""
    places = table.schema.get_all_field_indices(name)
    if len(places) != 1:
        fault = "there more than once" if places else "missing from the table"
        raise TableError(f"column {name!r}: {fault}")
    values, missing = _parse(table.column(places[0]), column)
    values[missing] = stand_in(column)
    return Reading(values=values, missing=missing if column.nullable else np.zeros_like(missing))


def stand_in(column: Modelled) -> int | float:
    """The public value of a missing cell where none may be missing; a place on the grid where there is one.

    >>> stand_in(Integer(lower=0, upper=120))
    60
    """
    if isinstance(column, Categorical):
        return 0 if column.other is None else column.levels.index(column.other)
    if isinstance(column, Boolean):
        return 0
    if column.num_values is None:
        return column.lower + (column.upper - column.lower) / 2
    return (column.num_values - 1) // 2


def write_column(reading: Reading, column: Modelled) -> pa.Array:
    """Write the cells of a column in the Arrow type of its kind."""
    values, mask = reading.values, reading.missing
    match column:
        case Categorical():
            kind = pa.string() if isinstance(column.levels[0], str) else pa.int64()
            return pa.array(column.levels, kind).take(pa.array(values, pa.int64(), mask=mask))
        case Boolean():
            return pa.array(values.astype(np.bool_), pa.bool_(), mask=mask)
        case Integer():
            return pa.array(values + column.lower, pa.int64(), mask=mask)
        case Continuous():
            if column.decimals is not None:
                # A quotient of whole numbers is the float that the decimal text would give.
                values = (values + round(column.lower * 10**column.decimals)) / 10**column.decimals
            return pa.array(values, pa.float64(), mask=mask)
        case Date():
            days = values + np.datetime64(column.lower, "D").astype(np.int64)
            return pa.array(days.astype("datetime64[D]"), pa.date32(), mask=mask)
        case Datetime():
            moments = values * SECONDS[column.resolution] + _seconds(column.lower)
            return pa.array(moments.astype("datetime64[s]"), pa.timestamp("s"), mask=mask)
        case _:
            assert_never(column)


def _parse(values: Any, column: Modelled) -> tuple[Numbers, Mask]:
    match column:
        case Categorical():
            places = find_levels(values, column)
            lost = places < 0 if column.other is None else places == ABSENT
            other = 0 if column.other is None else column.levels.index(column.other)
            return np.where(places < 0, other, places), lost
        case Boolean():
            flags = parse_flags(values)
            return np.nan_to_num(flags, nan=0.0).astype(np.int64), np.isnan(flags)
        case Integer():
            numbers, missing = _clamped(parse_floats(values), column.lower, column.upper)
            return np.rint(numbers).astype(np.int64) - column.lower, missing
        case Continuous():
            numbers, missing = _clamped(parse_floats(values), column.lower, column.upper)
            if column.num_values is None:
                return numbers, missing
            scale = 10**column.decimals if column.decimals else 1
            places = np.rint(numbers * scale).astype(np.int64) - round(column.lower * scale)
            return np.clip(places, 0, column.num_values - 1), missing
        case Date():
            seconds, missing = parse_seconds(values)
            days = np.clip(seconds // _DAY, _seconds(column.lower) // _DAY, _seconds(column.upper) // _DAY)
            return days - _seconds(column.lower) // _DAY, missing
        case Datetime():
            seconds, missing = parse_seconds(values)
            lower = _seconds(column.lower)
            inside = np.clip(seconds, lower, _seconds(column.upper))
            return (inside - lower) // SECONDS[column.resolution], missing
        case _:
            assert_never(column)


def _clamped(numbers: Numbers, lower: float, upper: float) -> tuple[Numbers, Mask]:
    missing = np.isnan(numbers)
    return np.clip(np.where(missing, lower, numbers), lower, upper), missing


def _seconds(moment: date | datetime) -> int:
    return int(np.datetime64(moment, "s").astype(np.int64))
