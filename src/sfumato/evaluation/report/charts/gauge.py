"""Gauge: where a value lies on the range of its metric, and where a perfect copy would lie."""

import math

from sfumato.evaluation.metric import Metric
from sfumato.evaluation.report.charts.svg import Axis, drawing, label, line, mark
from sfumato.evaluation.report.numbers import compact, range_text, score_text

_WIDTH, _HEIGHT, _MARGIN, _TRACK = 220.0, 40.0, 10.0, 14.0


def gauge_chart(metric: Metric, value: float | None) -> str:
    """A track with a dot for the value and a post for the ideal; nothing where the range has no end."""
    low, high = metric.range
    if value is None or not (math.isfinite(low) and math.isfinite(high)) or metric.ideal is None:
        return ""
    across = Axis(low=low, high=high, start=_MARGIN, stop=_WIDTH - _MARGIN)
    x, ideal = across.at(value), across.at(metric.ideal)
    marks = [
        mark("rect", "track", x=across.start, y=_TRACK - 2, width=across.stop - across.start, height=4, rx=2),
        line(min(x, ideal), _TRACK, max(x, ideal), _TRACK, "gap"),
        line(ideal, _TRACK - 9, ideal, _TRACK + 9, "post"),
        mark("circle", "dot-synthetic", cx=x, cy=_TRACK, r=5.5),
    ]
    for end in (low, high):
        if end != metric.ideal:
            side = "label start" if end == low else "label end"
            marks.append(label(across.at(end) + (-4 if end == low else 4), _HEIGHT - 4, compact(end), side))
    side = "label end" if metric.ideal == high else "label start" if metric.ideal == low else "label middle"
    nudge = 4 if metric.ideal == high else -4 if metric.ideal == low else 0
    marks.append(label(ideal + nudge, _HEIGHT - 4, f"ideal {compact(metric.ideal)}", side + " strong"))
    words = f"{metric.title}: {score_text(value)} on a range of {range_text(metric)}, ideal {compact(metric.ideal)}."
    return drawing(words, _WIDTH, _HEIGHT, *marks, kind="gauge")
