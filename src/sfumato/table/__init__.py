"""Arrow in and out: files and data frames. Messages of this room hold no cell, no count and no row number."""

from sfumato.table.check import check_columns
from sfumato.table.frames import Kind, from_arrow, to_arrow
from sfumato.table.read import read_file
from sfumato.table.write import check_name, write_csv_stream, write_file

__all__ = [
    "Kind",
    "check_columns",
    "check_name",
    "from_arrow",
    "read_file",
    "to_arrow",
    "write_csv_stream",
    "write_file",
]
