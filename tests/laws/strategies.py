"""Hypothesis strategies: schemas, tables that fit them, and tables that do not."""

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from hypothesis import strategies as st

from sfumato.schema import (
    Boolean,
    Categorical,
    Continuous,
    Date,
    Datetime,
    Identifier,
    Integer,
    Schema,
    Unit,
)
from sfumato.schema.columns import SECONDS

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
names = _TEXT.filter(bool)


@st.composite
def categoricals(draw):
    items = _TEXT if draw(st.booleans()) else st.integers(-(2**53), 2**53)
    levels = tuple(draw(st.lists(items, min_size=1, max_size=6, unique=True)))
    other = draw(st.none() | st.sampled_from(levels))
    return Categorical(levels=levels, ordered=draw(st.booleans()), other=other, nullable=draw(st.booleans()))


@st.composite
def integers(draw):
    lower = draw(st.integers(-100, 100) | st.integers(-(2**53), 2**53 - 2**40))
    span = draw(st.integers(0, 300) | st.integers(0, 2**40 - 1))
    return Integer(lower=lower, upper=min(lower + span, 2**53), nullable=draw(st.booleans()))


@st.composite
def continuous(draw):
    nullable = draw(st.booleans())
    decimals = draw(st.none() | st.integers(0, 6))
    if decimals is None:
        lower = draw(st.floats(-1e6, 1e6))
        return Continuous(lower=lower, upper=lower + draw(st.floats(1e-2, 1e9)), nullable=nullable)
    low = draw(st.integers(-(10**9), 10**9))
    high = low + draw(st.integers(1, 500) | st.integers(1, 10**11))
    scale = 10**decimals
    return Continuous(lower=low / scale, upper=high / scale, decimals=decimals, nullable=nullable)


@st.composite
def dates(draw):
    lower, upper = sorted([draw(st.dates()), draw(st.dates())])
    return Date(lower=lower, upper=upper, nullable=draw(st.booleans()))


@st.composite
def datetimes(draw):
    resolution = draw(st.sampled_from(list(SECONDS)))
    lower, upper = sorted(_floor(draw(st.datetimes()), resolution) for _ in range(2))
    return Datetime(lower=lower, upper=upper, resolution=resolution, nullable=draw(st.booleans()))


def _floor(moment, resolution):
    whole = moment.replace(microsecond=0)
    seconds = int((whole - datetime(1, 1, 1)).total_seconds())
    return whole - timedelta(seconds=seconds % SECONDS[resolution])


booleans = st.builds(Boolean, nullable=st.booleans())
identifiers = st.builds(Identifier, regenerate=st.sampled_from(["drop", "number", "uuid"]))
modelled = st.one_of(categoricals(), integers(), continuous(), dates(), datetimes(), booleans)


@st.composite
def schemas(draw):
    columns = draw(st.dictionaries(names, modelled | identifiers, max_size=5))
    mover = draw(modelled.filter(lambda c: c.nullable or c.num_values != 1))
    columns["mover"] = mover
    rows = draw(st.none() | st.integers(1, 2**40))
    keys = [name for name, column in columns.items() if isinstance(column, Identifier)]
    unit = None
    if keys and draw(st.booleans()):
        unit = Unit(column=draw(st.sampled_from(keys)), max_rows=draw(st.integers(1, 1000)))
    return Schema(columns=columns, rows=rows, unit=unit)


def valid_cells(column):
    """Values in the domain of a column, as Python objects."""
    match column:
        case Categorical():
            return st.sampled_from(column.levels)
        case Boolean():
            return st.booleans()
        case Integer():
            return st.integers(column.lower, column.upper)
        case Continuous(decimals=None):
            return st.floats(column.lower, column.upper)
        case Continuous():
            scale = 10**column.decimals
            ends = round(column.lower * scale), round(column.upper * scale)
            return st.integers(*ends).map(lambda k: k / scale)
        case Date():
            return st.dates(column.lower, column.upper)
        case Datetime():
            step = SECONDS[column.resolution]
            last = column.num_values - 1
            return st.integers(0, last).map(lambda k: column.lower + timedelta(seconds=k * step))
        case Identifier():
            return st.integers(0, 10**6)
    raise AssertionError(column)


def arrow_type(column):
    """Arrow type in which a column comes back."""
    match column:
        case Categorical():
            return pa.string() if isinstance(column.levels[0], str) else pa.int64()
        case Boolean():
            return pa.bool_()
        case Integer() | Identifier():
            return pa.int64()
        case Continuous():
            return pa.float64()
        case Date():
            return pa.date32()
        case Datetime():
            return pa.timestamp("s")
    raise AssertionError(column)


@st.composite
def valid_tables(draw, schema, max_rows=8):
    """Tables whose every cell is in its domain, in the Arrow types of the schema."""
    size = draw(st.integers(0, max_rows))
    arrays = []
    for column in schema.columns.values():
        cells = valid_cells(column)
        if getattr(column, "nullable", False):
            cells = st.none() | cells
        arrays.append(pa.array(draw(st.lists(cells, min_size=size, max_size=size)), arrow_type(column)))
    return pa.table(arrays, names=list(schema.columns))


HOSTILE_TEXTS = [
    "", " ", "NA", "nan", "null", "None", "inf", "-inf", "1e400", "-1e400", "1e-400", "3", "3.0", " 3 ", "+3",
    "1e3", "0x10", "1_000", "1,5", "9" * 400, "TRUE", "false", "yes", "No", "0", "1", "2020-01-31",
    "2020-02-31",
    "2020-01-31T10:00:00", "2020-01-31 10:00:00+02:00", "2020-01-31T10:00:00Z", "2020-01-31T10:00:00.123456",
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "10000-01-01", "0000-00-00", "20200131",
    "24:00",
    "٣", "\ufeff3", "=1+1", "'=1+1", "-", ".", "e5", "日本", "a\nb", "\t", "--5", "Infinity", "1e", "³",
]  # fmt: skip

_TEXTS = st.sampled_from(HOSTILE_TEXTS) | _TEXT
_MOMENTS = st.datetimes(datetime(1678, 1, 1), datetime(2261, 1, 1))


def _columns(cells, kind):
    return lambda size: st.lists(st.none() | cells, min_size=size, max_size=size).map(
        lambda values: pa.chunked_array([pa.array(values, kind)])
    )


_HOSTILE = [
    _columns(_TEXTS, pa.string()),
    _columns(_TEXTS, pa.large_string()),
    _columns(_TEXTS, pa.string_view()),
    lambda size: _columns(_TEXTS, pa.string())(size).map(lambda a: a.dictionary_encode()),
    lambda size: _columns(st.integers(-5, 5), pa.int64())(size).map(lambda a: a.dictionary_encode()),
    _columns(st.floats(), pa.float64()),
    _columns(st.floats(width=32), pa.float32()),
    _columns(st.floats(width=16), pa.float16()),
    _columns(st.integers(-(2**63), 2**63 - 1), pa.int64()),
    _columns(st.integers(0, 2**64 - 1), pa.uint64()),
    _columns(st.integers(-128, 127), pa.int8()),
    _columns(st.booleans(), pa.bool_()),
    _columns(st.decimals(-1000, 1000, places=2), pa.decimal128(10, 2)),
    _columns(st.dates(date(1, 1, 1)), pa.date32()),
    _columns(st.dates(date(1, 1, 1)), pa.date64()),
    _columns(_MOMENTS, pa.timestamp("ns")),
    _columns(st.datetimes(), pa.timestamp("us")),
    _columns(_MOMENTS.map(lambda m: m.replace(tzinfo=UTC)), pa.timestamp("ms", tz="Asia/Tokyo")),
    _columns(st.integers(-(2**63), 2**63 - 1), pa.timestamp("s")),
    _columns(st.times(), pa.time64("us")),
    _columns(st.timedeltas(timedelta(-9), timedelta(9)), pa.duration("us")),
    _columns(st.binary(max_size=3), pa.binary()),
    _columns(st.lists(st.integers(0, 3), max_size=2), pa.list_(pa.int64())),
    _columns(st.just({"a": 1}), pa.struct([("a", pa.int64())])),
    _columns(st.none(), pa.null()),
]


def hostile_columns(size):
    """Arrow columns of any type and content."""
    return st.one_of([build(size) for build in _HOSTILE])


@st.composite
def hostile_tables(draw, schema, max_rows=6):
    """Tables with the columns of a schema, whose cells are anything at all."""
    size = draw(st.integers(0, max_rows))
    arrays = [draw(hostile_columns(size)) for _ in schema.columns]
    return pa.table(arrays, names=list(schema.columns))


@st.composite
def schemas_with(draw, tables):
    """A schema and a table drawn by `tables` for it."""
    schema = draw(schemas())
    return schema, draw(tables(schema))
