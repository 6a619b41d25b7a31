"""From plain values (of TOML or JSON) to columns, gathering faults on the way."""

import json
import tomllib
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from sfumato.errors import SchemaError
from sfumato.schema.columns import KINDS, LEARNT, Column
from sfumato.schema.faults import column_faults, nearest
from sfumato.schema.geojson import read_polygon


def read_toml(text: str) -> dict[str, Any]:
    """Parse TOML; a fault of syntax is named with its line (a schema is public)."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise SchemaError([f"schema is not valid TOML: {error}"]) from None
    except RecursionError:
        raise SchemaError(["schema is not valid TOML: nested too deeply"]) from None


def read_json(text: str) -> dict[str, Any]:
    """Parse JSON; a key that is there twice is a fault, as in TOML."""
    try:
        plain = json.loads(text, object_pairs_hook=_distinct)
    except ValueError as error:
        raise SchemaError([f"schema is not valid JSON: {error}"]) from None
    except RecursionError:
        raise SchemaError(["schema is not valid JSON: nested too deeply"]) from None
    if not isinstance(plain, dict):
        raise SchemaError(["schema must be a JSON object with the key 'columns'"])
    return plain


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is there twice")
        found[key] = value
    return found


def top_faults(plain: Mapping[str, Any]) -> list[str]:
    """List the keys of the top of a schema that mean nothing."""
    known = ["rows", "unit", "columns", "places"]
    return [f"unknown key {key!r}" + nearest(str(key), known) for key in plain if key not in known]


def parse_columns(plain: object) -> tuple[dict[str, Column], list[str]]:
    """Build the columns that have no fault, and list the faults of the others."""
    if plain is None:
        return {}, ["columns are missing: declare each as a table such as [columns.age]"]
    if not isinstance(plain, Mapping):
        return {}, ["columns must be tables such as [columns.age]"]
    columns: dict[str, Column] = {}
    found: list[str] = []
    for name, values in plain.items():
        column = _parse_column(name, values)
        if isinstance(column, list):
            found += column
        else:
            columns[name] = column
    return columns, found


def parse_unit(plain: object) -> tuple[Mapping[str, Any] | None, list[str]]:
    """Check the form of the unit."""
    if plain is None:
        return None, []
    if not isinstance(plain, Mapping):
        return None, ["unit must be a table with the keys column and max_rows"]
    known = ["column", "max_rows"]
    found = [f"unit: unknown key {key!r}" + nearest(str(key), known) for key in plain if key not in known]
    # A missing key is said once, by the check of the whole, which also sees a unit built in Python.
    if any(key not in plain for key in known):
        found += [f"unit: {key} is missing" for key in known if key not in plain]
        return None, found
    return {key: plain[key] for key in known}, found


def parse_places(plain: object, folder: Path | None) -> tuple[dict[str, object], list[str]]:
    """The places as they are written, with the polygons that they name files for, relative to the schema's folder."""
    if plain is None:
        return {}, []
    if not isinstance(plain, Mapping):
        return {}, ["places must be tables such as [places.home]"]
    found: dict[str, object] = dict(plain)
    faults: list[str] = []
    for name, values in plain.items():
        if not isinstance(values, Mapping) or "polygon_file" not in values:
            continue
        rest = {key: value for key, value in values.items() if key != "polygon_file"}
        found[name], file = rest, values["polygon_file"]
        if "polygon" in rest:
            faults.append(f"place {name!r}: polygon and polygon_file must not both be given")
        elif not isinstance(file, str):
            faults.append(f"place {name!r}: polygon_file must be the name of a GeoJSON file")
        elif folder is None:
            faults.append(f"place {name!r}: polygon_file is read where a schema is loaded from a file, and only there")
        else:
            try:
                found[name] = {**rest, "polygon": read_polygon(folder / file)}
            except SchemaError as error:
                faults += [f"place {name!r}: {fault}" for fault in error.faults]
    return found, faults


def _parse_column(name: str, values: object) -> Column | list[str]:
    if not isinstance(values, Mapping):
        return [f"column {name!r}: must be a table with the key 'kind'"]
    if "kind" not in values:
        return [f"column {name!r}: kind is missing; known: {', '.join(KINDS)}"]
    kind = values["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        return [f"column {name!r}: unknown kind {kind!r}" + nearest(str(kind), list(KINDS))]
    given = {str(key): _dated(kind, value) for key, value in values.items() if key != "kind"}
    faults = column_faults(name, kind, given)
    if faults:
        return faults
    return LEARNT[kind](**given) if given.pop("learn", False) else KINDS[kind](**given)


def _dated(kind: str, value: object) -> Any:
    """Read an ISO date from a text; what is none is left for the checks to name."""
    if kind not in ("date", "datetime") or not isinstance(value, str):
        return value
    reader = date if kind == "date" else datetime
    try:
        return reader.fromisoformat(value)
    except ValueError:
        return value
