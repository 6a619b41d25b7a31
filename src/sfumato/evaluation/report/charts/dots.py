"""Dots: one line for each part of a score, with the value of real training rows beside it where there is one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.evaluation.metric import Metric
from sfumato.evaluation.report.charts.svg import Axis, drawing, label, line, mark, round_ticks, round_up
from sfumato.evaluation.report.numbers import compact, score_text

_WIDTH, _ROW, _TOP, _BOTTOM = 560.0, 30.0, 24.0, 26.0
_LEFT, _RIGHT, _LETTER = 176.0, 118.0, 6.2


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A named value; ``real`` is the same with real rows in place of synthetic ones."""

    name: str
    value: float
    real: float | None = None


def dots_chart(metric: Metric, dots: Sequence[Dot]) -> str:
    """Values on one axis: a filled dot for synthetic rows, a hollow square for real ones."""
    both = any(dot.real is not None for dot in dots)
    left = min(_LEFT, 22 + _LETTER * max(len(dot.name) for dot in dots))
    across = _axis(metric, dots, left)
    height = _TOP + _ROW * len(dots) + _BOTTOM
    floor = height - _BOTTOM
    marks = [_head(both=both)]
    for tick in round_ticks(across.low, across.high, 6):
        x = across.at(tick)
        marks += [line(x, _TOP, x, floor, "grid"), label(x, floor + 16, compact(tick), "label middle")]
    ideal = metric.ideal
    if ideal is not None and across.low <= ideal <= across.high:
        marks.append(line(across.at(ideal), _TOP, across.at(ideal), floor, "post"))
    for place, dot in enumerate(dots):
        y = _TOP + _ROW * (place + 0.5)
        x = across.at(dot.value)
        marks.append(label(left - 14, y + 4, dot.name, "label end", most=26))
        if dot.real is not None:
            other = across.at(dot.real)
            marks.append(line(min(x, other), y, max(x, other), y, "gap"))
            marks.append(mark("rect", "dot-real", x=other - 6, y=y - 6, width=12, height=12))
            marks.append(label(_WIDTH - 4, y + 4, score_text(dot.real), "label end"))
        marks.append(mark("circle", "dot-synthetic", cx=x, cy=y, r=4.5))
        marks.append(label(_WIDTH - (62 if both else 4), y + 4, score_text(dot.value), "label end strong"))
    said = "; ".join(_words(dot) for dot in dots[:40])
    return drawing(f"{metric.title}: {said}.", _WIDTH, height, *marks, kind="dots")


def _words(dot: Dot) -> str:
    real = "" if dot.real is None else f" against {score_text(dot.real)} for real rows"
    return f"{dot.name} {score_text(dot.value)}{real}"


def _head(*, both: bool) -> str:
    if not both:
        return label(_WIDTH - 4, 14, "value", "label end soft")
    return label(_WIDTH - 62, 14, "synthetic", "label end soft") + label(_WIDTH - 4, 14, "real", "label end soft")


def _axis(metric: Metric, dots: Sequence[Dot], left: float) -> Axis:
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
    return Axis(low=low, high=high, start=left, stop=_WIDTH - _RIGHT - (0 if len(values) > len(dots) else -50))
