"""Data frames of other libraries to Arrow and back; none is imported unless the user has it in hand."""

from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from sfumato.errors import ArgumentError, TableError
from sfumato.table.cells import text_of
from sfumato.table.read import read_file, without_index

Kind: TypeAlias = Literal["pandas", "polars", "arrow", "duckdb"]

_KINDS = ("pandas", "polars", "arrow", "duckdb")

# Types of pandas that say what each cell is: kinds of NumPy, and names of extensions. Others hold Python objects.
_TYPED = "biufmM"
_WIDTHS = ("8", "16", "32", "64")
_EXTENSIONS = {"BooleanDtype", "StringDtype", "DatetimeTZDtype", "ArrowDtype", "Float32Dtype", "Float64Dtype"}
_EXTENSIONS |= {f"{sign}Int{width}Dtype" for sign in ("", "U") for width in _WIDTHS}
# Types of polars that Arrow does not have.
_UNTYPED = ("Object", "Int128", "UInt128")


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
        return _from_polars(data), "polars"
    if getattr(type(data), "__arrow_c_stream__", None) is not None:
        return pa.table(data), "duckdb" if library in ("duckdb", "_duckdb") else "arrow"
    raise ArgumentError(
        "Expected a pandas or polars frame, a pyarrow table, a DuckDB relation, an object with "
        f"__arrow_c_stream__ or a path, found an object of type {name}"
    )


def _without_views(table: pa.Table) -> pa.Table:
    """Give columns of views their plain type, as Arrow cannot filter or take views, and make all text valid."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_string_view(field.type):
            column = column.cast(pa.large_string(), safe=False)
        elif pa.types.is_binary_view(field.type):
            column = column.cast(pa.large_binary())
        column = _valid(column)
        if column is not table.column(place):
            table = table.set_column(place, field.name, column)
    return table


def _valid(column: Any) -> Any:
    """Replace the bytes of text cells that are no UTF-8: one such cell would stop all that is done with text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        cells = column.cast(kind, safe=False).cast(pa.large_binary()).to_pylist()
        return pa.chunked_array([_texts(cells)])
    return column


def _from_polars(frame: Any) -> pa.Table:
    """Convert column by column, as Arrow has no type for some of polars."""
    columns = [
        _texts(series.to_list()) if str(series.dtype) in _UNTYPED else series.to_frame().to_arrow().column(0)
        for series in frame.get_columns()
    ]
    return pa.Table.from_arrays(columns, names=frame.columns) if columns else pa.table({})


def _from_pandas(frame: Any) -> pa.Table:
    """Convert column by column, each by its declared type and never by a type inferred from the rows."""
    names = [str(name) for name in frame.columns]
    columns = [_from_series(frame.iloc[:, place]) for place in range(len(names))]
    if not names:
        return pa.table({})
    return without_index(pa.Table.from_arrays(columns, names=names))


def _from_series(series: Any) -> Any:
    dtype = series.dtype
    if type(dtype).__name__ == "CategoricalDtype":
        # The type of the categories is inferred from the rows as well.
        codes = series.cat.codes.to_numpy()
        return pa.chunked_array([_texts(dtype.categories).take(pa.array(codes, pa.int64(), mask=codes < 0))])
    typed = dtype.kind in _TYPED if isinstance(dtype, np.dtype) else type(dtype).__name__ in _EXTENSIONS
    if typed:
        try:
            array = pa.array(series, from_pandas=True)
        except (pa.ArrowException, UnicodeError):
            pass  # a type that Arrow does not have, or text that is no Unicode: the same cells come as text
        else:
            return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    return pa.chunked_array([_texts(series)])


def _texts(cells: Any) -> pa.Array:
    return pa.array([text_of(cell) for cell in cells], pa.large_string())


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
