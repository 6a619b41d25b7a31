"""Kept rows: which rows of a table a curator is given, and in which form. The pipeline alone calls this."""

import numpy as np
import pyarrow as pa

from sfumato.encoding.public_table import cells_of
from sfumato.encoding.texts import unit_codes
from sfumato.privacy.units import first_rows_of_units
from sfumato.schema import Schema


def private_rows(table: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
    """What the curator holds: the cells of each row, after the cap on rows of one unit."""
    return cells_of(first_rows(table, schema), schema)


def first_rows(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows that the cap on rows of one unit keeps: all of them where there is no unit."""
    if schema.unit is None:
        return table
    codes = unit_codes(table.column(schema.unit.column))  # rows without an id count as one unit
    return table.filter(pa.array(first_rows_of_units(codes, schema.unit.max_rows)))
