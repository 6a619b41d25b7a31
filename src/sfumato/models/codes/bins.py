"""Bins: which bin of its code a row falls into, and where inside, for many rows of one column at once.

What ``Codec.draw`` says of one row, in NumPy, where nothing need be compiled and what depends on a bin alone is worked
out once a bin. On the same uniform numbers both give the same (``tests/laws``).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from sfumato.models.codes.roundness import RoundBins


@dataclass(frozen=True)
class ColumnBins:
    """The bins of one column in the order of their codes.

    ``ends`` is the code of each plus the share of the code that lies below its end, so that one search finds the bin of
    a code and a uniform number. ``last`` is the place of the last bin of each code that has a share, which nothing is
    drawn beyond.

    >>> bins = ColumnBins.of(np.array([0, 1, 0]), np.array([0.25, 1.0, 0.75]), 2)
    >>> bins.draw(np.array([0, 0, 1]), np.array([0.2, 0.3, 0.9])).tolist()
    [0, 2, 1]
    """

    order: Int[np.ndarray, " bin"]
    ends: Float[np.ndarray, " bin"]
    last: Int[np.ndarray, " code"]
    roundness: RoundBins | None = None

    @classmethod
    def of(
        cls,
        code_of: Int[np.ndarray, " bin"],
        inner: Float[np.ndarray, " bin"],
        num_codes: int,
        roundness: RoundBins | None = None,
    ) -> "ColumnBins":
        """The bins of a column from the code of each, its share inside the code, and how round its values are."""
        order = np.argsort(code_of, kind="stable")
        codes, shares = code_of[order].astype(np.int64), np.asarray(inner[order], np.float64)
        totals = np.bincount(codes, shares, minlength=num_codes)
        below = np.cumsum(shares) - (np.cumsum(totals) - totals)[codes]
        ends = codes + np.clip(below / np.maximum(totals[codes], 1e-300), 0, 1)
        last = np.full(len(totals), -1)
        np.maximum.at(last, codes[shares > 0], np.flatnonzero(shares > 0))
        return cls(order, ends, np.where(last < 0, len(order) - 1, last), roundness)

    @property
    def alone(self) -> bool:
        """Whether every bin is the only one of its code that has a share: then its code says all."""
        return bool(self.last[0] == 0 and np.all(np.diff(self.last) == 1))

    def draw(self, codes: Int[np.ndarray, " row"], uniform: Float[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
        """The bin of each row from its code and a uniform number."""
        found = np.searchsorted(self.ends, codes + uniform, side="right")
        return self.order[np.minimum(found, self.last[codes])]

    def places(self, bins: Int[np.ndarray, " row"], uniform: Float[np.ndarray, "2 row"]) -> Float[np.ndarray, " row"]:
        """The place of each row in its bin, from 0 to 1, from two uniform numbers."""
        return uniform[1] if self.roundness is None else self.roundness.places(bins, uniform)
