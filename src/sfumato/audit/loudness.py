"""Loudness: what record-play multiplies vectors with before they are clipped for a measurement.

Each row then comes to its bound; rows that stay below it would hide a defect that lets them pass it.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
from jaxtyping import Array

from sfumato.privacy.factors import FactoredLoss

LOUD = 1e6


class Loud(eqx.Module):
    """A function of a row, multiplied; by one it is as it was, in the same program."""

    function: Any
    by: Array

    def __call__(self, row: Any) -> Any:
        return self.by * self.function(row)


@dataclass(frozen=True)
class Louder:
    """A loss in factors, multiplied so that each row comes to its bound."""

    loss: FactoredLoss

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loss, name)

    def row(self, weights: Any, row: Any, key: Any, taps: Any) -> Any:
        """The loss of a row, loud, and the notes of its layers."""
        value, notes = self.loss.row(weights, row, key, taps)
        return LOUD * value, notes

    def common(self, weights: Any) -> Any:
        """What all rows have in common, as loud."""
        return LOUD * self.loss.common(weights)
