"""SVG: the frame of a drawing, its marks, and axes with round numbers."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from sfumato.evaluation.report.markup import element, short, text
from sfumato.evaluation.report.numbers import compact, moment
from sfumato.schema import Date, Datetime, Modelled

PATTERNS = element(
    "svg",
    '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="5" height="5" class="hatch-ground"></rect>'
    '<path d="M0 0V5" class="hatch-line"></path></pattern></defs>',
    class_="patterns",
    width=0,
    height=0,
    aria_hidden="true",
    focusable="false",
)
"""The hatching of real values, which every drawing of the page refers to. It stands once, before all of them."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A stretch of values laid on a stretch of pixels; ``root`` takes square roots first.

    >>> Axis(low=0, high=10, start=0, stop=100).at(2.5)
    25.0
    """

    low: float
    high: float
    start: float
    stop: float
    root: bool = False

    def at(self, value: float) -> float:
        """The place of a value in pixels, kept inside the axis."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        share = min(max(share, 0.0), 1.0)
        return self.start + (math.sqrt(share) if self.root else share) * (self.stop - self.start)


def drawing(label: str, width: float, height: float, *marks: str, kind: str = "") -> str:
    """An SVG that says in words what it shows; it shrinks with the page."""
    return element(
        "svg",
        element("title", text(label)),
        *marks,
        class_=f"chart {kind}".strip(),
        role="img",
        aria_label=label,
        viewBox=f"0 0 {pixels(width)} {pixels(height)}",
        width=pixels(width),
        height=pixels(height),
    )


def pixels(value: float) -> str:
    """A coordinate in few characters.

    >>> pixels(3.0), pixels(2.46)
    ('3', '2.5')
    """
    written = f"{value:.1f}"
    return written[:-2] if written.endswith(".0") else written


def mark(tag: str, /, class_: str, **places: float) -> str:
    """A shape without content."""
    return element(tag, class_=class_, **{key: pixels(value) for key, value in places.items()})


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return mark("line", class_, x1=x1, y1=y1, x2=x2, y2=y2)


def label(x: float, y: float, words: object, class_: str = "label", most: int = 24, rotate: float = 0) -> str:
    """A text in a drawing, cut where it is long; the whole is then its tooltip."""
    cut = short(words, most)
    whole = element("title", text(words)) if cut != short(words, 10**6) else ""
    turn = f"rotate({pixels(rotate)} {pixels(x)} {pixels(y)})" if rotate else None
    return element("text", text(cut), whole, x=pixels(x), y=pixels(y), class_=class_, transform=turn)


def round_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two ends, at most about so many.

    >>> round_ticks(0, 100), round_ticks(17, 90)
    ([0.0, 25.0, 50.0, 75.0, 100.0], [20.0, 40.0, 60.0, 80.0])
    """
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low] if math.isfinite(low) else []
    power = 10.0 ** math.floor(math.log10(span / most))
    for times in (1, 2, 2.5, 5, 10, 20):
        step = times * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [place * step for place in range(first, last + 1)]
    return [low, high]


def round_up(value: float) -> float:
    """The next round number, for the end of a scale.

    >>> round_up(0.37), round_up(0.041), round_up(0.0)
    (0.4, 0.05, 1.0)
    """
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        round(times * power, 12) for times in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if value <= times * power * (1 + 1e-12)
    )


def value_ticks(low: float, high: float, column: Modelled, most: int = 5) -> list[tuple[float, str]]:
    """Places and words of an axis of a column's values; dates have years, months or days."""
    if isinstance(column, Date | Datetime):
        return _time_ticks(low, high, 86_400.0 if isinstance(column, Date) else 1.0, most)
    return [(tick, compact(tick)) for tick in round_ticks(low, high, most)]


def _time_ticks(low: float, high: float, unit: float, most: int) -> list[tuple[float, str]]:
    start, stop = low * unit, high * unit
    days = (stop - start) / 86_400
    if days > 730:
        years = round_ticks(moment(start).year, moment(stop).year, most)
        # A half year is no tick.
        ends = [datetime(int(year), 1, 1, tzinfo=UTC) for year in years if year.is_integer() and year >= 1]
        found = [(end.timestamp(), str(end.year)) for end in ends]
    elif days > 62:
        first, last = (moment(end).year * 12 + moment(end).month - 1 for end in (start, stop))
        step = max(1, math.ceil((last - first + 1) / most))
        months = [datetime(m // 12, m % 12 + 1, 1, tzinfo=UTC) for m in range(first, last + 1, step)]
        found = [(month.timestamp(), month.strftime("%b %Y")) for month in months]
    else:
        pattern = "%d %b" if days > 3 else "%d %b %H:%M"
        places = [start + place * (stop - start) / 3 for place in range(4)]
        found = [(place, moment(place).strftime(pattern)) for place in places]
    return [(second / unit, words) for second, words in found if start <= second <= stop]


def swatch(side: str) -> str:
    """The key of one side: hatched for real, an outline for synthetic."""
    return element(
        "svg",
        mark("rect", f"bar-{side}", x=1, y=1, width=16, height=9),
        class_="swatch",
        width=18,
        height=11,
        aria_hidden="true",
        focusable="false",
    )
