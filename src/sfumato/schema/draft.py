"""A first schema, guessed from the rows, for a person to review.

What a draft holds (minima, maxima, levels) was read from private rows without any noise, so it is covered by
no privacy guarantee until a person has replaced it by what is public anyway. The text says so at its head.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sfumato.errors import TableError
from sfumato.schema.columns import Column
from sfumato.schema.guess import guess_column
from sfumato.schema.schema import Schema, can_vary, write_schema

_MARK = "# DRAFT: READ FROM PRIVATE ROWS. REVIEW BEFORE ANY FIT."
_WARNING = f"""\
{_MARK}
#
# Levels, minima and maxima below were read from the rows without noise: they are disclosures themselves, and
# no privacy guarantee covers them. For each column, replace what was guessed by what is known without the
# rows (a code book, a law, common sense): round bounds outwards, list the levels that could be there, drop
# those that name a person. Where nobody knows them, write learn = true in place of levels, or of lower and
# upper: a fit then buys them with noise, out of its budget. 'rows' must be an order of magnitude that is
# public. Then remove this comment.

"""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A guessed schema, and every guess in one line each."""

    schema: Schema
    guesses: tuple[str, ...]
    notes: Mapping[str, str]

    def to_toml(self) -> str:
        """Write the schema under a warning, each column under its guesses."""
        return _WARNING + write_schema(self.schema, self.notes)


def draft(table: pa.Table) -> Draft:
    """Guess a schema from the rows of a table.

    >>> print(draft(pa.table({"age": [17, 44, 90], "smokes": [True, None, False]})).guesses[0])
    rows: an order of magnitude of the table
    """
    if len(set(table.column_names)) < table.num_columns or "" in table.column_names:
        raise TableError("column names must differ and not be empty: rename the columns")
    columns: dict[str, Column] = {}
    notes: dict[str, str] = {}
    guesses: list[str] = []
    rows = _order_of_magnitude(table.num_rows)
    if rows is not None:
        guesses.append("rows: an order of magnitude of the table")
    for name in table.column_names:
        columns[name], made = guess_column(name, table.column(name))
        notes[name] = "\n".join(f"guess: {guess}" for guess in made)
        guesses += [f"column {name!r}: {guess}" for guess in made]
    if not any(can_vary(column) for column in columns.values()):
        raise TableError("no column varies, so there is nothing to draft from: write the schema by hand")
    return Draft(schema=Schema(columns=columns, rows=rows), guesses=tuple(guesses), notes=notes)


def _order_of_magnitude(num_rows: int) -> int | None:
    return int(float(f"{num_rows:.0e}")) or None


def is_unreviewed(path: str | Path) -> bool:
    """Whether a schema file still has the heading of a draft, which a person removes after the review."""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(len(_MARK)) == _MARK.encode()
    except OSError:
        return False
