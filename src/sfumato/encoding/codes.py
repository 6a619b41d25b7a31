"""A table as integer codes, one a modelled column, for models of counts.

Levels and booleans keep one code each, and so does a grid of at most `bins` values; wider domains are cut
into `bins` even parts of the public bounds. A nullable column has one more code, the last, for missing.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sfumato.encoding.features import cell_of, written
from sfumato.encoding.parsing import Ints
from sfumato.encoding.places import read_columns, settled
from sfumato.encoding.values import Numbers, Reading, stand_in
from sfumato.errors import ArgumentError
from sfumato.schema import Boolean, Categorical, Continuous, Modelled, Schema

MAX_BINS = 1_000_000


def domain_sizes(schema: Schema, bins: int = 100) -> tuple[int, ...]:
    """Number of codes of each modelled column.

    >>> from sfumato.schema import Integer
    >>> domain_sizes(Schema(columns={"age": Integer(lower=0, upper=120, nullable=True), "on": Boolean()}), 10)
    (11, 2)
    """
    _check_bins(bins)
    return tuple(num_parts(column, bins) + column.nullable for _, column in schema.modelled)


def num_parts(column: Modelled, bins: int) -> int:
    """Number of codes of the present values of a column."""
    size = column.num_values
    if size is None:
        return bins
    return size if isinstance(column, Categorical | Boolean) else min(size, bins)


def encode_codes(table: pa.Table, schema: Schema, *, bins: int = 100) -> npt.NDArray[np.int32]:
    """Encode the modelled columns of a table; each row on its own.

    >>> encode_codes(pa.table({"a": [False, True]}), Schema(columns={"a": Boolean()})).tolist()
    [[0], [1]]
    """
    _check_bins(bins)
    codes = np.zeros((table.num_rows, len(schema.modelled)), np.int32)
    readings = read_columns(table, schema)
    for place, (name, column) in enumerate(schema.modelled):
        reading = readings[name]
        parts = num_parts(column, bins)
        codes[:, place] = np.where(reading.missing, parts, _parts(reading.values, column, parts))
    return codes


def decode_codes(codes: npt.ArrayLike, schema: Schema, *, bins: int = 100, generator: np.random.Generator) -> pa.Table:
    """Decode codes; a value is drawn evenly from its part, and nothing leaves the domain of its column or place."""
    _check_bins(bins)
    grid = np.asarray(codes)
    num_columns = len(schema.modelled)
    if grid.ndim != 2 or grid.shape[1] != num_columns or not np.issubdtype(grid.dtype, np.integer):
        raise ArgumentError(f"Expected whole codes of shape [row, {num_columns}], found {list(grid.shape)}")
    readings: dict[str, Reading] = {}
    for place, (name, column) in enumerate(schema.modelled):
        parts = num_parts(column, bins)
        code = np.clip(grid[:, place].astype(np.int64), 0, parts - 1 + column.nullable)
        missing = code == parts
        values = _draw(np.minimum(code, parts - 1), column, parts, generator)
        values[missing] = stand_in(column)
        readings[name] = Reading(values=values, missing=missing)
    return written(settled(readings, schema), schema, len(grid), generator=generator)


def _check_bins(bins: int) -> None:
    if not 1 <= bins <= MAX_BINS:
        raise ArgumentError(f"Expected bins={bins} in [1, {MAX_BINS:,}]")


def _parts(values: Numbers, column: Modelled, parts: int) -> Ints:
    size = column.num_values
    if size is None and isinstance(column, Continuous):
        return cell_of((values - column.lower) / (column.upper - column.lower), parts)
    whole: Ints = values.astype(np.int64) * parts // (size or 1)
    return whole


def _draw(code: Ints, column: Modelled, parts: int, generator: np.random.Generator) -> Numbers:
    size = column.num_values
    if size is None and isinstance(column, Continuous):
        numbers = column.lower + (code + generator.random(len(code))) / parts * (column.upper - column.lower)
        return np.clip(numbers, column.lower, column.upper)
    if size is None or size == parts:
        return code.copy()
    # The values of part c are those with value * parts // size == c.
    first, last = -(-code * size // parts), -(-(code + 1) * size // parts)
    return generator.integers(first, last)
