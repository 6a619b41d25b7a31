"""Share cells: the cells of a row behind measured marginals, where widths are shares of the rows."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float

from sfumato.models.cells import EDGE, open_ended
from sfumato.models.flows.marginal_map import MarginalMap


class ShareCells(eqx.Module):
    """The cells of a row behind its marginals: low ends, widths, and log of width behind over width before.

    A measured distribution function F sends [low, low + width] to [F(low), F(low + width)]. Behind F a feature is
    uniform as far as the marginals go, so cells over many bins (of a missing value) ask nothing more of q. Bins in
    another order hold a level each, so that no cell but that of a missing value spans several of them.
    For a point the log is that of the slope of F.
    """

    low: Float[Array, " d"]
    width: Float[Array, " d"]
    log_ratio: Float[Array, " d"]

    @classmethod
    def behind(cls, marginals: MarginalMap, low: Float[Array, " d"], width: Float[Array, " d"]) -> "ShareCells":
        """What a marginal map makes of the cells of a row."""
        return cls(*jax.vmap(_behind)(low, width, marginals.edges, marginals.shares, marginals.starts))

    def point(self, share: Float[Array, " d"]) -> Float[Array, " d"]:
        """The standard normal features at so large a share of each cell."""
        return ndtri(jnp.clip(self.low + share * self.width, EDGE, 1 - EDGE))

    @property
    def centre(self) -> Float[Array, " d"]:
        """The standard normal features at the centres of the cells."""
        return self.point(jnp.full_like(self.low, 0.5))

    @property
    def open_ended(self) -> Bool[Array, " d"]:
        """Which cells touch 0 or 1, and so have no end on the real line."""
        return open_ended(self.low, self.width)


def _behind(
    low: Array, width: Array, edges: Float[Array, " edge"], shares: Float[Array, " edge"], starts: Float[Array, " bin"]
) -> tuple[Array, ...]:
    place = jnp.sum(jnp.clip(low + 0.5 * width, EDGE, 1 - EDGE) >= edges[1:-1])
    bottom, top = edges[place], edges[place + 1]
    slope = jnp.maximum((shares[place + 1] - shares[place]) / jnp.maximum(top - bottom, 1e-12), 1e-12)
    # A cell in a single bin is the common case, and a small one has a width that no difference could give.
    give = 0.01 * width
    single = (low >= bottom - give) & (low + width <= top + give)
    start, stop = _along(low, edges, shares), _along(low + width, edges, shares)
    positive = jnp.where(width > 0, width, 1.0)
    ratio = jnp.where(single, slope, jnp.maximum((stop - start) / positive, 1e-12))
    inside = jnp.maximum(starts[place] + (low - bottom) * slope, 0.0)
    return jnp.where(single, inside, start), ratio * width, jnp.log(ratio)


def _along(x: Array, edges: Float[Array, " edge"], shares: Float[Array, " edge"]) -> Array:
    """The broken line through the shares at the edges, as ``jnp.interp`` has it.

    Its place is found by counting: a search by halves is a loop, which on a GPU takes longer than what it saves.
    """
    place = jnp.clip(jnp.sum(x >= edges), 1, edges.shape[0] - 1)
    low, width = edges[place - 1], edges[place] - edges[place - 1]
    part = jnp.clip((x - low) / jnp.where(width > 0, width, 1.0), 0.0, 1.0)
    return shares[place - 1] + part * (shares[place] - shares[place - 1])
