"""Copula: standard normal features made independent, as measured correlations say.

Behind its marginals every feature is standard normal. A Gaussian copula says that together they are normal with a
correlation matrix C = L L'; then x = L^-1 z is standard normal in every direction, and a flow behind this map has
only the dependence left to learn that correlations miss.

A discrete value is a cell of z. Given the other cells of a row, z is more likely in one part of it than in another, and
a copula knows where: drawing feature after feature from the normal given those before, cut to the cell, is close to
the law of z given all cells. So points are put where the density wants them, with nothing to be learned.
Reference: Geweke 1991, Hajivassiliou and Ruud 1994, Keane 1994 (the GHK simulator).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float

from sfumato.models.cells import EDGE
from sfumato.models.flows.share_cells import ShareCells

_COARSE = 0.01
"""Cells that hold less than this share of the rows are small enough for points that are even in them."""

_FAR = 5.0
"""The mean of a draw is moved to within this many deviations of the cell, where 32 bits still tell its ends apart."""


class Copula(eqx.Module):
    """The lower triangular factor L of a correlation matrix, with a positive diagonal."""

    factor: Float[Array, "d d"]

    @classmethod
    def independent(cls, num_features: int) -> "Copula":
        """The copula that changes nothing."""
        return cls(jnp.eye(num_features, dtype=jnp.float32))

    @property
    def scales(self) -> Float[Array, " d"]:
        """The deviation of each feature given those before it."""
        return jnp.diagonal(self.factor)

    def log_det(self) -> Float[Array, ""]:
        """The log-determinant of ``whiten``."""
        return -jnp.sum(jnp.log(self.scales))

    def whiten(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """Independent features from correlated ones."""
        return solve_triangular(self.factor, z, lower=True)

    def colour(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Correlated features from independent ones."""
        return self.factor @ x

    def draw(self, cells: ShareCells, uniform: Float[Array, " d"]) -> Float[Array, " d"]:
        """Independent features of a point of a row's cells, from uniform noise.

        In coarse cells the point follows the copula given the features before it; in small ones, and for points, it
        lies at that share of the cell.
        """
        coarse, z = _coarse(cells), cells.point(uniform)

        def one(x: Float[Array, " d"], given: tuple[Array, ...]) -> tuple[Array, None]:
            place, row, low, high, share, is_coarse, inside = given
            mean, scale = jnp.sum(row * x), row[place]  # x is still zero from this place on
            inner = _Inner.of(mean, scale, low, high)
            found = jnp.where(is_coarse, inner.at(share), (inside - mean) / scale)
            return x.at[place].set(found), None

        low, high = _ends(cells)
        places = jnp.arange(z.shape[0], dtype=jnp.int32)
        given = (places, self.factor, low, high, uniform, coarse, z)
        return jax.lax.scan(one, jnp.zeros_like(z), given, unroll=4)[0]

    def log_proposal(self, cells: ShareCells, z: Float[Array, " d"]) -> Float[Array, ""]:
        """The log density of ``draw`` at a point of the cells, where even points of the cells have the density one."""
        x, scales = self.whiten(z), self.scales
        inner = jax.vmap(_Inner.of)(z - scales * x, scales, *_ends(cells))
        coarse = _coarse(cells)
        own = norm.logpdf(x - inner.moved) - jnp.log(inner.mass * scales)
        even = norm.logpdf(z) - jnp.log(jnp.where(coarse, cells.width, 1.0))
        return jnp.sum(jnp.where(coarse, own - even, 0.0))


class _Inner(eqx.Module):
    """A standard normal cut to a cell, whose mean was ``moved`` towards the cell where that is far away."""

    low: Array
    mass: Array
    moved: Array
    flipped: Bool[Array, ""]

    @classmethod
    def of(cls, mean: Array, scale: Array, low: Array, high: Array) -> "_Inner":
        start, stop = (low - mean) / scale, (high - mean) / scale
        moved = jnp.maximum(start - _FAR, 0.0) + jnp.minimum(stop + _FAR, 0.0)
        start, stop = start - moved, stop - moved
        # The upper tail is taken for the lower one, since numbers near one hide small masses.
        flipped = start > 0
        start, stop = jnp.where(flipped, -stop, start), jnp.where(flipped, -start, stop)
        below = ndtr(start)
        return cls(below, jnp.maximum(ndtr(stop) - below, 1e-30), moved, flipped)

    def at(self, share: Array) -> Array:
        """The point below which lies so large a share of the mass."""
        share = jnp.where(self.flipped, 1 - share, share)
        x = ndtri(jnp.clip(self.low + share * self.mass, 1e-30, 1 - 2.0**-24))
        return jnp.where(self.flipped, -x, x) + self.moved


def _coarse(cells: ShareCells) -> Bool[Array, " d"]:
    return cells.width >= _COARSE


def _ends(cells: ShareCells) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """The ends of cells on the real line, open where they touch 0 or 1."""
    top = cells.low + cells.width
    low = jnp.where(cells.low <= EDGE, -jnp.inf, ndtri(jnp.clip(cells.low, EDGE, 1 - EDGE)))
    return low, jnp.where(top >= 1 - EDGE, jnp.inf, ndtri(jnp.clip(top, EDGE, 1 - EDGE)))
