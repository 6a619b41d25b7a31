"""Codecs: how columns become codes, from public bounds alone or from noisy histograms that were paid for.

Even bins over public bounds lose more than privacy does: a value that half of the rows share lands in a wide bin and
comes out smeared. So a share of the budget buys fine histograms (``fitting.marginals``), and from these follow values
that hold much mass, ranges of about equal mass, and which levels are too rare to be told apart. All after the sum is
post-processing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from sfumato.checks import between, whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.histogram import Line, on_grid
from sfumato.fitting.marginals import MarginalShare, buy_histograms
from sfumato.fitting.roundness import Grains, buy_roundness, may_be_round
from sfumato.models.codes.codec import Codec
from sfumato.privacy import Curator


@dataclass(frozen=True, kw_only=True)
class PaidBins:
    """A share of the budget for fine histograms, and about how many codes a column of many values gets.

    ``roundness`` is the part of the share that pays for how round numbers are, where a column has more values than
    bins; 0 does not ask, and draws all values of a bin alike.
    """

    share: float = 0.1
    rounds: int = 3
    bins: int = 128
    codes: int = 20
    roundness: float = 0.1

    def __post_init__(self) -> None:
        between(1e-6, 0.9, share=self.share)
        whole(1, rounds=self.rounds)
        whole(2, bins=self.bins, codes=self.codes)
        between(0, 0.9, roundness=self.roundness)


@dataclass(frozen=True, kw_only=True)
class Coded:
    """A codec, the shares of each column's codes that were measured along with it, and how round values are."""

    codec: Codec
    shares: tuple[np.ndarray, ...] = ()
    grains: Grains | None = None

    def alone(self) -> list[np.ndarray]:
        """What is known of single columns: the measured shares, or that of all codes alike where none were measured."""
        return list(self.shares) or [np.full(size, 1 / size) for size in self.codec.sizes]

    def measured(self, shares: Sequence[np.ndarray]) -> Codec:
        """The codec where codes are known to hold these shares, which then say how the values of a bin are spread."""
        return self.codec if self.grains is None else self.grains.weighed(self.codec, shares)


@dataclass(frozen=True)
class _Column:
    """The bins of one column: edges, the code of each bin, the share of each bin, and the share that is missing."""

    edges: np.ndarray
    code_of: np.ndarray
    bin_shares: np.ndarray
    value: int | None
    flag: int | None
    missing: float = 0.0
    floor: float = 1e-4

    @property
    def size(self) -> int:
        return int(self.code_of.max()) + 1 + (self.flag is not None)

    def shares(self) -> np.ndarray:
        """The share of each code; none is quite zero, since then its likelihood would be."""
        present = np.bincount(self.code_of, self.bin_shares)
        found = present if self.flag is None else np.append((1 - self.missing) * present, self.missing)
        kept = np.maximum(found, 0.0) + self.floor / len(found)
        return np.asarray(kept / kept.sum())

    def inner(self) -> np.ndarray:
        """The share of each bin inside its code."""
        kept = np.maximum(self.bin_shares, 0.0) + self.floor * np.diff(self.edges)
        return np.asarray(kept / np.bincount(self.code_of, kept)[self.code_of])


_CLEAR = 1.0
"""By how many deviations of the noise a code should stand out, so as not to be joined with others."""

_FEW = 5
"""A column of so few values keeps them all apart: one of them may be what everyone asks about."""


def even_codec(layout: Layout, bins: int = 100) -> Codec:
    """Codes of equal bins over public bounds, one for each level, or value where there are at most so many. No cost.

    >>> from sfumato.encoding.layout import layout_of
    >>> from sfumato.schema import Integer, Schema
    >>> even_codec(layout_of(Schema(columns={"age": Integer(lower=0, upper=120, nullable=True)})), 10).sizes
    (11,)
    """

    def column(value: int | None, flag: int | None) -> _Column:
        size = 1 if value is None else layout.features[value].size
        nominal = value is not None and layout.features[value].nominal
        count = bins if size is None else size if nominal else min(size, bins)
        edges = on_grid(np.linspace(0, 1, count + 1), size)
        return _Column(edges, np.arange(count), np.diff(edges), value, flag)

    return _codec([column(value, flag) for value, flag in _places(layout)])


def buy_codec(curator: Curator, layout: Layout, settings: PaidBins) -> Coded:
    """A codec whose bins follow the mass of each column, and the shares of its codes.

    Cost: the Gaussian sums of ``buy_histograms`` and that of ``buy_roundness``, ``share`` of the budget in all.
    """
    places = _places(layout)
    may = [value is not None and may_be_round(layout.features[value], settings.bins) for value, _ in places]
    part = settings.roundness if any(may) else 0.0
    asked = MarginalShare(share=settings.share * (1 - part), rounds=settings.rounds, bins=settings.bins)
    bought = buy_histograms(curator, layout, asked, marked=True)
    columns = []
    for value, flag in places:
        missing = 0.0 if flag is None else float(bought.lines[flag][1][1])
        if value is None:
            columns.append(_Column(np.array([0.0, 1.0]), np.zeros(1, int), np.ones(1), None, flag, missing))
            continue
        nominal, line = layout.features[value].nominal, bought.lines[value]
        even = even_part(line, layout.features[value].size, settings.codes)
        edges, shares = split(*line, layout.features[value].size, even)
        least = _CLEAR * bought.noises[value] if len(shares) > _FEW else 0.0
        if len(shares) > settings.codes and not nominal:
            least = max(least, even)
        code_of = rare_joined(shares, least) if nominal else in_order(shares, least)
        if not nominal:
            edges, shares, code_of = mended(edges, shares, code_of)
        columns.append(_Column(edges, code_of, shares, value, flag, missing, _floor(bought.noises[value])))
    codec, of_codes = _codec(columns), tuple(column.shares() for column in columns)
    if part == 0:
        return Coded(codec=codec, shares=of_codes)
    held = [column.bin_shares for column in columns]
    grains = buy_roundness(curator, layout, codec, held, may, settings.share * part)
    return Coded(codec=grains.weighed(codec), shares=of_codes, grains=grains)


def even_part(line: Line, size: int | None, codes: int) -> float:
    """The mass of a code, if so many share equally what is left beside single values that hold more than that.

    >>> line = (np.array([0.0, 0.1, 0.5, 1.0]), np.array([0.9, 0.05, 0.05]))
    >>> round(even_part(line, 10, 10), 3), even_part(line, None, 10)
    (0.011, 0.1)
    """
    edges, shares = line
    single = np.round(np.diff(edges) * size) == 1 if size is not None else np.zeros(len(shares), bool)
    heavy = shares[single & (shares > 1 / codes)]
    return max(float(1 - heavy.sum()) / (codes - len(heavy)), 0.1 / codes) if len(heavy) < codes else 1 / codes


def _floor(noise: float) -> float:
    """What a column gives to values that seem to have no mass at all: about what noise may have hidden of each."""
    return float(np.clip(noise, 1e-4, 0.01))


def split(edges: np.ndarray, shares: np.ndarray, size: int | None, most: float) -> Line:
    """Bins that hold more than so much cut into equal parts, unless they are a single value.

    >>> edges, shares = split(np.array([0.0, 0.25, 1.0]), np.array([0.5, 0.5]), 4, 0.25)
    >>> edges.tolist(), shares.round(3).tolist()
    ([0.0, 0.25, 0.5, 1.0], [0.5, 0.167, 0.333])
    """
    cuts = [edges[:1]]
    for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True):
        cuts.append(np.linspace(low, high, max(1, int(np.ceil(share / most))) + 1)[1:])
    finer = on_grid(np.concatenate(cuts), size)
    return finer, np.diff(np.interp(finer, edges, np.concatenate([[0.0], np.cumsum(shares)])))


def in_order(shares: np.ndarray, least: float) -> np.ndarray:
    """The code of each bin, where neighbours are joined until they hold so much; heavy bins stay alone.

    >>> in_order(np.array([0.4, 0.1, 0.1, 0.1, 0.3]), 0.25).tolist()
    [0, 1, 1, 1, 2]
    """
    code_of, code, held = [0], 0, float(shares[0])
    for share in shares[1:]:
        if held >= least or share >= least:
            code, held = code + 1, 0.0
        code_of.append(code)
        held += float(share)
    if code > 0 and held < least:  # what is left over goes with the group before it
        code_of = [min(place, code - 1) for place in code_of]
    return np.array(code_of)


def mended(edges: np.ndarray, shares: np.ndarray, code_of: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bins with neighbours of one code and one density made one again.

    They were cut so that a code could be made of each part. Where it was not, the cut says something of where values
    are that nobody measured: that half of them lie on each side of it, though all may have one round value.

    >>> edges, shares, code_of = mended(np.array([0, 0.25, 0.5, 1.0]), np.array([0.3, 0.3, 0.4]), np.array([0, 0, 0]))
    >>> edges.tolist(), shares.tolist(), code_of.tolist()
    ([0.0, 0.5, 1.0], [0.6, 0.4], [0, 0])
    """
    density = shares / np.diff(edges)
    alike = np.abs(np.diff(density)) <= 1e-9 * np.maximum(density[1:], density[:-1])
    first = np.concatenate([[True], ~(alike & (np.diff(code_of) == 0))])
    starts = np.flatnonzero(first)
    return np.append(edges[:-1][starts], edges[-1]), np.add.reduceat(shares, starts), code_of[starts]


def rare_joined(shares: np.ndarray, least: float) -> np.ndarray:
    """A code for each level that holds so much, and one for all that do not.

    >>> rare_joined(np.array([0.5, 0.01, 0.48, 0.01]), 0.03).tolist()
    [0, 2, 1, 2]
    """
    rare = shares < least
    if rare.sum() < 2:
        return np.arange(len(shares))
    return np.where(rare, (~rare).sum(), np.cumsum(~rare) - 1)


def _places(layout: Layout) -> list[tuple[int | None, int | None]]:
    """The features of each column: its value, and the flag that says that it is missing."""
    found: dict[str, dict[str, int]] = {}
    for place, feature in enumerate(layout.features):
        found.setdefault(feature.column, {})[feature.role] = place
    return [(places.get("value"), places.get("missing")) for places in found.values()]


def _codec(columns: Sequence[_Column]) -> Codec:
    bins = max(len(column.code_of) for column in columns)
    pad = lambda values, length, rest: np.pad(values, (0, length - len(values)), constant_values=rest)
    as_array = lambda rows: jnp.asarray(np.array(rows), jnp.float32)
    return Codec(
        as_array([pad(column.edges, bins + 1, 1.0) for column in columns]),
        as_array([pad(column.inner(), bins, 0.0) for column in columns]),
        as_array([pad(column.code_of, bins, column.code_of[-1]) for column in columns]),
        tuple(column.value for column in columns),
        tuple(column.flag for column in columns),
        tuple(column.size for column in columns),
    )
