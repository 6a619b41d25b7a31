"""Histogram: real values as a hatched area, synthetic values as a line above it."""

import numpy as np

from sfumato.evaluation.comparison import Floats
from sfumato.evaluation.report.charts.svg import Axis, drawing, label, line, mark, pixels, round_ticks, value_ticks
from sfumato.evaluation.report.distribution import Histogram, Spike
from sfumato.evaluation.report.numbers import quantity_text, share_text
from sfumato.schema import Modelled

_WIDTH, _HEIGHT = 360.0, 150.0
_LEFT, _RIGHT, _BOTTOM, _TOP = 40.0, 8.0, 22.0, 8.0
_SPIKE_HEIGHT = 34.0
_UNEVEN = 12.0


def histogram_chart(name: str, column: Modelled, histogram: Histogram) -> tuple[str, list[str]]:
    """The drawing, and what has to be said about it: spikes, zoom, scale."""
    top = _TOP + _SPIKE_HEIGHT * len(histogram.spikes)
    height = top + _HEIGHT
    highest = float(max(histogram.real.max(), histogram.synthetic.max(), 1e-9))
    root = _is_uneven(histogram)
    across = Axis(low=histogram.edges[0], high=histogram.edges[-1], start=_LEFT, stop=_WIDTH - _RIGHT)
    up = Axis(low=0, high=highest * 1.04, start=height - _BOTTOM, stop=top, root=root)
    marks = [_spike_rows(spike, column, _TOP + _SPIKE_HEIGHT * place) for place, spike in enumerate(histogram.spikes)]
    marks += _grid(up, highest)
    marks.append(_outline(histogram.edges, histogram.real, across, up, "area-real", closed=True))
    marks.append(_outline(histogram.edges, histogram.synthetic, across, up, "line-synthetic", closed=False))
    marks.append(line(_LEFT, up.start, _WIDTH - _RIGHT, up.start, "axis"))
    for place, words in value_ticks(*histogram.view, column):
        x = across.at(place)
        marks.append(line(x, up.start, x, up.start + 4, "axis"))
        middle = min(max(x, _LEFT - 14 + 3.2 * len(words)), _WIDTH - 3.2 * len(words))
        marks.append(label(middle, up.start + 16, words, "label middle"))
    words = f"Distribution of {name}: real values as a hatched area, synthetic values as a line."
    return drawing(words, _WIDTH, height, *marks, kind="histogram"), _notes(column, histogram, root=root)


def _is_uneven(histogram: Histogram) -> bool:
    """Whether few bins are so high that the others would not be seen on an even scale."""
    both = np.maximum(histogram.real, histogram.synthetic)
    filled = both[both > 0]
    return len(filled) > 4 and both.max() > _UNEVEN * float(np.median(filled))


def _notes(column: Modelled, histogram: Histogram, *, root: bool) -> list[str]:
    notes = []
    for spike in histogram.spikes:
        value = quantity_text(spike.value, column)
        notes.append(
            f"Exactly {value}: {share_text(spike.real)} of real and {share_text(spike.synthetic)} of synthetic "
            "values, drawn as bars; the histogram shows the others."
        )
    if histogram.zoomed:
        low, high = (quantity_text(end, column) for end in histogram.view)
        real, synthetic = (share_text(max(share, 0.0)) for share in histogram.outside)
        notes.append(f"Zoomed to {low} … {high}; outside lie {real} of real and {synthetic} of synthetic values.")
    if root:
        notes.append("Heights on a square-root scale.")
    return notes


def _grid(up: Axis, highest: float) -> list[str]:
    marks = []
    for tick in round_ticks(0, highest, 4)[1:]:
        y = up.at(tick)
        words = f"{100 * tick:.3g} %"
        marks += [line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"), label(_LEFT - 5, y + 3.5, words, "label end")]
    return marks


def _spike_rows(spike: Spike, column: Modelled, y: float) -> str:
    across = Axis(low=0, high=1, start=_LEFT + 58, stop=_WIDTH - _RIGHT - 44)
    parts = [label(_LEFT + 50, y + 14, f"= {quantity_text(spike.value, column)}", "label end", most=14)]
    for side, share, down in (("real", spike.real, 0.0), ("synthetic", spike.synthetic, 12.0)):
        width = max(across.at(share) - across.start, 0.5)
        parts.append(mark("rect", f"bar-{side}", x=across.start, y=y + down, width=width, height=9))
        parts.append(label(across.start + width + 5, y + down + 8, share_text(share), "label small"))
    return "".join(parts)


def _outline(edges: Floats, shares: Floats, across: Axis, up: Axis, class_: str, *, closed: bool) -> str:
    """The upper rim of the bins: up and along, bin by bin."""
    path = [f"M{pixels(across.at(float(edges[0])))} {pixels(up.start)}"]
    for share, stop in zip(shares, edges[1:], strict=True):
        path.append(f"V{pixels(up.at(float(share)))}H{pixels(across.at(float(stop)))}")
    path.append(f"V{pixels(up.start)}" + ("Z" if closed else ""))
    return f'<path class="{class_}" d="{"".join(path)}"></path>'
