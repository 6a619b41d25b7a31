"""Linear flows: every feature may depend on every other, by a matrix whose determinant is cheap.

Each has parameters and weights. The weights are what acts on a row; they are made from the parameters so that no
update, however noisy, reaches a singular matrix. ``apply`` and ``unapply`` take weights, so that a private gradient
can be taken with respect to them.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.models.flows.bijection import Bijection
from sfumato.models.starts import normal
from sfumato.models.taps import tapped

_LIMIT = 3.0  # of a log-scale: factors from 1/20 to 20
_REACH = 0.9  # of the low-rank part relative to the diagonal one

Weights = Mapping[str, Array]
Notes = dict[str, Array]


def squashed(raw: Array, limit: float = _LIMIT) -> Array:
    """Raw numbers into (-limit, limit), with slope one at zero."""
    return limit * jnp.tanh(raw / limit)


class LinearFlow(Bijection):
    """A linear map with a shift, and a log-determinant that no row enters."""

    names: ClassVar[tuple[str, ...]]
    """Of the weights."""

    @abstractmethod
    def weights(self) -> dict[str, Array]:
        """What acts on a row."""

    @staticmethod
    @abstractmethod
    def log_det_of(weights: Weights) -> Float[Array, ""]:
        """The log of the determinant."""

    @staticmethod
    @abstractmethod
    def taps(num_features: int, rank: int) -> dict[str, int]:
        """How many numbers each layer gives out, by its name."""

    @staticmethod
    @abstractmethod
    def apply(weights: Weights, x: Float[Array, " d"], taps: Weights) -> tuple[Float[Array, " d"], Notes]:
        """The image of a row, and what went into each layer; taps are added to what each layer gives out."""

    @staticmethod
    @abstractmethod
    def unapply(weights: Weights, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """The row whose image is y."""

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        weights = self.weights()
        sizes = self.taps(len(x), len(weights.get("right", x)))  # the rows of the inner factor, where there is one
        no_taps = {name: jnp.zeros(size, x.dtype) for name, size in sizes.items()}
        return self.apply(weights, x, no_taps)[0], self.log_det_of(weights)

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.unapply(self.weights(), y)


class LowRank(LinearFlow):
    """x -> diag(s) x + A (B x) + b, with s > 0 and a small inner rank.

    Always invertible: s is the exponential of a squashed log-scale, and A is shrunk so that the Frobenius norm of
    K = B diag(1/s) A stays below 0.9; then det(W) = prod(s) det(I + K) with every eigenvalue of I + K at least 0.1 from
    zero. The determinant is that of a matrix of the size of the rank (matrix determinant lemma), and so is the
    system to solve for the inverse (Woodbury).
    Reference: Lee, Kim, Jeong, Ro 2022, equation (1); Lu and Huang 2020.
    """

    names: ClassVar[tuple[str, ...]] = ("scale", "left", "right", "shift")

    log_scale: Float[Array, " d"]
    left: Float[Array, "d rank"]
    right: Float[Array, "rank d"]
    shift: Float[Array, " d"]

    @classmethod
    def start(cls, num_features: int, rank: int, *, key: Array) -> "LowRank":
        """The identity, with a random ``left`` so that a gradient can move ``right``."""
        left = 0.1 * normal(key, num_features, rank)
        zeros = jnp.zeros(num_features, jnp.float32)
        return cls(zeros, left, jnp.zeros((rank, num_features), jnp.float32), zeros)

    def weights(self) -> dict[str, Array]:
        scale = jnp.exp(squashed(self.log_scale))
        inner = self.right @ (self.left / scale[:, None])
        shrink = _REACH / jnp.sqrt(_REACH**2 + jnp.sum(inner**2))
        return {"scale": scale, "left": self.left * shrink, "right": self.right, "shift": self.shift}

    @staticmethod
    def log_det_of(weights: Weights) -> Float[Array, ""]:
        return jnp.sum(jnp.log(weights["scale"])) + jnp.linalg.slogdet(_inner(weights))[1]

    @staticmethod
    def taps(num_features: int, rank: int) -> dict[str, int]:
        return {"inner": rank, "linear": num_features}

    @staticmethod
    def apply(weights: Weights, x: Float[Array, " d"], taps: Weights) -> tuple[Float[Array, " d"], Notes]:
        inner = tapped(weights["right"] @ x, taps["inner"])
        z = tapped(weights["scale"] * x + weights["left"] @ inner + weights["shift"], taps["linear"])
        return z, {"inner": x, "linear": inner}

    @staticmethod
    def unapply(weights: Weights, y: Float[Array, " d"]) -> Float[Array, " d"]:
        straight = (y - weights["shift"]) / weights["scale"]
        bent = jnp.linalg.solve(_inner(weights), weights["right"] @ straight)
        return straight - (weights["left"] @ bent) / weights["scale"]


class Plu(LinearFlow):
    """x -> P L U x + b: a fixed permutation, a unit lower triangle, and an upper one with a positive diagonal.

    Always invertible: the diagonal is the exponential of a squashed log-scale, so the determinant is its product. The
    rows of both triangles are shrunk to norms below one (the upper relative to its diagonal), so that solving them
    stays well behaved too. The permutation depends on the number of features alone, so it needs no place in a file.
    Reference: Kingma and Dhariwal 2018, section 3.2; Lee, Kim, Jeong, Ro 2022, equation (2).
    """

    names: ClassVar[tuple[str, ...]] = ("lower", "upper", "scale", "shift")

    lower: Float[Array, "d d"]
    upper: Float[Array, "d d"]
    log_scale: Float[Array, " d"]
    shift: Float[Array, " d"]

    @classmethod
    def start(cls, num_features: int) -> "Plu":
        """The permutation alone."""
        square = jnp.zeros((num_features, num_features), jnp.float32)
        zeros = jnp.zeros(num_features, jnp.float32)
        return cls(square, square, zeros, zeros)

    def weights(self) -> dict[str, Array]:
        below = np.tril(np.ones(self.lower.shape, np.float32), -1)
        scale = jnp.exp(squashed(self.log_scale))
        upper = _short(self.upper * below.T) * scale[:, None]
        return {"lower": _short(self.lower * below), "upper": upper, "scale": scale, "shift": self.shift}

    @staticmethod
    def log_det_of(weights: Weights) -> Float[Array, ""]:
        return jnp.sum(jnp.log(weights["scale"]))

    @staticmethod
    def taps(num_features: int, rank: int) -> dict[str, int]:
        return {"inner": num_features, "linear": num_features}

    @staticmethod
    def apply(weights: Weights, x: Float[Array, " d"], taps: Weights) -> tuple[Float[Array, " d"], Notes]:
        inner = tapped(weights["upper"] @ x + weights["scale"] * x, taps["inner"])
        z = tapped(weights["lower"] @ inner + inner + weights["shift"], taps["linear"])
        return z[permutation(x.shape[0])], {"inner": x, "linear": inner}

    @staticmethod
    def unapply(weights: Weights, y: Float[Array, " d"]) -> Float[Array, " d"]:
        ordered = jnp.zeros_like(y).at[permutation(y.shape[0])].set(y) - weights["shift"]
        inner = jax.scipy.linalg.solve_triangular(weights["lower"], ordered, lower=True, unit_diagonal=True)
        return jax.scipy.linalg.solve_triangular(weights["upper"] + jnp.diag(weights["scale"]), inner)


def permutation(num_features: int) -> np.ndarray:
    """A fixed mixing order of so many features: with the reversal between blocks, no two blocks see the same order."""
    return np.random.default_rng(num_features).permutation(num_features)


def _inner(weights: Weights) -> Float[Array, "rank rank"]:
    bent = weights["right"] @ (weights["left"] / weights["scale"][:, None])
    return jnp.eye(bent.shape[0], dtype=bent.dtype) + bent


def _short(rows: Float[Array, "row d"]) -> Float[Array, "row d"]:
    """Rows shrunk smoothly to norms below one."""
    return rows / jnp.sqrt(1 + jnp.sum(rows**2, axis=1, keepdims=True))
