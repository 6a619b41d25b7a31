"""Design matrix: the rows of a sample as the numbers that scikit-learn and XGBoost take.

There are two ways to write rows as numbers. ``Standardised`` is ours, for judging how useful rows are. ``plain`` is
the one of SDMetrics, for the metrics that have to agree with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import MISSING, Comparison, Floats, Ints, Sample
from sfumato.schema import Boolean

Matrix = npt.NDArray[np.float32]

MOST_LEVELS = 100
"""Most levels of one column that get a feature of their own; the rarer ones have none."""

MOST_CELLS = 60_000_000
"""Most cells of a dense matrix: about 480 MB of double precision."""


NOTHING_TO_LEARN = "There is no column beside the target to predict it from."


@dataclass(frozen=True, kw_only=True)
class Standardised:
    """Features learnt from training rows: standardised numbers, one column a level, one where cells are missing.

    A missing number is the mean. A level that the training rows lack, or one past the ``MOST_LEVELS`` frequent
    ones, is zero in every column.
    """

    scales: Mapping[str, tuple[float, float]]
    levels: Mapping[str, Ints]
    flagged: tuple[str, ...]

    def matrix(self, sample: Sample) -> Matrix:
        """The features of each row."""
        numbers = [
            _filled((sample.numbers[name] - centre) / scale, 0.0)[:, None]
            for name, (centre, scale) in self.scales.items()
        ]
        levels = [sample.codes[name][:, None] == kept for name, kept in self.levels.items()]
        flags = [sample.missing(name)[:, None] for name in self.flagged]
        return np.concatenate([*numbers, *levels, *flags], axis=1, dtype=np.float32)


def standardised(train: Sample, *, without: str | None = None) -> Standardised:
    """Learn features from training rows, leaving out the target.

    >>> import pyarrow as pa
    >>> from sfumato.evaluation.comparison import sample_of
    >>> from sfumato.schema import Integer, Schema
    >>> schema = Schema(columns={"age": Integer(lower=0, upper=9), "on": Boolean()})
    >>> sample = sample_of(pa.table({"age": [1, 3], "on": [True, False]}), schema)
    >>> standardised(sample).matrix(sample).tolist()
    [[-1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    numbers = {name: values for name, values in train.numbers.items() if name != without}
    codes = {name: values for name, values in train.codes.items() if name != without}
    if not numbers and not codes:
        raise ArgumentError(NOTHING_TO_LEARN)
    return Standardised(
        scales={name: _scale(values) for name, values in numbers.items()},
        levels={name: _frequent(values) for name, values in codes.items()},
        flagged=tuple(name for name in (*numbers, *codes) if train.missing(name).any()),
    )


def plain(
    comparison: Comparison, first: Sample, second: Sample, *, without: str | None = None, fill: bool = True
) -> tuple[Floats, Floats]:
    """Two samples as SDMetrics writes them: numbers and truth values as they are, then one column a level.

    Levels are read as text and sorted, and missing is the last level. With ``fill``, a missing number becomes the
    mean of the first sample and a missing truth value its mode; without it they stay NaN. Where SDMetrics refuses a
    level that only the second sample has, it gets a column here.
    Reference: the ``HyperTransformer`` of SDMetrics 0.32.
    """
    names = [name for name, _ in comparison.schema.modelled if name != without]
    truth = {name for name, column in comparison.schema.modelled if isinstance(column, Boolean)}
    hot = {name: _seen(comparison, name, first, second) for name in names if name in first.codes and name not in truth}
    if not names:
        raise ArgumentError(NOTHING_TO_LEARN)
    width = len(names) - len(hot) + sum(len(columns) for columns in hot.values())
    if (first.num_rows + second.num_rows) * width > MOST_CELLS:
        raise ArgumentError("The columns have too many levels for a dense matrix of these rows.")
    filling = {name: _filling(name, first) if fill else np.nan for name in names if name not in hot}
    one, two = (
        np.concatenate(
            [_filled(_values(name, side), value)[:, None] for name, value in filling.items()]
            + [side.codes[name][:, None] == columns for name, columns in hot.items()],
            axis=1,
            dtype=np.float64,
        )
        for side in (first, second)
    )
    return one, two


def _values(name: str, side: Sample) -> Floats:
    if name in side.numbers:
        return side.numbers[name]
    return np.where(side.codes[name] == MISSING, np.nan, side.codes[name])


def _filling(name: str, side: Sample) -> float:
    values = _values(name, side)
    known = values[~np.isnan(values)]
    if not known.size:
        return np.nan
    return float(known.mean()) if name in side.numbers else float(known.mean() > 0.5)


def _seen(comparison: Comparison, name: str, first: Sample, second: Sample) -> Ints:
    """The levels of either sample, sorted as text, missing last."""
    texts = comparison.levels(name)
    seen = np.union1d(first.codes[name], second.codes[name]).tolist()
    return np.array(sorted(seen, key=lambda code: (code == MISSING, texts[code])))


def _filled(values: Floats, value: float) -> Floats:
    return np.where(np.isnan(values), value, values)


def _scale(values: Floats) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if not known.size:
        return 0.0, 1.0
    return float(known.mean()), float(known.std()) or 1.0


def _frequent(codes: Ints) -> Ints:
    kept, counts = np.unique(codes[codes != MISSING], return_counts=True)
    return np.sort(kept[np.argsort(-counts, kind="stable")[:MOST_LEVELS]])
