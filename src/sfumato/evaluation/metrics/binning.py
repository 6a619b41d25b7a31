"""Binning: the columns of both tables as cells of the public domain, so that counting is all that is left."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np

from sfumato.evaluation.comparison import MISSING, Comparison, Floats, Ints
from sfumato.schema import Boolean, Categorical, Date, Datetime, Modelled

BINS = 20
"""Bins of a numeric column, equal in width over its public bounds, missing not counted."""

MOST_CELLS = 2**20
"""Beyond so many cells only those that a row falls in are kept, so that memory follows rows and not domains."""

_FIRST_DAY, _FIRST_MOMENT = date(1970, 1, 1), datetime(1970, 1, 1)

# A power of two, so that the product is exact; with it no multiple of a span passes the largest float.
_SHRINK = 2.0**-10


@dataclass(frozen=True, kw_only=True)
class Binned:
    """The cell of every real and every synthetic row, from 0 to ``size - 1``."""

    real: Ints
    synthetic: Ints
    size: int


def bounds_of(column: Modelled) -> tuple[float, float]:
    """The public bounds of a numeric column in the units of a ``Sample``: numbers, days, or seconds since 1970.

    >>> bounds_of(Date(lower=date(1970, 1, 1), upper=date(1970, 2, 1)))
    (0.0, 31.0)
    """
    if isinstance(column, Categorical | Boolean):
        raise TypeError("a column of levels has no bounds")
    if isinstance(column, Date):
        return float((column.lower - _FIRST_DAY).days), float((column.upper - _FIRST_DAY).days)
    if isinstance(column, Datetime):
        return (column.lower - _FIRST_MOMENT).total_seconds(), (column.upper - _FIRST_MOMENT).total_seconds()
    return float(column.lower), float(column.upper)


def bin_column(comparison: Comparison, name: str, bins: int = BINS) -> Binned:
    """One column as cells: a level each, or equal-width bins of the public bounds; missing is the last cell.

    A value on an edge belongs to the bin above it, the upper bound to the last bin.

    >>> from sfumato.evaluation.comparison import sample_of
    >>> from sfumato.schema import Integer, Schema
    >>> import pyarrow as pa
    >>> schema = Schema(columns={"age": Integer(lower=0, upper=100, nullable=True)})
    >>> rows = sample_of(pa.table({"age": [0, 49, 50, 100, None]}), schema)
    >>> bin_column(Comparison(schema=schema, real=rows, synthetic=rows), "age", bins=2).real.tolist()
    [0, 0, 1, 1, 2]
    """
    if name in comparison.real.codes:
        size = comparison.num_levels(name)
        real, synthetic = (
            np.where(side.codes[name] == MISSING, size, side.codes[name])
            for side in (comparison.real, comparison.synthetic)
        )
        return Binned(real=real, synthetic=synthetic, size=size + 1)
    bounds = bounds_of(dict(comparison.schema.modelled)[name])
    real, synthetic = (_bin(side.numbers[name], *bounds, bins) for side in (comparison.real, comparison.synthetic))
    return Binned(real=real, synthetic=synthetic, size=bins + 1)


def bin_columns(comparison: Comparison, bins: int = BINS) -> Mapping[str, Binned]:
    """All columns as cells, in the order of the schema."""
    return {name: bin_column(comparison, name, bins) for name, _ in comparison.schema.modelled}


def join(first: Binned, *others: Binned) -> Binned:
    """The cells of several columns together: one for each combination.

    >>> flag = Binned(real=np.array([0, 1]), synthetic=np.array([1]), size=2)
    >>> join(flag, flag).real.tolist(), join(flag, flag).size
    ([0, 3], 4)
    """
    joined = first
    for other in others:
        joined = _compact(
            Binned(
                real=joined.real * other.size + other.real,
                synthetic=joined.synthetic * other.size + other.synthetic,
                size=joined.size * other.size,
            )
        )
    return joined


def count(binned: Binned) -> tuple[Floats, Floats]:
    """How many real and how many synthetic rows fall in each cell."""
    real = np.bincount(binned.real, minlength=binned.size).astype(np.float64)
    synthetic = np.bincount(binned.synthetic, minlength=binned.size).astype(np.float64)
    return real, synthetic


def _bin(values: Floats, low: float, high: float, bins: int) -> Ints:
    width = high * _SHRINK - low * _SHRINK
    missing = np.isnan(values)
    if not width > 0:
        return np.where(missing, bins, 0).astype(np.int64)
    # The product comes first: with whole numbers it is exact, and a value on an edge stays there.
    places = (np.where(missing, low, values) * _SHRINK - low * _SHRINK) * bins / width
    cells = np.clip(np.floor(places), 0, bins - 1).astype(np.int64)
    return np.where(missing, bins, cells)


def _compact(binned: Binned) -> Binned:
    if binned.size <= MOST_CELLS:
        return binned
    cells, places = np.unique(np.concatenate([binned.real, binned.synthetic]), return_inverse=True)
    return Binned(real=places[: len(binned.real)], synthetic=places[len(binned.real) :], size=len(cells))
