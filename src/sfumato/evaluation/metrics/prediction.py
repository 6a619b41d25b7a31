"""Prediction: the rows of a comparison laid out for learning a target on one table and testing it on real rows."""

from dataclasses import dataclass

import numpy as np

from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import Comparison, Floats, Ints, Sample


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Rows to learn from, synthetic and real, and real rows to test on; all have a known target.

    ``held_out`` says that no model saw the test rows. Where a comparison has no such rows, a fifth of the real rows
    is the test, and the synthesizer may have seen it.
    """

    target: str
    synthetic: Sample
    real: Sample
    test: Sample
    held_out: bool

    def labels(self, side: Sample) -> Ints:
        """The class of each row."""
        return side.codes[self.target]

    def amounts(self, side: Sample) -> Floats:
        """The number to predict in each row."""
        return side.numbers[self.target]


def prediction_of(comparison: Comparison, target: str) -> Prediction:
    """Lay out a comparison for predicting a column. Rows whose target is missing are left out."""
    real, test = comparison.real, comparison.holdout
    if test is None:
        order = np.random.default_rng(comparison.seed).permutation(real.num_rows)
        fifth = max(1, real.num_rows // 5)
        real, test = real.take(np.sort(order[fifth:])), real.take(np.sort(order[:fifth]))
    sides = {"synthetic": comparison.synthetic, "real": real, "test": test}
    known = {what: side.take(np.flatnonzero(~side.missing(target))) for what, side in sides.items()}
    for what, side in known.items():
        if not side.num_rows:
            raise ArgumentError(f"column {target!r}: all {what} rows lack the target")
    return Prediction(target=target, **known, held_out=comparison.holdout is not None)
