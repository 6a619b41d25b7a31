"""Faults of a table against its schema that show in its form, before any row is read."""

from typing import Any

import pyarrow as pa

from sfumato.schema import Column, Identifier, Schema, kind_of


def check_columns(table: pa.Table, schema: Schema, *, identifiers: bool = True) -> list[str]:
    """List every fault: missing, extra and repeated columns, and types that cannot hold the kind.

    With ``identifiers`` false their columns may be missing, as they are from synthetic rows.

    >>> from sfumato.schema import Boolean
    >>> check_columns(pa.table({"smokes": [True], "age": [3]}), Schema(columns={"smokes": Boolean()}))[0]
    "column 'age': not in the schema: declare it (kind = 'identifier' if it names rows), or remove it"
    """
    present = table.column_names
    known = [name for name in schema.columns if name in present]
    if not known:
        # The names are not repeated: in a file without header they are the cells of its first row.
        return ["no column of the schema is in the table: is there a header line, is the delimiter usual?"]
    found = [
        f"column {name!r}: missing from the table"
        for name, column in schema.columns.items()
        if name not in present and (identifiers or not isinstance(column, Identifier))
    ]
    # Where most names are strange this may be a row and no header, so that they are told by their place.
    is_header = 2 * len(known) >= len(schema.columns)
    found += [
        f"column {repr(name) if is_header else place}: "
        "not in the schema: declare it (kind = 'identifier' if it names rows), or remove it"
        for name, place in {name: place for place, name in enumerate(present, start=1)}.items()
        if name not in schema.columns
    ]
    for name in known:
        if present.count(name) > 1:
            found.append(f"column {name!r}: there more than once")
            continue
        arrow = table.schema.field(name).type
        if not can_hold(arrow, schema.columns[name]):
            kind = kind_of(schema.columns[name])
            found.append(f"column {name!r}: values of type {_type_name(arrow)} cannot hold kind {kind!r}")
    return found


def can_hold(arrow: Any, column: Column) -> bool:
    """Whether an Arrow type can hold values of a column; text can hold all, as a CSV file does.

    >>> from sfumato.schema import Boolean
    >>> can_hold(pa.string(), Boolean()), can_hold(pa.list_(pa.int8()), Boolean())
    (True, False)
    """
    types = pa.types
    if isinstance(column, Identifier):
        return not types.is_nested(arrow)
    if types.is_dictionary(arrow):
        return can_hold(arrow.value_type, column)
    if types.is_null(arrow) or types.is_string(arrow) or types.is_large_string(arrow):
        return True
    if types.is_string_view(arrow):
        return True
    temporal = bool(types.is_date(arrow) or types.is_timestamp(arrow))
    number = bool(types.is_boolean(arrow) or types.is_integer(arrow) or types.is_floating(arrow))
    number = number or bool(types.is_decimal(arrow))
    kind = kind_of(column)
    if kind in ("date", "datetime"):
        return temporal
    return number or (temporal and kind == "categorical")


def _type_name(arrow: Any) -> str:
    # A nested type is named by its family only: the names inside a struct may come from the rows.
    return str(arrow).partition("<")[0]
