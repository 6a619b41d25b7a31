"""Law of isolation: one odd row, in whatever table it comes, changes no other row and is no error."""

import io
import math
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import pairwise

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.encoding import canonicalise, encode_features
from sfumato.encoding.texts import texts_of, unit_codes
from sfumato.pipeline import private_rows
from sfumato.schema import Boolean, Categorical, Continuous, Date, Datetime, Identifier, Integer, Schema, Unit
from sfumato.table import check_columns, to_arrow
from sfumato.table.cells import text_of
from sfumato.table.delimited import parse_delimited

TEXT_LEVELS = ("1", "0", "7.50", "0.5", "true", "2020-01-01", "2020-01-01 03:04:05", "x", "?", "NA")
KINDS = {
    "integer": Integer(lower=0, upper=2000, nullable=True),
    "continuous": Continuous(lower=-1, upper=2000, nullable=True),
    "decimals": Continuous(lower=0, upper=2000, decimals=2, nullable=True),
    "boolean": Boolean(nullable=True),
    "whole levels": Categorical(levels=(0, 1, 7), nullable=True),
    "text levels": Categorical(levels=TEXT_LEVELS, nullable=True),
    "words": Categorical(levels=("True", "False", "other"), other="other", nullable=True),
    "moments": Categorical(levels=("2020-01-01T00:00:00", "1.0", "b"), other="b", nullable=True),
    "date": Date(lower=date(1900, 1, 1), upper=date(2030, 1, 1), nullable=True),
    "datetime": Datetime(lower=datetime(1900, 1, 1), upper=datetime(2030, 1, 1), nullable=True),
}
UNITS = Schema(columns={"a": Identifier(), "n": Integer(lower=0, upper=999)}, unit=Unit(column="a", max_rows=2))


class Broken:
    """A cell that cannot even be written."""

    def __str__(self):
        raise RuntimeError("no")


MOMENT = datetime(2020, 1, 1, 3, 4, 5)
TEXTS = ["?", "True", "true", "1", "1.0", "-0.0", "0000-01-01", "2001-02-30", "0000-02-29", "2020-02-29", "1e400",
         "1e99999999999999999999", "9" * 400, "", " ", "NA", "x" * 5_000, "2020-01-01", "2020-01-01T03:04:05Z",
         "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "20200101", "5\" pipe", "a,b", "+1.50",
         "'=1"]  # fmt: skip
ODD = [
    None, math.nan, math.inf, -math.inf, *TEXTS, True, False, 1, 0, 1.0, -0.0, 0.5, 1e20, 1e-7, 10**30, -(2**63), 2**64,
    10**5000, b"x", b"\xff", bytearray(b"1"), [1], [10**5000], {"a": 1}, object(), Broken(), (1,), Decimal("1.5"),
    Decimal("NaN"), Decimal("sNaN"), Decimal("1E+999999"), Decimal("7.50"), date(2020, 1, 1), MOMENT, datetime.min,
    datetime.max, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), MOMENT.replace(tzinfo=UTC), time(1),
    timedelta(1), uuid.UUID(int=1), pd.NA, pd.NaT, pd.Timestamp(MOMENT, tz="Europe/Berlin"), pd.Period("2020"),
    np.float32(0.1), np.bool_(True), np.int8(3), np.datetime64("2020-01-01"), np.datetime64("NaT"),
    np.datetime64("20000-01-01"), np.longdouble(1.5), np.array([1, 2]), 1j, "\ud800",
]  # fmt: skip

# One of each sort, for every container and every kind of rows.
FEW = [None, math.nan, math.inf, "?", "True", "0000-01-01", "2001-02-30", "1e400", "", " ", TEXTS[16], True, 1, 1.0,
       -0.0, 10**30, 10**5000, b"x", [1], [10**5000], object(), Broken(), Decimal("1.5"), date(2020, 1, 1), MOMENT,
       pd.Timestamp(MOMENT, tz="Europe/Berlin"), np.float32(0.1), "2020-01-01", 7]  # fmt: skip

# Rows as they may be before the odd one comes, each of one type or of none.
COMMON = {
    "empty": [None],
    "flags": [True, False, None],
    "whole": [1, 0, 7, None],
    "floats": [1.0, 0.5, 7.25, 1e20, math.inf, -0.0],
    "single floats": [np.float32(0.1), np.float32(1)],
    "decimals": [Decimal("1.0"), Decimal("1E+3"), Decimal("7.50")],
    "dates": [date(2020, 1, 1), date(1950, 2, 28)],
    "moments": [datetime(2020, 1, 1), MOMENT, datetime(2020, 1, 1, 3, 4, 5, 600000)],
    "zones": [pd.Timestamp("2020-01-01 10:00", tz="Europe/Berlin")],
    "texts": ["1", "True", "x", "0000-01-01", "2020-01-01", "7.5", " 1.0 ", "2020-01-01 03:04:05"],
    "large": [2**60, 3, 2**53 + 1],
    "bytes": [b"1", b"x"],
    "mixed": [1, 1.0, "1", True, None, Decimal(1), [1]],
}


def csv_table(cells):
    texts = [text_of(cell) for cell in cells]
    out = io.StringIO()
    for text in texts:
        out.write("" if text is None else '"' + text.replace('"', '""') + '"')
        out.write(",0\n")
    return parse_delimited(("a,b\n" + out.getvalue()).encode(), "t.csv").select(["a"])


def arrow(kind):
    return lambda cells: pa.table({"a": pa.array(cells, kind)})


def pandas(dtype):
    return lambda cells: pd.DataFrame({"a": pd.Series(cells, dtype=dtype)})


def polars(dtype):
    def make(cells):
        frame = pl.DataFrame({"a": pl.Series(cells, dtype=dtype, strict=True)})
        if frame.schema["a"] != dtype:
            raise TypeError("polars took another type")
        return frame

    return make


def chunks(cells):
    return pa.table({"a": pa.chunked_array([pa.array([cell], pa.string()) for cell in cells])})


CONTAINERS = {
    "pandas object": pandas(object),
    "pandas category": pandas("category"),
    "pandas inferred": pandas(None),
    **{f"pandas {dtype}": pandas(dtype) for dtype in (
        "bool", "int64", "uint64", "float32", "float64", "longdouble", "datetime64[s]", "datetime64[ns]",
        "datetime64[us, UTC]", "Int64", "Float64", "boolean", "str", "string[python]",
        "int64[pyarrow]", "double[pyarrow]", "Sparse[float]",
    )},
    **{f"polars {dtype}": polars(dtype) for dtype in (
        pl.Object, pl.String, pl.Int64, pl.Int128, pl.UInt8, pl.Float32, pl.Float64, pl.Boolean, pl.Date,
        pl.Datetime("us"), pl.Datetime("ns", "Asia/Tokyo"), pl.Categorical, pl.Decimal(20, 3), pl.Null,
    )},
    **{f"arrow {kind}": arrow(kind) for kind in (
        pa.string(), pa.large_string(), pa.string_view(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(),
        pa.bool_(), pa.decimal128(38, 3), pa.decimal256(60, 10), pa.date32(), pa.date64(), pa.timestamp("s"),
        pa.timestamp("ns"), pa.timestamp("us", "Asia/Tokyo"), pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.int64()), pa.null(), pa.binary(), pa.time64("us"), pa.duration("us"),
    )},
    "arrow chunks": chunks,
    "duckdb": lambda cells: duckdb.from_arrow(pa.table({"a": pa.array(cells, pa.string())})),
    "csv": csv_table,
}  # fmt: skip


# Every odd cell comes to every container, but not with all rows: least often to those that hold anything.
STEPS = {"pandas object": 2, "pandas category": 4, "pandas inferred": 4, "pandas str": 5, "pandas string[python]": 5,
         "pandas bool": 5, "polars Object": 4, "polars Null": 5, "polars Boolean": 5, "csv": 4}  # fmt: skip


def build(container, cells):
    """The table of some cells, None where the container itself cannot hold them."""
    if container.startswith("polars") and container != "polars Object" and any(map(is_huge, cells)):
        return None  # the message of polars itself fails
    try:
        return CONTAINERS[container](cells)
    except Exception:
        return None


def is_huge(cell):
    return cell in (10**5000, [10**5000]) if isinstance(cell, int | list) else False


def encodings(table):
    """All that is made of a column, by every kind; a kind is left out where the type cannot hold it."""
    arrow_table, _ = to_arrow(table)
    made = {}
    for name, column in KINDS.items():
        schema = Schema(columns={"a": column})
        if check_columns(arrow_table, schema):
            continue
        cells = encode_features(arrow_table, schema)
        made[name] = (cells.low, cells.width, cells.log_unit)
    return made


def alike(long, short, where):
    """Bit for bit: the rows of the short table lie at these places of the long one."""
    assert long.keys() == short.keys()
    for name, parts in short.items():
        for mine, other in zip(long[name], parts, strict=True):
            assert mine[where].tobytes() == other.tobytes(), name


def units(table):
    arrow_table, _ = to_arrow(table)
    num = arrow_table.num_rows
    return private_rows(arrow_table.append_column("n", pa.array(np.arange(num) % 1000)), UNITS)["low"][:, 0]


@pytest.mark.filterwarnings("ignore")  # of pandas and NumPy, as they make the odd frames
@pytest.mark.parametrize("container", CONTAINERS)
def test_one_odd_row_changes_no_other_and_is_no_error(container):
    """All odd cells that a container can hold: a table with one of them more, at the end and in the middle."""
    held = 0
    for turn, cells in enumerate(COMMON.values()):
        base = build(container, cells)
        if base is None:
            continue
        before, grouped, size = encodings(base), units(build(container, cells * 4)), 4 * len(cells)
        for place, odd in enumerate(FEW):
            if (turn + place) % STEPS.get(container, 2):
                continue
            at = (len(cells), len(cells) // 2)[place % 2]
            table = build(container, [*cells[:at], odd, *cells[at:]])
            if table is None or not keeps(table, base, at):
                continue
            held += 1
            alike(encodings(table), before, [row for row in range(len(cells) + 1) if row != at])
            # A unit of its own adds no more than itself; one that is there already is left as it was.
            after = units(build(container, [*cells * 4, odd]))
            np.testing.assert_array_equal(after[after != np.float32(size / 1000)], grouped)
    assert held > 0


def keeps(table, base, at):
    """Whether pandas left the other cells what they were: it makes one category of True and 1, floats of ints."""
    if not isinstance(table, pd.DataFrame):
        return True
    if table["a"].dtype.kind != base["a"].dtype.kind:
        return False
    if base["a"].dtype.kind == "M":
        return True
    cells = list(table["a"].array)
    return list(map(described, cells[:at] + cells[at + 1 :])) == list(map(described, base["a"].array))


def described(cell):
    return type(cell), repr(cell)


@pytest.mark.filterwarnings("ignore")
def test_odd_cells_leave_each_other_alone():
    """In one column of objects, each cell is read as it is in a column of its own."""
    everything = encodings(CONTAINERS["pandas object"](ODD))
    assert everything.keys() == KINDS.keys()
    for place, odd in enumerate(ODD):
        alike(everything, encodings(CONTAINERS["pandas object"]([odd])), [place])


SAME = [
    [True, np.bool_(True), "true", "True", " TRUE "],
    [1, 1.0, "1", "1.0", "+1", np.int8(1), np.float32(1), Decimal("1.00")],
    [0, 0.0, -0.0, "0", "-0.0", Decimal("-0")],
    [0.5, "0.5", "0.50", Decimal("0.500"), np.float32(0.5)],
    [7.5, "7.50", Decimal("7.5")],
    [1e-7, "1e-07", "0.0000001", Decimal("1E-7")],
    [date(2020, 1, 1), datetime(2020, 1, 1), "2020-01-01", "2020-01-01 00:00:00", "2020-01-01T00:00:00.000",
     np.datetime64("2020-01-01"), pd.Timestamp("2020-01-01"), datetime(2020, 1, 1, tzinfo=UTC)],
    [MOMENT, "2020-01-01 03:04:05", "2020-01-01T03:04:05Z", "2020-01-01T05:04:05+02:00", pd.Timestamp(MOMENT)],
    [None, math.nan, pd.NA, pd.NaT, Decimal("NaN"), np.datetime64("NaT")],
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spellings", SAME, ids=lambda cells: repr(cells[0]))
def test_text_and_typed_cells_are_read_alike(spellings):
    """Whatever the form of a value and the container, each kind reads it alike where its type may hold it."""
    expected = encodings(CONTAINERS["pandas object"](spellings[:1]))
    for container in ("pandas object", "pandas category", "pandas inferred", "polars Object", "csv"):
        for cell in spellings:
            made = encodings(CONTAINERS[container]([cell]))
            alike(made, {name: expected[name] for name in made}, [0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("container", [name for name in CONTAINERS if not name.endswith(("[us]", "binary"))])
def test_a_typed_column_is_read_as_its_cells_are(container):
    for cells in COMMON.values():
        table = build(container, cells)
        if table is None:
            continue
        try:
            values = to_arrow(table)[0].column("a").to_pylist()
        except OverflowError:
            continue  # a moment past those of Python
        made, expected = encodings(table), encodings(CONTAINERS["pandas object"](values))
        alike(made, {name: expected[name] for name in made}, list(range(len(cells))))


@pytest.mark.parametrize(
    "ids",
    [[1, 1.0], [0.0, -0.0], [2**60, float(2**60)], [None, math.nan], [True, np.bool_(True)], [1, Decimal("1.0")],
     [MOMENT, pd.Timestamp(MOMENT)], [b"x", "x"]],
)  # fmt: skip
@pytest.mark.parametrize("odd", ["x", None, [1], b"q", object(), 5, 2.5])
def test_a_unit_is_one_whatever_else_is_in_its_column(ids, odd):
    for cells in (ids * 4, [*ids * 4, odd]):
        codes = unit_codes(to_arrow(pd.DataFrame({"a": pd.Series(cells, dtype=object)}))[0].column("a"))
        assert len(set(codes[:8].tolist())) == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=5))
def test_floats_have_one_text_and_it_is_theirs(numbers):
    texts = [text_of(number) for number in numbers]
    assert texts_of(pa.chunked_array([pa.array(numbers)])).to_pylist() == texts
    for number, text in zip(numbers, texts, strict=True):
        assert math.isnan(number) if text is None else float(text) == number


@settings(max_examples=200, deadline=None)
@given(st.lists(st.datetimes(), min_size=1, max_size=5))
def test_moments_have_one_text_and_it_is_theirs(moments):
    texts = [text_of(moment) for moment in moments]
    assert texts_of(pa.chunked_array([pa.array(moments, pa.timestamp("us"))])).to_pylist() == texts
    assert [datetime.fromisoformat(text) for text in texts] == moments


def test_every_day_in_text_is_the_day_of_its_type():
    """Four hundred years of days, year 0 and days that there are not, in one column and in one each."""
    days = np.arange("0001-01-01", "0401-01-01", dtype="datetime64[D]")
    texts = [str(day) for day in days]
    schema = Schema(columns={"a": Date(lower=date(1, 1, 1), upper=date(9999, 12, 31), nullable=True)})
    odd = ["2001-02-29", "2001-02-30", "2001-04-31", "1900-02-29", "2001-00-01", "2001-01-00", "2001-13-01"]
    read = canonicalise(pa.table({"a": [*texts, *odd, "0000-01-01", "0000-02-29"]}), schema).column("a").to_pylist()
    assert read == [*days.tolist(), *[None] * len(odd), date(1, 1, 1), date(1, 1, 1)]
    assert all(later - earlier == timedelta(1) for earlier, later in pairwise(read[: len(days)]))


def test_text_that_is_no_unicode_costs_its_own_cell_only():
    offsets, data = pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"1\xff")
    for kind in (pa.string(), pa.dictionary(pa.int32(), pa.string())):
        array = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
        if pa.types.is_dictionary(kind):
            array = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), array)
        made, alone = encodings(pa.table({"a": array})), encodings(pa.table({"a": ["1"]}))
        alike(made, alone, [0])
