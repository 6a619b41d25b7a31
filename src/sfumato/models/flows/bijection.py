"""Bijections of one row of features, each with the log-determinant of its Jacobian."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Bijection(eqx.Module):
    """An invertible map of a vector: towards the base density, and back.

    To add one, implement both methods for one unbatched vector; ``tests/laws/test_bijections.py`` lists every
    bijection and checks the laws (inverse, log-determinant against autodiff).
    """

    @abstractmethod
    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """Data to base, with the log of the absolute determinant of the Jacobian."""

    @abstractmethod
    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """Base to data."""


class Reverse(Bijection):
    """Reverses the order of the features, so that the next autoregressive block conditions the other way."""

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        return x[::-1], jnp.zeros((), x.dtype)

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        return y[::-1]


class Affine(Bijection):
    """A fixed shift and scale of each feature: (x - location) / scale. Not trained."""

    location: Float[Array, " d"]
    scale: Float[Array, " d"]

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        return (x - self.location) / self.scale, -jnp.sum(jnp.log(self.scale))

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        return y * self.scale + self.location


class ActNorm(Bijection):
    """Activation normalisation: a trained shift and log-scale a feature, started at the identity.

    The start does not look at the data, unlike the one in the literature, which reads a batch of rows.
    Reference: Kingma and Dhariwal 2018, section 3.1.
    """

    shift: Float[Array, " d"]
    log_scale: Float[Array, " d"]

    @classmethod
    def identity(cls, num_features: int) -> "ActNorm":
        return cls(jnp.zeros(num_features, jnp.float32), jnp.zeros(num_features, jnp.float32))

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        return (x - self.shift) * jnp.exp(-self.log_scale), -jnp.sum(self.log_scale)

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        return y * jnp.exp(self.log_scale) + self.shift


class Chain(Bijection):
    """Bijections one after the other."""

    parts: tuple[Bijection, ...]

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        total = jnp.zeros((), x.dtype)
        for part in self.parts:
            x, log_det = part.forward(x)
            total = total + log_det
        return x, total

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        for part in reversed(self.parts):
            y = part.inverse(y)
        return y
