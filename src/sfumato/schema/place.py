"""Places: two continuous columns that are a latitude and a longitude, and the public outline of where they may lie.

The outline is public, as bounds are: it is chosen without the rows. Rows outside of it are read as the nearest point of
it, and no synthetic row lies outside (`encoding/places.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sfumato.schema.columns import Column, Continuous, LearntContinuous, kind_of
from sfumato.schema.faults import is_text, nearest
from sfumato.schema.polygon import DECIMALS, Corner, Polygon, Ring, in_units

MAX_CORNERS = 10_000


@dataclass(frozen=True, kw_only=True)
class Place:
    """A latitude and a longitude that belong together, in degrees; with a `polygon`, only points of it are places.

    A polygon is a list of (latitude, longitude) corners, or a list of such rings: what lies in an odd number of rings
    is inside, so that a ring in another is a hole. Corners are kept to seven decimals, about a centimetre.

    >>> Place(latitude="lat", longitude="lon", polygon=[[47, 9], [48, 9], [48, 10]]).polygon
    (((47.0, 9.0), (48.0, 9.0), (48.0, 10.0)),)
    """

    latitude: str
    longitude: str
    polygon: tuple[Ring, ...] | None = None

    def __post_init__(self) -> None:
        """Keep the polygon as rings of tuples, without the last corner where it repeats the first."""
        if not polygon_form_faults(self.polygon) and self.polygon is not None:
            object.__setattr__(self, "polygon", tuple(_ring(ring) for ring in _rings(self.polygon)))

    @property
    def columns(self) -> tuple[str, str]:
        """The names of both columns."""
        return self.latitude, self.longitude

    def describe(self) -> dict[str, Any]:
        """The place as plain JSON values; a polygon of one ring is the list of its corners."""
        plain: dict[str, Any] = {"latitude": self.latitude, "longitude": self.longitude}
        if self.polygon is not None:
            rings = [[list(corner) for corner in ring] for ring in self.polygon]
            plain["polygon"] = rings[0] if len(rings) == 1 else rings
        return plain


def step_of(column: Continuous) -> int:
    """How many units of a polygon the values of a column lie apart; one where it declares no decimals.

    >>> step_of(Continuous(lower=0, upper=1, decimals=4)), step_of(Continuous(lower=0, upper=1))
    (1000, 1)
    """
    return 10 ** (DECIMALS - (DECIMALS if column.decimals is None else column.decimals))


def places_faults(
    places: Mapping[str, object], columns: Mapping[str, Column], broken: frozenset[str] = frozenset()
) -> list[str]:
    """List every fault of all places, each given as a `Place` or as a mapping of its fields.

    `broken` are columns that have faults of their own, of which nothing more can be said.
    """
    found: list[str] = []
    owners: dict[str, str] = {}
    for name, place in places.items():
        values = (
            {field.name: getattr(place, field.name) for field in fields(place)} if isinstance(place, Place) else place
        )
        if not is_text(name) or not name:
            found.append(f"place {name!r}: a name must be a text that is not empty")
        elif not isinstance(values, Mapping):
            found.append(f"place {name!r}: must be a table with the keys latitude and longitude")
        else:
            faults = _place_faults(values, columns, broken)
            for key in ("latitude", "longitude"):
                column = values.get(key)
                if isinstance(column, str) and owners.setdefault(column, name) != name:
                    faults.append(f"{key}: column {column!r} is a part of place {owners[column]!r} already")
            found += [f"place {name!r}: {fault}" for fault in faults]
    return found


def polygon_form_faults(value: object) -> list[str]:
    """What is wrong with the form of a polygon, before it is held against columns."""
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not value:
        return ["polygon must be a list of [latitude, longitude] corners, or of such lists"]
    found: list[str] = []
    for number, ring in enumerate(_rings(value), start=1):
        where = f"polygon: ring {number}" if _is_nested(value) else "polygon"
        if not isinstance(ring, list | tuple) or not all(map(_is_corner, ring)):
            found.append(f"{where} must be a list of [latitude, longitude] corners in degrees")
        elif len(set(_ring(ring))) < 3:
            found.append(f"{where} must have at least three corners that differ")
    if not found and sum(map(len, _rings(value))) > MAX_CORNERS:
        found.append(f"polygon must have at most {MAX_CORNERS:,} corners: simplify it")
    return found


def _is_corner(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(each, int | float) and not isinstance(each, bool) for each in value)
        and all(abs(each) <= 360 for each in value)  # neither NaN nor infinity is
    )


def _is_nested(value: Sequence[Any]) -> bool:
    """Whether a polygon is a list of rings and not one ring; a list of no list is a ring that is none."""
    first = value[0]
    return isinstance(first, list | tuple) and bool(first) and isinstance(first[0], list | tuple)


def _rings(value: Sequence[Any]) -> Sequence[Any]:
    return value if _is_nested(value) else [value]


def _ring(corners: Sequence[Sequence[float]]) -> Ring:
    kept: list[Corner] = [(_rounded(latitude), _rounded(longitude)) for latitude, longitude in corners]
    return tuple(kept[:-1] if len(kept) > 1 and kept[0] == kept[-1] else kept)


def _rounded(degrees: float) -> float:
    return round(float(degrees), DECIMALS) + 0.0  # and no zero has a sign


def _place_faults(values: Mapping[Any, object], columns: Mapping[str, Column], broken: frozenset[str]) -> list[str]:
    known = [field.name for field in fields(Place)]
    found = [f"unknown key {key!r}" + nearest(str(key), known) for key in values if key not in known]
    pair: dict[str, Continuous] = {}
    for key in ("latitude", "longitude"):
        column = _column_of(key, values, columns, broken)
        if isinstance(column, str):
            found.append(column)
        elif column is not None:
            pair[key] = column
            found += _bound_faults(key, column)
    if values.get("latitude") == values.get("longitude") and len(pair) == 2:
        return [*found, "latitude and longitude must be two columns"]
    form = polygon_form_faults(values.get("polygon"))
    found += form
    if len(pair) == 2 and pair["latitude"].nullable != pair["longitude"].nullable:
        found.append("both columns must be nullable, or neither: a place is missing as a whole")
    if values.get("polygon") is not None:
        found += [
            f"{key}: column {values[key]!r} must have at most {DECIMALS} decimals beside a polygon"
            for key, column in pair.items()
            if (column.decimals or 0) > DECIMALS
        ]
        if len(pair) == 2 and not form and not found:
            found += _polygon_faults(tuple(_ring(ring) for ring in _rings(values["polygon"])), **pair)  # type: ignore[arg-type]
    return found


def _column_of(
    key: str, values: Mapping[Any, object], columns: Mapping[str, Column], broken: frozenset[str]
) -> Continuous | str | None:
    """The column that a key names, or its fault; None where the column itself is broken."""
    if key not in values:
        return f"{key} is missing: name a continuous column"
    name = values[key]
    if not isinstance(name, str):
        return f"{key} must be the name of a continuous column"
    if name in broken:
        return None
    if name not in columns:
        return f"{key}: column {name!r} is not declared"
    column = columns[name]
    if isinstance(column, LearntContinuous):
        return f"{key}: column {name!r} must declare its bounds: learn = true is not for places"
    if not isinstance(column, Continuous):
        return f"{key}: column {name!r} must be continuous, not {kind_of(column)}"
    return column


def _bound_faults(key: str, column: Continuous) -> list[str]:
    lower, upper = column.lower, column.upper
    if key == "latitude":
        fine = lower >= -90 and upper <= 90
        return [] if fine else ["latitude: the column's bounds must lie within -90 to 90"]
    fine = lower >= -180 and upper <= 360 and upper - lower <= 360
    return [] if fine else ["longitude: the column's bounds must lie within -180 to 180, or 0 to 360"]


def _polygon_faults(rings: tuple[Ring, ...], latitude: Continuous, longitude: Continuous) -> list[str]:
    """What is wrong with a polygon of good form, held against its columns."""
    found = []
    for number, ring in enumerate(rings, start=1):
        where = f"polygon: ring {number}" if len(rings) > 1 else "polygon"
        for axis, (key, column) in enumerate((("latitude", latitude), ("longitude", longitude))):
            out = [at for at, corner in enumerate(ring, start=1) if not column.lower <= corner[axis] <= column.upper]
            if out:
                found.append(f"{where}: the {key} of corner {out[0]} lies outside of the column's bounds")
        if _twice_the_area(ring) == 0:
            found.append(f"{where} must enclose an area")
    polygon = Polygon.of(rings)
    if polygon.crosses_itself():
        found.append("polygon must not cross itself, and its rings must not cross each other")
    if not found and next(polygon.stretches(step_of(latitude), step_of(longitude)), None) is None:
        found.append("polygon holds no point of the columns' decimals: declare more of them")
    return found


def _twice_the_area(ring: Ring) -> int:
    corners = [(in_units(latitude), in_units(longitude)) for latitude, longitude in ring]
    pairs = zip(corners, corners[1:] + corners[:1], strict=True)
    return sum(y * next_x - next_y * x for (y, x), (next_y, next_x) in pairs)
