"""Clipping as a setting: which of the four ways, and with which bound."""

from dataclasses import dataclass
from typing import Literal

from sfumato.checks import between, positive
from sfumato.errors import ArgumentError
from sfumato.privacy import FlatClip, LayerClip, SparseClip, UnitClip

Kind = Literal["flat", "layer", "unit", "sparse"]


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """How a row's gradient is bounded: whole, by layer, by unit, or by layer after sparsification.

    Guarantees: whichever way is taken, no row adds more than ``bound``; see ``privacy.fine_clipping`` for why.
    ``sparsity`` is the share of small entries that may be set to zero, of "sparse" alone. "flat" and "layer" take
    one backward pass; "unit" and "sparse" need the gradient of each row and are slower.

    >>> Clipping(kind="layer", bound=1.0).clip()
    LayerClip(bound=1.0)
    """

    kind: Kind = "flat"
    bound: float = 2.0
    sparsity: float = 0.5

    def __post_init__(self) -> None:
        positive(bound=self.bound)
        between(0, 1, sparsity=self.sparsity)
        if self.kind not in ("flat", "layer", "unit", "sparse"):
            raise ArgumentError(f"Expected kind={self.kind!r} to be 'flat', 'layer', 'unit' or 'sparse'.")

    def clip(self) -> FlatClip:
        """The object that does it."""
        match self.kind:
            case "flat":
                return FlatClip(bound=self.bound)
            case "layer":
                return LayerClip(bound=self.bound)
            case "unit":
                return UnitClip(bound=self.bound)
            case "sparse":
                return SparseClip(bound=self.bound, sparsity=self.sparsity)
