"""Arrow tables to files, whole or not at all."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sfumato.atomic import atomic_file
from sfumato.errors import TableError

# A spreadsheet runs a cell that starts so as a formula.
_FORMULA = r"^[=+\-@\t\r]"


def write_file(table: pa.Table, path: str | Path, *, escape_formulas: bool = True) -> None:
    """Write a table by the suffix of its file: .csv, .csv.gz, .tsv, .parquet or .arrow.

    Guarantees: the file is there in full or not at all, also when the process is killed. In CSV, text cells
    that a spreadsheet would run as a formula get a leading quote mark, unless `escape_formulas` is false.
    """
    path = Path(path)
    write = _writer(path, escape_formulas=escape_formulas)
    try:
        with atomic_file(path) as stream:
            write(table, stream)
    except pa.ArrowException:
        raise TableError(f"file {path.name!r}: this format cannot hold the types of the columns") from None
    except OSError as error:
        raise TableError(f"file {str(path)!r}: {(error.strerror or 'cannot be written').lower()}") from None


def check_name(path: str | Path) -> None:
    """Refuse a name whose suffix no format has, before there is anything to write."""
    _writer(Path(path), escape_formulas=True)


def write_csv_stream(table: pa.Table, stream: BinaryIO, *, escape_formulas: bool = True) -> None:
    """Write a table as CSV into an open binary stream, such as standard output."""
    _write_text(_escaped(table) if escape_formulas else _plain(table), stream, ",")


def _writer(path: Path, *, escape_formulas: bool) -> Callable[[pa.Table, BinaryIO], None]:
    name = path.name.lower()
    prepare: Callable[[pa.Table], pa.Table] = _escaped if escape_formulas else _plain
    if name.endswith((".csv", ".tsv", ".txt")):
        delimiter = "\t" if name.endswith(".tsv") else ","
        return lambda table, stream: _write_text(prepare(table), stream, delimiter)
    if name.endswith((".csv.gz", ".tsv.gz", ".txt.gz")):
        delimiter = "\t" if name.endswith(".tsv.gz") else ","
        return lambda table, stream: _write_packed(prepare(table), stream, delimiter)
    if name.endswith((".parquet", ".pq")):
        return _write_parquet
    if name.endswith((".arrow", ".feather", ".ipc")):
        return _write_arrow
    raise TableError(f"file {path.name!r}: unknown suffix; expected .csv, .tsv, .csv.gz, .tsv.gz, .parquet or .arrow")


def _write_text(table: pa.Table, stream: Any, delimiter: str) -> None:
    pyarrow.csv.write_csv(table, stream, pyarrow.csv.WriteOptions(delimiter=delimiter))


def _write_packed(table: pa.Table, stream: BinaryIO, delimiter: str) -> None:
    # No time stamp inside, so that equal tables make equal files.
    with gzip.GzipFile(filename="", fileobj=stream, mode="wb", compresslevel=6, mtime=0) as packed:
        _write_text(table, packed, delimiter)


def _write_parquet(table: pa.Table, stream: BinaryIO) -> None:
    pq.write_table(table, stream)


def _write_arrow(table: pa.Table, stream: BinaryIO) -> None:
    with pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)


def _plain(table: pa.Table) -> pa.Table:
    """Replace dictionary columns by their values, which is what CSV can hold."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table


def _escaped(table: pa.Table) -> pa.Table:
    table = _plain(table)
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = table.column(place)
            runs = pc.match_substring_regex(column, _FORMULA)
            mark, nothing = pa.scalar("'", field.type), pa.scalar("", field.type)
            quoted = pc.binary_join_element_wise(mark, column, nothing)
            table = table.set_column(place, field.name, pc.if_else(runs, quoted, column))
    return table
