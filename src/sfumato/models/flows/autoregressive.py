"""Autoregressive bijections: each feature is mapped by a univariate map whose parameters come from those before.

The kind of univariate map is passed in, so that an affine flow and a spline flow differ by one argument.
Reference: Papamakarios, Pavlakou, Murray 2017 (masked autoregressive flow).
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sfumato.models.flows.bijection import Bijection
from sfumato.models.flows.made import Made


class UnivariateMap(eqx.Module):
    """An increasing map of one number, given the outputs of a conditioner."""

    @abstractmethod
    def num_parameters(self) -> int:
        """How many conditioner outputs one feature needs."""

    @abstractmethod
    def forward(self, x: Array, parameters: Float[Array, " p"]) -> tuple[Array, Array]:
        """The image of x and the log of the derivative there; the identity at parameters of zero."""

    @abstractmethod
    def inverse(self, y: Array, parameters: Float[Array, " p"]) -> Array:
        """The x whose image is y."""


class AffineMap(UnivariateMap):
    """(x - shift) * exp(-log_scale), the log-scale squashed to +-``limit`` so that no noisy step can blow it up."""

    limit: float = eqx.field(static=True, default=2.0)

    def num_parameters(self) -> int:
        return 2

    def _log_scale(self, parameters: Float[Array, " p"]) -> Array:
        return self.limit * jnp.tanh(parameters[1] / self.limit)

    def forward(self, x: Array, parameters: Float[Array, " p"]) -> tuple[Array, Array]:
        log_scale = self._log_scale(parameters)
        return (x - parameters[0]) * jnp.exp(-log_scale), -log_scale

    def inverse(self, y: Array, parameters: Float[Array, " p"]) -> Array:
        return y * jnp.exp(self._log_scale(parameters)) + parameters[0]


class Autoregressive(Bijection):
    """A univariate map a feature, conditioned on the features before it by a masked network."""

    conditioner: Made
    univariate: UnivariateMap

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        y, log_slope = jax.vmap(self.univariate.forward)(x, self.conditioner(x))
        return y, jnp.sum(log_slope)

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.conditioner.run_by_feature(lambda outputs, y_i: self.univariate.inverse(y_i, outputs), y)
