"""Numbers: how values, shares, dates and ranges are written on the page."""

import math
from datetime import UTC, datetime, timedelta

from sfumato.evaluation.metric import Metric
from sfumato.schema import Continuous, Date, Datetime, Integer, Modelled

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUS = "\N{MINUS SIGN}"


def score_text(value: float | None) -> str:
    """A value with three decimals, or none where it is large; a dash where there is no value.

    >>> score_text(0.12345), score_text(-2.0), score_text(None), score_text(1234567.8)
    ('0.123', '−2.000', '–', '1,234,568')
    """
    if value is None:
        return "–"
    if abs(value) >= 1e5:
        return (f"{value:,.0f}" if abs(value) < 1e12 else f"{value:.3g}").replace("-", _MINUS)
    return f"{value:,.3f}".replace("-0.000", "0.000").replace("-", _MINUS)


def share_text(value: float) -> str:
    """A share of rows in per cent.

    >>> share_text(0.1234), share_text(0.0), share_text(0.00001)
    ('12.3 %', '0 %', '< 0.1 %')
    """
    if value == 0:
        return "0 %"
    return "< 0.1 %" if value < 0.0005 else f"{100 * value:.1f} %"


def compact(value: float) -> str:
    """A number in few characters, for an axis.

    >>> compact(12_500.0), compact(0.25), compact(-3.0), compact(2_000_000.0), compact(1_979.0)
    ('12.5k', '0.25', '−3', '2M', '1979')
    """
    size = abs(value)
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if 1e15 > size >= factor:
            return f"{value / min(factor, 1e3 if letter == 'k' else factor):.4g}{letter}".replace("-", _MINUS)
    written = f"{value:.4g}"
    return (written if written != "-0" else "0").replace("-", _MINUS)


def moment(seconds: float) -> datetime:
    """The moment that is so many seconds after the start of 1970."""
    return _EPOCH + timedelta(seconds=seconds)


def quantity_text(value: float, column: Modelled) -> str:
    """A value of a column in its own units.

    >>> from datetime import date
    >>> quantity_text(1.0, Date(lower=date(1970, 1, 1), upper=date(1971, 1, 1)))
    '1970-01-02'
    """
    if not math.isfinite(value):
        return "–"
    match column:
        case Date():
            return moment(round(value) * 86_400).date().isoformat()
        case Datetime():
            return moment(round(value)).strftime("%Y-%m-%d %H:%M")
        case Integer() if float(value).is_integer():
            return f"{int(value):,}".replace("-", _MINUS)
    return f"{value:,.4g}".replace("-", _MINUS) if abs(value) < 1e4 else f"{value:,.0f}".replace("-", _MINUS)


def bounds(column: Modelled) -> tuple[float, float]:
    """The public bounds of a column of numbers: days for dates, seconds for moments."""
    match column:
        case Integer() | Continuous():
            return float(column.lower), float(column.upper)
        case Date():
            first, last = (datetime(d.year, d.month, d.day, tzinfo=UTC) for d in (column.lower, column.upper))
            return (first - _EPOCH) / timedelta(days=1), (last - _EPOCH) / timedelta(days=1)
        case Datetime():
            ends = (end.replace(tzinfo=UTC) for end in (column.lower, column.upper))
            low, high = ((end - _EPOCH) / timedelta(seconds=1) for end in ends)
            return low, high
    raise TypeError("levels have no bounds")


def range_text(metric: Metric) -> str:
    """The range of a metric.

    >>> range_text(Metric(name="x", title="X", direction="lower", range=(0, math.inf), scope="table", reference=""))
    '0 to ∞'
    """
    return " to ".join(_end(end) for end in metric.range)


def _end(end: float) -> str:
    if math.isfinite(end):
        return compact(end)
    return "∞" if end > 0 else f"{_MINUS}∞"


def better_text(metric: Metric) -> str:
    """Which way is better, in words, and the value of a perfect copy where that is not an end of the range."""
    words = f"{metric.direction} is better"
    if metric.ideal is not None and math.isfinite(metric.ideal) and metric.ideal not in metric.range:
        words += f"; a perfect copy has {compact(metric.ideal)}"
    return words


def distance(metric: Metric, value: float) -> float:
    """How far a value is from that of a perfect copy, as a share of the range where that is finite.

    >>> distance(Metric(name="x", title="X", direction="higher", range=(0, 2), scope="table", reference=""), 0.5)
    0.75
    """
    ideal = metric.ideal if metric.ideal is not None else 0.0
    width = metric.range[1] - metric.range[0]
    if not math.isfinite(ideal):
        return -value if metric.direction == "higher" else value
    return abs(value - ideal) / width if math.isfinite(width) and width > 0 else abs(value - ideal)
