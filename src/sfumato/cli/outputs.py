"""Outputs: the files that commands write, looked at before the work and written after it."""

import math
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from sfumato.atomic import atomic_file
from sfumato.cli.console import print_json, say
from sfumato.errors import ArgumentError
from sfumato.table import check_name, write_csv_stream, write_file


def put_table(
    table: pa.Table, output: Path | None, *, json: bool, escape_formulas: bool, fields: dict[str, Any]
) -> None:
    """A table to its file, to standard output as CSV, or into the JSON object."""
    if output is not None:
        write_file(table, output, escape_formulas=escape_formulas)
        say(f"Written to {output}.")
    if json:
        names = table.column_names
        columns = {} if output is not None else {"columns": {name: _cells(table.column(name)) for name in names}}
        print_json({**fields, **columns, "written": name_of(output)})
    elif output is None:
        write_csv_stream(table, sys.stdout.buffer, escape_formulas=escape_formulas)
        sys.stdout.buffer.flush()


def check_table_output(output: Path | None, *, force: bool) -> None:
    """Refuse a table that could not be written, before any work is done."""
    if output is not None:
        check_name(output)
    check_output(output, force=force)


def check_output(output: Path | None, *, force: bool, suffixes: tuple[str, ...] | None = None) -> None:
    """Refuse a file that could not be written, before any work is done."""
    if output is None:
        return
    if suffixes is not None and output.suffix.lower() not in suffixes:
        raise ArgumentError(f"output {str(output)!r}: expected a name that ends in {' or '.join(suffixes)}")
    folder = output.parent
    if output.is_dir():
        raise ArgumentError(f"output {str(output)!r}: is a directory; name a file")
    if not folder.is_dir():
        raise ArgumentError(f"output {str(output)!r}: the folder {str(folder)!r} does not exist; create it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArgumentError(f"output {str(output)!r}: the folder {str(folder)!r} cannot be written to")
    if os.path.lexists(output) and not force:  # a link that leads nowhere is there too
        raise ArgumentError(f"output {str(output)!r}: is there already; choose another name, or add --force")


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file in full or not at all."""
    try:
        with atomic_file(path) as stream:
            stream.write(content)
    except OSError as error:
        raise ArgumentError(f"output {str(path)!r}: {(error.strerror or 'cannot be written').lower()}") from None


def name_of(path: Path | None) -> str | None:
    """A path for JSON."""
    return None if path is None else str(path)


def _cells(column: pa.ChunkedArray) -> list[Any]:
    # JSON has no infinite numbers.
    return [None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in column.to_pylist()]
