"""Arrow columns of any type to NumPy numbers, without an error whatever a cell holds.

The common cells are parsed by Arrow at once; only distinct texts that Arrow cannot parse are looked at one by
one. A type that cannot hold what is asked for (a list, a time of day) gives missing values throughout.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

NULL_WORDS = ("", "na", "n/a", "nan", "null", "none", "<na>", "nat")

_NUMBER = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
_MOMENT = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2})?$"
_TRUE = pa.array(["true", "t", "yes", "y", "1", "1.0"], pa.large_string())
_FALSE = pa.array(["false", "f", "no", "n", "0", "0.0"], pa.large_string())
_INFINITE = {"inf": math.inf, "infinity": math.inf}
_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime(1970, 1, 1)  # naive means UTC here


def decoded(values: Any) -> Any:
    """Replace a dictionary by its values, and any text type by the widest."""
    kind = values.type
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
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif not is_number(kind):
        return np.full(len(values), np.nan)
    return np.array(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def parse_flags(values: Any) -> Floats:
    """One for true, zero for false, NaN where a cell is neither.

    >>> parse_flags(pa.chunked_array([["TRUE", "no", "1", "x"]])).tolist()
    [1.0, 0.0, 1.0, nan]
    """
    values = decoded(values)
    if is_text(values.type):
        words = pc.utf8_lower(pc.utf8_trim_whitespace(values))
        true, false = _mask(pc.is_in(words, value_set=_TRUE)), _mask(pc.is_in(words, value_set=_FALSE))
        return np.where(true, 1.0, np.where(false, 0.0, np.nan))
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
        whole, per_second = values.cast(pa.int32()).cast(pa.int64()), 0
    elif pa.types.is_date64(kind):
        whole, per_second = values.cast(pa.int64()), 1000
    elif pa.types.is_timestamp(kind):
        # Arrow keeps a moment with a time zone as UTC, so the zone can be dropped.
        whole, per_second = values.cast(pa.int64()), _PER_SECOND[kind.unit]
    else:
        return np.zeros(len(values), np.int64), np.ones(len(values), np.bool_)
    missing = np.asarray(whole.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
    ticks = np.asarray(whole.fill_null(0).to_numpy(), dtype=np.int64)
    return (ticks // per_second if per_second else ticks * _DAY), missing


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
    plain = _mask(pc.match_substring_regex(texts, _NUMBER))
    if plain.any():
        kept = texts.filter(pa.array(plain))
        try:
            numbers[plain] = kept.cast(pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            _one_by_one(kept, _python_float, numbers, plain)
    rest = ~plain & ~_mask(texts.is_null())
    if rest.any():
        _one_by_one(texts.filter(pa.array(rest)), _infinite, numbers, rest)
    return numbers


def _python_float(text: str) -> float | None:
    # The pattern has been matched, so this cannot fail; past the range it is infinite, as it should be.
    return float(text)


def _infinite(text: str) -> float | None:
    word = text.lower()
    size = _INFINITE.get(word.lstrip("+-"))
    return None if size is None else -size if word.startswith("-") else size


def _text_seconds(texts: Any) -> tuple[Ints, Mask]:
    seconds = np.full(len(texts), np.nan)
    plain = _mask(pc.match_substring_regex(texts, _MOMENT))
    rest = ~plain & ~_mask(texts.is_null())
    if plain.any():
        kept = texts.filter(pa.array(plain))
        try:
            seconds[plain] = kept.cast(pa.timestamp("s")).cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid:
            _one_by_one(kept, _iso_seconds, seconds, plain)
    if rest.any():
        _one_by_one(texts.filter(pa.array(rest)), _iso_seconds, seconds, rest)
    missing = np.isnan(seconds)
    return np.where(missing, 0, seconds).astype(np.int64), missing


def _iso_seconds(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    span = moment - _EPOCH
    return span.days * _DAY + span.seconds
