"""Arrow columns of any type to the canonical text of their cells: what `text_of` gives for each cell alone."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.encoding.parsing import Ints, decoded, is_text, parse_seconds
from sfumato.schema import Schema
from sfumato.table.cells import text_of

_TEXT = pa.large_string()
# The fraction of a second without its last zeros, and no time of day at midnight.
_SHORTEN = ((r"(\.\d*?)0+$", r"\1"), (r"\.$", ""), (r" 00:00:00$", ""))


def texts_of(values: Any) -> Any | None:
    """Canonical text of each cell of a column, null where it holds nothing; None for a type without text.

    >>> texts_of(pa.chunked_array([[1.0, -0.0, 0.5, float("nan")]])).to_pylist()
    ['1', '0', '0.5', None]
    """
    values = decoded(values)
    kind, types = values.type, pa.types
    if is_text(kind):
        return values
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_null(kind):
        return values.cast(pa.string()).cast(_TEXT)
    if types.is_floating(kind):
        return _float_texts(values)
    if types.is_decimal(kind):
        return _of_distinct(values.cast(pa.string()), lambda text: text_of(Decimal(text)))
    if types.is_date(kind):
        seconds, missing = parse_seconds(values)
        return _shortened(pa.chunked_array([pa.array(seconds.astype("datetime64[s]"), mask=missing)]))
    if types.is_timestamp(kind):
        # Arrow keeps a moment with a time zone as UTC, so the zone can be dropped.
        return _shortened(values.cast(pa.int64()).cast(pa.timestamp(kind.unit)))
    return None


def unit_codes(values: Any) -> Ints:
    """A whole number for each cell of an identifier column: equal for equal ids, -1 where there is none.

    >>> unit_codes(pa.chunked_array([[7.0, 0.0, None, -0.0, 7.0]])).tolist()
    [0, 1, -1, 1, 0]
    """
    texts = texts_of(values)
    ids = (decoded(values) if texts is None else texts).combine_chunks().dictionary_encode().indices
    return np.asarray(ids.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


def units_of(table: pa.Table, schema: Schema) -> Ints | None:
    """Whose each row of a table is; None where every row is a unit by itself."""
    return None if schema.unit is None else unit_codes(table.column(schema.unit.column))


def _float_texts(values: Any) -> Any:
    numbers = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    whole = np.isfinite(numbers) & (np.abs(numbers) <= 2**53) & (np.rint(numbers) == numbers)
    texts = pa.array(np.where(whole, numbers, 0).astype(np.int64), mask=~whole).cast(_TEXT)
    rest = ~whole & ~np.isnan(numbers)
    if rest.any():
        others = _of_distinct(pa.chunked_array([pa.array(numbers[rest])]), text_of)
        texts = pc.replace_with_mask(texts, pa.array(rest), others.combine_chunks())
    return pa.chunked_array([texts])


def _of_distinct(values: Any, write: Any) -> Any:
    """Write each distinct value once."""
    coded = values.combine_chunks().dictionary_encode()
    written = pa.array([write(value) for value in coded.dictionary.to_pylist()], _TEXT)
    return pa.chunked_array([written.take(coded.indices)])


def _shortened(moments: Any) -> Any:
    texts = moments.cast(pa.string()).cast(_TEXT)
    for pattern, instead in _SHORTEN:
        # The last digits of a whole second stay, as the pattern begins with a point.
        texts = pc.replace_substring_regex(texts, pattern=pattern, replacement=instead)
    return texts
