"""What can be wrong with a column, said in one line each.

The checks read a plain mapping of field to value, so that a column from a file and a column built in Python
are checked by the same lines, and one broken field does not hide the faults of the others.
"""

import difflib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import date, datetime
from typing import TypeAlias

from sfumato.schema.columns import KINDS, LEARNT, SECONDS

MAX_INTEGER = 2**53
MAX_LEVELS = 10_000
# A cell of the unit interval has to be far wider than the spacing of floats near one, which is 2^-53.
MAX_GRID = 2**40
MAX_SCALED = 2**50

Values: TypeAlias = Mapping[str, object]

# With more, the whole numbers that decimals stand for would leave no room for numbers of usual size.
MAX_LEARNT_DECIMALS = 6

_NO_LEARN = f"learn = true is for kinds {', '.join(LEARNT)}: declare the bounds of this one"


def is_int(value: object) -> bool:
    """Whether a value is an integer; a boolean is not.

    >>> is_int(3), is_int(True)
    (True, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value: object) -> bool:
    """Whether a value is text that can be written as UTF-8."""
    if not isinstance(value, str):
        return False
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in value)


def nearest(word: str, known: Sequence[str]) -> str:
    """Suggest what a misspelt word may have meant.

    >>> nearest("lwer", ["lower", "upper"])
    "; did you mean 'lower'?"
    """
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def column_faults(name: str, kind: str, values: Values) -> list[str]:
    """List every fault of one column, given as a mapping of field to value.

    >>> column_faults("age", "integer", {"lower": 3, "upper": 1})
    ["column 'age': lower must not be above upper"]
    """
    learn = values.get("learn", False)
    found = [] if isinstance(learn, bool) else ["learn must be true or false"]
    if learn is True and kind not in LEARNT:
        return [f"column {name!r}: {_NO_LEARN}"]
    known = {field.name: field for field in fields(LEARNT[kind] if learn is True else KINDS[kind])}
    for key in [key for key in values if key not in known and key != "learn"]:
        bought = learn is True and key in {field.name for field in fields(KINDS[kind])}
        unknown = f"unknown key {key!r}" + nearest(key, list(known))
        found.append(f"{key} must not be given with learn = true" if bought else unknown)
    absent = [key for key, f in known.items() if f.default is MISSING and key not in values]
    found += [f"{key} is missing" for key in absent]
    broken = list(absent)
    for key in known.keys() & values.keys():
        fault = _learnt_fault(key, values[key]) if learn is True else None
        fault = fault or _field_fault(kind, key, values[key])
        if fault:
            found.append(fault)
            broken.append(key)
    if not broken and learn is not True:
        found += _CROSS.get(kind, _no_faults)(values)
    return [f"column {name!r}: {fault}" for fault in sorted(found, key=_by_key(list(known)))]


def _by_key(known: Sequence[str]) -> Callable[[str], int]:
    """Order faults as the fields are declared, so that a message is the same in every run."""
    ranks = {key: rank for rank, key in enumerate(known)}
    return lambda fault: ranks.get(fault.split(" ", 1)[0], -1)


def _field_fault(kind: str, key: str, value: object) -> str | None:
    if key in ("nullable", "ordered"):
        return None if isinstance(value, bool) else f"{key} must be true or false"
    if key == "levels":
        return _levels_fault(value)
    if key == "other":
        fine = value is None or is_int(value) or is_text(value)
        return None if fine else "other must be one of the levels"
    if key == "decimals":
        fine = value is None or (isinstance(value, int) and is_int(value) and 0 <= value <= 15)
        return None if fine else "decimals must be an integer from 0 to 15"
    if key == "resolution":
        return None if isinstance(value, str) and value in SECONDS else _one_of(key, list(SECONDS))
    if key == "regenerate":
        choices = ["drop", "number", "uuid"]
        return None if isinstance(value, str) and value in choices else _one_of(key, choices)
    return _bound_fault(kind, key, value)


def _learnt_fault(key: str, value: object) -> str | None:
    whole = isinstance(value, int) and is_int(value) and abs(value) <= MAX_INTEGER
    if key == "other" and not whole and not (is_text(value) and value):
        return "other must be a text that is not empty, or an integer"
    if key == "decimals" and isinstance(value, int) and value > MAX_LEARNT_DECIMALS:
        return f"decimals must be at most {MAX_LEARNT_DECIMALS} with learn = true"
    return None


def _one_of(key: str, choices: Sequence[str]) -> str:
    return f"{key} must be one of {', '.join(choices)}"


def _levels_fault(value: object) -> str | None:
    if not isinstance(value, list | tuple):
        return "levels must be a list of texts or of integers"
    if not value:
        return "levels must not be empty"
    if len(value) > MAX_LEVELS:
        return f"levels must be at most {MAX_LEVELS:,}; group the rare ones under one level, named by other"
    if not (all(map(is_text, value)) or all(map(is_int, value))):
        return "levels must be all texts (in quotes) or all integers"
    if is_int(value[0]) and max(map(abs, value)) > MAX_INTEGER:
        return "levels must lie within plus or minus 2^53"
    if len(set(value)) < len(value):
        twice = next(level for level, times in Counter(value).items() if times > 1)
        return f"levels must differ: {twice!r} is there twice"
    return None


def _bound_fault(kind: str, key: str, value: object) -> str | None:
    if kind == "integer":
        if not (isinstance(value, int) and is_int(value)):
            return f"{key} must be an integer"
        return None if abs(value) <= MAX_INTEGER else f"{key} must lie within plus or minus 2^53"
    if kind == "continuous":
        if not isinstance(value, int | float) or isinstance(value, bool):
            return f"{key} must be a number"
        finite = math.isfinite(value) if isinstance(value, float) else abs(value) < 2**1000
        return None if finite else f"{key} must be finite"
    if kind == "date":
        fine = isinstance(value, date) and not isinstance(value, datetime)
        return None if fine else f"{key} must be a date such as 2020-01-31"
    if not isinstance(value, datetime):
        return f"{key} must be a date and time such as 2020-01-31T10:00:00"
    return None if value.tzinfo is None else f"{key} must have no time zone: times are kept as UTC"


def _no_faults(_: Values) -> list[str]:
    return []


def _categorical_faults(values: Values) -> list[str]:
    other, levels = values.get("other"), values["levels"]
    if other is None or (isinstance(levels, list | tuple) and other in levels):
        return []
    return ["other must be one of the levels"]


def _integer_faults(values: Values) -> list[str]:
    lower, upper = values["lower"], values["upper"]
    if not (isinstance(lower, int) and isinstance(upper, int)):
        return []
    if lower > upper:
        return ["lower must not be above upper"]
    if upper - lower >= MAX_GRID:
        return ["upper - lower must be below 2^40: narrow the bounds, or declare the column continuous"]
    return []


def _continuous_faults(values: Values) -> list[str]:
    lower, upper, decimals = values["lower"], values["upper"], values.get("decimals")
    if not (isinstance(lower, int | float) and isinstance(upper, int | float)):
        return []
    if lower >= upper:
        return ["lower must be below upper"]
    if not math.isfinite(float(upper) - float(lower)):
        return ["upper - lower must be finite"]
    if not isinstance(decimals, int):
        return []
    if max(abs(lower), abs(upper)) * 10**decimals > MAX_SCALED or (upper - lower) * 10**decimals >= MAX_GRID:
        return ["decimals are too many for the bounds: use fewer, or leave decimals out"]
    return [
        f"{key} must have at most as many decimals as the column, {decimals}"
        for key, bound in (("lower", lower), ("upper", upper))
        if round(bound, decimals) != bound
    ]


def _date_faults(values: Values) -> list[str]:
    lower, upper = values["lower"], values["upper"]
    if isinstance(lower, date) and isinstance(upper, date) and lower > upper:
        return ["lower must not be above upper"]
    return []


def _datetime_faults(values: Values) -> list[str]:
    lower, upper, resolution = values["lower"], values["upper"], values.get("resolution", "second")
    if not (isinstance(lower, datetime) and isinstance(upper, datetime)):
        return []
    if lower > upper:
        return ["lower must not be above upper"]
    return [
        f"{key} must be a whole {resolution}, as resolution says"
        for key, bound in (("lower", lower), ("upper", upper))
        if bound.microsecond or (bound - datetime.min).total_seconds() % SECONDS[str(resolution)]
    ]


_CROSS: dict[str, Callable[[Values], list[str]]] = {
    "categorical": _categorical_faults,
    "integer": _integer_faults,
    "continuous": _continuous_faults,
    "date": _date_faults,
    "datetime": _datetime_faults,
}
