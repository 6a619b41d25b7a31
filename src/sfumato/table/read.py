"""Files to Arrow tables."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.errors import TableError
from sfumato.table.delimited import MAX_BYTES, MAX_COLUMNS, check_header, gunzip, parse_delimited

MAX_CELLS = 4 * 10**9
# One value over and over packs to next to nothing; no real table comes near so many cells a byte.
FREE_CELLS, MAX_CELLS_PER_BYTE = 10**7, 100

_TEXT = (".csv", ".tsv", ".txt")
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_INDEX = re.compile(r"__index_level_\d+__")


def read_file(path: str | Path) -> pa.Table:
    """Read a table by the suffix of its file: CSV (also .gz), Parquet or Arrow.

    Columns of a CSV file come back as text, since their types are the schema's to say. Raises `TableError`,
    which holds no cell of the file.
    """
    path = Path(path)
    packed = path.suffix.lower() == ".gz"
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    if (packed and suffix not in _TEXT) or suffix not in (*_TEXT, *_PARQUET, *_ARROW):
        raise TableError(
            f"file {path.name!r}: unknown suffix; expected .csv, .tsv, .txt (or these with .gz), "
            ".parquet, .pq, .arrow, .feather or .ipc"
        )
    try:
        if path.is_dir():
            raise TableError(f"file {str(path)!r}: is a directory; name one file")
        if path.stat().st_size > MAX_BYTES:
            raise TableError(f"file {path.name!r}: larger than 4 GiB; split it, or use a data frame")
        if suffix in _TEXT:
            data = path.read_bytes()
            return parse_delimited(gunzip(data, path.name) if packed else data, path.name)
        if path.stat().st_size == 0:
            raise TableError(f"file {path.name!r}: empty")
        table = _read_parquet(path) if suffix in _PARQUET else _read_arrow(path)
    except pa.ArrowException:
        raise TableError(f"file {path.name!r}: damaged or truncated; copy or export it again") from None
    except OSError as error:
        reason = error.strerror.lower() if error.strerror else "damaged, truncated or unreadable"
        raise TableError(f"file {str(path)!r}: {reason}") from None
    return without_index(_checked(table, path.name))


def without_index(table: pa.Table) -> pa.Table:
    """Leave out the columns in which pandas keeps an index without name."""
    return table.drop_columns([name for name in table.column_names if _INDEX.fullmatch(name)])


def _read_parquet(path: Path) -> pa.Table:
    with pq.ParquetFile(path) as file:
        _check_size(file.metadata.num_rows, len(file.schema_arrow), path.name)
        cells = file.metadata.num_rows * len(file.schema_arrow)
        if cells > FREE_CELLS + MAX_CELLS_PER_BYTE * path.stat().st_size:
            raise TableError(f"file {path.name!r}: unpacks to far more than its size; write it as CSV, or split it")
        groups = range(file.metadata.num_row_groups)
        if sum(file.metadata.row_group(group).total_byte_size for group in groups) > 4 * MAX_BYTES:
            raise TableError(f"file {path.name!r}: unpacks to more than 16 GiB; split it")
        return file.read()


def _read_arrow(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        start = source.read(6)
        source.seek(0)
        reader = pa.ipc.open_file(source) if start == b"ARROW1" else pa.ipc.open_stream(source)
        return reader.read_all()


def _checked(table: pa.Table, name: str) -> pa.Table:
    check_header(table.column_names, f"file {name!r}")
    _check_size(table.num_rows, table.num_columns, name)
    # Offsets of a damaged file may point outside its buffers: look before anything computes with them.
    table.validate(full=True)
    return table


def _check_size(num_rows: int, num_columns: int, name: str) -> None:
    if num_columns == 0:
        raise TableError(f"file {name!r}: has no columns")
    if num_columns > MAX_COLUMNS:
        raise TableError(f"file {name!r}: more than {MAX_COLUMNS:,} columns")
    if num_rows * num_columns > MAX_CELLS:
        raise TableError(f"file {name!r}: too large to hold in memory; split it")
