"""Correlations: the Gaussian copula of all features, bought by one noisy sum of products.

Behind their marginals features are standard normal, but a table shows cells of them. The product of the scores of two
cells falls short of the correlation of the normal features behind them, the more so the coarser the cells (a
flag that one row in a hundred carries hides nearly all of it). What it comes to for each correlation follows from the
marginals, so it can be undone: this is the polychoric correlation, from moments instead of a likelihood.
Reference: Olsson 1979 (polychoric correlation); Lancaster 1957 (the expansion that undoes it).
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.checks import between
from sfumato.encoding.layout import Layout
from sfumato.fitting.scores import TERMS, Scores, present_shares, row_scores, scores_of
from sfumato.models.flows.copula import Copula
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.privacy import Curator, FlatClip, SumQuery


@dataclass(frozen=True, kw_only=True)
class CorrelationShare:
    """How much of the budget goes to the correlations of all pairs of features, and to the order of nominal levels."""

    share: float = 0.1
    order: float = 0.05

    def __post_init__(self) -> None:
        between(1e-6, 0.9, share=self.share)
        between(0, 0.9, order=self.order)


_ROOM = 1.5
"""The norm of a row's products is typically 0.7 variances. With this much room, rows of fifteen features of correlation
0.5 lose 2 % of their products by clipping; rows of weaker correlation, less."""

_LEAST = 0.01  # of the variances of the copula: what is nearly determined stays a little free


def buy_correlations(curator: Curator, layout: Layout, marginals: MarginalMap, share: float) -> Copula:
    """The copula that noisy products of scores imply, for features behind these marginals.

    Cost: one Gaussian sum of one bounded vector, worth ``share`` of the budget. All else is made from its answer, the
    marginals and the noise, which is public: the correction for cells, less weight for what drowns in noise, and the
    nearest matrix that is a correlation matrix.
    """
    scores = scores_of(layout, marginals)
    if len(scores) == 1:
        return Copula.independent(1)
    rows, columns = np.triu_indices(len(scores), 1)
    clip = FlatClip(bound=max(1.0, _ROOM * sum(score.variance for score in scores)))
    query = SumQuery(
        function=_Products(marginals, jnp.asarray(rows), jnp.asarray(columns)),
        num_entries=len(rows),
        clip=clip,
        purpose="correlations of all pairs",
    )
    present = present_shares(layout, marginals)
    scale = curator.size * present[rows] * present[columns]
    noise = curator.noise_of(clip.bound, share) / scale
    products = curator.noisy_sum(query, share=share) / scale
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
        scores = row_scores(self.marginals, row)
        return scores[self.rows] * scores[self.columns]


_GRID = np.linspace(-0.995, 0.995, 399)
_POWERS = _GRID[:, None] ** np.arange(TERMS + 1)


def _undone(first: Scores, second: Scores, product: float, noise: float) -> tuple[float, float]:
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
