"""Marginal map: each feature by itself to a standard normal one, as measured marginals say.

A feature is u = Phi(z) on the unit interval. Measured shares of its bins make a piecewise straight distribution
function F, and z goes to Phi^-1(F(Phi(z))). If the shares are those of the table, every feature comes out standard
normal, and a flow behind the map has only the dependence left to learn.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from sfumato.models.cells import EDGE
from sfumato.models.flows.bijection import Bijection


class MarginalMap(Bijection):
    """Piecewise straight distribution functions: feature by feature the edges of bins, and the share below each.

    Both rise from 0 to 1. Bins that are not used are empty ones at the upper end.
    """

    edges: Float[Array, "d edge"]
    shares: Float[Array, "d edge"]

    @classmethod
    def identity(cls, num_features: int, bins: int = 1) -> "MarginalMap":
        """The map that changes nothing."""
        line = jnp.tile(jnp.linspace(0, 1, bins + 1, dtype=jnp.float32), (num_features, 1))
        return cls(line, line)

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        moved, log_slope = jax.vmap(_move)(x, self.edges, self.shares)
        return moved, jnp.sum(log_slope)

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.vmap(_move)(y, self.shares, self.edges)[0]


def _move(z: Array, starts: Float[Array, " edge"], ends: Float[Array, " edge"]) -> tuple[Array, Array]:
    """Phi^-1 of the piecewise straight image of Phi(z), and the log of its slope."""
    u = jnp.clip(ndtr(z), EDGE, 1 - EDGE)
    place = jnp.sum(u >= starts[1:-1])
    low, high = starts[place], starts[place + 1]
    slope = (ends[place + 1] - ends[place]) / jnp.maximum(high - low, 1e-12)
    moved = ndtri(jnp.clip(ends[place] + (u - low) * slope, EDGE, 1 - EDGE))
    return moved, jnp.log(jnp.maximum(slope, 1e-12)) + norm.logpdf(z) - norm.logpdf(moved)
