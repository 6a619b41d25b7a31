"""Comparison: a real and a synthetic table read by one schema, as arrays that every metric takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sfumato.encoding.places import read_columns
from sfumato.encoding.values import write_column
from sfumato.errors import ArgumentError, TableError
from sfumato.release import Release
from sfumato.schema import Boolean, Categorical, Schema
from sfumato.table import check_columns, to_arrow

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MISSING = -1
"""The code of a missing level."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Sample:
    """The rows of one table: numbers in their own units, levels as places in the schema.

    Dates are days and moments are seconds since 1970. A missing number is NaN, a missing level is ``MISSING``.
    ``table`` holds the same rows with the Arrow types of the schema.
    """

    table: pa.Table
    numbers: Mapping[str, Floats]
    codes: Mapping[str, Ints]

    def __repr__(self) -> str:
        return "Sample(rows are private)"

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def missing(self, name: str) -> npt.NDArray[np.bool_]:
        """Which cells of a column are missing."""
        return np.isnan(self.numbers[name]) if name in self.numbers else self.codes[name] == MISSING

    def take(self, places: Ints) -> "Sample":
        """Some of the rows, in the order given."""
        return Sample(
            table=self.table.take(pa.array(places)),
            numbers={name: values[places] for name, values in self.numbers.items()},
            codes={name: values[places] for name, values in self.codes.items()},
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison:
    """What a report is about: real rows, synthetic rows, and what else is known.

    ``real`` are the rows that the model was fitted to; ``holdout`` are real rows that it never saw, and
    ``anomalies`` rows that a detector should find. ``target`` is the column that utility predicts. ``caps`` says in
    words what was sampled. ``seed`` fixes the samples and the models of the metrics: it protects nobody and need not.

    Privacy: none. What is computed from a comparison is computed on private rows without noise.
    """

    schema: Schema
    real: Sample
    synthetic: Sample
    holdout: Sample | None = None
    anomalies: Sample | None = None
    release: Release | None = None
    target: str | None = None
    seed: int = 0
    caps: str = ""
    names: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "Comparison(rows are private)"

    def __post_init__(self) -> None:
        if self.target is not None and self.target not in dict(self.schema.modelled):
            raise ArgumentError(f"target {self.target!r}: no such column in the schema")

    @property
    def numeric(self) -> tuple[str, ...]:
        """The columns of numbers, dates and moments, in the order of the schema."""
        return tuple(name for name, _ in self.schema.modelled if name in self.real.numbers)

    @property
    def discrete(self) -> tuple[str, ...]:
        """The columns of levels and truth values, in the order of the schema."""
        return tuple(name for name, _ in self.schema.modelled if name in self.real.codes)

    def num_levels(self, name: str) -> int:
        """Number of levels of a discrete column, missing not counted."""
        size = dict(self.schema.modelled)[name].num_values
        return 0 if size is None else size

    def levels(self, name: str) -> tuple[str, ...]:
        """The levels of a discrete column as text, in the order of their codes."""
        column = dict(self.schema.modelled)[name]
        if isinstance(column, Categorical):
            return tuple(str(level) for level in column.levels)
        return ("false", "true")

    def capped(self, most: int | None) -> "Comparison":
        """The same comparison with at most so many rows of each table, drawn evenly; ``caps`` then says so."""
        sides = {name: getattr(self, name) for name in ("real", "synthetic", "holdout", "anomalies")}
        large = {name: side for name, side in sides.items() if side and most is not None and side.num_rows > most}
        if most is None or not large:
            return self
        random = np.random.default_rng(self.seed)
        drawn = {name: side.take(np.sort(random.permutation(side.num_rows)[:most])) for name, side in large.items()}
        words = ", ".join(f"{most:,} of {side.num_rows:,} {name} rows" for name, side in large.items())
        return replace(self, **drawn, caps=f"sampled: {words}")


def sample_of(rows: Any, schema: Schema, *, what: str = "table") -> Sample:
    """Read a table (a frame, an Arrow table or the path of a file) by the rules of the schema.

    >>> from sfumato.schema import Integer
    >>> schema = Schema(columns={"age": Integer(lower=0, upper=120), "on": Boolean(nullable=True)})
    >>> sample = sample_of(pa.table({"age": [44, 130], "on": ["true", None]}), schema)
    >>> sample.numbers["age"].tolist(), sample.codes["on"].tolist()
    ([44.0, 120.0], [1, -1])
    """
    table, _ = to_arrow(rows)
    faults = check_columns(table, schema, identifiers=False)
    if faults:
        raise TableError(f"{what}: " + "; ".join(faults))
    if not table.num_rows:
        raise TableError(f"{what}: has no rows, so there is nothing to compare")
    arrays: dict[str, pa.Array] = {}
    numbers: dict[str, Floats] = {}
    codes: dict[str, Ints] = {}
    readings = read_columns(table, schema)
    for name, column in schema.modelled:
        reading = readings[name]
        arrays[name] = write_column(reading, column)
        if isinstance(column, Categorical | Boolean):
            codes[name] = np.where(reading.missing, MISSING, reading.values).astype(np.int64)
        else:
            numbers[name] = _numbers(arrays[name])
    return Sample(table=pa.table(arrays), numbers=numbers, codes=codes)


def _numbers(values: pa.Array) -> Floats:
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    missing = np.asarray(values.is_null())
    filled = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(missing, np.nan, filled)
