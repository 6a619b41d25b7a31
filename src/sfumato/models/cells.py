"""Cells: from a row's cells of the unit interval to real features, and the likelihood of the row.

A feature of a row is an interval of [0, 1]: the whole cell of a level, or a single point for a continuous value
(see ``encoding.features``). A point drawn uniformly in the cell (dequantisation) is sent to the real line by
the normal quantile function, so that a standard normal feature is a uniform one, every density on the real
line is a density on the unit interval, nothing can be sampled outside the domain, and the masses of all
values of a column add up to one.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Float

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
