"""GeoJSON: the outline of a place from a public file, which then becomes a part of the schema.

GeoJSON writes longitude first, and sfumato latitude: corners are turned round here.
Reference: RFC 7946.
"""

import json
from pathlib import Path
from typing import Any

from sfumato.errors import SchemaError
from sfumato.schema.polygon import Ring

_MAX_BYTES = 64 * 2**20
_PARTS = {"FeatureCollection": "features", "GeometryCollection": "geometries"}


def read_polygon(path: str | Path) -> tuple[Ring, ...]:
    """All rings of the polygons of a GeoJSON file, as corners (latitude, longitude).

    Polygons of one file must not overlap: what lies in two of them would be outside.

    >>> read_polygon("austria.geojson")[0][:2]                             # doctest: +SKIP
    ((46.37, 13.71), (46.41, 13.66))
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SchemaError([f"polygon file {path.name!r}: larger than 64 MiB"])
        plain = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise SchemaError([f"polygon file {str(path)!r}: {(error.strerror or 'cannot be read').lower()}"]) from None
    except (ValueError, RecursionError):
        raise SchemaError([f"polygon file {path.name!r}: is not JSON"]) from None
    try:
        rings = tuple(_rings(plain))
    except (KeyError, TypeError, ValueError, RecursionError):
        rings = ()
    if not rings:
        raise SchemaError([f"polygon file {path.name!r}: must be GeoJSON with polygons, and nothing else, in it"])
    return rings


def _rings(plain: Any) -> list[Ring]:
    kind = plain["type"]
    if kind in _PARTS:
        return [ring for part in plain[_PARTS[kind]] for ring in _rings(part)]
    if kind == "Feature":
        return _rings(plain["geometry"])
    if kind not in ("Polygon", "MultiPolygon"):
        raise ValueError(kind)
    polygons = [plain["coordinates"]] if kind == "Polygon" else plain["coordinates"]
    return [tuple(_corner(*corner[:2]) for corner in ring) for polygon in polygons for ring in polygon]


def _corner(longitude: Any, latitude: Any) -> tuple[float, float]:
    return float(latitude), float(longitude)
