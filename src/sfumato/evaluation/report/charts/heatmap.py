"""Heat map: a value for each pair of columns, darker where it is larger, so that it can be read in grey."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sfumato.evaluation.report.charts.svg import drawing, label, line, mark, pixels
from sfumato.evaluation.report.markup import element, short, text
from sfumato.evaluation.report.numbers import compact, score_text

SHADES = 10
_LEFT, _LETTER, _TILT = 132.0, 6.0, 35.0
_LARGE, _SMALL, _NUMBERED = 30.0, 12.0, 24

Pairs = Mapping[tuple[str, str], float]


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """The place and the value of a pair; darker from ``tone`` 0 on."""

    names: tuple[str, str]
    x: float
    y: float
    value: float | None
    tone: int

    @property
    def shade(self) -> str:
        return "none" if self.value is None else f"h{self.tone}"

    @property
    def is_dark(self) -> bool:
        return self.tone >= SHADES // 2


def heat_map(title: str, names: Sequence[str], values: Pairs, most: float) -> str:
    """The lower half of the square of names; shades run from zero to ``most`` in the size of the value.

    The sign is in the number. Where the cells are too small for numbers, a negative one has a stroke.
    """
    numbered = len(names) <= _NUMBERED
    size = _LARGE if numbered else _SMALL
    top, room = _room(names, size)
    marks = []
    for place, name in enumerate(names):
        if place:
            marks.append(label(_LEFT - 6, top + (place - 0.5) * size + 4, name, "label end", most=18))
        if place < len(names) - 1:
            x, y = _LEFT + (place + 0.4) * size, top + place * size - 4
            marks.append(label(x, y, name, "label start", most=18, rotate=-_TILT))
    cells = _cells(names, values, most, (size, top))
    marks += _numbered(cells, size) if numbered else _shapes(cells, size)
    side = (len(names) - 1) * size
    return drawing(title, _LEFT + side + room, top + side + 8, *marks, kind="heat")


def shade(value: float, most: float) -> int:
    """The shade of a value, from 0 for nothing to the last for ``most`` or more.

    >>> shade(0.0, 1.0), shade(0.55, 1.0), shade(-2.0, 1.0)
    (0, 5, 9)
    """
    return min(int(SHADES * abs(value) / most), SHADES - 1) if most > 0 else 0


def scale(most: float) -> str:
    """The key to the shades."""
    marks = [mark("rect", f"h{place}", x=20 + place * 14, y=0, width=14, height=12) for place in range(SHADES)]
    marks += [label(14, 10, "0", "label end"), label(24 + SHADES * 14, 10, compact(most), "label start")]
    return drawing(f"Shades from 0 to {compact(most)}.", 200, 14, *marks, kind="scale")


def _room(names: Sequence[str], size: float) -> tuple[float, float]:
    """Space above and to the right for the names on the diagonal, which lean over."""
    angle = math.radians(_TILT)
    lengths = [_LETTER * min(len(name), 18) for name in names[:-1]]
    above = [length * math.sin(angle) - place * size for place, length in enumerate(lengths)]
    beyond = [length * math.cos(angle) - (len(lengths) - 0.4 - place) * size for place, length in enumerate(lengths)]
    return max([0.0, *above]) + 14, max([0.0, *beyond]) + 8


def _cells(names: Sequence[str], values: Pairs, most: float, places: tuple[float, float]) -> list[_Cell]:
    size, top = places
    found = []
    for row in range(1, len(names)):
        for column in range(row):
            pair = names[column], names[row]
            value = values.get(pair, values.get((pair[1], pair[0])))
            x, y = _LEFT + column * size, top + (row - 1) * size
            tone = 0 if value is None else shade(value, most)
            found.append(_Cell(names=pair, x=x, y=y, value=value, tone=tone))
    return found


def _numbered(cells: Sequence[_Cell], size: float) -> list[str]:
    marks = []
    for cell in cells:
        said = f"{short(cell.names[0], 40)} and {short(cell.names[1], 40)}: {score_text(cell.value)}"
        at = {"x": cell.x, "y": cell.y, "width": size - 1, "height": size - 1}
        places = {key: pixels(value) for key, value in at.items()}
        marks.append(element("rect", element("title", text(said)), class_=cell.shade, **places))
        if cell.value is not None:
            tone = "cell on-dark" if cell.is_dark else "cell on-light"
            marks.append(label(cell.x + size / 2 - 0.5, cell.y + size / 2 + 3, brief(cell.value), tone))
    return marks


def brief(value: float) -> str:
    """Two decimals without the leading zero: a cell is narrow.

    >>> brief(0.123), brief(-0.5), brief(1.0), brief(0.0)
    ('.12', '−.50', '1.0', '0')
    """
    if abs(value) < 0.005:
        return "0"
    if abs(value) >= 0.995:
        return f"{value:.1f}".replace("-", "\N{MINUS SIGN}") if abs(value) < 10 else compact(round(value))
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}").replace("0.", ".", 1)


def _shapes(cells: Sequence[_Cell], size: float) -> list[str]:
    """One path for each shade: thousands of small elements would be slow to open."""
    paths: dict[str, list[str]] = {}
    strokes = []
    side = pixels(size - 1)
    for cell in cells:
        paths.setdefault(cell.shade, []).append(f"M{pixels(cell.x)} {pixels(cell.y)}h{side}v{side}H{pixels(cell.x)}z")
        if cell.value is not None and cell.value < 0 and cell.tone:
            tone = "minus-dark" if cell.is_dark else "minus"
            strokes.append(line(cell.x + 3, cell.y + size / 2, cell.x + size - 4, cell.y + size / 2, tone))
    return [f'<path class="{tone}" d="{"".join(parts)}"></path>' for tone, parts in sorted(paths.items())] + strokes
