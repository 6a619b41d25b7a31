"""Mixtures: members that are mixtures of Gaussians over the unit cube, fitted by plain expectation maximisation.

NO PRIVACY: what is fitted here may repeat rows. It serves a vote and is never released.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sfumato.checks import whole

_FLOOR = 1e-6
"""The least variance, in units of the cube: a deviation of a thousandth of a column's range."""
_PRIOR, _PRIOR_VARIANCE = 1.0, 0.05**2
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A mixture of Gaussians: weights, means, and for each component the inverse of its covariance's factor."""

    log_weights: Float[np.ndarray, " component"]
    means: Float[np.ndarray, "component feature"]
    inverses: Float[np.ndarray, "component feature feature"]

    def log_density(self, points: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """The log density of each point."""
        return _log_sum(self._joint(points))

    def _joint(self, points: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row component"]:
        found = np.empty((len(points), len(self.means)))
        for j, (mean, inverse) in enumerate(zip(self.means, self.inverses, strict=True)):
            white = (points - mean) @ inverse.T
            log_root = float(np.log(np.diagonal(inverse)).sum())
            found[:, j] = self.log_weights[j] + log_root - (white**2).sum(axis=1) / 2
        return found - points.shape[1] * _LOG_2PI / 2


@dataclass(frozen=True, kw_only=True)
class MixtureMembers:
    """How members are trained: the components of each, the rounds of expectation maximisation, the starts.

    >>> MixtureMembers(components=4).kind
    'mixture'
    """

    components: int = 8
    rounds: int = 60
    starts: int = 2

    def __post_init__(self) -> None:
        whole(1, components=self.components, rounds=self.rounds, starts=self.starts)

    @property
    def kind(self) -> str:
        """The name of this kind of member."""
        return "mixture"

    def train(self, points: Float[np.ndarray, "row feature"]) -> Mixture:
        """The best of several fits to the points of one part; works for any number of points, none among them.

        It depends on these points alone, and on random starts that are drawn anew.
        """
        generator = np.random.default_rng()
        fits = [_fitted(points, self.components, self.rounds, generator) for _ in range(self.starts)]
        return max(fits, key=lambda mixture: float(mixture.log_density(points).sum()))


def _fitted(
    points: Float[np.ndarray, "row feature"], components: int, rounds: int, generator: np.random.Generator
) -> Mixture:
    means = _spread(points, components, generator)
    num_features = points.shape[1]
    spread = points.var(axis=0).mean() if len(points) else 0.25
    covariances = np.tile(np.eye(num_features) * max(_FLOOR, spread / components), (components, 1, 1))
    mixture = _mixture(np.full(components, 1 / components), means, covariances)
    if not len(points):
        return mixture
    before = -np.inf
    for _ in range(rounds):
        joint = mixture._joint(points)
        total = _log_sum(joint)
        shares = np.exp(joint - total[:, None])
        mixture = _maximised(points, shares, mixture.means)
        if abs(total.mean() - before) < 1e-5:
            break
        before = total.mean()
    return mixture


def _maximised(
    points: Float[np.ndarray, "row feature"],
    shares: Float[np.ndarray, "row component"],
    old: Float[np.ndarray, "component feature"],
) -> Mixture:
    """Weights, means and covariances of the shares; a weak prior keeps components of few rows from collapsing."""
    counts = shares.sum(axis=0)
    means = (shares.T @ points + 1e-9 * old) / (counts + 1e-9)[:, None]
    num_features = points.shape[1]
    covariances = np.empty((len(counts), num_features, num_features))
    for j, mean in enumerate(means):
        centred = points - mean
        scatter = (shares[:, j, None] * centred).T @ centred + _PRIOR * _PRIOR_VARIANCE * np.eye(num_features)
        covariances[j] = scatter / (counts[j] + _PRIOR) + _FLOOR * np.eye(num_features)
    return _mixture((counts + _PRIOR) / (counts.sum() + _PRIOR * len(counts)), means, covariances)


def _mixture(
    weights: Float[np.ndarray, " component"],
    means: Float[np.ndarray, "component feature"],
    covariances: Float[np.ndarray, "component feature feature"],
) -> Mixture:
    inverses = np.linalg.inv(np.linalg.cholesky(covariances))
    return Mixture(log_weights=np.log(weights), means=means, inverses=np.tril(inverses))


def _spread(
    points: Float[np.ndarray, "row feature"], num: int, generator: np.random.Generator
) -> Float[np.ndarray, "component feature"]:
    """Points far from each other (Arthur and Vassilvitskii 2007); where there are none, points of the cube."""
    if not len(points):
        return generator.random((num, points.shape[1]))
    chosen = [points[generator.integers(len(points))]]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < num:
        nearest = np.minimum(nearest, ((points - chosen[-1]) ** 2).sum(axis=1)) + 1e-12
        chosen.append(points[generator.choice(len(points), p=nearest / nearest.sum())])
    return np.stack(chosen)


def _log_sum(joint: Float[np.ndarray, "row component"]) -> Float[np.ndarray, " row"]:
    top = joint.max(axis=1)
    return top + np.log(np.exp(joint - top[:, None]).sum(axis=1))
