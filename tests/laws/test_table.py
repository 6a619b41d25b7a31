"""Laws of the table edge: what comes in is what was there, what goes out comes back, and no message tells."""

import gzip
import io
import subprocess
import sys
import zlib
from datetime import date, datetime

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from laws.strategies import schemas_with, valid_tables
from sfumato.encoding import canonicalise
from sfumato.errors import ArgumentError, SfumatoError, TableError
from sfumato.schema import (
    Boolean,
    Categorical,
    Continuous,
    Date,
    Identifier,
    Integer,
    Schema,
)
from sfumato.table import (
    check_columns,
    from_arrow,
    read_file,
    to_arrow,
    write_csv_stream,
    write_file,
)

CANARY = "Mrs-Canary-1847"
PLAIN = b"a,b\n1,x\n2,\n"
EXPECTED = {"a": ["1", "2"], "b": ["x", None]}
LAWS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.csv", PLAIN),
        ("t.CSV", PLAIN),
        ("t.csv", PLAIN.replace(b",", b";")),
        ("t.tsv", PLAIN.replace(b",", b"\t")),
        ("t.txt", PLAIN.replace(b",", b"|")),
        ("t.csv", PLAIN.replace(b"\n", b"\r\n")),
        ("t.csv", PLAIN.replace(b"\n", b"\r")),
        ("t.csv", b"a,b\r\n1,x\n2,\r\n"),
        ("t.csv", PLAIN.rstrip(b"\n")),
        ("t.csv", b"\n\n" + PLAIN),
        ("t.csv", b"\xef\xbb\xbf" + PLAIN),
        ("t.csv", PLAIN.decode().encode("utf-16")),
        ("t.csv", b"\xfe\xff" + PLAIN.decode().encode("utf-16-be")),
        ("t.csv", b'"a","b"\n"1","x"\n"2",\n'),
        ("t.csv.gz", gzip.compress(PLAIN, mtime=0)),
        ("t.tsv.gz", gzip.compress(PLAIN.replace(b",", b"\t"), mtime=0)),
        ("t.csv.gz", gzip.compress(PLAIN[:5], mtime=0) + gzip.compress(PLAIN[5:], mtime=0) + b"\x00" * 9),
    ],
)
def test_dialects_of_csv(tmp_path, name, data):
    table = read_file(written(tmp_path / name, data))
    assert table.to_pydict() == EXPECTED
    assert set(table.schema.types) == {pa.string()}


def test_quotes_hold_delimiters_newlines_and_quotes(tmp_path):
    table = read_file(written(tmp_path / "t.csv", b'a,"b,1"\n"x,y","line\nbreak"\n"say ""hi""",5" pipe\n'))
    assert table.to_pydict() == {"a": ["x,y", 'say "hi"'], "b,1": ["line\nbreak", '5" pipe']}


def test_small_tables(tmp_path):
    assert read_file(written(tmp_path / "h.csv", b"a,b\n")).num_rows == 0
    assert read_file(written(tmp_path / "g.csv", b"a,b")).column_names == ["a", "b"]
    assert read_file(written(tmp_path / "one.csv", b"a\n1\n\n3\n")).to_pydict() == {"a": ["1", None, "3"]}
    wide = ",".join(f"c{i}" for i in range(10_000))
    assert read_file(written(tmp_path / "w.csv", f"{wide}\n".encode())).num_columns == 10_000


def truncated(kind):
    stream = io.BytesIO()
    table = pa.table({"a": [CANARY] * 1000, "b": list(range(1000))})
    if kind == "parquet":
        pq.write_table(table, stream)
    else:
        with pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table)
    return stream.getvalue()[: len(stream.getvalue()) // 2]


C = CANARY.encode()
BROKEN = {
    "empty.csv": (b"", "empty"),
    "blank.csv": (b" \n\n ", "empty|no name"),
    "bom.csv": (b"\xef\xbb\xbf", "empty"),
    "twice.csv": (b"a,b,a\n1,2," + C, "columns 1 and 3 have the same name"),
    "unnamed.csv": (b"a,,c\n1,2," + C, "column 2 has no name"),
    "wide.csv": (",".join(f"c{i}" for i in range(10_001)).encode() + b"\n", "10,000 columns"),
    "short.csv": (b"a,b\n1,2\n" + C + b"\n", "more or fewer cells"),
    "long.csv": (b"a,b\n1,2\n" + C + b",3,4\n", "more or fewer cells"),
    "open.csv": (b'a,b\n1,"' + C + b"\n3,4\n5,6\n", "quote"),
    "middle.csv": (b'a,b\n1,"' + C + b'\n3,"4"\n5,6\n', "quote|cells"),
    "two.csv": (b'a,b\n1,"' + C + b'\n3,"4\n5,6\n', "quote"),
    "first.csv": (b'a,b\n"' + C + b",2\n3,4\n5,6\n", "quote|cells"),
    "header.csv": (b'"a,b\n' + C + b",2\n", "header"),
    "nul.csv": (b"a,b\n1," + C + b"\x00\n", "NUL"),
    "latin.csv": (b"a,b\n1," + C + b"\xe9\n", "UTF-8"),
    "utf16.csv": (b"\xff\xfe" + b"a\x00,\x00b\x00\n\x00\x00\xd8", "UTF-16"),
    "cell.csv": (b"a,b\n1," + C * 10_000 + b"\n", "64 KiB|too long"),
    "huge.csv": (b"a,b\n1," + b"x" * 40_000_000 + b"\n", "too long"),
    "zip.csv": (b"PK\x03\x04" + C, "archive"),
    "gz.csv": (gzip.compress(PLAIN, mtime=0), "archive"),
    "cut.csv.gz": (gzip.compress(PLAIN * 100, mtime=0)[:-12], "truncated"),
    "crc.csv.gz": (gzip.compress(PLAIN * 100, mtime=0)[:-8] + b"12345678", "damaged"),
    "not.csv.gz": (C, "damaged"),
    "none.csv.gz": (b"", "empty"),
    "bomb.csv.gz": (zlib.compress(b"a,b\n" + b"0" * 50_000_000, wbits=31), "times its size"),
    "nested.csv.gz": (gzip.compress(gzip.compress(PLAIN), mtime=0), "archive"),
    "cut.parquet": (truncated("parquet"), "damaged"),
    "not.parquet": (C * 50, "damaged"),
    "none.parquet": (b"", "empty"),
    "cut.arrow": (truncated("arrow"), "damaged"),
    "not.arrow": (C * 50, "damaged"),
    "what.xlsx": (C, "suffix"),
    "what.gz": (C, "suffix"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_in_one_line_without_a_cell(tmp_path, name):
    data, word = BROKEN[name]
    with pytest.raises(TableError, match=word) as caught:
        read_file(written(tmp_path / name, data))
    message = str(caught.value)
    assert "\n" not in message and len(message) < 300
    assert CANARY not in message
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert name in message


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(TableError, match="no such file"):
        read_file(tmp_path / "gone.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match="directory"):
        read_file(tmp_path / "folder.csv")


@LAWS
@given(schemas_with(lambda schema: valid_tables(schema, max_rows=6)))
def test_what_is_written_reads_back(tmp_path, pair):
    schema, table = pair
    table = table.select([name for name, _ in schema.modelled])
    for suffix in (".parquet", ".arrow", ".feather"):
        write_file(table, tmp_path / f"t{suffix}")
        back = read_file(tmp_path / f"t{suffix}")
        assert canonicalise(back, schema).equals(table)
        assert suffix == ".parquet" or back.equals(table)  # Parquet keeps no timestamps of seconds
    if any(not name.strip() or "\r" in name for name in table.column_names):
        return  # such names are refused in the header of a CSV file
    for suffix in (".csv", ".csv.gz"):
        write_file(table, tmp_path / f"t{suffix}", escape_formulas=False)
        # In CSV a missing text and an empty one differ by their quotes only.
        assert canonicalise(read_file(tmp_path / f"t{suffix}"), schema).equals(table)


def test_formulas_are_escaped_in_text_and_not_in_numbers(tmp_path):
    cells = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "fine", "a=b", None]
    table = pa.table({"text": cells, "number": [-1.5] * 9, "kind": pa.array(cells).dictionary_encode()})
    write_file(table, tmp_path / "t.csv")
    back = read_file(tmp_path / "t.csv")
    safe = ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "fine", "a=b", None]
    assert back.column("text").to_pylist() == back.column("kind").to_pylist() == safe
    assert back.column("number").to_pylist() == ["-1.5"] * 9
    levels = tuple(cell for cell in cells if cell)
    schema = Schema(columns={"text": Categorical(levels=levels, nullable=True)})
    assert canonicalise(back, schema).column("text").to_pylist() == cells
    write_file(table, tmp_path / "raw.csv", escape_formulas=False)
    assert read_file(tmp_path / "raw.csv").column("text").to_pylist() == cells
    stream = io.BytesIO()
    write_csv_stream(table, stream)
    assert stream.getvalue() == (tmp_path / "t.csv").read_bytes()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = written(tmp_path / "t.csv", b"old")
    with pytest.raises(TableError, match="types") as caught:
        write_file(pa.table({"a": [[CANARY]]}), path)
    assert CANARY not in str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(TableError, match="suffix"):
        write_file(pa.table({"a": [1]}), tmp_path / "t.xlsx")
    with pytest.raises(TableError, match="no such file"):
        write_file(pa.table({"a": [1]}), tmp_path / "gone" / "t.csv")


TABLE = pa.table({
    "i": [1, None, 3], "f": [0.5, None, 1.5], "s": ["x", None, "z"], "b": [True, None, False],
    "d": pa.array([date(2020, 1, 1), None, date(1900, 1, 1)]),
    "t": pa.array([datetime(2020, 1, 1), None, datetime(1900, 1, 1)], pa.timestamp("s")),
})  # fmt: skip
SCHEMA = Schema(
    columns={
        "i": Integer(lower=0, upper=9, nullable=True),
        "f": Continuous(lower=0, upper=2, nullable=True),
        "s": Categorical(levels=("x", "z"), nullable=True),
        "b": Boolean(nullable=True),
        "d": Date(lower=date(1900, 1, 1), upper=date(2020, 1, 1), nullable=True),
    }
)


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("pandas", pd.DataFrame),
        ("polars", pl.DataFrame),
        ("arrow", pa.Table),
        ("duckdb", duckdb.DuckDBPyRelation),
    ],
)
def test_frames_come_back_as_they_came(kind, type_):
    frame = from_arrow(TABLE, kind)
    assert isinstance(frame, type_)
    table, found = to_arrow(frame)
    assert found == kind
    assert table.column_names == TABLE.column_names
    want = canonicalise(TABLE, SCHEMA)
    assert canonicalise(table, SCHEMA).equals(want)
    assert not check_columns(table.select(list(SCHEMA.columns)), SCHEMA)


def test_integers_and_booleans_with_gaps_stay_what_they_are_in_pandas():
    frame = from_arrow(TABLE, "pandas")
    assert str(frame["i"].dtype) == "Int64" and str(frame["b"].dtype) == "boolean"
    full = from_arrow(pa.table({"i": [1, 2]}), "pandas")
    assert full["i"].dtype == np.int64


def test_other_sources(tmp_path):
    lazy, kind = to_arrow(pl.LazyFrame({"a": [1]}))
    assert kind == "polars" and lazy.num_rows == 1
    batch = pa.record_batch({"a": [1]})
    assert to_arrow(batch)[0].num_rows == 1
    assert to_arrow(pa.RecordBatchReader.from_batches(batch.schema, [batch]))[0].num_rows == 1

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table({"a": [1, 2]}).__arrow_c_stream__(requested_schema)

    assert to_arrow(Stream())[0].num_rows == 2
    assert to_arrow(str(written(tmp_path / "t.csv", PLAIN)))[0].to_pydict() == EXPECTED
    with pytest.raises(ArgumentError, match="of type dict") as caught:
        to_arrow({"a": [CANARY]})
    assert CANARY not in str(caught.value)
    with pytest.raises(TableError, match="no columns"):
        to_arrow(pd.DataFrame())
    with pytest.raises(ArgumentError, match="kind"):
        from_arrow(TABLE, "excel")


def test_odd_cells_of_pandas_cost_no_more_than_a_type():
    frame = pd.DataFrame(
        {"a": [1, "x", None, 2**70, b"3", float("nan"), 10**5000, "\ud800"], 5: range(8)}, index=range(3, 11)
    )
    table, _ = to_arrow(frame)
    assert table.column_names == ["a", "5"]
    schema = Schema(columns={"a": Integer(lower=0, upper=9, nullable=True), "5": Integer(lower=0, upper=9)})
    assert canonicalise(table, schema).column("a").to_pylist() == [1, None, None, 9, 3, None, 9, None]


def test_the_index_of_pandas_is_left_out(tmp_path):
    frame = pd.DataFrame({"a": [1, 2]}, index=[5, 6])
    frame.to_parquet(tmp_path / "t.parquet")
    assert read_file(tmp_path / "t.parquet").column_names == ["a"]
    assert to_arrow(frame)[0].column_names == ["a"]


def test_faults_of_form_are_all_listed():
    schema = Schema(columns={"a": Boolean(), "b": Integer(lower=0, upper=1), "c": Date(lower=date(2000, 1, 1),
                    upper=date(2001, 1, 1)), "id": Identifier(), "gone": Boolean()})  # fmt: skip
    struct = pa.array([{CANARY: 1}])
    one = pa.array([1])
    columns = [pa.array([True]), pa.array([[1]]), one, one, one, struct, one]
    table = pa.table(columns, names=["a", "b", "c", "id", "more", "id2", "a"])
    found = check_columns(table, schema)
    assert [fault.partition(":")[0] for fault in found] == [
        "column 'gone'", "column 'more'", "column 'id2'", "column 'a'", "column 'b'", "column 'c'",
    ]  # fmt: skip
    assert "identifier" in found[1] and "more than once" in found[3] and "list" in found[4]
    nested = check_columns(pa.table({"a": struct}), Schema(columns={"a": Boolean()}))
    assert "struct" in nested[0] and CANARY not in nested[0]
    assert check_columns(pa.table({"a": pa.nulls(2)}), Schema(columns={"a": Boolean()})) == []


def test_a_file_without_header_does_not_tell_its_first_row(tmp_path):
    table = read_file(written(tmp_path / "t.csv", f"{CANARY},34\nother,35\n".encode()))
    found = check_columns(table, Schema(columns={"name": Boolean(), "age": Boolean()}))
    assert len(found) == 1 and CANARY not in found[0] and "header" in found[0]


def test_no_frame_library_is_needed_for_files(tmp_path):
    code = f"""
import sys
class Absent:
    def find_spec(name, path=None, target=None):
        if name in ("pandas", "polars", "duckdb"):
            raise ImportError(name)
sys.meta_path.insert(0, Absent)
from sfumato.encoding import canonicalise
from sfumato.schema import Schema, draft
from sfumato.table import from_arrow, to_arrow, write_file
table, kind = to_arrow({str(written(tmp_path / "t.csv", PLAIN))!r})
schema = draft(table).schema
write_file(from_arrow(canonicalise(table, schema), kind), {str(tmp_path / "o.parquet")!r})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
    assert (tmp_path / "o.parquet").exists()


def test_errors_are_of_the_family():
    assert issubclass(TableError, SfumatoError)
