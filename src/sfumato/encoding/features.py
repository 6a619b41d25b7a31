"""A table as cells of the unit cube, and points of the unit cube as a table.

A value of a column with K values is the cell [k/K, (k+1)/K); a number of a column without grid is a point. A
nullable column has a flag before its value, and the value of a missing cell may lie anywhere. A model is a
density on the cube, and the log-likelihood of a row in the units of its table is

    log E[p(u)] + log_unit,  u uniform in the cells of the row:

a mass for discrete columns, a density per unit for continuous ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sfumato.encoding.identifiers import make_identifiers
from sfumato.encoding.layout import layout_of
from sfumato.encoding.parsing import Floats, Ints
from sfumato.encoding.places import read_columns, settled
from sfumato.encoding.values import Numbers, Reading, write_column
from sfumato.errors import ArgumentError
from sfumato.schema import Continuous, Identifier, Modelled, Schema


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The cell of each row: its lower corner, its widths (zero for points), and the log of its unit."""

    low: Floats
    width: Floats
    log_unit: Floats


def encode_features(table: pa.Table, schema: Schema) -> Cells:
    """Encode the modelled columns of a table; each row on its own.

    >>> from sfumato.schema import Boolean
    >>> cells = encode_features(pa.table({"a": [False, True]}), Schema(columns={"a": Boolean()}))
    >>> cells.low.tolist(), cells.width.tolist()
    ([[0.0], [0.5]], [[0.5], [0.5]])
    """
    shape = (table.num_rows, layout_of(schema).num_features)
    low, width = np.zeros(shape), np.zeros(shape)
    log_unit = np.zeros(table.num_rows)
    place, readings = 0, read_columns(table, schema)
    for name, column in schema.modelled:
        reading = readings[name]
        if column.nullable:
            low[:, place], width[:, place] = 0.5 * reading.missing, 0.5
            log_unit += math.log(0.5)
            place += 1
        if column.num_values != 1:
            low[:, place], width[:, place] = _cells(reading, column)
            log_unit += np.where(reading.missing, 0.0, _log_unit(column))
            place += 1
    return Cells(low=low, width=width, log_unit=log_unit)


def decode_features(points: npt.ArrayLike, schema: Schema, *, generator: np.random.Generator | None = None) -> pa.Table:
    """Decode points of the unit cube; nothing leaves the domain of its column or place, whatever the points are.

    Column order and Arrow types depend on the schema only. `generator` makes random identifiers; without it
    they come from the operating system.
    """
    cube = np.asarray(points, dtype=np.float64)
    num_features = layout_of(schema).num_features
    if cube.ndim != 2 or cube.shape[1] != num_features:
        raise ArgumentError(f"Expected points of shape [row, {num_features}], found {list(cube.shape)}")
    cube = np.clip(np.nan_to_num(cube, nan=0.5), 0.0, 1.0)
    place, readings = 0, dict[str, Reading]()
    for name, column in schema.modelled:
        missing = np.zeros(len(cube), np.bool_)
        if column.nullable:
            missing, place = cube[:, place] >= 0.5, place + 1
        values = np.zeros(len(cube), np.int64)
        if column.num_values != 1:
            values, place = _values(cube[:, place], column), place + 1
        readings[name] = Reading(values=values, missing=missing)
    return written(settled(readings, schema), schema, len(cube), generator=generator)


def written(
    readings: Mapping[str, Reading], schema: Schema, num_rows: int, *, generator: np.random.Generator | None
) -> pa.Table:
    """The cells of modelled columns as a table in the order of the schema, with identifiers that are made anew."""
    arrays: dict[str, pa.Array] = {}
    for name, column in schema.known.items():
        if not isinstance(column, Identifier):
            arrays[name] = write_column(readings[name], column)
        elif column.regenerate != "drop":
            arrays[name] = make_identifiers(num_rows, column, generator=generator)
    return pa.table(list(arrays.values()), names=list(arrays))


def _cells(reading: Reading, column: Modelled) -> tuple[Floats, Floats]:
    size = column.num_values
    if size is None and isinstance(column, Continuous):
        low = (reading.values - column.lower) / (column.upper - column.lower)
        width = np.zeros_like(low)
    else:
        low = reading.values / (size or 1)
        width = np.full_like(low, 1.0 / (size or 1))
    return np.where(reading.missing, 0.0, low), np.where(reading.missing, 1.0, width)


def _log_unit(column: Modelled) -> float:
    """Log of the mass of a cell, or of the density of a point, per unit of the table."""
    if not isinstance(column, Continuous):
        return -math.log(column.num_values)
    if column.num_values is None or column.decimals is None:
        return -math.log(column.upper - column.lower)
    return -math.log(column.num_values) + column.decimals * math.log(10)


def _values(points: Floats, column: Modelled) -> Numbers:
    if column.num_values is None and isinstance(column, Continuous):
        numbers = column.lower + points * (column.upper - column.lower)
        return np.clip(numbers, column.lower, column.upper)
    return cell_of(points, column.num_values or 1)


def cell_of(points: Floats, size: int) -> Ints:
    """Find the cell of each point, with the very floats k/size as borders.

    >>> cell_of(np.array([0.0, 1 / 49, 0.999, 1.0]), 49).tolist()
    [0, 1, 48, 48]
    """
    cell = np.floor(points * size)
    # The product is rounded, so that it may say one cell too few or too many at a border.
    cell = cell + (points >= (cell + 1) / size) - (points < cell / size)
    return np.clip(cell, 0, size - 1).astype(np.int64)
