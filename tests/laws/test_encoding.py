"""Laws of the encoding: round trips, row by row, and no error whatever a cell holds."""

import math
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laws.strategies import arrow_type, hostile_tables, schemas, schemas_with, valid_tables
from sfumato.encoding import (
    canonicalise,
    decode_codes,
    decode_features,
    domain_sizes,
    encode_codes,
    encode_features,
    layout_of,
)
from sfumato.errors import ArgumentError, TableError
from sfumato.schema import (
    Boolean,
    Categorical,
    Continuous,
    Date,
    Datetime,
    Identifier,
    Integer,
    Schema,
)

LAWS = settings(max_examples=60, deadline=None)
BINS = st.integers(1, 40)
# A point nearer to the end of its cell than this may be rounded into the next: a cell may be 2^-40 wide.
INSIDE = st.floats(0, 1 - 2**-11)


def same(left, right, schema):
    """Equality of the modelled columns; to 1e-9 of the range where a column has no grid."""
    for name, column in schema.modelled:
        a, b = left.column(name), right.column(name)
        assert a.type == b.type == arrow_type(column)
        assert a.is_null().equals(b.is_null())
        if column.num_values is None:
            x, y = (np.array(c.drop_null().to_pylist(), float) for c in (a, b))
            assert np.all(np.abs(x - y) <= 1e-9 * (column.upper - column.lower))
        else:
            assert a.equals(b), name


@LAWS
@given(schemas_with(valid_tables))
def test_a_table_in_its_domain_is_left_as_it_is(pair):
    schema, table = pair
    assert canonicalise(table, schema).equals(table.select([name for name, _ in schema.modelled]))


@LAWS
@given(schemas_with(hostile_tables), INSIDE)
def test_features_round_trip(pair, u):
    schema, table = pair
    cells = encode_features(table, schema)
    layout = layout_of(schema)
    assert cells.low.shape == cells.width.shape == (table.num_rows, layout.num_features)
    assert np.all(cells.low >= 0) and np.all(cells.low + cells.width <= 1 + 1e-12)
    assert np.all(np.isfinite(cells.log_unit))
    same(decode_features(cells.low + u * cells.width, schema), canonicalise(table, schema), schema)


@LAWS
@given(schemas_with(hostile_tables))
def test_canonical_twice_is_canonical_once(pair):
    schema, table = pair
    once = canonicalise(table, schema)
    assert canonicalise(once, schema).equals(once)
    once.validate(full=True)


@LAWS
@given(schemas_with(hostile_tables), BINS, st.data())
def test_rows_are_encoded_on_their_own(pair, bins, data):
    schema, table = pair
    order = data.draw(st.permutations(range(table.num_rows)))
    cells, codes = encode_features(table, schema), encode_codes(table, schema, bins=bins)
    shuffled = pa.concat_tables([table.slice(row, 1) for row in order]) if order else table
    moved = encode_features(shuffled, schema)
    assert np.array_equal(moved.low, cells.low[list(order)])
    assert np.array_equal(moved.width, cells.width[list(order)])
    assert np.array_equal(encode_codes(shuffled, schema, bins=bins), codes[list(order)])
    for row in range(table.num_rows):
        alone = encode_features(table.slice(row, 1), schema)
        assert np.array_equal(alone.low[0], cells.low[row])
        assert np.array_equal(alone.log_unit[0], cells.log_unit[row])
        assert np.array_equal(encode_codes(table.slice(row, 1), schema, bins=bins)[0], codes[row])


@LAWS
@given(schemas_with(hostile_tables), BINS, st.integers(0, 99))
def test_codes_round_trip(pair, bins, seed):
    schema, table = pair
    codes, sizes = encode_codes(table, schema, bins=bins), domain_sizes(schema, bins)
    assert np.all(codes >= 0) and np.all(codes < np.array(sizes))
    decoded = decode_codes(codes, schema, bins=bins, generator=np.random.default_rng(seed))
    assert np.array_equal(encode_codes(decoded, schema, bins=bins), codes)
    wide = canonicalise(table, schema)
    for name, column in schema.modelled:
        exact = isinstance(column, Categorical | Boolean) or (column.num_values or math.inf) <= bins
        if exact:
            assert decoded.column(name).equals(wide.column(name))


@LAWS
@given(schemas(), BINS, st.integers(0, 99))
def test_every_code_decodes_to_a_value_of_its_own(schema, bins, seed):
    sizes = domain_sizes(schema, bins)
    generator = np.random.default_rng(seed)
    codes = np.stack([generator.integers(0, size, 20) for size in sizes], axis=1)
    decoded = decode_codes(codes, schema, bins=bins, generator=generator)
    assert np.array_equal(encode_codes(decoded, schema, bins=bins), codes)


@LAWS
@given(schemas(), st.data())
def test_no_point_leaves_the_domain(schema, data):
    size = layout_of(schema).num_features
    point = st.sampled_from([0.0, 1.0, -1.0, 2.0, math.nan, math.inf, -math.inf]) | st.floats(0, 1)
    points = data.draw(st.lists(st.lists(point, min_size=size, max_size=size), min_size=1, max_size=4))
    table = decode_features(np.array(points), schema)
    dropped = [name for name, column in schema.columns.items() if column == Identifier()]
    assert table.column_names == [name for name in schema.columns if name not in dropped]
    modelled = table.select([name for name, _ in schema.modelled])
    assert canonicalise(table, schema).equals(modelled)
    for name, column in schema.modelled:
        assert column.nullable or table.column(name).null_count == 0


def test_cells_and_units_of_a_known_table():
    schema = Schema(
        columns={
            "level": Categorical(levels=("a", "b", "c", "d"), nullable=True),
            "point": Continuous(lower=0, upper=4),
            "grid": Continuous(lower=0, upper=0.9, decimals=1, nullable=True),
            "constant": Integer(lower=7, upper=7),
        }
    )
    layout = layout_of(schema)
    found = [(f.column, f.role, f.size) for f in layout.features]
    assert found == [
        ("level", "missing", 2), ("level", "value", 4), ("point", "value", None),
        ("grid", "missing", 2), ("grid", "value", 10),
    ]  # fmt: skip
    table = pa.table({"level": ["c", None], "point": [1.0, 4.0], "grid": [0.3, None], "constant": [7, 9]})
    cells = encode_features(table, schema)
    assert np.allclose(cells.low, [[0, 0.5, 0.25, 0, 0.3], [0.5, 0, 1, 0.5, 0]])
    assert np.allclose(cells.width, [[0.5, 0.25, 0, 0.5, 0.1], [0.5, 1, 0, 0.5, 1]])
    first = math.log(0.5) + math.log(0.25) - math.log(4) + math.log(0.5) + math.log(0.1) - math.log(0.1)
    second = math.log(0.5) - math.log(4) + math.log(0.5)
    assert np.allclose(cells.log_unit, [first, second])


def test_masses_of_all_cells_sum_to_one():
    """Under the even density, the likelihoods of all values of a discrete row sum to one."""
    schema = Schema(columns={"a": Integer(lower=1, upper=6, nullable=True), "b": Boolean()})
    rows = [(a, b) for a in [None, 1, 2, 3, 4, 5, 6] for b in (True, False)]
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    assert np.exp(encode_features(table, schema).log_unit).sum() == pytest.approx(1)


TOP, FIRST = datetime(2030, 1, 1), datetime(2000, 1, 1)
AGE = Integer(lower=0, upper=120, nullable=True)
TALL = Integer(lower=-(2**53), upper=-(2**53) + 9)
NAMED = Categorical(levels=("1", "true", "None", "-x", " y "), nullable=True)
OTHER = Categorical(levels=("a", "other"), other="other", nullable=True)
WHOLE = Categorical(levels=(1, 2), nullable=True)
DAY = Date(lower=date(2000, 1, 1), upper=date(2030, 12, 31), nullable=True)
MOMENT = Datetime(lower=FIRST, upper=TOP, resolution="minute", nullable=True)

RULES = [
    (AGE, ["3", "3.0", " 3 ", "1e2", "1e400", "-1e400", "inf", "x", "", "NA", None, "9" * 50],
     [3, 3, 3, 100, 120, 0, 120, None, None, None, None, 120]),
    (AGE, pa.array([2**64 - 1, 5], pa.uint64()), [120, 5]),
    (AGE, [math.nan, math.inf, -math.inf, 2.6], [None, 120, 0, 3]),
    (AGE, [True, False], [1, 0]),
    (AGE, pa.array([[1], None]), [None, None]),
    (TALL, [-(2**53) + 1, None], [-(2**53) + 1, -(2**53) + 4]),
    (Integer(lower=0, upper=120), ["x", None, "7"], [60, 60, 7]),
    (Continuous(lower=0, upper=1, decimals=2), ["0.126", "2", "nan"], [0.13, 1.0, 0.5]),
    (Continuous(lower=-1, upper=3), ["x", "-4", "2.25"], [1.0, -1.0, 2.25]),
    (Boolean(nullable=True), ["TRUE", "false", "0", "1", "yes", "No", "2", "", None],
     [True, False, False, True, True, False, None, None, None]),
    (Boolean(nullable=True), [0.0, 1.0, 0.5, None], [False, True, None, None]),
    (Boolean(), ["x", "t"], [False, True]),
    (NAMED, ["1", "1.0", "true", "None", "NA", "'-x", " y ", "y", "z"],
     ["1", "1", "true", "None", None, "-x", " y ", None, None]),
    (NAMED, [1, 2], ["1", None]),
    (NAMED, [1.0, 1.5, math.nan], ["1", None, None]),
    (NAMED, [True, False], ["true", None]),
    (Categorical(levels=("True", "False")), [True, False], ["True", "False"]),
    (OTHER, ["a", "z", "NA", None, " a"], ["a", "other", None, None, "a"]),
    (Categorical(levels=("a", "other"), other="other"), ["z", None], ["other", "other"]),
    (Categorical(levels=("a", "b")), ["z", None, "b"], ["a", "a", "b"]),
    (WHOLE, ["1", "1.0", "2.5", "x", "", "inf"], [1, 1, None, None, None, None]),
    (WHOLE, [1.0, 2.0, 3.0], [1, 2, None]),
    (Categorical(levels=(1, 9), other=9, nullable=True), ["1", "x", "NA", "1e400"], [1, 9, None, 9]),
    (DAY, ["2020-01-31", "2020-01-31T23:59:59", "1999-12-31", "2020-02-30", "31/01/2020", "9999-01-01"],
     [date(2020, 1, 31), date(2020, 1, 31), date(2000, 1, 1), None, None, date(2030, 12, 31)]),
    (DAY, pa.array([datetime(2020, 5, 5, 23), None], pa.timestamp("ns")), [date(2020, 5, 5), None]),
    (DAY, [5, 6], [None, None]),
    (Date(lower=date(2000, 1, 1), upper=date(2000, 1, 3)), ["x"], [date(2000, 1, 2)]),
    (MOMENT, ["2020-01-31", "2020-01-31 10:00:59", "2020-01-31T10:00:00+02:00", "2020-01-31T10:00:00Z", "x"],
     [datetime(2020, 1, 31), datetime(2020, 1, 31, 10), datetime(2020, 1, 31, 8), datetime(2020, 1, 31, 10),
      None]),
    (MOMENT, pa.array([0, 2**63 - 1, -(2**63)], pa.timestamp("s")), [FIRST, TOP, FIRST]),
    (MOMENT, pa.array([datetime(2020, 1, 1)], pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
     [datetime(2020, 1, 1)]),
    (Datetime(lower=datetime(1900, 1, 1), upper=TOP), ["1950-01-01T00:00:00.9"], [datetime(1950, 1, 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "cells", "expected"), RULES)
@pytest.mark.parametrize("form", ["plain", "dictionary", "chunks"])
def test_rules_for_faulty_rows(column, cells, expected, form):
    array = cells if isinstance(cells, pa.Array) else pa.array(cells)
    column_array = pa.chunked_array([array])
    if form == "dictionary" and not pa.types.is_nested(array.type):
        column_array = column_array.dictionary_encode()
    if form == "chunks":
        column_array = pa.chunked_array([array.slice(i, 1) for i in range(len(array))])
    schema = Schema(columns={"x": column})
    assert canonicalise(pa.table({"x": column_array}), schema).column("x").to_pylist() == expected


def test_fractions_of_a_second_before_1970_are_floored():
    schema = Schema(columns={"x": Datetime(lower=datetime(1900, 1, 1), upper=TOP)})
    table = pa.table({"x": pa.array([-1], pa.timestamp("ms"))})
    assert canonicalise(table, schema).column("x").to_pylist() == [datetime(1969, 12, 31, 23, 59, 59)]


def test_bins_are_even_and_drawn_from_evenly():
    schema = Schema(columns={"x": Integer(lower=0, upper=999)})
    codes = encode_codes(pa.table({"x": list(range(1000))}), schema, bins=10)[:, 0]
    assert np.bincount(codes).tolist() == [100] * 10
    drawn = decode_codes(np.full((20_000, 1), 3), schema, bins=10, generator=np.random.default_rng(0))
    values = drawn.column("x").to_numpy()
    assert values.min() == 300 and values.max() == 399
    # Mean of an even draw: 349.5 with a standard error of 0.2; five of them.
    assert abs(values.mean() - 349.5) < 1.0


def test_identifiers_are_made_anew():
    schema = Schema(
        columns={
            "a": Identifier(), "b": Identifier(regenerate="number"), "x": Boolean(),
            "c": Identifier(regenerate="uuid"),
        }
    )  # fmt: skip
    table = decode_features(np.full((3, 1), 0.7), schema)
    assert table.column_names == ["b", "x", "c"]
    assert table.column("b").to_pylist() == [1, 2, 3]
    assert table.column("x").to_pylist() == [True] * 3
    assert len(set(table.column("c").to_pylist())) == 3
    points = np.full((3, 1), 0.7)
    one, two = (decode_features(points, schema, generator=np.random.default_rng(1)) for _ in range(2))
    assert one.equals(two)


def test_an_empty_table_encodes():
    schema = Schema(columns={"a": Boolean(), "b": Continuous(lower=0, upper=1, nullable=True)})
    table = pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.null())})
    assert encode_features(table, schema).low.shape == (0, 3)
    assert encode_codes(table, schema).shape == (0, 2)
    assert decode_features(np.zeros((0, 3)), schema).num_rows == 0


def test_what_does_not_fit_is_refused_by_name():
    schema = Schema(columns={"a": Boolean()})
    with pytest.raises(TableError, match="column 'a': missing"):
        encode_features(pa.table({"b": [1]}), schema)
    with pytest.raises(TableError, match="more than once"):
        encode_codes(pa.table([[1], [2]], names=["a", "a"]), schema)
    with pytest.raises(ArgumentError, match=r"\[row, 1\]"):
        decode_features(np.zeros((2, 2)), schema)
    with pytest.raises(ArgumentError, match="codes"):
        decode_codes(np.zeros((2, 1)), schema, generator=np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="bins"):
        domain_sizes(schema, 0)


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-11])
def test_no_border_of_a_cell_is_rounded_into_its_neighbour(u):
    """Every cell of every small grid, and the last cells of the finest."""
    for size in [*range(2, 400), 2**40]:
        schema = Schema(columns={"x": Integer(lower=0, upper=size - 1)})
        values = np.arange(max(0, size - 400), size)
        cells = encode_features(pa.table({"x": values}), schema)
        back = decode_features(cells.low + u * cells.width, schema)
        assert np.array_equal(back.column("x").to_numpy(), values), size
