"""Bars: the share of each level, the real one hatched above the synthetic one in outline."""

from sfumato.evaluation.report.charts.svg import Axis, drawing, label, line, mark
from sfumato.evaluation.report.distribution import Levels
from sfumato.evaluation.report.numbers import share_text

_WIDTH, _ROW, _BAR = 360.0, 25.0, 9.0
_LEFT, _RIGHT = 132.0, 44.0


def bars_chart(name: str, levels: Levels) -> str:
    """Two bars a level, with their shares in per cent."""
    highest = float(max(levels.real.max(), levels.synthetic.max(), 1e-9))
    across = Axis(low=0, high=highest, start=_LEFT, stop=_WIDTH - _RIGHT)
    height = _ROW * len(levels.names) + 4
    marks = [line(_LEFT, 0, _LEFT, height, "axis")]
    for place, words in enumerate(levels.names):
        y = 4 + place * _ROW
        marks.append(label(_LEFT - 7, y + 13, words, "label end", most=21))
        for side, shares, down in (("real", levels.real, 0.0), ("synthetic", levels.synthetic, _BAR + 1)):
            share = float(shares[place])
            width = max(across.at(share) - across.start, 0.5 if share else 0.0)
            marks.append(mark("rect", f"bar-{side}", x=_LEFT, y=y + down, width=width, height=_BAR))
            marks.append(label(_LEFT + width + 4, y + down + 8, share_text(share), "label small"))
    words = f"Shares of the levels of {name}: real as hatched bars, synthetic as outlined bars."
    return drawing(words, _WIDTH, height, *marks, kind="bars")
