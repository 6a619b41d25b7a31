"""Neighbours: small made-up tables, and the ways in which a neighbouring table may differ from them.

Every cell is text, as in a CSV file, so that a hostile cell changes no type. All of it is made up: an audit needs no
private rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from sfumato.privacy import Relation
from sfumato.schema import Boolean, Categorical, Continuous, Date, Identifier, Integer, Place, Schema, Unit

Row: TypeAlias = dict[str, Any]

HOSTILE: dict[str, str | None] = {
    "nan": "nan",
    "infinite": "inf",
    "new level": "canary-level",
    "out of range": "1e300",
    "missing": None,
    "empty text": "",
    "far date": "9999-12-31",
    "tiny": "-1e-320",
}
"""Cells that a schema's columns do not expect, by what is wrong with them."""

_CAP = 2
"""How many rows of a person count."""

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
    "counted": Schema(
        columns={
            "lat": Continuous(lower=47.0, upper=48.0, decimals=4),
            "lon": Continuous(lower=9.0, upper=10.0, decimals=4),
            "k": Integer(lower=0, upper=9),
        },
        places={"home": Place(latitude="lat", longitude="lon", polygon=(((47.0, 9.0), (48.0, 9.0), (47.5, 10.0)),))},
    ),
    "persons": Schema(
        columns={"person": Identifier(), "x": Continuous(lower=-1.0, upper=1.0), "b": Boolean()},
        rows=100,
        unit=Unit(column="person", max_rows=_CAP),
    ),
}
"""A declared size and every kind of column; no declared size, and a place in a polygon; a unit with a cap."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A change of a table: how far it goes, and whether all other rows stay in their places.

    ``steps`` counts steps of the neighbouring relation, so a sum may move by so many times its sensitivity. In an
    ``aligned`` change all other rows have the same gradients to the last bit, so sums of those are compared as well.
    ``start`` is the number of rows to start from, where that matters.
    """

    name: str
    change: Callable[[list[Row]], list[Row]]
    steps: int = 1
    aligned: bool = True
    start: int | None = None


def neighbours(relation: Relation) -> tuple[Neighbour, ...]:
    """One neighbour of each kind, under a relation: hostile rows are added, or put in the place of another."""
    if relation is Relation.REPLACE_ONE:
        return (
            Neighbour(name="replace", change=lambda rows: put(rows, 3, {**rows[3], **_values(rows[7])})),
            *(Neighbour(name=name, change=_put_odd(cell)) for name, cell in HOSTILE.items()),
            Neighbour(name="duplicate", change=lambda rows: put(rows, 3, rows[4])),
            Neighbour(name="permuted", change=turned, steps=0, aligned=False),
        )
    return (
        Neighbour(name="add", change=lambda rows: joined(rows, {**rows[3], **_values(rows[7])})),
        Neighbour(name="remove", change=without_first, aligned=False),
        Neighbour(name="replace", change=lambda rows: put(rows, 3, {**rows[3], **_values(rows[7])}), steps=2),
        *(Neighbour(name=name, change=_add_odd(cell)) for name, cell in HOSTILE.items()),
        Neighbour(name="duplicate", change=lambda rows: joined(rows, rows[3])),
        Neighbour(name="empty", change=lambda rows: [], start=1),
        Neighbour(name="permuted", change=turned, steps=0, aligned=False),
    )


def random_neighbours(relation: Relation, num: int, random: np.random.Generator) -> tuple[Neighbour, ...]:
    """So many neighbours with a row of random hostile and plain cells, at a random place."""
    cells: list[str | None] = [*HOSTILE.values(), "0", "1", "-1", "0.5", "f", "true", "1950-06-01", "1e-3", "٣", "'"]

    def one() -> Neighbour:
        chosen = [cells[i] for i in random.integers(len(cells), size=8)]
        place = int(random.integers(30))
        how = "replace" if relation is Relation.REPLACE_ONE else ("add", "replace", "remove")[random.integers(3)]
        odd = lambda row: {name: row[name] if name == "person" else chosen[i] for i, name in enumerate(row)}
        if how == "remove":
            return Neighbour(name="random remove", change=lambda rows: without(rows, place), aligned=False)
        if how == "replace":
            steps = 1 if relation is Relation.REPLACE_ONE else 2
            return Neighbour(name="random replace", change=lambda rows: put(rows, place, odd(rows[place])), steps=steps)
        return Neighbour(name="random add", change=lambda rows: joined(rows, odd(rows[0])))

    return tuple(one() for _ in range(num))


def trial_rows(name: str, num: int, seed: int) -> list[Row]:
    """Made-up rows for the schema of that name.

    A person has three rows, one more than the cap, each in another round of all persons: so equal ids are never next
    to each other, and the rows that the cap cuts are the last ones of the table.
    """
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
        # Some of these lie in the polygon and some do not.
        return [
            {"lat": 47 + float(random.random()), "lon": 9 + float(random.random()), "k": int(random.integers(10))}
            for _ in range(num)
        ]
    persons = -(-num // 3)
    return [{"person": f"p{i % persons}", "x": float(random.normal() / 4), "b": bool(i % 3)} for i in range(num)]


def text_table(rows: Sequence[Row], schema: Schema) -> pa.Table:
    """The rows as an Arrow table of text."""
    text = lambda cell: None if cell is None else str(cell)
    return pa.table({name: pa.array([text(row[name]) for row in rows], pa.string()) for name in schema.columns})


def joined(rows: list[Row], row: Row) -> list[Row]:
    """The rows with another unit: the row at the end, or a new person who has it two times more than the cap allows.

    The person's rows alternate with the last ones of the table. The cap cuts those, so all other rows that are kept
    stay in their places.
    """
    if "person" not in row:
        return [*rows, row]
    one = {**row, "person": "p999"}
    last = rows[len(rows) - _CAP - 1 :]
    return [*rows[: len(rows) - len(last)], one, *(row for other in last for row in (other, one))]


def put(rows: list[Row], place: int, row: Row) -> list[Row]:
    """The rows with another row in that place."""
    return [*rows[:place], row, *rows[place + 1 :]]


def without(rows: list[Row], place: int) -> list[Row]:
    """The rows without that one, or without all rows of that one's person."""
    if "person" in rows[place]:
        return [row for row in rows if row["person"] != rows[place]["person"]]
    return [*rows[:place], *rows[place + 1 :]]


def without_first(rows: list[Row]) -> list[Row]:
    """The rows without the first unit."""
    return without(rows, 0)


def turned(rows: list[Row]) -> list[Row]:
    """The rows in another order. The rows of one person keep theirs, since the cap keeps the first of them."""
    if "person" in rows[0]:
        order = {person: -i for i, person in enumerate(dict.fromkeys(row["person"] for row in rows))}
        return sorted(rows, key=lambda row: order[row["person"]])
    return rows[::-1]


def _values(row: Row) -> Row:
    return {name: cell for name, cell in row.items() if name != "person"}


def _odd(row: Row, cell: str | None) -> Row:
    return {name: (value if name == "person" else cell) for name, value in row.items()}


def _add_odd(cell: str | None) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: joined(rows, _odd(rows[0], cell))


def _put_odd(cell: str | None) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: put(rows, 3, _odd(rows[3], cell))
