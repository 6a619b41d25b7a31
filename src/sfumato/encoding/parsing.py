"""Arrow columns of any type to NumPy numbers, without an error whatever a cell holds.

The common cells are parsed by Arrow at once; distinct texts of other forms are looked at one by one. Which way a
cell goes is for its own form to say: no cell sends the rest of its column another way. A type that cannot hold what
is asked for (a list, a time of day) gives missing values throughout.
"""

import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

NULL_WORDS = ("", "na", "n/a", "nan", "null", "none", "<na>", "nat")

# The forms that Arrow parses without fail: numbers within the range of a float, and days that there are.
_PLAIN_NUMBER = r"^-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,2})?$"
_PLAIN_MOMENT = (
    r"^([1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])"
    r"-((0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    r"([T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d)?$"
)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TRUE = pa.array(["true", "t", "yes", "y", "1", "1.0"], pa.large_string())
_FALSE = pa.array(["false", "f", "no", "n", "0", "0.0"], pa.large_string())
_WORDS = {"inf": math.inf, "infinity": math.inf, "true": 1.0, "false": 0.0}
_WORDS |= {sign + word: number for sign, number in (("+", math.inf), ("-", -math.inf)) for word in ("inf", "infinity")}
_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime(1970, 1, 1)  # naive means UTC here
_FOUR_YEARS = 1461 * _DAY


def decoded(values: Any) -> Any:
    """Replace a dictionary by its values, an extension by what it stores, and any text type by the widest."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        values, kind = values.cast(kind.storage_type), kind.storage_type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if is_text(kind):
        values = values.cast(pa.large_string())
    return values


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: Any) -> bool:
    """Whether an Arrow type holds numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def absent(values: Any) -> Mask:
    """Say which cells hold nothing: null, NaN, or a word such as NA."""
    none = np.asarray(values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False), dtype=np.bool_)
    if is_text(values.type):
        words = pc.utf8_lower(pc.utf8_trim_whitespace(values))
        none = none | _mask(pc.is_in(words, value_set=pa.array(NULL_WORDS, pa.large_string())))
    return none


def parse_floats(values: Any) -> Floats:
    """Numbers of a column, NaN where there is none.

    >>> parse_floats(pa.chunked_array([["3", " 3.5 ", "1e400", "x", None]])).tolist()
    [3.0, 3.5, inf, nan, nan]
    """
    values = decoded(values)
    kind = values.type
    if is_text(kind):
        return _text_floats(pc.utf8_trim_whitespace(values))
    if pa.types.is_decimal(kind):
        # By way of text, as only that rounds to the nearest float.
        return _text_floats(values.cast(pa.string()).cast(pa.large_string()))
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif not is_number(kind):
        return np.full(len(values), np.nan)
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(numbers, dtype=np.float64) + 0.0  # no negative zero


def parse_flags(values: Any) -> Floats:
    """One for true, zero for false, NaN where a cell is neither.

    >>> parse_flags(pa.chunked_array([["TRUE", "no", "1", "x"]])).tolist()
    [1.0, 0.0, 1.0, nan]
    """
    values = decoded(values)
    if is_text(values.type):
        words = pc.utf8_lower(pc.utf8_trim_whitespace(values))
        true, false = _mask(pc.is_in(words, value_set=_TRUE)), _mask(pc.is_in(words, value_set=_FALSE))
        flags = np.where(true, 1.0, np.where(false, 0.0, np.nan))
        left = np.isnan(flags)
        if left.any():
            flags[left] = parse_floats(values.filter(pa.array(left)))
        return np.where((flags == 0) | (flags == 1), flags, np.nan)
    numbers = parse_floats(values)
    return np.where((numbers == 0) | (numbers == 1), numbers, np.nan)


def parse_seconds(values: Any) -> tuple[Ints, Mask]:
    """Whole seconds since 1970 in UTC, and which cells hold no moment.

    >>> parse_seconds(pa.chunked_array([["1970-01-02", "1970-01-01 00:01:00", "x"]]))[0].tolist()
    [86400, 60, 0]
    """
    values = decoded(values)
    kind = values.type
    if is_text(kind):
        return _text_seconds(pc.utf8_trim_whitespace(values))
    if pa.types.is_date32(kind):
        whole, ticks_in, seconds_in = values.cast(pa.int32()).cast(pa.int64()), 1, _DAY
    elif pa.types.is_date64(kind):
        whole, ticks_in, seconds_in = values.cast(pa.int64()), 1000 * _DAY, _DAY
    elif pa.types.is_timestamp(kind):
        # Arrow keeps a moment with a time zone as UTC, so the zone can be dropped.
        whole, ticks_in, seconds_in = values.cast(pa.int64()), _PER_SECOND[kind.unit], 1
    else:
        return np.zeros(len(values), np.int64), np.ones(len(values), np.bool_)
    missing = np.asarray(whole.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
    ticks = np.asarray(whole.fill_null(0).to_numpy(), dtype=np.int64)
    return ticks // ticks_in * seconds_in, missing


def _mask(values: Any) -> Mask:
    return np.asarray(values.fill_null(fill_value=False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _one_by_one(texts: Any, parse: Callable[[str], float | int | None], out: Any, place: Mask) -> None:
    """Fill `out` where `place` holds, parsing each distinct text once."""
    coded = pc.dictionary_encode(texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts)
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    parsed = [parse(text) for text in coded.dictionary.to_pylist()]
    table = np.array([np.nan if value is None else value for value in parsed], dtype=np.float64)
    out[place] = table[np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)]


def _text_floats(texts: Any) -> Floats:
    numbers = np.full(len(texts), np.nan)
    plain = _mask(pc.match_substring_regex(texts, _PLAIN_NUMBER))
    if plain.any():
        numbers[plain] = texts.filter(pa.array(plain)).cast(pa.float64()).to_numpy()
    rest = ~plain & ~_mask(texts.is_null())
    if rest.any():
        _one_by_one(texts.filter(pa.array(rest)), _number, numbers, rest)
    return numbers + 0.0  # no negative zero


def _number(text: str) -> float | None:
    # Past its range a float is infinite, as it should be.
    return float(text) if _NUMBER.fullmatch(text) else _WORDS.get(text.lower())


def _text_seconds(texts: Any) -> tuple[Ints, Mask]:
    seconds = np.full(len(texts), np.nan)
    plain = _mask(pc.match_substring_regex(texts, _PLAIN_MOMENT))
    if plain.any():
        seconds[plain] = texts.filter(pa.array(plain)).cast(pa.timestamp("s")).cast(pa.int64()).to_numpy()
    rest = ~plain & ~_mask(texts.is_null())
    if rest.any():
        _one_by_one(texts.filter(pa.array(rest)), _iso_seconds, seconds, rest)
    missing = np.isnan(seconds)
    return np.where(missing, 0, seconds).astype(np.int64), missing


def _iso_seconds(text: str) -> int | None:
    if text.startswith("0000-"):
        # Python counts from year 1, ISO 8601 from year 0, which has the days of year 4.
        later = _iso_seconds("0004" + text[4:])
        return None if later is None else later - _FOUR_YEARS
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
    span = moment.replace(tzinfo=None) - _EPOCH - (moment.utcoffset() or timedelta())
    return span.days * _DAY + span.seconds
