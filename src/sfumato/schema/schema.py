"""The schema: everything that is public about a table, written by a person."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sfumato.errors import SchemaError
from sfumato.schema.columns import Column, Identifier, Learnt, Modelled, kind_of
from sfumato.schema.faults import column_faults, is_int, is_text
from sfumato.schema.parse import parse_columns, parse_places, parse_unit, read_json, read_toml, top_faults
from sfumato.schema.place import Place, places_faults
from sfumato.schema.toml import write_key, write_pairs

MAX_COLUMNS = 10_000
MAX_FILE_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The person (or firm, or device) who is protected: at most `max_rows` rows share a value of `column`.

    >>> Unit(column="patient", max_rows=5).max_rows
    5
    """

    column: str
    max_rows: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Schema:
    """The columns of a table with their public domains, the public order of magnitude of its rows, unit and places.

    Guarantees: a schema that exists has no fault; all faults are listed in one `SchemaError`. Columns keep
    their order, and two schemas are equal only where the order is.

    >>> from sfumato.schema import Boolean, Integer
    >>> schema = Schema(columns={"age": Integer(lower=0, upper=120), "smokes": Boolean()}, rows=50_000)
    >>> print(schema.to_toml())
    rows = 50_000
    <BLANKLINE>
    [columns.age]
    kind  = "integer"
    lower = 0
    upper = 120
    <BLANKLINE>
    [columns.smokes]
    kind = "boolean"
    <BLANKLINE>
    """

    columns: Mapping[str, Column]
    rows: int | None = None
    unit: Unit | None = None
    places: Mapping[str, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a schema with faults, listing all of them."""
        faults = _schema_faults(self)
        if faults:
            raise SchemaError(faults)
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        object.__setattr__(self, "places", MappingProxyType(dict(self.places)))

    @property
    def modelled(self) -> tuple[tuple[str, Modelled], ...]:
        """The ordered (name, column) pairs that a model sees: all but the identifiers."""
        return tuple((name, column) for name, column in self.known.items() if not isinstance(column, Identifier))

    @property
    def known(self) -> dict[str, Modelled | Identifier]:
        """The columns, none of which is still to be learnt: a schema with such columns has no domain before a fit."""
        if self.learnt:
            names = ", ".join(repr(name) for name in self.learnt)
            raise SchemaError([f"learn = true for {names}: a fit must come first; use the schema of its release"])
        return {name: column for name, column in self.columns.items() if not isinstance(column, Learnt)}

    @property
    def learnt(self) -> dict[str, Learnt]:
        """The columns whose levels or bounds a fit is to buy."""
        return {name: column for name, column in self.columns.items() if isinstance(column, Learnt)}

    def __eq__(self, other: object) -> bool:
        """Whether columns, their order, rows, unit and places are the same."""
        return isinstance(other, Schema) and _identity(self) == _identity(other)

    def __hash__(self) -> int:
        """Hash of what equality compares."""
        return hash(_identity(self))

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a `.toml` or `.json` file, and the polygon files that its places name, relative to its folder."""
        path = Path(path)
        if path.suffix.lower() not in (".toml", ".json"):
            raise SchemaError([f"schema file {path.name!r}: expected a name that ends in .toml or .json"])
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise SchemaError([f"schema file {path.name!r}: larger than 64 MiB"])
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            reason = (error.strerror or "cannot be read").lower()
            raise SchemaError([f"schema file {str(path)!r}: {reason}"]) from None
        except UnicodeDecodeError:
            raise SchemaError([f"schema file {path.name!r}: not UTF-8 text; save it as UTF-8"]) from None
        plain = read_json(text) if path.suffix.lower() == ".json" else read_toml(text)
        return cls.from_dict(plain, folder=path.parent)

    def save(self, path: str | Path) -> None:
        """Write a `.toml` or `.json` file."""
        path = Path(path)
        if path.suffix.lower() not in (".toml", ".json"):
            raise SchemaError([f"schema file {path.name!r}: expected a name that ends in .toml or .json"])
        text = self.to_json() if path.suffix.lower() == ".json" else self.to_toml()
        try:
            path.write_bytes(text.encode())
        except OSError as error:
            reason = (error.strerror or "cannot be written").lower()
            raise SchemaError([f"schema file {str(path)!r}: {reason}"]) from None

    @classmethod
    def from_toml(cls, text: str) -> "Schema":
        """Read the text of a TOML file."""
        return cls.from_dict(read_toml(text))

    @classmethod
    def from_json(cls, text: str) -> "Schema":
        """Read the text of a JSON file."""
        return cls.from_dict(read_json(text))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, folder: Path | None = None) -> "Schema":
        """Read the plain form that `to_dict` writes; dates may also be Python dates.

        `folder` is where the polygon files of places lie; without it none is read.
        """
        faults = top_faults(plain)
        columns, column_problems = parse_columns(plain.get("columns"))
        unit, unit_problems = parse_unit(plain.get("unit"))
        places, place_problems = parse_places(plain.get("places"), folder)
        faults += column_problems + unit_problems + place_problems
        rows, names = plain.get("rows"), plain.get("columns")
        broken = (set(names) if isinstance(names, Mapping) else set()) - columns.keys()
        place_problems = places_faults(places, columns, frozenset(broken))
        if faults or place_problems:
            # The faults of form do not hide those of the whole.
            whole = _unit_faults(unit, columns, broken) if unit else []
            raise SchemaError([*_rows_faults(rows), *faults, *whole, *place_problems])
        known = {name: Place(**values) for name, values in places.items()}  # type: ignore[arg-type]
        return cls(columns=columns, rows=rows, unit=Unit(**unit) if unit else None, places=known)

    def to_dict(self) -> dict[str, Any]:
        """Write as plain JSON values. The order of `columns` is part of the schema: do not sort the keys.

        >>> from sfumato.schema import Boolean
        >>> Schema(columns={"smokes": Boolean(nullable=True)}).to_dict()
        {'columns': {'smokes': {'kind': 'boolean', 'nullable': True}}}
        """
        plain: dict[str, Any] = {}
        if self.rows is not None:
            plain["rows"] = self.rows
        if self.unit is not None:
            plain["unit"] = {"column": self.unit.column, "max_rows": self.unit.max_rows}
        plain["columns"] = {
            name: {key: _json_safe(value) for key, value in describe(column).items()}
            for name, column in self.columns.items()
        }
        if self.places:
            plain["places"] = {name: place.describe() for name, place in self.places.items()}
        return plain

    def to_json(self) -> str:
        """Write as the text of a JSON file."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def to_toml(self) -> str:
        """Write as the text of a TOML file."""
        return write_schema(self, {})


def write_schema(schema: Schema, notes: Mapping[str, str]) -> str:
    """Write a schema as TOML, with the notes on columns as comments above them."""
    parts = []
    if schema.rows is not None:
        parts.append(write_pairs({"rows": schema.rows}) + "\n")
    if schema.unit is not None:
        pairs = {"column": schema.unit.column, "max_rows": schema.unit.max_rows}
        parts.append("[unit]\n" + write_pairs(pairs) + "\n")
    for name, column in schema.columns.items():
        note = "".join(f"# {line}\n" for line in notes.get(name, "").splitlines())
        parts.append(f"{note}[columns.{write_key(name)}]\n{write_pairs(describe(column))}\n")
    for name, place in schema.places.items():
        parts.append(f"[places.{write_key(name)}]\n{write_pairs(place.describe())}\n")
    return "\n".join(parts)


def describe(column: Column) -> dict[str, object]:
    """Name the kind of a column and every field that is not at its default."""
    described: dict[str, object] = {"kind": kind_of(column)}
    if isinstance(column, Learnt):
        described["learn"] = True
    for each in fields(column):
        value = getattr(column, each.name)
        if each.default is MISSING or value != each.default:
            described[each.name] = value
    return described


def _json_safe(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return value.isoformat() if isinstance(value, date) else value


def _identity(schema: Schema) -> tuple[object, ...]:
    return (tuple(schema.columns.items()), schema.rows, schema.unit, tuple(schema.places.items()))


def _rows_faults(rows: object) -> list[str]:
    fine = rows is None or (isinstance(rows, int) and is_int(rows) and 0 < rows <= 2**53)
    return [] if fine else ["rows must be a positive integer: the public order of magnitude of the table"]


def _unit_faults(unit: Mapping[str, Any], columns: Mapping[str, Column], broken: set[str]) -> list[str]:
    found, name, max_rows = [], unit.get("column"), unit.get("max_rows")
    if not isinstance(name, str):
        found.append("unit: column must be the name of a column")
    elif name not in columns:
        if name not in broken:
            found.append(f"unit: column {name!r} is not declared; declare it with kind = 'identifier'")
    elif not isinstance(columns[name], Identifier):
        found.append(f"unit: column {name!r} must be declared with kind = 'identifier'")
    if not (isinstance(max_rows, int) and is_int(max_rows) and 1 <= max_rows <= 2**31):
        found.append("unit: max_rows must be an integer of at least 1")
    return found


def _schema_faults(schema: Schema) -> list[str]:
    found = _rows_faults(schema.rows)
    if not isinstance(schema.columns, Mapping):
        return [*found, "columns must be a mapping of name to column"]
    if len(schema.columns) > MAX_COLUMNS:
        return [*found, f"columns must be at most {MAX_COLUMNS:,}"]
    moves, broken = False, set()
    for name, column in schema.columns.items():
        if not is_text(name) or not name:
            found.append(f"column {name!r}: a name must be a text that is not empty")
            continue
        if not isinstance(column, Column):
            found.append(f"column {name!r}: expected a column such as Integer(lower=0, upper=9)")
            broken.add(name)
            continue
        values = {each.name: getattr(column, each.name) for each in fields(column)}
        if isinstance(column, Learnt):
            values["learn"] = True
        faults = column_faults(name, kind_of(column), values)
        found += faults
        broken |= {name} if faults else set()
        moves = moves or bool(faults) or can_vary(column)
    if not moves:
        found.append("columns: at least one that is not an identifier must be able to take two values")
    if isinstance(schema.unit, Unit):
        unit = {"column": schema.unit.column, "max_rows": schema.unit.max_rows}
        found += _unit_faults(unit, schema.columns, set())
    elif schema.unit is not None:
        found.append("unit must be a Unit(column=..., max_rows=...)")
    if not isinstance(schema.places, Mapping):
        return [*found, "places must be a mapping of name to Place(latitude=..., longitude=...)"]
    return found + places_faults(schema.places, schema.columns, frozenset(broken))


def can_vary(column: Column) -> bool:
    """Whether a column is modelled and can take two values, a missing one among them."""
    if isinstance(column, Identifier | Learnt):
        return isinstance(column, Learnt)
    return column.nullable or column.num_values is None or column.num_values > 1
