"""Held rows: what a curator is given of a table, and of another one that was declared public."""

import hashlib
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato.encoding.features import encode_features
from sfumato.encoding.texts import unit_codes
from sfumato.errors import ArgumentError, TableError
from sfumato.privacy.units import first_rows_of_units
from sfumato.schema import Schema
from sfumato.table import check_columns, to_arrow


def private_rows(table: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
    """What the curator holds: the cells of each row, after the cap on rows of one unit."""
    return cells_of(first_rows(table, schema), schema)


def first_rows(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows that the cap on rows of one unit keeps: all of them where there is no unit."""
    units = units_of(table, schema)  # rows without an id count as one unit
    return table if units is None else table.filter(pa.array(first_rows_of_units(units, schema.unit.max_rows)))  # type: ignore[union-attr]


def units_of(table: pa.Table, schema: Schema) -> np.ndarray | None:
    """Whose each row is, as a number; None where every row is a unit by itself."""
    return None if schema.unit is None else unit_codes(table.column(schema.unit.column))


def cells_of(table: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
    """The cells of each row, in the form that a curator holds."""
    cells = encode_features(table, schema)
    return {"low": cells.low.astype(np.float32), "width": cells.width.astype(np.float32)}


def public_table(table: Any, schema: Schema, method: str, can: Collection[str]) -> pa.Table | None:
    """A table that was declared public, in Arrow form; refused where the method has no use for it."""
    if table is None:
        return None
    if "warm_start" not in can:
        raise ArgumentError(
            f"{method!r} cannot start from a public table: 'sfumato methods' says which can warm_start."
        )
    arrow, _ = to_arrow(table)
    if faults := check_columns(arrow, schema, identifiers=False):
        raise TableError("The public table does not fit the schema: " + "; ".join(faults))
    if not arrow.num_rows:
        raise TableError("The public table has no rows.")
    return arrow


def statement(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """What a certificate says of a public table: how many rows it has, and the SHA-256 of its cells."""
    found = hashlib.sha256()
    for name in sorted(rows):
        found.update(np.ascontiguousarray(rows[name], "<f4").tobytes())
    return {"rows": len(rows["low"]), "sha256": found.hexdigest()}
