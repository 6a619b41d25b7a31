"""Which level of a categorical column each cell holds."""

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.encoding.parsing import Ints, Mask, absent, decoded, parse_floats
from sfumato.encoding.texts import texts_of
from sfumato.schema import Categorical
from sfumato.table.cells import text_of

UNKNOWN = -1
ABSENT = -2

# How a cell may be written that is no level as it stands: with blanks around it, as a float, or with the mark
# that keeps a spreadsheet from running it.
_REWRITES = ((r"^\s+|\s+$", ""), (r"^\s*([+-]?\d+)\.0+\s*$", r"\1"), (r"^'([=+\-@\t\r])", r"\1"))

# What may be spelled in several ways, whether it came as text or not: a number, a moment, a truth value.
_SPELLED = r"^\s*([+-]?\.?\d|(?i:true|false)\s*$)"
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(\.(?P<fraction>[0-9]*))?(?P<exponent>[eE][+-]?[0-9]+)?"
)
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:]+(\.[0-9]{1,6}0*)?(Z|[+-][0-9:]+)?)?")
_DIGITS = {"true": "1", "false": "0"}


def find_levels(values: Any, column: Categorical) -> Ints:
    """Place of each cell among the levels; UNKNOWN where it is no level, ABSENT where it holds nothing.

    >>> find_levels(pa.chunked_array([["b", " a ", "z", None]]), Categorical(levels=("a", "b"))).tolist()
    [1, 0, -1, -2]
    """
    values = decoded(values)
    places = _find_text(values, column) if isinstance(column.levels[0], str) else _find_whole(values, column)
    # A level may well be called NA, or be empty, so what is a level is never absent.
    return np.where((places == UNKNOWN) & absent(values), ABSENT, places)


def _find_whole(values: Any, column: Categorical) -> Ints:
    numbers = parse_floats(values)
    whole = np.isfinite(numbers) & (np.abs(numbers) <= 2**53) & (np.rint(numbers) == numbers)
    texts = pa.array(np.where(whole, numbers, 0).astype(np.int64), mask=~whole)
    return _places(pc.index_in(texts, value_set=pa.array(column.levels, pa.int64())))


def _find_text(values: Any, column: Categorical) -> Ints:
    places = np.full(len(values), UNKNOWN, np.int64)
    texts = texts_of(values)
    if texts is None:
        return places
    levels = pa.array(column.levels, pa.large_string())
    places = _places(pc.index_in(texts, value_set=levels))
    for pattern, instead in _REWRITES:
        left = places < 0
        if not left.any():
            return places
        cells = texts.filter(pa.array(left))
        rewritten = pc.replace_substring_regex(cells, pattern=pattern, replacement=instead)
        places[left] = _places(pc.index_in(rewritten, value_set=levels))
    left = (places < 0) & _mask(pc.match_substring_regex(texts, _SPELLED))
    if left.any():
        places[left] = _find_spelled(texts.filter(pa.array(left)), column)
    return places


def _find_spelled(texts: Any, column: Categorical) -> Ints:
    """Find levels that are the same number, moment or truth value in another spelling."""
    known: dict[str, int] = {}
    for place, level in enumerate(column.levels):
        spelling = _spelling(str(level))
        # Where several levels are spellings of one value, it is the plainest that counts, else the first.
        if spelling == level or spelling not in known:
            known[spelling] = place
    coded = texts.combine_chunks().dictionary_encode()
    spellings = [_spelling(text.strip()) for text in coded.dictionary.to_pylist()]
    found = [known.get(text, known.get(_DIGITS.get(text, text), UNKNOWN)) for text in spellings]
    return np.array(found, np.int64)[coded.indices.to_numpy(zero_copy_only=False)]


def _spelling(text: str) -> str:
    """The one spelling of a number, a moment or a truth value; other text as it is.

    >>> [_spelling(text) for text in ("+1.50", "007.0", "1e3", "TRUE", "2020-01-01T00:00:00Z", "x")]
    ['1.5', '007', '1000', 'true', '2020-01-01', 'x']
    """
    try:
        return _respelled(text)
    except (ArithmeticError, ValueError):  # an exponent past those of decimals, a day that there is not
        return text


def _respelled(text: str) -> str:
    if number := _NUMBER.fullmatch(text):
        if number["exponent"]:
            return text_of(Decimal(text)) or text
        fraction = (number["fraction"] or "").rstrip("0")
        size = (number["whole"] or "0") + (f".{fraction}" if fraction else "")
        return f"-{size}" if number["sign"] == "-" and size.strip("0.") else size
    if _MOMENT.fullmatch(text):
        return text_of(datetime.fromisoformat(text)) or text
    return text.lower() if text.lower() in _DIGITS else text


def _places(found: Any) -> Ints:
    return np.array(found.fill_null(UNKNOWN).to_numpy(zero_copy_only=False), dtype=np.int64)


def _mask(found: Any) -> Mask:
    return np.asarray(found.fill_null(fill_value=False).to_numpy(zero_copy_only=False), dtype=np.bool_)
