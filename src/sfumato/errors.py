"""The few named errors of sfumato.

A message may name a column, a rule and a public bound. It never holds a value, a count or a row number of
private data, because a message is a way out of the room where the rows are.
"""

from collections.abc import Iterable


class SfumatoError(Exception):
    """Anything wrong that a user can mend: the command line prints it as one line and exits with code 2."""


class ArgumentError(SfumatoError, ValueError):
    """An argument outside its range, or arguments that do not go together."""


class SchemaError(SfumatoError, ValueError):
    """A schema with faults, all of them.

    >>> SchemaError(["column 'age': lower must be below upper", "rows must be positive"]).faults[1]
    'rows must be positive'
    """

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


class TableError(SfumatoError, ValueError):
    """A file or frame whose form (not whose rows) does not fit: unreadable, wrong columns, no header."""


class BudgetError(SfumatoError):
    """A budget too small: for a charge, refused before any noise is drawn; or, once it is spent, to learn a column."""


class ReleaseError(SfumatoError, ValueError):
    """A release file that is damaged, forged, too large, or of an unknown version."""
