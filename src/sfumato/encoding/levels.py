"""Which level of a categorical column each cell holds."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.encoding.parsing import Ints, absent, decoded, is_number, is_text, parse_floats
from sfumato.schema import Categorical

UNKNOWN = -1
ABSENT = -2

# How a cell may be written that is no level as it stands: with blanks around it, as a float, or with the mark
# that keeps a spreadsheet from running it.
_REWRITES = ((r"^\s+|\s+$", ""), (r"^\s*([+-]?\d+)\.0+\s*$", r"\1"), (r"^'([=+\-@\t\r])", r"\1"))


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
    levels = pa.array(column.levels, pa.large_string())
    places = np.full(len(values), UNKNOWN, np.int64)
    texts = _as_texts(values)
    for text in texts:
        if (places >= 0).all():
            break
        places = np.where(places >= 0, places, _places(pc.index_in(text, value_set=levels)))
    for pattern, instead in _REWRITES:
        left = places < 0
        if not left.any():
            break
        cells = texts[0].filter(pa.array(left))
        rewritten = pc.replace_substring_regex(cells, pattern=pattern, replacement=instead)
        places[left] = _places(pc.index_in(rewritten, value_set=levels))
    return places


def _places(found: Any) -> Ints:
    return np.array(found.fill_null(UNKNOWN).to_numpy(zero_copy_only=False), dtype=np.int64)


def _as_texts(values: Any) -> list[Any]:
    """Ways to write the cells of a column as text, the likeliest first."""
    kind, text = values.type, pa.large_string()
    if is_text(kind):
        return [values]
    if pa.types.is_boolean(kind):
        lower = values.cast(pa.string()).cast(text)
        return [lower, pc.utf8_capitalize(lower), pc.utf8_upper(lower), values.cast(pa.uint8()).cast(text)]
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = parse_floats(values)
        whole = np.isfinite(numbers) & (np.abs(numbers) <= 2**53) & (np.rint(numbers) == numbers)
        as_whole = pa.array(np.where(whole, numbers, 0).astype(np.int64), mask=~whole).cast(text)
        as_float = values.cast(pa.float64(), safe=False).cast(text)
        return [pa.chunked_array([as_whole]), as_float]
    if is_number(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return [values.cast(pa.string()).cast(text)]
    return [pa.chunked_array([pa.nulls(len(values), text)])]
