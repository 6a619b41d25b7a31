"""Scores: what a row's cells say about standard normal features, as numbers that can be summed.

The score of a cell is the mean of a standard normal in it. Scores end at 1.5, so that no row weighs much more than
others; what that hides is undone with what the cells hide.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from scipy import stats

from sfumato.encoding.layout import Layout
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.share_cells import ShareCells

_CUT = 1.5
_FINEST = 1_024  # cells; features of more values are taken for continuous ones
TERMS = 32
"""Of the expansion in Hermite polynomials."""


def row_scores(marginals: MarginalMap, row: dict[str, Array]) -> Float[Array, " feature"]:
    """The scores of a row's cells behind the marginals; a missing value has the score zero."""
    cells = ShareCells.behind(marginals, row["low"], row["width"])
    zeros = jnp.zeros_like(cells.low)
    low, high = norm.pdf(cells.point(zeros)), norm.pdf(cells.point(zeros + 1))
    # Of a small cell the centre, so that no difference of equal numbers is taken.
    mean = jnp.where(cells.width > 1 / _FINEST, (low - high) / jnp.maximum(cells.width, 1e-6), cells.centre)
    return jnp.clip(jnp.where(row["width"] >= 1, 0.0, mean), -_CUT, _CUT)


@dataclass(frozen=True)
class Scores:
    """The score of one standard normal feature, a step function of it: its variance and its Hermite coefficients.

    Reference: Lancaster 1957; the mean product of two such functions of normals of correlation rho is
    sum_k a_k b_k rho^k.
    """

    variance: float
    coefficients: Float[np.ndarray, " term"]

    @classmethod
    def of(cls, masses: Float[np.ndarray, " cell"]) -> "Scores":
        """From the masses of a feature's cells, in the order in which they stand behind the marginals.

        >>> round(Scores.of(np.array([0.5, 0.5])).variance, 4)  # (2 / pi): a coin hides a third of what is behind it
        0.6366
        """
        borders = np.unique(np.concatenate([[0.0], np.cumsum(masses) / np.sum(masses)]))
        mass, ends = np.diff(borders), stats.norm.ppf(np.clip(borders, 1e-12, 1 - 1e-12))
        density = stats.norm.pdf(ends)
        score = np.clip((density[:-1] - density[1:]) / mass, -_CUT, _CUT)
        # The integral of the k-th polynomial times the density over a cell, by those one lower at its ends.
        polynomials, coefficients = [np.ones_like(ends), ends], [0.0]
        for term in range(1, TERMS + 1):
            at_ends = polynomials[term - 1] * density
            coefficients.append(float(score @ (at_ends[:-1] - at_ends[1:])) / np.sqrt(term))
            higher = ends * polynomials[term] - np.sqrt(term) * polynomials[term - 1]
            polynomials.append(higher / np.sqrt(term + 1))
        return cls(float(mass @ score**2), np.array(coefficients))


def scores_of(layout: Layout, marginals: MarginalMap) -> list[Scores]:
    """The scores of every feature, as its measured distribution says."""
    lines = (np.asarray(part, float) for part in (marginals.edges, marginals.shares, marginals.starts))
    return [
        Scores.of(_masses(feature.size, *line))
        for feature, line in zip(layout.features, zip(*lines, strict=True), strict=True)
    ]


def present_shares(layout: Layout, marginals: MarginalMap) -> Float[np.ndarray, " feature"]:
    """The share of rows in which each feature has a value, as measured flags say; no less than a hundredth."""
    lines = zip(np.asarray(marginals.edges, float), np.asarray(marginals.shares, float), strict=True)
    flags = {
        feature.column: float(np.interp(0.5, *line))
        for feature, line in zip(layout.features, lines, strict=True)
        if feature.role == "missing"
    }
    values = [1.0 if feature.role == "missing" else flags.get(feature.column, 1.0) for feature in layout.features]
    return np.maximum(np.array(values), 0.01)


def _masses(size: int | None, edges: np.ndarray, shares: np.ndarray, starts: np.ndarray) -> np.ndarray:
    if size is None or size > _FINEST:
        return np.full(_FINEST, 1 / _FINEST)
    masses = np.diff(np.interp(np.linspace(0, 1, size + 1), edges, shares))
    bins = np.diff(edges) > 0
    return masses[np.argsort(starts[bins], kind="stable")] if bins.sum() == size else masses
