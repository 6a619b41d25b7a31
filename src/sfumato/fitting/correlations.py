"""Correlations: the Gaussian copula of all features, bought by one noisy sum of products.

Behind their marginals features are standard normal, but a table shows cells of them. The product of the mean values of
two cells falls short of the correlation of the normal features behind them, the more so the coarser the cells (a
flag that one row in a hundred carries hides nearly all of it). What it comes to for each correlation follows from the
marginals, so it can be undone: this is the polychoric correlation, from moments instead of a likelihood.
Reference: Olsson 1979 (polychoric correlation); Lancaster 1957 (the expansion of a bivariate normal in Hermite
polynomials, which gives E[g(X) h(Y)] = sum_k a_k b_k rho^k).
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from scipy import stats

from sfumato.checks import between
from sfumato.encoding.layout import Layout
from sfumato.models.flows.copula import Copula
from sfumato.models.flows.dequantiser import ShareCells
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.privacy import Curator, FlatClip, SumQuery


@dataclass(frozen=True, kw_only=True)
class CorrelationShare:
    """How much of the budget goes to the correlations of all pairs of features."""

    share: float = 0.1

    def __post_init__(self) -> None:
        between(1e-6, 0.9, share=self.share)


_CUT = 2.5  # scores end here, so that no row weighs much more than others
_TERMS = 32  # of the expansion in Hermite polynomials
_FINEST = 1_024  # cells; features of more values are taken for continuous ones
_LEAST = 0.01  # of the variances of the copula: what is nearly determined stays a little free


def buy_correlations(curator: Curator, layout: Layout, marginals: MarginalMap, settings: CorrelationShare) -> Copula:
    """The copula that noisy products of scores imply, for features behind these marginals.

    Cost: one Gaussian sum of one bounded vector, worth ``share`` of the budget. All else is made from its answer, the
    marginals and the noise, which is public: the correction for cells, less weight for what drowns in noise, and the
    nearest matrix that is a correlation matrix.
    """
    scores = [_Scores.of(feature.size, *pair) for feature, pair in zip(layout.features, _lines(marginals), strict=True)]
    if len(scores) == 1:
        return Copula.independent(1)
    rows, columns = np.triu_indices(len(scores), 1)
    spread = sum(score.variance for score in scores)
    clip = FlatClip(bound=float(max(1.0, spread)))
    query = SumQuery(
        function=_Products(marginals, jnp.asarray(rows), jnp.asarray(columns)),
        num_entries=len(rows),
        clip=clip,
        purpose="correlations of all pairs",
    )
    present = _present(layout, marginals)
    scale = curator.size * present[rows] * present[columns]
    noise = curator.noise_of(clip.bound, settings.share) / scale
    products = curator.noisy_sum(query, share=settings.share) / scale
    pairs = zip(products, noise, rows, columns, strict=True)
    found = np.array([_undone(scores[i], scores[j], product, deviation) for product, deviation, i, j in pairs])
    matrix = np.eye(len(scores))
    matrix[rows, columns] = matrix[columns, rows] = _weighted(found[:, 0], found[:, 1])
    return Copula(jnp.asarray(np.linalg.cholesky(nearest_correlation(matrix)), jnp.float32))


def nearest_correlation(matrix: Float[np.ndarray, "d d"], least: float = _LEAST) -> Float[np.ndarray, "d d"]:
    """A correlation matrix near a symmetric one: no eigenvalue below ``least``, ones on the diagonal.

    >>> nearest_correlation(np.array([[1.0, 2.0], [2.0, 1.0]])).round(3).tolist()
    [[1.0, 0.993], [0.993, 1.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    raised = (vectors * np.maximum(values, least)) @ vectors.T
    deviations = np.sqrt(np.diag(raised))
    return np.asarray(raised / np.outer(deviations, deviations))


class _Products(eqx.Module):
    """The products of the scores of a row's cells, for each pair of features."""

    marginals: MarginalMap
    rows: Array
    columns: Array

    def __call__(self, row: dict[str, Array]) -> Array:
        cells = ShareCells.behind(self.marginals, row["low"], row["width"])
        zeros = jnp.zeros_like(cells.low)
        low, high = norm.pdf(cells.point(zeros)), norm.pdf(cells.point(zeros + 1))
        # The mean of a standard normal in the cell; of a small cell the centre, where no difference is taken.
        mean = jnp.where(cells.width > 1 / _FINEST, (low - high) / jnp.maximum(cells.width, 1e-6), cells.centre)
        score = jnp.clip(jnp.where(cells.width >= 1, 0.0, mean), -_CUT, _CUT)
        return score[self.rows] * score[self.columns]


@dataclass(frozen=True)
class _Scores:
    """The score of a standard normal feature as a step function of it: its variance, and its Hermite coefficients."""

    variance: float
    coefficients: Float[np.ndarray, " term"]

    @classmethod
    def of(cls, size: int | None, edges: np.ndarray, shares: np.ndarray) -> "_Scores":
        """From the number of a feature's values, and its measured distribution function."""
        if size is None or size > _FINEST:
            borders = np.linspace(0, 1, _FINEST + 1)
        else:
            borders = np.interp(np.linspace(0, 1, size + 1), edges, shares)
        borders = np.unique(borders)
        mass, ends = np.diff(borders), stats.norm.ppf(np.clip(borders, 1e-12, 1 - 1e-12))
        density = stats.norm.pdf(ends)
        score = np.clip((density[:-1] - density[1:]) / mass, -_CUT, _CUT)
        # The integral of the k-th polynomial times the density over a cell, by those one lower at its ends.
        polynomials, coefficients = [np.ones_like(ends), ends], [0.0]
        for term in range(1, _TERMS + 1):
            at_ends = polynomials[term - 1] * density
            coefficients.append(float(score @ (at_ends[:-1] - at_ends[1:])) / np.sqrt(term))
            higher = ends * polynomials[term] - np.sqrt(term) * polynomials[term - 1]
            polynomials.append(higher / np.sqrt(term + 1))
        return cls(float(mass @ score**2), np.array(coefficients))


_GRID = np.linspace(-0.995, 0.995, 399)
_POWERS = _GRID[:, None] ** np.arange(_TERMS + 1)


def _undone(first: _Scores, second: _Scores, product: float, noise: float) -> tuple[float, float]:
    """The correlation at which scores have this mean product, and the deviation of its noise."""
    means = np.maximum.accumulate(_POWERS @ (first.coefficients * second.coefficients))
    slopes = np.maximum(np.gradient(means, _GRID), 1e-3)
    found = np.interp(product, means, _GRID)
    return float(found), float(noise / np.interp(found, _GRID, slopes))


def _weighted(found: Float[np.ndarray, " pair"], noise: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " pair"]:
    """Correlations drawn to zero as far as the noise deserves, given how large they are on the whole.

    Reference: empirical Bayes, as in James and Stein 1961.
    """
    weights = 1 / (noise**2 + 0.01) ** 2
    typical = max(1e-4, float(np.average(found**2 - noise**2, weights=weights)))
    return found * typical / (typical + noise**2)


def _lines(marginals: MarginalMap) -> list[tuple[np.ndarray, np.ndarray]]:
    edges, shares = (np.asarray(part, float) for part in (marginals.edges, marginals.shares))
    return list(zip(edges, shares, strict=True))


def _present(layout: Layout, marginals: MarginalMap) -> Float[np.ndarray, " feature"]:
    """The share of rows in which each feature has a value, as measured flags say; no less than a hundredth."""
    flags = {
        feature.column: float(np.interp(0.5, *line))
        for feature, line in zip(layout.features, _lines(marginals), strict=True)
        if feature.role == "missing"
    }
    values = [1.0 if feature.role == "missing" else flags.get(feature.column, 1.0) for feature in layout.features]
    return np.maximum(np.array(values), 0.01)
