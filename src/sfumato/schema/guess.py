"""What one column of a draft may be, from its Arrow values."""

import math
import re
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.schema.columns import (
    SECONDS,
    Boolean,
    Categorical,
    Column,
    Continuous,
    Date,
    Datetime,
    Identifier,
    Integer,
    Resolution,
)
from sfumato.schema.faults import MAX_GRID, MAX_INTEGER, MAX_SCALED

MAX_DRAFT_LEVELS = 1_000
MIN_DISTINCT = 20
MOSTLY = 0.95
NULL_WORDS = ("", "na", "n/a", "nan", "null", "none")

_NUMBER = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
_PADDED = r"^[+-]?0\d+$"
_IDENTIFIER_NAME = re.compile(r"(^|.*[_\-. ])(id|ids|uuid|guid|key|identifier)$", re.IGNORECASE)
_BOOLEANS = {"true", "false", "yes", "no", "t", "f", "y", "n"}

Guess = tuple[Column, list[str]]


def guess_column(name: str, values: Any) -> Guess:
    """Guess a column and say each guess in a line.

    >>> guess_column("age", pa.chunked_array([[17, 44, 90]]))[0]
    Integer(lower=0, upper=100, nullable=False)
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _guess_text(name, values.cast(pa.large_string()))
    nullable = values.null_count > 0
    present = values.drop_null()
    if len(present) == 0:
        return _nothing()
    if pa.types.is_boolean(kind):
        return Boolean(nullable=nullable), _and_null([], nullable)
    if pa.types.is_integer(kind):
        if _is_key(name, present):
            return Identifier(), ["all values differ, so it names rows; it is not modelled and is dropped"]
        return _guess_whole(pc.min(present).as_py(), pc.max(present).as_py(), nullable=nullable)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _guess_numbers(present.cast(pa.float64(), safe=False).to_numpy(), nullable=nullable)
    if pa.types.is_date(kind):
        return _guess_days(pc.min(present).as_py(), pc.max(present).as_py(), nullable=nullable)
    if pa.types.is_timestamp(kind):
        return _guess_moments(present, nullable=nullable)
    return Identifier(), ["values of this type are not modelled; the column is dropped"]


def _nothing() -> Guess:
    return Identifier(), ["no value was there to guess from; declare the column, or leave it dropped"]


def _and_null(made: list[str], nullable: object) -> list[str]:
    return [*made, "nullable, as some values are missing"] if nullable else made


def _is_key(name: str, present: Any) -> bool:
    named = _IDENTIFIER_NAME.match(name) is not None
    return named and len(present) > 1 and pc.count_distinct(present).as_py() == len(present)


def _guess_text(name: str, values: Any) -> Guess:
    trimmed = pc.utf8_trim_whitespace(values)
    lowered = pc.utf8_lower(trimmed)
    absent = pc.is_in(lowered, value_set=pa.array([*NULL_WORDS, None], pa.large_string()))
    present = trimmed.filter(pc.invert(absent))
    nullable = len(present) < len(values)
    if len(present) == 0:
        return _nothing()
    distinct = pc.unique(present)
    if set(pc.utf8_lower(distinct.slice(0, 20)).to_pylist()) <= _BOOLEANS and len(distinct) <= 6:
        return Boolean(nullable=nullable), _and_null(
            ["true and false, from their words; samples say true and false"], nullable
        )
    if _is_key(name, present):
        return Identifier(), ["all values differ, so it names rows; it is not modelled and is dropped"]
    padded = pc.any(pc.match_substring_regex(distinct, _PADDED)).as_py()
    numbers = pc.match_substring_regex(present, _NUMBER)
    if not padded and pc.mean(numbers).as_py() >= MOSTLY:
        kept = present.filter(numbers)
        odd = len(kept) < len(present)
        floats = np.array(kept.to_pylist(), dtype=np.float64)
        column, made = _guess_numbers(floats, nullable=nullable or odd)
        return column, [*made, "a number; a cell that is no number counts as missing"] if odd else made
    dates = _guess_text_dates(present, nullable=nullable)
    return dates or _guess_levels(present, distinct, nullable=nullable)


def _guess_text_dates(present: Any, *, nullable: bool) -> Guess | None:
    try:
        return _guess_days(*pc.min_max(present.cast(pa.date32())).as_py().values(), nullable=nullable)
    except pa.ArrowInvalid:
        pass
    try:
        return _guess_moments(present.cast(pa.timestamp("us")), nullable=nullable)
    except pa.ArrowInvalid:
        return None


def _guess_levels(present: Any, distinct: Any, *, nullable: bool) -> Guess:
    if len(distinct) == len(present) >= MIN_DISTINCT:
        return Identifier(), ["all values differ, so it names rows; it is not modelled and is dropped"]
    if len(distinct) > MAX_DRAFT_LEVELS:
        return Identifier(), ["too many different values: free text is not modelled; the column is dropped"]
    levels = tuple(sorted(distinct.to_pylist()))
    made = ["the levels are those seen; list the ones that could be there"]
    return Categorical(levels=levels, nullable=nullable), _and_null(made, nullable)


def _guess_numbers(numbers: Any, *, nullable: bool) -> Guess:
    finite = numbers[np.isfinite(numbers)]
    nullable = nullable or bool(np.isnan(numbers).any())
    if finite.size == 0:
        return _nothing()
    lower, upper = float(finite.min()), float(finite.max())
    decimals = next((d for d in range(7) if np.array_equal(np.round(finite, d), finite)), None)
    if decimals == 0 and max(abs(lower), abs(upper)) <= MAX_INTEGER:
        return _guess_whole(int(lower), int(upper), nullable=nullable)
    step = _step(upper - lower, decimals)
    low, high = _outwards(lower, upper, step)
    if decimals is not None and max(abs(low), abs(high)) * 10**decimals > MAX_SCALED / 2:
        decimals = None
    if decimals is not None and (high - low) * 10**decimals > MAX_GRID / 2:
        decimals = None
    made = ["the bounds are the least and greatest value seen, rounded outwards"]
    if decimals is not None:
        made.append("the decimals are those seen")
        low, high = round(low, decimals), round(high, decimals)
    return Continuous(lower=low, upper=high, decimals=decimals, nullable=nullable), _and_null(made, nullable)


def _guess_whole(lower: int, upper: int, *, nullable: bool) -> Guess:
    if max(abs(lower), abs(upper)) > MAX_INTEGER:
        return Identifier(), ["whole numbers past 2^53 are not modelled; the column is dropped"]
    step = max(1, int(_step(upper - lower, 0)))
    low, high = step * (lower // step), -step * (-upper // step)
    low, high = max(low, -MAX_INTEGER), min(high, MAX_INTEGER)
    made = ["the bounds are the least and greatest value seen, rounded outwards"]
    if high - low >= MAX_GRID:
        made.append("continuous, as the whole numbers between the bounds are too many")
        return Continuous(lower=low, upper=high, nullable=nullable), _and_null(made, nullable)
    return Integer(lower=low, upper=high, nullable=nullable), _and_null(made, nullable)


def _step(span: float, decimals: int | None) -> float:
    """Round a fifth of the span up to 1, 2 or 5 times a power of ten."""
    if span <= 0 or not math.isfinite(span):
        return 10.0 ** -(decimals or 0)
    power = 10.0 ** math.floor(math.log10(span / 5))
    step = next((m * power for m in (1, 2, 5) if m * power >= span / 5 * (1 - 1e-9)), 10 * power)
    return step if decimals is None else max(step, 10.0**-decimals)


def _outwards(lower: float, upper: float, step: float) -> tuple[float, float]:
    digits = max(0, -math.floor(math.log10(step)))
    low, high = math.floor(lower / step) * step, math.ceil(upper / step) * step
    # Rounding removes the noise of the product; where that would cut off a value, the value itself holds.
    low, high = min(lower, round(low, digits)), max(upper, round(high, digits))
    return (low, high) if low < high else (low - step, high + step)


def _guess_days(lower: date, upper: date, *, nullable: bool) -> Guess:
    made = ["the bounds are the first and last year seen"]
    column = Date(lower=date(lower.year, 1, 1), upper=date(upper.year, 12, 31), nullable=nullable)
    return column, _and_null(made, nullable)


def _guess_moments(present: Any, *, nullable: bool) -> Guess:
    seconds = present.cast(pa.timestamp("s"), safe=False).cast(pa.int64()).to_numpy()
    fits = [name for name in ("day", "hour", "minute") if not (seconds % SECONDS[name]).any()]
    resolution: Resolution = fits[0] if fits else "second"  # type: ignore[assignment]
    ends = np.array([seconds.min(), seconds.max()], "datetime64[s]")
    years = ends.astype("datetime64[Y]").astype(int) + 1970
    first, last = (min(max(int(year), 1), 9998) for year in years)
    upper = datetime(last + 1, 1, 1)
    made = ["the bounds are the first and last year seen", "the resolution is the coarsest that fits"]
    column = Datetime(lower=datetime(first, 1, 1), upper=upper, resolution=resolution, nullable=nullable)
    return column, _and_null(made, nullable)
