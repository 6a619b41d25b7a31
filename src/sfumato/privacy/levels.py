"""Levels: which texts a column holds, told where so many rows hold one that no single unit can matter.

The domain of such a column is not public, so a table of counts would tell by its very cells what was there. Here every
text that occurs is counted, each count gets its own whole Gaussian noise, and a text comes out with its noisy count
if that reaches a threshold. Texts that do not occur are not looked at.

Proof. Let D and D' be neighbours and W the texts that occur in both. An answer is a function of two independent parts:
the noisy counts of W, and the set Z of other texts that reach the threshold, with their noisy counts. The first part is
a Gaussian sum: a unit of at most m rows moves the counts of one column by at most m in norm (m rows of one text) and
those of c columns by m sqrt(c); under replace-one a row moves them by at most sqrt(2) and sqrt(2 c). The adjacency's
``sum_factor`` times sqrt(c) is at least that. The second part differs between D and D' only as far as Z is not empty.
Under add-or-remove-one it is always empty in the smaller table, and in the larger one the texts outside of W are those
of one unit alone, with counts k_1 + ... + k_j <= m. Under replace-one (m = 1) each table has at most one such text, of
one row. So Z is (0, d)-private with d the chance that any text of one unit alone comes out, in either direction, and
all of it is one Gaussian sum beside one ``Exposure`` at d, which add up over columns.

The chance d, for a threshold T > m and noise of deviation s: rounded noise reaches t with probability at most
Q((t - 1/2) / s), Q the upper tail of the normal law. So a text of k rows comes out with probability at most
q(k) = Q((T - k - 1/2) / s), which is convex in k below T. Among j counts of at least one that sum up to at most m, the
sum of q is therefore largest where all but one are one. What is left, (j - 1) q(1) + q(m - j + 1), is convex in j, so
it is largest at j = 1 or at j = m:

    d <= max(q(m), m q(1)).

References: Korolova, Kenthapadi, Mishra, Ntoulas 2009, "Releasing search queries and clicks privately" (thresholds);
Wilson et al. 2020, "Differentially private SQL with bounded user contribution" (units of several rows); Swanberg,
Desfontaines, Haney 2023, "DP-SIPS" (Gaussian noise). The bound over the counts of one unit is derived here.
"""

from dataclasses import dataclass
from math import ceil

import jax
import numpy as np
from jaxtyping import Array, Int
from scipy.special import log_ndtr, ndtri

from sfumato.checks import between, whole
from sfumato.errors import ArgumentError
from sfumato.privacy.noise import gaussian_integers

_MARGIN = 1 - 1e-6
"""For what the draw of a deviate and the tail are off by: both are known to far more than six digits."""


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of one column, private: for each row the place of its text, or -1 where there is none.

    A row has one place at most, so it adds one to at most one count. It has no text form.
    """

    places: Int[np.ndarray, " row"]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.places.ndim != 1 or len(set(self.names)) < len(self.names):
            raise ArgumentError("Expected one place a row, and texts that differ.")

    def __repr__(self) -> str:
        return "Texts(private)"

    def counts(self) -> dict[str, int]:
        """How many rows have each text that occurs, sorted by text: exact, so it stays in this room."""
        held = np.bincount(self.places[self.places >= 0], minlength=len(self.names))
        counts = sorted(zip(self.names, held.tolist(), strict=True))
        return {name: count for name, count in counts if count > 0}


def exposure_chance(threshold: int, deviation: float, max_rows: int) -> float:
    """An upper bound on the chance that any text of one unit alone reaches a threshold above ``max_rows``.

    >>> exposure_chance(100, 10.0, 1) < 1e-20 < exposure_chance(50, 10.0, 1) < 1e-5
    True
    """
    whole(1, max_rows=max_rows)
    if not threshold > max_rows:
        return 1.0
    tail = lambda rows: float(np.exp(log_ndtr(-(threshold - rows - 0.5) / deviation)))
    return min(1.0, max(tail(max_rows), max_rows * tail(1)))


def least_threshold(deviation: float, max_rows: int, delta: float) -> int:
    """The least count that texts of one unit alone reach with a chance of at most ``delta``.

    >>> least_threshold(10.0, 1, 1e-7), least_threshold(10.0, 5, 1e-7)
    (54, 58)
    """
    between(1e-15, 0.1, delta=delta)
    delta *= _MARGIN
    reach = lambda rows, chance: rows + 0.5 - deviation * float(ndtri(chance))
    threshold = max(max_rows + 1, ceil(max(reach(max_rows, delta), reach(1, delta / max_rows))) - 1)
    while exposure_chance(threshold, deviation, max_rows) > delta:
        threshold += 1
    return threshold


def texts_above(texts: Texts, threshold: float, deviation: float, key: Array, nonce: Array) -> dict[str, int]:
    """The texts whose noisy counts reach a threshold, with these counts, sorted by text.

    Which texts there are says which draw of the noise each gets. All draws have one law, so that tells nothing.
    """
    counts = texts.counts()
    num_draws = 1 << max(0, len(counts) - 1).bit_length()  # a power of two, which settles what a seed gives
    with jax.enable_x64(True):
        noise = np.asarray(gaussian_integers(key, nonce, num_draws, deviation))
    noisy = {name: count + int(added) for (name, count), added in zip(counts.items(), noise, strict=False)}
    return {name: count for name, count in noisy.items() if count >= threshold}
