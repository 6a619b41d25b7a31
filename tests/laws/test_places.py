"""Laws of places: exact insides, points that are moved stay inside on every grid, rows by themselves, every fault."""

import json
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.encoding import canonicalise, decode_codes, decode_features, encode_codes, encode_features, layout_of
from sfumato.encoding.projection import Projection, closest
from sfumato.errors import SchemaError
from sfumato.schema import Boolean, Continuous, Integer, LearntContinuous, Place, Schema, draft, read_polygon
from sfumato.schema.polygon import UNIT, Polygon

LAWS = settings(max_examples=60, deadline=None)
CONCAVE = ((47.0, 9.0), (49.0, 9.0), (49.0, 12.0), (48.9, 12.0), (48.9, 9.4), (47.0, 12.0))
"""A thin arm along the north, and a slanted bay below it."""

HOLE = ((47.2, 9.1), (47.2, 9.3), (47.4, 9.3), (47.4, 9.1))
ISLAND = ((46.1, 13.2), (46.1, 13.9), (46.7, 13.5))


def lies_inside(rings, y, x):
    """Whether one point lies inside, in exact fractions: what `contains` is held against."""
    y, x, odd = Fraction(y), Fraction(x), False
    for ring in rings:
        corners = [(Fraction(round(a * UNIT)), Fraction(round(b * UNIT))) for a, b in ring]
        for (ya, xa), (yb, xb) in zip(corners, corners[1:] + corners[:1], strict=True):
            between = min(ya, yb) <= y <= max(ya, yb) and min(xa, xb) <= x <= max(xa, xb)
            if between and (x - xa) * (yb - ya) == (y - ya) * (xb - xa):
                return True
            if (ya > y) != (yb > y) and x < xa + (y - ya) * (xb - xa) / (yb - ya):
                odd = not odd
    return odd


@st.composite
def stars(draw, most=9):
    """Polygons that see all of themselves from their middle: concave, and never crossing themselves."""
    sizes = draw(st.lists(st.integers(1, 1000), min_size=3, max_size=most))
    turn = draw(st.floats(0, 1))
    angles = (np.arange(len(sizes)) + turn) * 2 * np.pi / len(sizes)
    scale = draw(st.sampled_from([2e-3, 1e-5]))
    return tuple(
        (round(47 + scale * size * np.sin(angle), 7), round(11 + scale * size * np.cos(angle), 7))
        for size, angle in zip(sizes, angles, strict=True)
    )


def grid_points(draw_from, num, steps, seed):
    random = np.random.default_rng(seed)
    low, high, left, right = draw_from.box
    reach = max(high - low, right - left)
    y, x = (random.integers(a - reach, b + reach + 1, num) for a, b in ((low, high), (left, right)))
    return y // steps[0] * steps[0], x // steps[1] * steps[1]


@LAWS
@given(stars(), st.integers(0, 2**32))
def test_the_inside_is_exact(ring, seed):
    """Corners, middles of edges (as near as the grid comes), neighbours of both, and points all over."""
    polygon = Polygon.of([ring, HOLE])
    y, x = grid_points(polygon, 20, (1, 1), seed)
    middle_y, middle_x = (polygon.south + polygon.north) // 2, (polygon.south_x + polygon.north_x) // 2
    y = np.concatenate([y, polygon.south, middle_y, middle_y, polygon.north])
    x = np.concatenate([x, polygon.south_x, middle_x, middle_x + 1, polygon.north_x - 1])
    assert polygon.contains(y, x).tolist() == [lies_inside([ring, HOLE], a, b) for a, b in zip(y, x, strict=True)]


def test_points_on_edges_are_inside_and_holes_are_not():
    polygon = Polygon.of([CONCAVE, HOLE, ISLAND])
    points = {(47.0, 9.0): True, (48.0, 9.0): True, (49.0, 11.7): True, (47.3, 9.2): False, (47.2, 9.2): True}
    points |= {(48.95, 11.9): True, (48.5, 11.0): False, (46.3, 13.5): True, (46.0, 13.5): False}
    y, x = (np.array([round(point[axis] * UNIT) for point in points]) for axis in (0, 1))
    assert polygon.contains(y, x).tolist() == list(points.values())
    assert [lies_inside([CONCAVE, HOLE, ISLAND], a, b) for a, b in zip(y, x, strict=True)] == list(points.values())


@LAWS
@given(stars(), st.sampled_from([(1, 1), (1, 1000), (10**4, 10**4), (10**5, 10**6)]), st.integers(0, 2**32))
def test_what_is_moved_lies_inside_on_the_grid_and_stays(ring, steps, seed):
    polygon = Polygon.of([ring])
    if next(polygon.stretches(*steps), None) is None:
        return
    projection = Projection(polygon=polygon, y_step=steps[0], x_step=steps[1])
    y, x = grid_points(polygon, 200, steps, seed)
    before = polygon.contains(y, x)
    moved_y, moved_x = projection.nearest(y, x)
    assert all(lies_inside([ring], a, b) for a, b in zip(moved_y, moved_x, strict=True))
    assert not np.any(moved_y % steps[0]) and not np.any(moved_x % steps[1])
    assert np.array_equal(moved_y[before], y[before]) and np.array_equal(moved_x[before], x[before])
    for again, once in zip(projection.nearest(moved_y, moved_x), (moved_y, moved_x), strict=True):
        assert np.array_equal(again, once)
    alone = [projection.nearest(y[at : at + 1], x[at : at + 1]) for at in range(0, 200, 17)]
    assert [(int(a[0]), int(b[0])) for a, b in alone] == [(moved_y[at], moved_x[at]) for at in range(0, 200, 17)]


@LAWS
@given(stars(), st.integers(0, 2**32))
def test_points_are_moved_to_about_the_nearest(ring, seed):
    """Against all points of the outline, 400 to an edge: no further than those, up to the steps between them."""
    polygon = Polygon.of([ring])
    projection = Projection(polygon=polygon, y_step=1, x_step=1)
    y, x = grid_points(polygon, 60, (1, 1), seed)
    moved_y, moved_x = projection.nearest(y, x)
    share = np.linspace(0, 1, 400)[:, None]
    line_y = (polygon.south + share * (polygon.north - polygon.south)).ravel()
    line_x = (polygon.south_x + share * (polygon.north_x - polygon.south_x)).ravel()
    shrink, out = projection._shrink, ~polygon.contains(y, x)
    apart = np.hypot(y[:, None] - line_y, (x[:, None] - line_x) * shrink).min(axis=1)
    found = np.hypot(y - moved_y, (x - moved_x) * shrink)
    # A tip may be narrower than the grid for a while; stretches list some of its latitudes.
    slack = 4 + (polygon.box[1] - polygon.box[0]) / 500
    assert np.all(found[out] <= apart[out] + slack)


@LAWS
@given(stars(), st.sampled_from([(10**4, 10**4), (1, 10**5), (10**6, 10**5)]))
def test_stretches_hold_every_grid_point_inside(ring, steps):
    polygon = Polygon.of([ring])
    low, high, left, right = polygon.box
    lines, columns = (range(ceil(a / s) * s, b + 1, s) for a, b, s in ((low, high, steps[0]), (left, right, steps[1])))
    if len(lines) * len(columns) > 20_000 or len(lines) > 4_000:
        return
    y, x = (part.ravel() for part in np.meshgrid(lines, columns, indexing="ij"))
    inside = polygon.contains(y.astype(np.int64), x.astype(np.int64))
    listed = {(line, at) for line, a, b in polygon.stretches(*steps) for at in range(a, b + 1, steps[1])}
    missed = set(zip(y[inside].tolist(), x[inside].tolist(), strict=True)) - listed
    assert listed <= set(zip(y[inside].tolist(), x[inside].tolist(), strict=True))
    assert all(line in {*polygon.south.tolist(), *polygon.north.tolist()} for line, _ in missed), "but for lone corners"


def test_the_nearest_edge_is_found_whatever_is_left_out():
    random = np.random.default_rng(2)
    points, edges = random.uniform(0, 1e6, (2, 3_000)), random.uniform(0, 1e6, (4, 900))
    y0, x0, y1, x1 = edges
    best = []
    for y, x in points.T:
        share = np.clip(((y - y0) * (y1 - y0) + (x - x0) * (x1 - x0)) / ((y1 - y0) ** 2 + (x1 - x0) ** 2), 0, 1)
        best.append(np.argmin(np.hypot(y - y0 - share * (y1 - y0), x - x0 - share * (x1 - x0))))
    assert np.array_equal(closest(points, edges), best)


# --- tables -------------------------------------------------------------------------------------------------------


def schema_of(polygon=(CONCAVE, HOLE), decimals=(None, None), nullable=False, **more):
    columns = {
        "lat": Continuous(lower=46, upper=50, decimals=decimals[0], nullable=nullable),
        "paid": Boolean(),
        "lon": Continuous(lower=8.0, upper=13.0, decimals=decimals[1], nullable=nullable),
    }
    return Schema(columns=columns, places={"home": Place(latitude="lat", longitude="lon", polygon=polygon)}, **more)


def all_inside(table, polygon):
    """Whether each row has both cells inside the polygon, or neither, by fractions of what is written."""
    for lat, lon in zip(table.column("lat").to_pylist(), table.column("lon").to_pylist(), strict=True):
        if (lat is None) != (lon is None):
            return False
        if lat is not None:
            y, x = (Fraction(f"{degrees:.12f}") * UNIT for degrees in (lat, lon))
            if not lies_inside(polygon, y, x):
                return False
    return True


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("decimals", [(None, None), (7, 7), (3, 3), (1, 1), (None, 2), (0, 1)])
def test_nothing_that_is_drawn_lies_outside(decimals, nullable):
    schema = schema_of(decimals=decimals, nullable=nullable)
    random = np.random.default_rng(1)
    points = random.random((600, layout_of(schema).num_features))
    points[:5] = [[0.0], [1.0], [np.nan], [np.inf], [-np.inf]]
    drawn = decode_features(points, schema)
    assert all_inside(drawn, (CONCAVE, HOLE))
    assert canonicalise(drawn, schema).equals(drawn), "and it is read as it is"
    if nullable:
        missing = np.asarray(drawn.column("lat").is_null())
        flags = np.nan_to_num(points[:, [0, 3]], nan=0.5) >= 0.5
        assert np.array_equal(missing, flags.any(axis=1)), "both cells, or neither"
    codes = np.stack([random.integers(0, 30 + nullable, 300), np.zeros(300, int), random.integers(0, 10, 300)], axis=1)
    assert all_inside(decode_codes(codes, schema, bins=10, generator=random), (CONCAVE, HOLE))


def test_a_polygon_moves_nothing_that_is_inside():
    inside, bare = schema_of(decimals=(2, 2)), schema_of(polygon=None, decimals=(2, 2))
    points = np.random.default_rng(3).random((4_000, 3))
    free, kept = decode_features(points, bare).to_pandas(), decode_features(points, inside).to_pandas()
    y, x = (np.rint(free[name].to_numpy() * UNIT).astype(np.int64) for name in ("lat", "lon"))
    fits = Polygon.of((CONCAVE, HOLE)).contains(y, x)
    assert 500 < fits.sum() < 3_500
    assert kept[fits].equals(free[fits]) and not kept[~fits].equals(free[~fits])
    assert kept["paid"].equals(free["paid"])


def test_rows_are_read_into_the_polygon_each_by_itself():
    """Outside, on an edge, out of bounds, infinite, half, empty and no number: no row is refused."""
    table = pa.table(
        {
            "lat": ["47.5", "48", "99", "inf", "47.5", None, "x", "46.6"],
            "paid": ["true"] * 8,
            "lon": ["9.2", "9", "9.1", "-inf", "", "9.2", "9.2", "13.0"],
        }
    )
    schema = schema_of(nullable=True)
    read = canonicalise(table, schema)
    assert all_inside(read, (CONCAVE, HOLE))
    assert read.column("lat").to_pylist()[:4] == [47.5, 48.0, 49.0, 49.0]
    assert read.column("lon").to_pylist()[:4] == [9.2, 9.0, 9.1, 9.0]
    assert read.column("lat").null_count == 3 and read.column("lon").null_count == 3
    cells, codes = encode_features(table, schema), encode_codes(table, schema)
    for row in range(table.num_rows):
        alone = table.slice(row, 1)
        assert np.array_equal(encode_features(alone, schema).low[0], cells.low[row])
        assert np.array_equal(encode_codes(alone, schema)[0], codes[row])
    whole = canonicalise(table, schema_of())
    assert whole.column("lat").null_count == 0 and all_inside(whole, (CONCAVE, HOLE)), "a stand-in is moved, too"


# --- files and faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "polygon", [None, CONCAVE, (CONCAVE, HOLE), tuple((47 + i % 7 / 50, 9 + i / 50) for i in range(90))]
)
def test_places_round_trip(polygon, tmp_path):
    polygon = None if polygon is None else polygon if polygon[0] == CONCAVE else (polygon,)
    if polygon is not None and len(polygon[0]) == 90:
        polygon = ((*polygon[0], (49.0, 10.8), (49.0, 9.0)),)
    schema = schema_of(polygon=polygon, rows=500)
    for again in (
        Schema.from_toml(schema.to_toml()),
        Schema.from_json(schema.to_json()),
        Schema.from_dict(schema.to_dict()),
    ):
        assert again == schema and hash(again) == hash(schema)
        assert again.to_json() == schema.to_json()
    assert max(map(len, schema.to_toml().splitlines())) <= 100
    assert schema != Schema(columns=schema.columns, rows=500)
    schema.save(tmp_path / "s.toml")
    assert Schema.load(tmp_path / "s.toml") == schema


def test_a_person_can_write_a_place_and_name_a_file(tmp_path):
    text = """
        [columns.lat]
        kind = "continuous"
        lower = 46
        upper = 50
        [columns.lon]
        kind = "continuous"
        lower = 8
        upper = 14
        [places.home]
        latitude = "lat"
        longitude = "lon"
    """
    assert Schema.from_toml(text).places["home"].polygon is None
    closed = Schema.from_toml(text + "polygon = [[47, 9], [48, 9], [48, 10.123456789], [47, 9]]").places["home"]
    assert closed.polygon == (((47.0, 9.0), (48.0, 9.0), (48.0, 10.1234568)),)
    turned = lambda ring: [[b, a, 0.0] for a, b in (*ring, ring[0])]
    shapes = {
        "type": "FeatureCollection",
        "features": [
            {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [turned(CONCAVE), turned(HOLE)]}},
            {"type": "Feature", "geometry": {"type": "MultiPolygon", "coordinates": [[turned(ISLAND)]]}},
        ],
    }
    (tmp_path / "land.geojson").write_text(json.dumps(shapes))
    (tmp_path / "s.toml").write_text(text + 'polygon_file = "land.geojson"')
    loaded = Schema.load(tmp_path / "s.toml")
    assert loaded.places["home"].polygon == (CONCAVE, HOLE, ISLAND)
    assert "polygon_file" not in loaded.to_json()
    assert (
        Place(latitude="lat", longitude="lon", polygon=read_polygon(tmp_path / "land.geojson"))
        in loaded.places.values()
    )
    for content, word in (("{", "not JSON"), ('{"type": "Point"}', "with polygons"), ("[]", "with polygons")):
        (tmp_path / "land.geojson").write_text(content)
        with pytest.raises(SchemaError, match=word):
            Schema.load(tmp_path / "s.toml")
    (tmp_path / "land.geojson").unlink()
    with pytest.raises(SchemaError, match=r"'home': polygon file .*no such file"):
        Schema.load(tmp_path / "s.toml")
    with pytest.raises(SchemaError, match="loaded from a file"):
        Schema.from_toml((tmp_path / "s.toml").read_text())


def test_every_fault_of_a_place_is_listed():
    faulty = """
        [columns.lat]
        kind = "continuous"
        lower = -91
        upper = 50
        nullable = true
        [columns.lon]
        kind = "continuous"
        lower = 8
        upper = 14
        [columns.k]
        kind = "integer"
        lower = 0
        upper = 9
        [columns.free]
        kind = "continuous"
        learn = true
        [columns.bad]
        kind = "continuous"
        lower = 3
        [places.one]
        latitude = "lat"
        longitude = "lon"
        polgon = 3
        polygon = [[47, 9], [48, 9], [47, 9]]
        [places.two]
        latitude = "lon"
        longitude = "k"
        [places.three]
        latitude = "free"
        polygon = 7
        [places.four]
        latitude = "gone"
        longitude = "bad"
        polygon = [[[47, 9], [48, 9], [48, 10]], [[47, "x"]]]
    """
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml(faulty)
    assert [fault for fault in caught.value.faults if fault.startswith("place")] == [
        "place 'one': unknown key 'polgon'; did you mean 'polygon'?",
        "place 'one': latitude: the column's bounds must lie within -90 to 90",
        "place 'one': polygon must have at least three corners that differ",
        "place 'one': both columns must be nullable, or neither: a place is missing as a whole",
        "place 'two': longitude: column 'k' must be continuous, not integer",
        "place 'two': latitude: column 'lon' is a part of place 'one' already",
        "place 'three': latitude: column 'free' must declare its bounds: learn = true is not for places",
        "place 'three': longitude is missing: name a continuous column",
        "place 'three': polygon must be a list of [latitude, longitude] corners, or of such lists",
        "place 'four': latitude: column 'gone' is not declared",
        "place 'four': polygon: ring 2 must be a list of [latitude, longitude] corners in degrees",
    ]
    assert "column 'bad': upper is missing" in caught.value.faults


WIDE = {"lat": Continuous(lower=0, upper=10, decimals=0), "lon": Continuous(lower=0, upper=10, decimals=0)}


@pytest.mark.parametrize(
    ("columns", "place", "word"),
    [
        (WIDE, {"polygon": [[0, 0], [4, 4], [4, 0], [0, 4]]}, "cross itself"),
        (WIDE, {"polygon": [[[0, 0], [0, 4], [4, 4], [4, 0]], [[2, 2], [2, 6], [6, 6], [6, 2]]]}, "cross"),
        (WIDE, {"polygon": [[0, 0], [0, 11], [4, 4]]}, "longitude of corner 2 lies outside"),
        (WIDE, {"polygon": [[0, 0], [1, 1], [2, 2]]}, "enclose an area"),
        (WIDE, {"polygon": [[0.2, 0.2], [0.2, 0.8], [0.8, 0.8]]}, "no point of the columns' decimals"),
        (WIDE, {"polygon": [[0, 0], [0, float("nan")], [4, 4]]}, "corners in degrees"),
        (WIDE, {"polygon": []}, "list of"),
        (WIDE, {"polygon": [[0, 0.0001 * i] for i in range(10_001)] + [[1, 0]]}, "at most 10,000"),
        (WIDE, {"longitude": "lat"}, "two columns"),
        ({**WIDE, "lat": Continuous(lower=0, upper=9, decimals=8)}, {"polygon": [[0, 0], [0, 1], [1, 1]]}, "at most 7"),
        ({**WIDE, "lon": Continuous(lower=-181, upper=9)}, {}, "-180 to 180"),
        ({**WIDE, "lon": Continuous(lower=-100, upper=300)}, {}, "-180 to 180"),
        ({**WIDE, "lon": Integer(lower=0, upper=9)}, {}, "continuous, not integer"),
        ({**WIDE, "lon": LearntContinuous()}, {}, "learn = true"),
        (WIDE, {"latitude": 3}, "name of a continuous column"),
    ],
)
def test_what_a_place_must_not_be(columns, place, word):
    given = {"latitude": "lat", "longitude": "lon", **place}
    for build in (
        lambda: Schema(columns=columns, places={"home": Place(**given)}),
        lambda: Schema.from_dict({**Schema(columns=columns).to_dict(), "places": {"home": given}}),
    ):
        with pytest.raises(SchemaError, match=word):
            build()


def test_what_is_no_place_at_all():
    plain = Schema(columns=WIDE).to_dict()
    for wrong, word in ((3, "must be tables"), ({"home": 3}, "must be a table"), ({"": {}}, "not empty")):
        with pytest.raises(SchemaError, match=word):
            Schema.from_dict({**plain, "places": wrong})
    with pytest.raises(SchemaError, match="mapping of name to Place"):
        Schema(columns=WIDE, places=[1])
    square = [[0, 0], [0, 4], [4, 4], [4, 0]]
    touching = [square, [[4, 4], [4, 8], [8, 8], [8, 4]], [[1, 1], [1, 2], [2, 2]]]
    Schema(columns=WIDE, places={"home": Place(latitude="lat", longitude="lon", polygon=touching)})


def test_a_draft_has_no_places():
    assert not draft(pa.table({"lat": [47.1, 48.2, 48.3], "lon": [9.1, 9.2, 9.4]})).schema.places


def test_many_rows_take_seconds():
    """Not a law of speed, but quadratic work would take minutes."""
    angles = np.linspace(0, 2 * np.pi, 500, endpoint=False)
    sizes = 0.8 + 0.1 * np.sin(7 * angles) + 0.05 * np.sin(41 * angles)
    ring = tuple((48 + float(s * np.sin(a)), 10.5 + float(s * np.cos(a))) for a, s in zip(angles, sizes, strict=True))
    schema = schema_of(polygon=(ring,), decimals=(4, 4))
    drawn = decode_features(np.random.default_rng(0).random((300_000, 3)), schema)
    polygon = Polygon.of(schema.places["home"].polygon)
    y, x = (np.rint(drawn.column(name).to_numpy() * UNIT).astype(np.int64) for name in ("lat", "lon"))
    assert polygon.contains(y, x).all()
    assert floor(y.min() / UNIT) == 47
