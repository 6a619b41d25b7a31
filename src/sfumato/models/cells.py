"""Cells: from a row's cells of the unit interval to real features, and the likelihood of the row.

A feature of a row is an interval of [0, 1]: the whole cell of a level, or a single point for a continuous value
(see ``encoding.features``). A point drawn uniformly in the cell (dequantisation) is sent to the real line by
the normal quantile function, so that a standard normal feature is a uniform one, every density on the real
line is a density on the unit interval, nothing can be sampled outside the domain, and the masses of all
values of a column add up to one.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float

EDGE = 1e-6
"""Points are kept this far from 0 and 1, where the normal quantile is infinite; that is 4.75 deviations."""


def point_in_cell(
    low: Float[Array, " feature"], width: Float[Array, " feature"], uniform: Float[Array, " feature"]
) -> Float[Array, " feature"]:
    """The real features of the point at share ``uniform`` of each cell.

    >>> import jax.numpy as jnp
    >>> float(point_in_cell(jnp.zeros(1), jnp.ones(1), jnp.full(1, 0.5))[0])
    0.0
    """
    return ndtri(jnp.clip(low + uniform * width, EDGE, 1 - EDGE))


def dequantise(low: Float[Array, " feature"], width: Float[Array, " feature"], key: Array) -> Float[Array, " feature"]:
    """Real features of a point drawn uniformly in each cell."""
    return point_in_cell(low, width, jax.random.uniform(key, low.shape, low.dtype))


def log_uniform_ratio(features: Float[Array, " feature"]) -> Float[Array, ""]:
    """What turns a log density of real features into one on the unit cube: minus the standard normal's."""
    return -jnp.sum(norm.logpdf(features))


_WIDE = 2.0


def weighted_point(
    low: Float[Array, " feature"],
    width: Float[Array, " feature"],
    uniform: Float[Array, " feature"],
    wide: Bool[Array, ""],
    wide_share: Float[Array, ""],
) -> tuple[Float[Array, " feature"], Float[Array, ""]]:
    """A point of a row's cells and its log weight: the mean of density times weight is the density on the unit cube.

    A cell that touches 0 or 1 has no end on the real line, and a model may have mass there that uniform points
    hardly ever see. So a share of the points (``wide``) is drawn in such cells from a normal of twice the
    deviation, and all points are weighted by the mixture of both (Veach and Guibas 1995, the balance heuristic).
    Points of continuous values have the weight of ``log_uniform_ratio``, and nothing is drawn.
    """
    features = jnp.where(wide, wide_point(low, width, uniform), point_in_cell(low, width, uniform))
    in_wide = log_wide_density(low, width, features)
    mixture = jnp.logaddexp(jnp.log1p(-wide_share), jnp.log(wide_share) + in_wide)
    return features, log_uniform_ratio(features) - mixture


def wide_point(
    low: Float[Array, " feature"], width: Float[Array, " feature"], uniform: Float[Array, " feature"]
) -> Float[Array, " feature"]:
    """A point of a row's cells: from a wide normal where a cell is open, else at that share of the cell."""
    below, mass = low <= EDGE, _wide_mass(low, width)
    tail = _WIDE * ndtri(jnp.clip(uniform * mass, 1e-30, 1 - EDGE))
    return jnp.where(open_ended(low, width), jnp.where(below, tail, -tail), point_in_cell(low, width, uniform))


def log_wide_density(
    low: Float[Array, " feature"], width: Float[Array, " feature"], features: Float[Array, " feature"]
) -> Float[Array, ""]:
    """The log density of ``wide_point`` at features in a row's cells, where uniform points have the density one."""
    is_open = open_ended(low, width)
    wide = norm.logpdf(features / _WIDE) - jnp.log(_WIDE * _wide_mass(low, width))
    uniform = norm.logpdf(features) - jnp.log(jnp.where(is_open, width, 1.0))
    return jnp.sum(jnp.where(is_open, wide - uniform, 0.0))


def open_ended(low: Float[Array, " feature"], width: Float[Array, " feature"]) -> Bool[Array, " feature"]:
    """Which cells touch 0 or 1, and so have no end on the real line."""
    return (width > 0) & ((low <= EDGE) | (low + width >= 1 - EDGE))


def _wide_mass(low: Float[Array, " feature"], width: Float[Array, " feature"]) -> Float[Array, " feature"]:
    """The mass of the wide normal in each cell, taken from the end that is open so that nothing cancels."""
    below, above = low <= EDGE, low + width >= 1 - EDGE
    upper, lower = ndtri(jnp.clip(low + width, EDGE, 1 - EDGE)), ndtri(jnp.clip(low, EDGE, 1 - EDGE))
    return jnp.where(below & above, 1.0, jnp.where(below, ndtr(upper / _WIDE), ndtr(-lower / _WIDE)))
