"""Dots: one line for each part of a score, with the value of real training rows beside it where there is one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.evaluation.metric import Metric
from sfumato.evaluation.report.charts.svg import Axis, drawing, label, line, mark, round_ticks, round_up
from sfumato.evaluation.report.numbers import compact, score_text

_WIDTH, _ROW, _TOP, _BOTTOM, _MARGIN = 340.0, 34.0, 22.0, 22.0, 10.0
_REAL, _SYNTHETIC = _WIDTH - 2, _WIDTH - 62


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A named value; ``real`` is the same with real rows in place of synthetic ones."""

    name: str
    value: float
    real: float | None = None


def dots_chart(metric: Metric, dots: Sequence[Dot]) -> str:
    """Values on one axis: a filled dot for synthetic rows, a hollow square for real ones; numbers to the right."""
    both = any(dot.real is not None for dot in dots)
    across = _axis(metric, dots)
    height = _TOP + _ROW * len(dots) + _BOTTOM
    floor = height - _BOTTOM
    marks = [_head(both=both)]
    for tick in round_ticks(across.low, across.high, 6):
        x = across.at(tick)
        marks += [line(x, floor, x, floor + 4, "axis"), label(x, floor + 16, compact(tick), "label middle")]
    marks.append(line(across.start, floor, across.stop, floor, "axis"))
    if metric.ideal is not None and across.low <= metric.ideal <= across.high:
        marks.append(line(across.at(metric.ideal), floor - 6, across.at(metric.ideal), floor + 5, "post"))
    for place, dot in enumerate(dots):
        marks += _row(dot, across, _TOP + _ROW * place, both=both)
    said = "; ".join(_words(dot) for dot in dots[:40])
    return drawing(f"{metric.title}: {said}.", _WIDTH, height, *marks, kind="dots")


def _row(dot: Dot, across: Axis, top: float, *, both: bool) -> list[str]:
    """The name and the numbers on one line, the marks on a track below it."""
    y, x = top + 22, across.at(dot.value)
    marks = [
        label(2, top + 11, dot.name, "label start", most=34),
        label(_SYNTHETIC if both else _REAL, top + 11, score_text(dot.value), "label end strong"),
        line(across.start, y, across.stop, y, "grid"),
    ]
    if dot.real is not None:
        other = across.at(dot.real)
        marks.append(label(_REAL, top + 11, score_text(dot.real), "label end"))
        marks.append(line(min(x, other), y, max(x, other), y, "gap"))
        marks.append(mark("rect", "dot-real", x=other - 6, y=y - 6, width=12, height=12))
    marks.append(mark("circle", "dot-synthetic", cx=x, cy=y, r=4.5))
    return marks


def _words(dot: Dot) -> str:
    real = "" if dot.real is None else f" against {score_text(dot.real)} for real rows"
    return f"{dot.name} {score_text(dot.value)}{real}"


def _head(*, both: bool) -> str:
    """The key, above the numbers."""
    if not both:
        return label(_REAL, 12, "value", "label end soft")
    return "".join(
        [
            mark("circle", "dot-synthetic", cx=_SYNTHETIC - 60, cy=8, r=4.5),
            label(_SYNTHETIC, 12, "synthetic", "label end soft"),
            mark("rect", "dot-real", x=_REAL - 37, y=3, width=10, height=10),
            label(_REAL, 12, "real", "label end soft"),
        ]
    )


def _axis(metric: Metric, dots: Sequence[Dot]) -> Axis:
    """From the ideal to a round number past the farthest value; the values with room where the range has no end."""
    values = [value for dot in dots for value in (dot.value, dot.real) if value is not None]
    low, high = metric.range
    ends = [*values, *([metric.ideal] if metric.ideal is not None and math.isfinite(metric.ideal) else [])]
    if not (math.isfinite(low) and math.isfinite(high)):
        pad = 0.1 * (max(ends) - min(ends)) or 1.0
        low, high = min(ends) - pad, max(ends) + pad
    elif metric.ideal == high:
        low = max(low, high - round_up(1.05 * (high - min(ends))))
    elif metric.ideal == low:
        high = min(high, low + round_up(1.05 * (max(ends) - low)))
    return Axis(low=low, high=high, start=_MARGIN, stop=_WIDTH - _MARGIN)
