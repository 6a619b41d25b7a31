"""G6: every method on ten kinds of neighbours; with the doors frozen, the release must not change by one byte."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import numpy as np
import pyarrow as pa
import pytest

import sfumato.pipeline as pipeline
from privacy.playback import Player, Recorder, Tape, frozen_randomness
from sfumato.release.store import to_bytes
from sfumato.schema import Boolean, Categorical, Continuous, Date, Identifier, Integer, Schema, Unit
from sfumato.synthesizers import REGISTRY, Maf

TINY = {"maf": (Maf(steps=2, blocks=2, width=8, batch=20), Maf(steps=2, blocks=1, width=4, batch=20, scaling=None))}

SCHEMAS = {
    "mixed": Schema(
        columns={
            "age": Integer(lower=0, upper=120, nullable=True),
            "sex": Categorical(levels=("f", "m", "other"), other="other"),
            "income": Continuous(lower=0.0, upper=1e6),
            "smoker": Boolean(nullable=True),
            "born": Date(lower=date(1900, 1, 1), upper=date(2030, 1, 1)),
        },
        rows=100,
    ),
    "counted": Schema(columns={"x": Continuous(lower=-1.0, upper=1.0), "k": Integer(lower=0, upper=9)}),
    "persons": Schema(
        columns={"person": Identifier(), "x": Continuous(lower=-1.0, upper=1.0), "b": Boolean()},
        rows=100,
        unit=Unit(column="person", max_rows=2),
    ),
}


def rows_of(name: str, num: int, seed: int) -> list[dict]:
    random = np.random.default_rng(seed)
    if name == "mixed":
        return [
            {
                "age": None if random.random() < 0.1 else int(random.integers(0, 100)),
                "sex": str(random.choice(["f", "m"])),
                "income": float(random.lognormal(10, 1)),
                "smoker": bool(random.integers(2)),
                "born": date(1950 + int(random.integers(60)), 1, 1),
            }
            for _ in range(num)
        ]
    if name == "counted":
        return [{"x": float(random.normal() / 4), "k": int(random.integers(10))} for _ in range(num)]
    return [{"person": f"p{i // 2}", "x": float(random.normal() / 4), "b": bool(i % 3)} for i in range(num)]


def table_of(rows: list[dict], schema: Schema) -> pa.Table:
    """Every cell as text, as in a CSV file: a hostile cell then changes no type."""
    return pa.table(
        {name: pa.array([None if row.get(name) is None else str(row[name]) for row in rows]) for name in schema.columns}
    )


def _odd(rows: list[dict], value: object) -> list[dict]:
    return [*rows, {name: ("p999" if name == "person" else value) for name in rows[0]}]


NEIGHBOURS: dict[str, Callable[[list[dict]], list[dict]]] = {
    "add": lambda rows: [*rows, {**rows[3], **({"person": "p999"} if "person" in rows[3] else {})}],
    "remove": lambda rows: rows[2:] if "person" in rows[0] else rows[1:],
    "nan": lambda rows: _odd(rows, "nan"),
    "infinite": lambda rows: _odd(rows, "inf"),
    "new level": lambda rows: _odd(rows, "canary-level"),
    "out of range": lambda rows: _odd(rows, "1e300"),
    "missing": lambda rows: _odd(rows, None),
    "empty text": lambda rows: _odd(rows, ""),
    "far date": lambda rows: _odd(rows, "9999-12-31"),
    "tiny": lambda rows: _odd(rows, "-1e-320"),
}


def release_bytes(table: pa.Table, schema: Schema, method, tape: Tape, curator: type, monkeypatch) -> bytes:
    """The release of a fit whose curator is a recorder or a player of the tape."""
    if schema.rows is None:
        method = replace(method, batch=None)  # a batch size needs a declared size
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "Curator", type("Doors", (curator,), {"tape": tape}))
        patch.setattr(pipeline.Randomness, "from_os", staticmethod(frozen_randomness))
        return to_bytes(pipeline.fit(table, schema, method=method, epsilon=1.0, delta=1e-5))


def play(name: str, method, neighbours, monkeypatch, num_rows: int = 41, seed: int = 0) -> None:
    """Record on one table, replay on each neighbour, compare bytes."""
    schema, tape = SCHEMAS[name], Tape(measure=seed == 0)  # distances of sums cost a compilation each
    rows = rows_of(name, num_rows, seed)
    first = release_bytes(table_of(rows, schema), schema, method, tape, Recorder, monkeypatch)
    for kind, change in neighbours.items():
        tape.place = 0
        other = release_bytes(table_of(change(rows), schema), schema, method, tape, Player, monkeypatch)
        assert tape.place == len(tape.calls), f"{kind}: a door was asked less often"
        assert other == first, f"{kind}: the release changed though every door's output was frozen"


METHODS = [(name, i) for name in REGISTRY for i in range(len(TINY[name]))]


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("table", list(SCHEMAS))
@pytest.mark.parametrize("seed", [0, 1])
def test_frozen_doors_give_an_equal_release(table, method, seed, monkeypatch):
    """3 tables x 2 settings x 2 seeds x 10 kinds of neighbours: 120 pairs a method, none may differ."""
    play(table, TINY[method[0]][method[1]], NEIGHBOURS, monkeypatch, seed=seed)


def test_the_order_of_rows_does_not_matter(monkeypatch):
    """The cap on a unit's rows keeps the first of them, so there only the order of units is turned."""
    for table in ("mixed", "counted"):
        play(table, TINY["maf"][0], {"permuted": lambda rows: rows[::-1]}, monkeypatch)


def test_an_empty_table_and_one_row_are_neighbours(monkeypatch):
    schema, tape, method = SCHEMAS["mixed"], Tape(), TINY["maf"][0]
    rows = rows_of("mixed", 1, 0)
    first = release_bytes(table_of(rows, schema), schema, method, tape, Recorder, monkeypatch)
    empty = table_of([], schema).cast(pa.schema([(name, pa.string()) for name in schema.columns]))
    assert release_bytes(empty, schema, method, tape, Player, monkeypatch) == first
