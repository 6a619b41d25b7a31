"""Places in a table: both cells of a row or neither, and never a point outside of the polygon.

The rules of `values` go first, each column by itself. Then, for each place of the schema:

- a row that has one of the two cells only has neither;
- a point outside of the polygon becomes the nearest point of it, on the grid of its columns; beside a polygon, columns
  without decimals are on a grid of seven, about a centimetre.

Both hold for rows that are read and for synthetic ones. A row is moved by itself, as the schema alone says: this is no
door, and costs nothing.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa

from sfumato.encoding.parsing import Ints
from sfumato.encoding.projection import Projection
from sfumato.encoding.values import Numbers, Reading, read_column, stand_in, write_column
from sfumato.schema import Continuous, Place, Schema
from sfumato.schema.place import step_of
from sfumato.schema.polygon import UNIT, Polygon


def read_columns(table: pa.Table, schema: Schema) -> dict[str, Reading]:
    """Read the modelled columns of a table by the rules of the schema, those on places too.

    >>> columns = {"lat": Continuous(lower=0, upper=9, decimals=0), "lon": Continuous(lower=0, upper=9, decimals=0)}
    >>> place = Place(latitude="lat", longitude="lon", polygon=[[0, 0], [0, 9], [4, 9], [4, 0]])
    >>> found = read_columns(pa.table({"lat": [3, 7], "lon": [2, 2]}), Schema(columns=columns, places={"home": place}))
    >>> found["lat"].values.tolist()
    [3, 4]
    """
    return settled({name: read_column(table, name, column) for name, column in schema.modelled}, schema)


def canonicalise(table: pa.Table, schema: Schema) -> pa.Table:
    """Bring the modelled columns of a table into their domains and Arrow types, in the order of the schema.

    >>> from sfumato.schema import Integer
    >>> schema = Schema(columns={"age": Integer(lower=0, upper=120, nullable=True)})
    >>> canonicalise(pa.table({"age": ["44", "-7", "x"]}), schema).to_pydict()
    {'age': [44, 0, None]}
    """
    readings = read_columns(table, schema)
    arrays = [write_column(readings[name], column) for name, column in schema.modelled]
    return pa.table(arrays, names=[name for name, _ in schema.modelled])


def settled(readings: Mapping[str, Reading], schema: Schema) -> dict[str, Reading]:
    """The cells of all columns with every place whole, and inside of its polygon."""
    found = dict(readings)
    for place in schema.places.values():
        latitude, longitude = (schema.columns[name] for name in place.columns)
        assert isinstance(latitude, Continuous) and isinstance(longitude, Continuous)
        pair = _settled_pair(place, latitude, longitude, found[place.latitude], found[place.longitude])
        found[place.latitude], found[place.longitude] = pair
    return found


def _settled_pair(
    place: Place, latitude: Continuous, longitude: Continuous, y: Reading, x: Reading
) -> tuple[Reading, Reading]:
    missing = y.missing | x.missing
    values_y, values_x = y.values.copy(), x.values.copy()
    present = np.flatnonzero(~missing)
    if place.polygon is not None and present.size:
        moved_y, moved_x = _projection(place, latitude, longitude).nearest(
            _units(values_y[present], latitude), _units(values_x[present], longitude)
        )
        values_y[present], values_x[present] = _values(moved_y, latitude), _values(moved_x, longitude)
    values_y[missing], values_x[missing] = stand_in(latitude), stand_in(longitude)
    return Reading(values=values_y, missing=missing), Reading(values=values_x, missing=missing)


@lru_cache(maxsize=16)
def _projection(place: Place, latitude: Continuous, longitude: Continuous) -> Projection:
    assert place.polygon is not None
    return Projection(polygon=Polygon.of(place.polygon), y_step=step_of(latitude), x_step=step_of(longitude))


def _units(values: Numbers, column: Continuous) -> Ints:
    """Values of a column as whole numbers of a polygon's units."""
    if column.decimals is None:
        return np.rint(values * UNIT).astype(np.int64)
    return np.asarray((values + _first(column)) * step_of(column))


def _values(units: Ints, column: Continuous) -> Numbers:
    if column.decimals is None:
        return np.asarray(units / UNIT)  # a quotient of whole numbers is the float that the decimal text would give
    return units // step_of(column) - _first(column)


def _first(column: Continuous) -> int:
    return round(column.lower * 10 ** (column.decimals or 0))
