"""Mixture: a weighted sum of Gaussians with full covariances, as a density of its own or as the base of a flow."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from sfumato.errors import ArgumentError, ReleaseError


class GaussianMixture(eqx.Module):
    """A mixture of Gaussians: exact log density, exact sampling.

    ``whiteners`` are lower triangles W with W S W' = 1 for the covariance S, the inverses of Cholesky factors: a row is
    then scored by products alone, which is what many rows and their gradients want.
    Reference: McLachlan and Basford 1988.

    >>> import jax.numpy as jnp
    >>> round(float(GaussianMixture.standard(2).log_prob(jnp.zeros(2))), 4)
    -1.8379
    """

    log_weights: Float[Array, " component"]
    means: Float[Array, "component d"]
    whiteners: Float[Array, "component d d"]

    @classmethod
    def of(cls, weights: Any, means: Any, covariances: Any) -> "GaussianMixture":
        """The mixture of these weights, means and covariances; weights are divided by their sum.

        >>> GaussianMixture.of([1], [[0.0]], [[[-1.0]]])
        Traceback (most recent call last):
        sfumato.errors.ArgumentError: Expected covariances that are symmetric and positive definite.
        """
        weights, means, covariances = (np.asarray(part, np.float64) for part in (weights, means, covariances))
        num = weights.size
        if weights.ndim != 1 or not num or means.ndim != 2 or means.shape[0] != num:
            raise ArgumentError("Expected a weight and a mean for each component.")
        if covariances.shape != (num, means.shape[1], means.shape[1]):
            raise ArgumentError("Expected a covariance for each component, as large as its mean.")
        if not np.all(np.isfinite(means)) or not np.all(np.isfinite(weights)) or not np.all(weights > 0):
            raise ArgumentError("Expected finite means and weights above 0.")
        return cls(
            jnp.asarray(np.log(weights / weights.sum()), jnp.float32),
            jnp.asarray(means, jnp.float32),
            jnp.asarray(_whiteners(covariances), jnp.float32),
        )

    @classmethod
    def standard(cls, num_features: int, components: int = 1) -> "GaussianMixture":
        """The standard normal, in as many equal components."""
        eye = np.broadcast_to(np.eye(num_features, dtype=np.float32), (components, num_features, num_features))
        zeros = jnp.zeros((components, num_features), jnp.float32)
        return cls(jnp.full(components, -np.log(components), jnp.float32), zeros, jnp.asarray(eye))

    @property
    def components(self) -> int:
        """How many Gaussians there are."""
        return self.means.shape[0]

    @property
    def num_features(self) -> int:
        """Length of a row."""
        return self.means.shape[1]

    def covariances(self) -> Float[np.ndarray, "component d d"]:
        """The covariance of each component."""
        factors = np.linalg.inv(np.asarray(self.whiteners, np.float64))
        return np.asarray(factors @ factors.transpose(0, 2, 1))

    def moved(self, matrix: np.ndarray, shift: np.ndarray) -> "GaussianMixture":
        """The mixture of matrix @ x + shift, for x from this one."""
        means = np.asarray(self.means, np.float64) @ matrix.T + shift
        spread = matrix @ self.covariances() @ matrix.T
        return GaussianMixture.of(np.exp(np.asarray(self.log_weights, np.float64)), means, spread)

    def whitened(self, features: Float[Array, " d"]) -> Float[Array, "component d"]:
        """The row as each component sees it: standard normal if it came from there."""
        return jnp.einsum("kij,kj->ki", self.whiteners, features - self.means)

    def log_joint(self, whitened: Float[Array, "component d"]) -> Float[Array, " component"]:
        """The log of weight times density of each component."""
        log_scale = jnp.sum(jnp.log(jnp.diagonal(self.whiteners, axis1=1, axis2=2)), axis=1)
        return self.log_weights + log_scale + jnp.sum(norm.logpdf(whitened), axis=1)

    def log_prob(self, features: Float[Array, " d"]) -> Float[Array, ""]:
        return logsumexp(self.log_joint(self.whitened(features)))

    def sample(self, key: Array) -> Float[Array, " d"]:
        which, inside = jax.random.split(key)
        component = jax.random.categorical(which, self.log_weights)
        standard = jax.random.normal(inside, (self.num_features,), jnp.float32)
        return self.means[component] + jax.scipy.linalg.solve_triangular(
            self.whiteners[component], standard, lower=True
        )

    def describe(self) -> dict[str, Any]:
        return {"kind": "gaussian_mixture", "num_features": self.num_features, "components": self.components}


def mixture_skeleton(sizes: Mapping[str, int], tensor_sizes: Sequence[int]) -> GaussianMixture:
    """A mixture of these sizes with shapes in place of arrays, if the file bears the sizes out."""
    components, num_features = sizes["components"], sizes["num_features"]
    if sorted(tensor_sizes) != sorted((components, components * num_features, components * num_features**2)):
        raise ReleaseError("The model description claims other numbers than the file holds.")
    return eqx.filter_eval_shape(lambda: GaussianMixture.standard(num_features, components))


def _whiteners(covariances: np.ndarray) -> Float[np.ndarray, "component d d"]:
    symmetric = np.allclose(covariances, covariances.transpose(0, 2, 1), rtol=1e-6, atol=1e-12)
    try:
        found = np.linalg.inv(np.linalg.cholesky(covariances)) if symmetric else None
    except np.linalg.LinAlgError:
        found = None
    if found is None or not np.all(np.isfinite(found)):
        raise ArgumentError("Expected covariances that are symmetric and positive definite.")
    return np.tril(found)
