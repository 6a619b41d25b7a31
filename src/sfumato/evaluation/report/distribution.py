"""Distribution: the shares of a column's values, real and synthetic, ready to be drawn."""

from dataclasses import dataclass

import numpy as np

from sfumato.evaluation.comparison import Comparison, Floats
from sfumato.evaluation.report.numbers import bounds
from sfumato.schema import Continuous, Date, Datetime, Integer, Modelled
from sfumato.schema.columns import SECONDS

_BINS = 64
_SPIKE = 0.2
_SPIKE_TIMES = 4.0
_MOST_SPIKES = 2
_TAIL = 0.002
_ZOOM = 0.5


@dataclass(frozen=True, kw_only=True)
class Spike:
    """A single value that a large share of the rows has."""

    value: float
    real: float
    synthetic: float


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Shares of the present values in bins, without the spikes and without what lies outside of the view.

    ``view`` are the first and the last value that are drawn, ``zoomed`` says whether this is less than the public
    bounds, and ``outside`` are the shares that are not drawn.
    """

    edges: Floats
    real: Floats
    synthetic: Floats
    spikes: tuple[Spike, ...]
    view: tuple[float, float]
    outside: tuple[float, float]
    zoomed: bool


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Shares of all rows by level, the most frequent of the real ones first; the rest in one, the missing in one."""

    names: tuple[str, ...]
    real: Floats
    synthetic: Floats


def histogram_of(comparison: Comparison, name: str) -> Histogram:
    """Bins that follow the grid of the column, zoomed to where the values are.

    >>> import pyarrow as pa
    >>> from sfumato.evaluation.comparison import sample_of
    >>> from sfumato.schema import Schema
    >>> schema = Schema(columns={"age": Integer(lower=0, upper=9)})
    >>> side = sample_of(pa.table({"age": [1, 1, 2, 9]}), schema)
    >>> found = histogram_of(Comparison(schema=schema, real=side, synthetic=side), "age")
    >>> found.edges[:2].tolist(), found.real.tolist()[:3]
    ([-0.5, 0.5], [0.0, 0.5, 0.25])
    """
    column = dict(comparison.schema.modelled)[name]
    sides = [side.numbers[name] for side in (comparison.real, comparison.synthetic)]
    real, synthetic = (values[~np.isnan(values)] for values in sides)
    spikes = _spikes(real, synthetic)
    taken = np.array([spike.value for spike in spikes])
    rest = [values[~np.isin(values, taken)] for values in (real, synthetic)]
    low, high = bounds(column)
    view = _view([values for values in rest if len(values)], low, high)
    step = _step(column)
    edges = _edges(view, step, (low, high))
    counted = [np.histogram(values, bins=edges)[0].astype(np.float64) for values in rest]
    sizes = [max(len(values), 1) for values in (real, synthetic)]
    shares = [counts / size for counts, size in zip(counted, sizes, strict=True)]
    outside = [(len(r) - float(c.sum())) / size for r, c, size in zip(rest, counted, sizes, strict=True)]
    return Histogram(
        edges=edges,
        real=shares[0],
        synthetic=shares[1],
        spikes=spikes,
        view=(float(edges[0]) + step / 2, min(float(edges[-1]) - step / 2, high)),
        outside=(outside[0], outside[1]),
        zoomed=view != (low, high),
    )


def levels_of(comparison: Comparison, name: str, most: int = 20) -> Levels:
    """The shares of the most frequent levels, in the order of the schema where the levels have an order."""
    size = comparison.num_levels(name)
    shares = []
    for side in (comparison.real, comparison.synthetic):
        codes = side.codes[name]
        shares.append(np.bincount(np.where(codes < 0, size, codes), minlength=size + 1) / max(len(codes), 1))
    # The largest of either side: a level that only the synthetic rows have must not hide among the others.
    rank = np.lexsort((np.arange(size), -np.maximum(shares[0][:size], shares[1][:size])))
    kept = rank[:most]
    kept = np.sort(kept) if _is_ordered(comparison, name) else kept[np.argsort(-shares[0][kept], kind="stable")]
    others = rank[most:]
    words = comparison.levels(name)
    names = [words[place] for place in kept]
    found = [list(side[kept]) for side in shares]
    if len(others):
        names.append(f"the other {len(others):,} levels" if len(others) > 1 else "the one other level")
        for share, values in zip(shares, found, strict=True):
            values.append(float(share[others].sum()))
    if shares[0][size] or shares[1][size]:
        names.append("missing")
        for share, values in zip(shares, found, strict=True):
            values.append(float(share[size]))
    return Levels(names=tuple(names), real=np.array(found[0]), synthetic=np.array(found[1]))


def _is_ordered(comparison: Comparison, name: str) -> bool:
    return bool(getattr(dict(comparison.schema.modelled)[name], "ordered", False))


def _spikes(real: Floats, synthetic: Floats) -> tuple[Spike, ...]:
    """Values so frequent that they would flatten the picture of all the others; none where all are few."""
    if not len(real) or len(np.unique(real[:10_000])) <= _BINS // 3:
        return ()
    found: dict[float, Spike] = {}
    for values in (real, synthetic):
        different, counts = np.unique(values, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        next_share = counts[order[_MOST_SPIKES]] / len(values) if len(order) > _MOST_SPIKES else 0.0
        for place in order[:_MOST_SPIKES]:
            value, share = float(different[place]), counts[place] / len(values)
            if share >= _SPIKE and share >= _SPIKE_TIMES * next_share:
                both = [float(np.mean(side == value)) if len(side) else 0.0 for side in (real, synthetic)]
                found[value] = Spike(value=value, real=both[0], synthetic=both[1])
    return tuple(found[value] for value in sorted(found))


def _view(sides: list[Floats], low: float, high: float) -> tuple[float, float]:
    if not sides:
        return low, high
    ends = [np.quantile(values, [_TAIL, 1 - _TAIL]) for values in sides]
    start, stop = float(min(end[0] for end in ends)), float(max(end[1] for end in ends))
    if stop - start >= _ZOOM * (high - low):
        return low, high
    pad = 0.04 * (stop - start) or 0.02 * (high - low)
    return max(low, start - pad), min(high, stop + pad)


def _edges(view: tuple[float, float], step: float, public: tuple[float, float]) -> Floats:
    low, high = view
    if step:
        # Bins of a whole number of grid values: else some hold one value more than others, and the picture has teeth.
        # Ends are rounded to the grid: a quotient of large numbers may fall short of the whole number it stands for.
        low = public[0] + np.round((low - public[0]) / step) * step
        values = int(np.round((high - low) / step)) + 1
        width = max(1, int(np.ceil(values / _BINS)))
        return np.asarray(low - step / 2 + np.arange(int(np.ceil(values / width)) + 1) * width * step)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, _BINS + 1)


def _step(column: Modelled) -> float:
    match column:
        case Integer() | Date():
            return 1.0
        case Datetime():
            return float(SECONDS[column.resolution])
        case Continuous() if column.decimals is not None:
            return 10.0**-column.decimals
    return 0.0
