"""Public table: rows of another table that nobody need protect, and what a certificate says of them."""

import hashlib
from collections.abc import Collection
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from sfumato.encoding.features import encode_features
from sfumato.errors import ArgumentError, TableError
from sfumato.schema import Schema
from sfumato.table import check_columns, to_arrow


class Startable(Protocol):
    """What a method says of itself."""

    @property
    def name(self) -> str: ...

    @property
    def can(self) -> Collection[str]: ...


def public_table(table: Any, schema: Schema, method: Startable) -> pa.Table | None:
    """A table that was declared public, in Arrow form; refused where the method has no use for it."""
    if table is None:
        return None
    if "warm_start" not in method.can:
        raise ArgumentError(
            f"{method.name!r} cannot start from a public table; 'chain', 'hflow' and 'maf' can, among others that "
            "'sfumato methods' lists with warm_start."
        )
    arrow, _ = to_arrow(table)
    if faults := check_columns(arrow, schema, identifiers=False):
        raise TableError("The public table does not fit the schema: " + "; ".join(faults))
    if not arrow.num_rows:
        raise TableError("The public table has no rows.")
    return arrow


def public_rows(table: pa.Table | None, schema: Schema) -> dict[str, np.ndarray] | None:
    """The cells of each public row, in the form that a curator holds."""
    if table is None:
        return None
    cells = encode_features(table, schema)
    return {"low": cells.low.astype(np.float32), "width": cells.width.astype(np.float32)}


def statement(rows: dict[str, np.ndarray] | None) -> dict[str, Any]:
    """What a certificate says of a public table: how many rows it has, and the SHA-256 of its cells."""
    if rows is None:
        return {}
    found = hashlib.sha256()
    for name in sorted(rows):
        found.update(np.ascontiguousarray(rows[name], "<f4").tobytes())
    return {"public_table": {"rows": len(rows["low"]), "sha256": found.hexdigest()}}
