"""Queries: random questions about a table of the kind "what share of the rows has this and this".

The questions are drawn from the schema and a seed alone, so that they are public and the same for every method.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.evaluation.comparison import Sample
from sfumato.evaluation.metrics.binning import bounds_of
from sfumato.schema import Boolean, Categorical, Modelled, Schema

OPEN_END = 0.25
"""How often an end of a range is the public bound itself: "at most 40" is asked as well as "from 30 to 40"."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """Conditions that must all hold: numbers within closed ranges, and levels within sets.

    ``members`` says of each level whether it belongs. A missing cell meets no condition.
    """

    ranges: Mapping[str, tuple[float, float]]
    members: Mapping[str, tuple[bool, ...]]


def answer(rows: Sample, query: Query) -> float:
    """The share of rows that meet a query.

    >>> from sfumato.evaluation.comparison import sample_of
    >>> from sfumato.schema import Integer
    >>> import pyarrow as pa
    >>> schema = Schema(columns={"age": Integer(lower=0, upper=100), "on": Boolean(nullable=True)})
    >>> rows = sample_of(pa.table({"age": [10, 20, 30, 40], "on": [True, None, True, False]}), schema)
    >>> answer(rows, Query(ranges={"age": (10, 30)}, members={"on": (False, True)}))
    0.5
    """
    met = np.ones(rows.num_rows, np.bool_)
    for name, (low, high) in query.ranges.items():
        values = rows.numbers[name]
        met &= (values >= low) & (values <= high)
    for name, members in query.members.items():
        # The code of a missing level is -1, which looks up the last entry.
        met &= np.array([*members, False])[rows.codes[name]]
    return float(met.mean())


def draw_query(schema: Schema, num_columns: int, random: np.random.Generator) -> Query:
    """A query of so many columns, drawn evenly; its ranges and sets are drawn from bounds and levels."""
    columns = schema.modelled
    ranges: dict[str, tuple[float, float]] = {}
    members: dict[str, tuple[bool, ...]] = {}
    for place in np.sort(random.choice(len(columns), num_columns, replace=False)):
        name, column = columns[place]
        if isinstance(column, Categorical | Boolean):
            members[name] = tuple(_draw_members(column, random).tolist())
        else:
            ranges[name] = _draw_range(column, random)
    return Query(ranges=ranges, members=members)


def _draw_range(column: Modelled, random: np.random.Generator) -> tuple[float, float]:
    low, high = bounds_of(column)
    first, second = np.sort(random.random(2))
    open_low, open_high = random.random(2) < OPEN_END
    start = low if open_low else low + (high - low) * first
    end = high if open_high else low + (high - low) * second
    return float(start), float(end)


def _draw_members(column: Categorical | Boolean, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Some levels but not all, where there are two: a run of them where they are ordered, else any."""
    size = column.num_values
    num = int(random.integers(1, max(size, 2)))
    members = np.zeros(size, np.bool_)
    if isinstance(column, Categorical) and column.ordered:
        start = int(random.integers(0, size - num + 1))
        members[start : start + num] = True
    else:
        members[random.choice(size, num, replace=False)] = True
    return members
