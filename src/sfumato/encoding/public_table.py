"""Public table: rows that nobody need protect, of the same schema as the private ones, from which a fit may start."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato.encoding.features import encode_features
from sfumato.errors import TableError
from sfumato.schema import Schema
from sfumato.table import check_columns, to_arrow

Rows = dict[str, np.ndarray]
"""The cells of rows by ``low`` and ``width``, in 32 bits."""


@dataclass(frozen=True)
class PublicTable:
    """A table that was declared public, in Arrow form. Privacy: none of it is protected."""

    table: pa.Table = field(repr=False)

    @classmethod
    def read(cls, given: Any, schema: Schema) -> "PublicTable":
        """From whatever ``sfumato.fit`` takes; one that does not fit the schema, or has no rows, is refused."""
        arrow, _ = to_arrow(given)
        if faults := check_columns(arrow, schema, identifiers=False):
            raise TableError("The public table does not fit the schema: " + "; ".join(faults))
        if not arrow.num_rows:
            raise TableError("The public table has no rows.")
        return cls(arrow)

    def rows(self, schema: Schema) -> Rows:
        """Its rows as a fit sees them."""
        return cells_of(self.table, schema)


def cells_of(table: pa.Table, schema: Schema) -> Rows:
    """The cells of each row of a table."""
    cells = encode_features(table, schema)
    return {"low": cells.low.astype(np.float32), "width": cells.width.astype(np.float32)}


def about(rows: Rows) -> dict[str, Any]:
    """What names public rows in a certificate: how many there are, and the SHA-256 of their cells."""
    found = hashlib.sha256()
    for name in sorted(rows):
        found.update(np.ascontiguousarray(rows[name], "<f4").tobytes())
    return {"rows": len(rows["low"]), "sha256": found.hexdigest()}
