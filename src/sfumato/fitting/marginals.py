"""Marginals: the distribution of each feature by itself, bought through the noisy sum.

A feature of few values gets a bin for each. One of many values is measured in rounds: where a bin turns out heavy, the
next round cuts it finer, so that a value that many rows share (such as 0) ends up in a bin of its own, at a cost
that does not depend on how many values there are.
Reference: refining by mass as in private hierarchical histograms (Hay et al. 2010).
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr

from sfumato.checks import between, whole
from sfumato.encoding.layout import Feature, Layout
from sfumato.fitting.histogram import Line, by_level, distribution, on_grid, onto_simplex
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.privacy import Curator, FlatClip, SumQuery


@dataclass(frozen=True, kw_only=True)
class MarginalShare:
    """How much of the budget goes to one-way marginals, over how many rounds, and how many bins a feature has."""

    share: float = 0.15
    rounds: int = 3
    bins: int = 128

    def __post_init__(self) -> None:
        between(1e-6, 0.9, share=self.share)
        whole(1, rounds=self.rounds)
        whole(2, bins=self.bins)


@dataclass(frozen=True, kw_only=True)
class Histograms:
    """What was bought: a line of bins for each feature, the noise of a share, and how many edges a line may have."""

    lines: tuple[Line, ...]
    noises: tuple[float, ...]
    num_edges: int


def buy_marginals(curator: Curator, layout: Layout, settings: MarginalShare) -> MarginalMap:
    """The map to standard normal features that noisy marginals imply. Cost: that of ``buy_histograms``."""
    bought = buy_histograms(curator, layout, settings)
    return _map([edge for edge, _ in bought.lines], [part for _, part in bought.lines], bought.num_edges)


def normal_marginals(location: Float[np.ndarray, " f"], scale: Float[np.ndarray, " f"]) -> MarginalMap:
    """The map that takes features for normal ones of this location and scale, on the real line of normal quantiles.

    Between knots a tenth of a deviation apart the distribution function is straight, which costs less than a thousandth
    of a nat a feature. Post-processing of what was bought.
    """
    knots = np.linspace(-_REACH, _REACH, round(20 * _REACH) + 1)
    shares = np.diff(np.concatenate([[0.0], ndtr(knots), [1.0]]))
    inner = ndtr(location[:, None] + scale[:, None] * knots)
    edges = [np.concatenate([[0.0], line, [1.0]]) for line in inner]
    return _map(edges, [shares] * len(edges), len(shares) + 1)


_REACH = 5.0
"""Deviations that the knots of a normal marginal reach; further out its mass is spread evenly."""


def buy_histograms(curator: Curator, layout: Layout, settings: MarginalShare, *, marked: bool = False) -> Histograms:
    """The distribution of each feature, in bins that follow its mass; if ``marked``, with bins for its marks alone.

    Cost: ``rounds`` Gaussian sums of one bounded vector, ``share`` of the budget together. Rounds after the first are
    asked for only if some feature has more values than bins, which the schema says, or was learnt: how many values were
    learnt is no public fact, and what is charged must not depend on it. How many bins there are depends on the noise
    and the size of the table, both public.
    """
    sizes = [feature.size for feature in layout.features]
    many = [feature.learnt or feature.size is None or feature.size > settings.bins for feature in layout.features]
    rounds = settings.rounds if any(many) else 1
    parts = settings.share * 2.0 ** np.arange(rounds) / (2**rounds - 1)  # each round gets twice that before it
    clip = FlatClip(bound=float(np.sqrt(len(sizes))))
    noise = curator.noise_of(clip.bound, parts[-1]) / curator.size
    bins = int(np.clip(1 / max(_CLEAR * noise, 1e-9), 8, settings.bins))
    edges = [_even(size, bins, settings.bins) for size in sizes]
    if marked:
        edges = [_with_marks(edge, feature) for edge, feature in zip(edges, layout.features, strict=True)]
    num_edges = 1 + max(len(edge) - 1 if size is not None else bins for edge, size in zip(edges, sizes, strict=True))
    shares: list[np.ndarray] = []
    for number, part in enumerate(parts, 1):
        if number > 1:
            edges = [_finer(e, onto_simplex(s), size, bins) for e, s, size in zip(edges, shares, sizes, strict=True)]
        purpose = f"one-way marginals, round {number} of {rounds}"
        answer = curator.noisy_sum(_query(edges, purpose, num_edges, clip), share=float(part))
        table = answer.reshape(len(edges), -1) / curator.size
        counted = [row[: len(edge) - 1] for row, edge in zip(table, edges, strict=True)]
        present = [_present(found, noise) for found in counted]
        shares = [found / there for found, there in zip(counted, present, strict=True)]
    lines = [
        distribution(edge, found, noise / there, size, bins=num_edges - 1)
        for edge, found, there, size in zip(edges, shares, present, sizes, strict=True)
    ]
    split = [by_level(*line, size, settings.bins) for line, size in zip(lines, sizes, strict=True)]
    return Histograms(lines=tuple(split), noises=tuple(noise / there for there in present), num_edges=num_edges)


def _present(counted: np.ndarray, noise: float) -> float:
    """The share of rows that have a value, as far as it stands out of the noise."""
    return float(np.clip(np.sum(counted), 3 * noise * np.sqrt(len(counted)), 1.0))


_CLEAR = 2.0
"""By how many deviations of the noise the share of an average bin should stand out."""


def _even(size: int | None, bins: int, most: int) -> np.ndarray:
    """A bin for each value where there are few; else as many equal bins as the noise allows."""
    num = size if size is not None and size <= most else bins
    return on_grid(np.linspace(0, 1, num + 1), size)


def _with_marks(edges: np.ndarray, feature: Feature) -> np.ndarray:
    """The edges, and those of the cells that the schema marks."""
    if feature.size is None:
        return edges
    borders = [place / feature.size for mark in feature.marks for place in (mark, mark + 1)]
    return on_grid(np.concatenate([edges, borders]), feature.size)


def _finer(edges: np.ndarray, shares: np.ndarray, size: int | None, bins: int) -> np.ndarray:
    """New edges, as many as allowed, that cut heavy bins and join light ones."""
    if size is not None and len(edges) - 1 >= size:
        return edges
    cumulative = np.concatenate([[0.0], np.cumsum(0.9 * shares + 0.1 * np.diff(edges))])
    wanted = np.interp(np.linspace(0, 1, bins // 2 + 1), cumulative / cumulative[-1], edges)
    # Half of the new bins have equal mass; the others are the old edges that stand furthest apart from them.
    old = edges[1:-1][np.argsort(-shares[:-1] - shares[1:])][: bins - bins // 2 - 1]
    return on_grid(np.unique(np.concatenate([[0.0], wanted[1:-1], old, [1.0]])), size)


class _Counter(eqx.Module):
    """Which bin of each feature a row falls into. The edges are held, so that all rounds are one compiled function."""

    edges: Float[Array, "feature edge"]

    def __call__(self, row: dict[str, Array]) -> Array:
        low, width = row["low"][:, None], row["width"][:, None]
        # The part of the cell below each edge; a point is below an edge, or it is not.
        part = jnp.clip((self.edges - low) / jnp.where(width > 0, width, 1.0), 0, 1)
        below = jnp.where(width > 0, part, (self.edges > low) | (self.edges >= 1))
        # A missing value may lie anywhere, and says nothing about those that are there.
        here = (row["width"] < 1)[:, None]
        return (here * jnp.diff(below.at[:, 0].set(0.0), axis=1)).reshape(-1)


def _query(edges: list[np.ndarray], purpose: str, num_edges: int, clip: FlatClip) -> SumQuery:
    padded = [np.pad(edge, (0, num_edges - len(edge)), constant_values=1.0) for edge in edges]
    count = _Counter(jnp.asarray(np.array(padded), jnp.float32))
    return SumQuery(function=count, num_entries=len(edges) * (num_edges - 1), clip=clip, purpose=purpose)


_FLOOR = 0.002


def _map(edges: list[np.ndarray], shares: list[np.ndarray], num_edges: int) -> MarginalMap:
    places, below = [], []
    for edge, share in zip(edges, shares, strict=True):
        # No value may have no mass at all: its likelihood would be zero. By bins too, since 32 bits lose a narrow one.
        kept = (1 - _FLOOR) * share + _FLOOR * (np.diff(edge) + 1 / len(share)) / 2
        line = np.concatenate([[0.0], np.cumsum(kept)])
        places.append(np.pad(edge, (0, num_edges - len(edge)), constant_values=1.0))
        below.append(np.pad(line / line[-1], (0, num_edges - len(edge)), constant_values=1.0))
    return MarginalMap.in_order(jnp.asarray(np.array(places), jnp.float32), jnp.asarray(np.array(below), jnp.float32))
