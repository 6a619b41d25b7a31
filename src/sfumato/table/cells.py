"""One Python cell to its canonical text: a rule of that cell alone, whatever stands in the other rows.

Columns of Python objects have no type of their own. To infer one from the rows would let one odd cell change
how all others are read, so each cell is written as text by itself and read as a cell of a CSV file would be.
"""

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np

# Past these sizes a number is infinite, or zero, as a float.
_MAX_BITS = 1024
_MAX_EXPONENT = 400

_NOTHING = ("<NA>", "NaT", "nan")
_FRACTION = re.compile(r"(\.[0-9]*?)0+$")


def text_of(cell: object) -> str | None:
    """Write a cell as text, None where it holds nothing; never an error, whatever the cell is.

    >>> [text_of(cell) for cell in (True, 3, 3.0, -0.0, 1e-7, b"x", float("nan"))]
    ['true', '3', '3', '0', '0.0000001', 'x', None]
    >>> text_of(datetime(2020, 1, 1)), text_of(datetime(2020, 1, 1, 10, 30))
    ('2020-01-01', '2020-01-01 10:30:00')
    """
    if cell is None:
        return None
    try:
        return _text_of(cell)
    except Exception:
        return None


def _text_of(cell: object) -> str | None:
    if isinstance(cell, str):
        return str.encode(cell, "utf-8", "replace").decode("utf-8")
    if isinstance(cell, np.generic):
        cell = _plain(cell)
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return _whole(int(cell))
    if isinstance(cell, float):
        return _number(float(cell))
    if isinstance(cell, Decimal):
        return _decimal(cell)
    if isinstance(cell, datetime):
        return _moment(cell)
    if isinstance(cell, date):
        return date.isoformat(cell)
    if isinstance(cell, bytes | bytearray | memoryview):
        return bytes(cell).decode("utf-8", "replace")
    text = str(cell)
    return None if text in _NOTHING else text.encode("utf-8", "replace").decode("utf-8")


def _plain(cell: np.generic) -> object:
    """The Python value of a NumPy scalar."""
    if isinstance(cell, np.datetime64):
        if np.isnat(cell):
            return math.nan
        moment = cell.astype("datetime64[us]").item()
        # NumPy gives a whole number where the year is past those of Python, and so past any bound.
        return moment if isinstance(moment, datetime) else datetime.max if moment > 0 else datetime.min
    return float(cell) if isinstance(cell, np.floating) else cell.item()


def _whole(number: int) -> str:
    if number.bit_length() > _MAX_BITS:
        return "inf" if number > 0 else "-inf"
    return str(number)


def _number(number: float) -> str | None:
    if math.isnan(number):
        return None
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    return str(int(number)) if number == int(number) else _decimal(Decimal(repr(number)))


def _decimal(number: Decimal) -> str | None:
    if number.is_nan():
        return None
    if number.is_infinite() or (number and number.adjusted() > _MAX_EXPONENT):
        return "inf" if number > 0 else "-inf"
    if not number or number.adjusted() < -_MAX_EXPONENT:
        return "0"
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _moment(moment: datetime) -> str | None:
    if moment != moment:  # noqa: PLR0124  the NaT of pandas is a datetime
        return None
    if moment.utcoffset() is not None:
        try:
            moment = moment.astimezone(UTC)
        except OverflowError:
            moment = datetime.min if moment.year == 1 else datetime.max
    text = moment.replace(tzinfo=None).isoformat(sep=" ")
    return _FRACTION.sub(r"\1", text).removesuffix(".").removesuffix(" 00:00:00")
