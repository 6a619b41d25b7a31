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

    Both rise from 0 to 1. Bins that are not used are empty ones at the upper end. ``starts`` says where the image of
    each bin begins: as a rule at the share below it, but bins may also be put in another order, as levels that stand in
    none of their own.
    """

    edges: Float[Array, "d edge"]
    shares: Float[Array, "d edge"]
    starts: Float[Array, "d bin"]

    @classmethod
    def in_order(cls, edges: Float[Array, "d edge"], shares: Float[Array, "d edge"]) -> "MarginalMap":
        """The map that keeps all bins where they stand."""
        return cls(edges, shares, shares[:, :-1])

    @classmethod
    def identity(cls, num_features: int, bins: int = 1) -> "MarginalMap":
        """The map that changes nothing."""
        line = jnp.tile(jnp.linspace(0, 1, bins + 1, dtype=jnp.float32), (num_features, 1))
        return cls.in_order(line, line)

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        def one(z: Array, edges: Array, shares: Array, starts: Array) -> tuple[Array, Array]:
            place = jnp.sum(_unit(z) >= edges[1:-1])
            return _move(z, edges[place], jnp.diff(edges)[place], starts[place], jnp.diff(shares)[place])

        moved, log_slope = jax.vmap(one)(x, self.edges, self.shares, self.starts)
        return moved, jnp.sum(log_slope)

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        def one(z: Array, edges: Array, shares: Array, starts: Array) -> Array:
            masses = jnp.diff(shares)
            below = (starts <= _unit(z)) & (masses > 0)
            place = jnp.argmax(jnp.where(below, starts, -1.0))  # the last bin that begins below, in whatever order
            return _move(z, starts[place], masses[place], edges[place], jnp.diff(edges)[place])[0]

        return jax.vmap(one)(y, self.edges, self.shares, self.starts)


def _unit(z: Array) -> Array:
    return jnp.clip(ndtr(z), EDGE, 1 - EDGE)


def _move(z: Array, low: Array, width: Array, start: Array, mass: Array) -> tuple[Array, Array]:
    """Phi^-1 of the image of Phi(z), as its bin goes from [low, low + width] to [start, start + mass]; log slope."""
    slope = mass / jnp.maximum(width, 1e-12)
    moved = ndtri(jnp.clip(start + (_unit(z) - low) * slope, EDGE, 1 - EDGE))
    return moved, jnp.log(jnp.maximum(slope, 1e-12)) + norm.logpdf(z) - norm.logpdf(moved)
