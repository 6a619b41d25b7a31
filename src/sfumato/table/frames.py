"""Data frames of other libraries to Arrow and back; none is imported unless the user has it in hand."""

import math
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from sfumato.errors import ArgumentError, TableError
from sfumato.table.read import read_file, without_index

Kind: TypeAlias = Literal["pandas", "polars", "arrow", "duckdb"]

_KINDS = ("pandas", "polars", "arrow", "duckdb")


def to_arrow(data: Any) -> tuple[pa.Table, Kind]:
    """Turn a frame, a relation, an Arrow stream or a file into an Arrow table, and say what it was.

    >>> to_arrow(pa.table({"a": [1, 2]}))[1]
    'arrow'
    """
    if isinstance(data, str | Path):
        return _without_views(read_file(data)), "arrow"
    try:
        table, kind = _convert(data)
        table = _without_views(table)
    except (pa.ArrowException, OverflowError):
        raise TableError("the frame cannot become an Arrow table; check the types of its columns") from None
    if table.num_columns == 0:
        raise TableError("the frame has no columns")
    return table, kind


def from_arrow(table: pa.Table, kind: Kind) -> Any:
    """Turn an Arrow table into a frame of the kind asked for.

    >>> from_arrow(pa.table({"a": [1, 2]}), "arrow").num_rows
    2
    """
    if kind == "arrow":
        return table
    if kind == "pandas":
        return _to_pandas(table)
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    if kind == "duckdb":
        import duckdb

        return duckdb.from_arrow(table)
    raise ArgumentError(f"Expected kind in {', '.join(_KINDS)}, found {kind!r}")


def _convert(data: Any) -> tuple[pa.Table, Kind]:
    library, name = type(data).__module__.partition(".")[0], type(data).__name__
    if isinstance(data, pa.Table):
        return data, "arrow"
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data]), "arrow"
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all(), "arrow"
    if library == "pandas" and name == "DataFrame":
        return _from_pandas(data), "pandas"
    if library == "polars" and name == "LazyFrame":
        data = data.collect()
    if library == "polars" and type(data).__name__ == "DataFrame":
        return data.to_arrow(), "polars"
    if getattr(type(data), "__arrow_c_stream__", None) is not None:
        return pa.table(data), "duckdb" if library in ("duckdb", "_duckdb") else "arrow"
    raise ArgumentError(
        "Expected a pandas or polars frame, a pyarrow table, a DuckDB relation, an object with "
        f"__arrow_c_stream__ or a path, found an object of type {name}"
    )


def _without_views(table: pa.Table) -> pa.Table:
    """Give columns of views their plain type: Arrow cannot filter or take views."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.large_string()))
        elif pa.types.is_binary_view(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.large_binary()))
    return table


def _from_pandas(frame: Any) -> pa.Table:
    """Convert column by column, so that one odd cell of an object column costs that column its type only."""
    names = [str(name) for name in frame.columns]
    columns = [_from_series(frame.iloc[:, place]) for place in range(len(names))]
    if not names:
        return pa.table({})
    return without_index(pa.Table.from_arrays(columns, names=names))


def _from_series(series: Any) -> Any:
    try:
        return pa.chunked_array([pa.array(series, from_pandas=True)])
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.chunked_array([pa.array([_as_text(cell) for cell in series], pa.large_string())])


def _as_text(cell: object) -> str | None:
    """Write a cell of a mixed column as text; what has no plain text is missing."""
    if isinstance(cell, str):
        return cell.encode("utf-8", "replace").decode("utf-8")
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    if isinstance(cell, int) and cell.bit_length() > 1024:
        # Past the range of any bound, and past the digits that Python writes.
        return "inf" if cell > 0 else "-inf"
    text = str(cell)
    return None if text in ("<NA>", "NaT", "nan") else text


def _to_pandas(table: pa.Table) -> Any:
    import pandas

    frame = table.to_pandas()
    # pandas turns integers with gaps into floats and booleans with gaps into objects: keep what they are.
    for field, column in zip(table.schema, table.columns, strict=True):
        if column.null_count and pa.types.is_integer(field.type):
            frame[field.name] = column.to_pandas(types_mapper={field.type: pandas.Int64Dtype()}.get)
        elif column.null_count and pa.types.is_boolean(field.type):
            frame[field.name] = column.to_pandas(types_mapper={field.type: pandas.BooleanDtype()}.get)
    return frame
