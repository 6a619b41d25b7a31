"""Curve: a receiver operating characteristic, against the diagonal of a coin."""

from collections.abc import Sequence

from sfumato.evaluation.report.charts.svg import Axis, drawing, label, line, pixels

_SIZE, _LEFT, _BOTTOM, _TOP = 300.0, 46.0, 40.0, 8.0
_MOST = 400


def curve_chart(title: str, points: Sequence[tuple[float, float]]) -> str:
    """The share of anomalies found (up) by the share of ordinary rows flagged by mistake (across)."""
    across = Axis(low=0, high=1, start=_LEFT, stop=_SIZE - 10)
    up = Axis(low=0, high=1, start=_SIZE - _BOTTOM, stop=_TOP)
    marks = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = across.at(tick), up.at(tick)
        marks += [line(x, up.start, x, up.stop, "grid"), line(across.start, y, across.stop, y, "grid")]
        marks += [
            label(x, up.start + 14, f"{tick:g}", "label middle"),
            label(_LEFT - 6, y + 4, f"{tick:g}", "label end"),
        ]
    marks.append(line(across.start, up.start, across.stop, up.stop, "coin"))
    thin = max(1, len(points) // _MOST)
    kept = [*points[::thin], points[-1]] if points else []
    path = "L".join(f"{pixels(across.at(x))} {pixels(up.at(y))}" for x, y in kept)
    marks.append(f'<path class="line-synthetic" d="M{path}"></path>')
    marks.append(label((across.start + across.stop) / 2, _SIZE - 6, "ordinary rows flagged", "label middle soft"))
    marks.append(label(12, (up.start + up.stop) / 2, "anomalies found", "label middle soft", rotate=-90))
    return drawing(title, _SIZE, _SIZE, *marks, kind="curve")
