"""Laws of the schema: files round trip, and every fault is listed at once."""

import tomllib
from datetime import date, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings

from laws.strategies import schemas, schemas_with, valid_tables
from sfumato.errors import SchemaError, TableError
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
    draft,
)

LAWS = settings(max_examples=60, deadline=None)


def faults_of(text):
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml(text)
    return caught.value.faults


@LAWS
@given(schemas())
def test_toml_and_json_round_trip(schema):
    for again in (
        Schema.from_toml(schema.to_toml()),
        Schema.from_json(schema.to_json()),
        Schema.from_dict(schema.to_dict()),
    ):
        assert again == schema
        assert list(again.columns) == list(schema.columns)
        assert hash(again) == hash(schema)
    assert Schema.from_json(schema.to_json()).to_toml() == schema.to_toml()


def test_order_of_columns_is_part_of_a_schema():
    one = Schema(columns={"a": Boolean(), "b": Boolean()})
    two = Schema(columns={"b": Boolean(), "a": Boolean()})
    assert one != two
    assert [name for name, _ in one.modelled] == ["a", "b"]


def test_save_and_load(tmp_path):
    schema = Schema(columns={"a": Boolean(), "id": Identifier()}, unit=Unit(column="id", max_rows=2))
    for name in ("s.toml", "s.json"):
        schema.save(tmp_path / name)
        assert Schema.load(tmp_path / name) == schema
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf" + schema.to_toml().encode())
    assert Schema.load(str(tmp_path / "bom.toml")) == schema
    for name, data, word in [
        ("no.yaml", b"", ".toml or .json"),
        ("gone.toml", None, "no such file"),
        ("latin.toml", b"\xff", "UTF-8"),
        ("list.json", b"[]", "object"),
        ("twice.json", b'{"columns": {}, "columns": {}}', "twice"),
        ("deep.json", b"[" * 100_000, "nested|JSON"),
        ("bad.toml", b"rows = \n", "line 1"),
    ]:
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(SchemaError, match=word):
            Schema.load(tmp_path / name)


def test_a_person_can_write_a_schema():
    schema = Schema.from_toml("""
        rows = 50_000            # public order of magnitude
        [unit]
        column = "patient"
        max_rows = 5
        [columns.patient]
        kind = "identifier"
        [columns.age]
        kind = "integer"
        lower = 0
        upper = 120
        nullable = true
        [columns."native-country"]
        kind = "categorical"
        levels = ["US", "other"]
        other = "other"
        [columns.height]
        kind = "continuous"
        lower = 0
        upper = 2.5
        decimals = 2
        [columns.born]
        kind = "date"
        lower = 1900-01-01
        upper = "2020-12-31"
        [columns.seen]
        kind = "datetime"
        lower = 2000-01-01T00:00:00
        upper = 2020-01-01 00:00:00
        resolution = "hour"
    """)
    assert schema.rows == 50_000
    assert schema.unit == Unit(column="patient", max_rows=5)
    assert schema.columns["age"] == Integer(lower=0, upper=120, nullable=True)
    assert schema.columns["height"] == Continuous(lower=0.0, upper=2.5, decimals=2)
    assert schema.columns["born"] == Date(lower=date(1900, 1, 1), upper=date(2020, 12, 31))
    seen = Datetime(lower=datetime(2000, 1, 1), upper=datetime(2020, 1, 1), resolution="hour")
    assert schema.columns["seen"] == seen
    assert [name for name, _ in schema.modelled] == ["age", "native-country", "height", "born", "seen"]


def test_long_lists_are_wrapped_and_read_back():
    schema = Schema(columns={"x": Categorical(levels=tuple(f"level {i}" for i in range(200)))})
    text = schema.to_toml()
    assert max(map(len, text.splitlines())) <= 100
    assert Schema.from_toml(text) == schema


FAULTY = """
rows = -5
colums = 3
[unit]
column = "who"
max_rows = 0
[columns.a]
kind = "integr"
[columns.b]
kind = "integer"
lower = 3
uper = 5
upper = 1.5
[columns.c]
kind = "categorical"
levels = ["x", "x"]
other = 3.5
ordered = "no"
[columns.d]
kind = "continuous"
lower = nan
upper = 1
decimals = 16
[columns.e]
kind = "categorical"
learn = true
levels = ["a"]
[columns.f]
kind = "date"
lower = 2020-01-01T00:00:00
[columns.g]
lower = 3
"""


def test_every_fault_is_listed_at_once():
    expected = [
        "rows must be a positive integer",
        "unknown key 'colums'; did you mean 'columns'?",
        "column 'a': unknown kind 'integr'; did you mean 'integer'?",
        "column 'b': unknown key 'uper'; did you mean 'upper'?",
        "column 'b': upper must be an integer",
        "column 'c': levels must differ: 'x' is there twice",
        "column 'c': ordered must be true or false",
        "column 'c': other must be one of the levels",
        "column 'd': lower must be finite",
        "column 'd': decimals must be an integer from 0 to 15",
        "column 'e': levels must not be given with learn = true",
        "column 'f': lower must be a date such as",
        "column 'f': upper is missing",
        "column 'g': kind is missing",
        "unit: column 'who' is not declared",
        "unit: max_rows must be an integer of at least 1",
    ]
    found = faults_of(FAULTY)
    assert len(found) == len(expected), found
    for fault, start in zip(found, expected, strict=True):
        assert fault.startswith(start)


A = {"ok": Boolean()}
LAST = datetime(2021, 1, 1)
SINGLE = [
    ({"columns": A | {"x": Categorical(levels=())}}, "empty"),
    ({"columns": A | {"x": Categorical(levels=("a", 1))}}, "all texts"),
    ({"columns": A | {"x": Categorical(levels=(True, False))}}, "all texts"),
    ({"columns": A | {"x": Categorical(levels="abc")}}, "must be a list"),
    ({"columns": A | {"x": Categorical(levels=(2**53 + 1,))}}, "2\\^53"),
    ({"columns": A | {"x": Categorical(levels=range(10_001))}}, "at most 10,000"),
    ({"columns": A | {"x": Categorical(levels=("a",), other="b")}}, "other must be one of"),
    ({"columns": A | {"x": Integer(lower=2, upper=1)}}, "lower must not be above upper"),
    ({"columns": A | {"x": Integer(lower=True, upper=3)}}, "lower must be an integer"),
    ({"columns": A | {"x": Integer(lower=0, upper=2**53 + 1)}}, "2\\^53"),
    ({"columns": A | {"x": Integer(lower=0, upper=2**41)}}, "below 2\\^40"),
    ({"columns": A | {"x": Continuous(lower=1, upper=1)}}, "lower must be below upper"),
    ({"columns": A | {"x": Continuous(lower=0, upper=float("inf"))}}, "finite"),
    ({"columns": A | {"x": Continuous(lower=-1e308, upper=1e308)}}, "finite"),
    ({"columns": A | {"x": Continuous(lower=0, upper=10**400)}}, "finite"),
    ({"columns": A | {"x": Continuous(lower=0.123, upper=1, decimals=2)}}, "at most as many decimals"),
    ({"columns": A | {"x": Continuous(lower=0, upper=1e6, decimals=9)}}, "too many"),
    ({"columns": A | {"x": Continuous(lower=0, upper=1, decimals=True)}}, "decimals"),
    ({"columns": A | {"x": Date(lower=datetime(2020, 1, 1), upper=date(2021, 1, 1))}}, "must be a date"),
    ({"columns": A | {"x": Datetime(lower=date(2020, 1, 1), upper=datetime(2021, 1, 1))}}, "date and time"),
    ({"columns": A | {"x": Datetime(lower=datetime(2020, 1, 1, 1), upper=LAST, resolution="day")}},
     "whole day"),
    ({"columns": A | {"x": Datetime(lower=datetime(2020, 1, 1), upper=LAST, resolution="year")}},
     "resolution must be one of"),
    ({"columns": A | {"x": Identifier(regenerate="keep")}}, "regenerate must be one of"),
    ({"columns": A | {"x": "integer"}}, "expected a column"),
    ({"columns": A | {"": Boolean()}}, "not empty"),
    ({"columns": A | {"x": Boolean(nullable=1)}}, "nullable must be"),
    ({"columns": {}}, "at least one"),
    ({"columns": {"x": Integer(lower=1, upper=1), "id": Identifier()}}, "at least one"),
    ({"columns": {f"c{i}": Boolean() for i in range(10_001)}}, "at most 10,000"),
    ({"columns": A, "rows": True}, "rows"),
    ({"columns": A, "rows": 0}, "rows"),
    ({"columns": A, "rows": 1.5}, "rows"),
    ({"columns": A, "unit": Unit(column="ok", max_rows=2)}, "kind = 'identifier'"),
    ({"columns": A | {"id": Identifier()}, "unit": Unit(column="id", max_rows=0)}, "at least 1"),
    ({"columns": [1]}, "mapping"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "word"), SINGLE)
def test_each_fault_is_found_alone(fields, word):
    with pytest.raises(SchemaError, match=word) as caught:
        Schema(**fields)
    assert len(caught.value.faults) == 1


@LAWS
@given(schemas_with(lambda schema: valid_tables(schema, max_rows=30)))
def test_a_draft_holds_the_table_it_was_drawn_from(pair):
    _, table = pair
    try:
        made = draft(table)
    except TableError:
        return  # nothing that varies
    again = Schema.from_toml(made.to_toml())
    assert again == made.schema
    for name, column in made.schema.modelled:
        present = table.column(name).drop_null().to_pylist()
        if isinstance(column, Integer | Continuous):
            assert all(column.lower <= float(cell) <= column.upper for cell in present)
        if isinstance(column, Categorical):
            assert {str(cell).strip() for cell in present} >= set(column.levels)


def test_draft_guesses_from_text_and_says_so():
    size = 40
    table = pa.table({
        "age": [str(17 + i) for i in range(size)],
        "income": [None if i == 3 else f"{i * 100.25:.2f}" for i in range(size)],
        "zip": ["00123", "10234"] * (size // 2),
        "born": ["1970-05-05", "1999-01-02"] * (size // 2),
        "seen": ["2020-05-05 10:00:00", "2021-01-02T11:00:00"] * (size // 2),
        "smokes": ["yes", "No"] * (size // 2),
        "city": ["Rome", "NA", "Oslo", ""] * (size // 4),
        "name": [f"person {i}" for i in range(size)],
        "row_id": [str(i) for i in range(size)],
        "gone": pa.nulls(size, pa.string()),
        "mostly": ["x"] + [str(i % 7) for i in range(1, size)],
    })  # fmt: skip
    made = draft(table)
    columns = made.schema.columns
    assert columns["age"] == Integer(lower=10, upper=60)
    income = columns["income"]
    assert isinstance(income, Continuous) and income.decimals == 2 and income.nullable
    assert columns["zip"] == Categorical(levels=("00123", "10234"))
    assert columns["born"] == Date(lower=date(1970, 1, 1), upper=date(1999, 12, 31))
    seen = Datetime(lower=datetime(2020, 1, 1), upper=datetime(2022, 1, 1), resolution="hour")
    assert columns["seen"] == seen
    assert columns["smokes"] == Boolean()
    assert columns["city"] == Categorical(levels=("Oslo", "Rome"), nullable=True)
    for name in ("name", "row_id", "gone"):
        assert columns[name] == Identifier()
    assert columns["mostly"] == Integer(lower=0, upper=6, nullable=True)
    assert made.schema.rows == size
    text = made.to_toml()
    assert text.startswith("# DRAFT") and "no privacy guarantee" in text
    for name in table.column_names:
        assert any(f"column {name!r}:" in guess for guess in made.guesses) or name == "smokes"
    assert list(tomllib.loads(text)["columns"]) == table.column_names


def test_draft_of_typed_columns():
    table = pa.table({
        "flag": [True, None, False],
        "bit": [0, 1, 1],
        "year": [1987, 2001, 2014],
        "gap": [1.0, None, 3.0],
        "noise": pa.array([0.1, 0.7, 0.3], pa.float32()),
        "wild": [float("inf"), float("nan"), 2.5],
        "big": pa.array([2**60, 1, 2]),
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        "list": [[1], [2], [3]],
        "day": [date(2020, 5, 5)] * 3,
    })  # fmt: skip
    columns = draft(table).schema.columns
    assert columns["flag"] == Boolean(nullable=True)
    assert columns["bit"] == Integer(lower=0, upper=1)
    assert columns["year"] == Integer(lower=1980, upper=2020)
    assert columns["gap"] == Integer(lower=1, upper=3, nullable=True)
    assert isinstance(columns["noise"], Continuous) and columns["noise"].decimals is None
    assert isinstance(columns["wild"], Continuous) and columns["wild"].nullable
    assert columns["big"] == columns["list"] == Identifier()
    assert columns["kind"] == Categorical(levels=("a", "b"))
    assert columns["day"] == Date(lower=date(2020, 1, 1), upper=date(2020, 12, 31))


def test_nothing_to_draft_is_said():
    with pytest.raises(TableError, match="by hand"):
        draft(pa.table({"a": pa.array([], pa.string())}))
    with pytest.raises(TableError, match="differ"):
        draft(pa.table([[1], [2]], names=["a", "a"]))
