"""Absolute clipping: bounds the sum of absolute values that one row can add to a sum, for Laplace noise.

Laplace noise hides a vector by its norm of absolute values, and not by its Euclidean one, which is smaller by up to the
square root of the number of entries. So a sum that Laplace noise goes on must be clipped by this norm.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from sfumato.privacy.clipping import LARGE_LEAF, FlatClip


@dataclass(frozen=True, kw_only=True)
class AbsoluteClip(FlatClip):
    """Scales a row's whole vector down until its absolute values add up to at most ``bound``.

    Guarantees: for any input, each row adds a vector of whole numbers whose absolute values add up to at most ``GRID``;
    a row with a NaN, an infinity or an overflow in its norm adds zero.

    Proof: let u = 2**-24, s the exact sum of absolute values, and n the entries of the largest leaf that is summed in
    float32 (larger leaves, and the sums of leaves, are added in float64). Adding numbers that are not negative loses at
    most a part u each time, so in any order the computed norm is at least s (1 - u)^(n - 1) >= s (1 - (n - 1) u).
    A row is multiplied with at most GRID (1 - (n + 8) u) / norm, rounded to float32 once, and each product is rounded
    once; with six more roundings to spare for float64 and for the quotient, the absolute values add up to at most

        GRID (1 - (n + 8) u) / (1 - (n - 1) u) (1 + u)^8 <= GRID (1 - 9 u) (1 + u)^8 < GRID,

    and cutting towards zero makes every coordinate smaller. Numbers below 2**-126, which a machine may take as zero,
    come to no whole grid step. The norm and the sum see the same numbers (``from_memory``). A row below the bound is
    multiplied with at most (1 - (n + 8) u) GRID / bound, and its computed norm is at most the bound: the same chain.

    Cost: signal only, if the bound is too small. The Euclidean norm is at most this one, so that Gaussian noise may go
    on such sums, too; they are clipped by the gradients of rows and never by factors.
    Reference: Dwork, McSherry, Nissim, Smith 2006 (Laplace noise, and the norm that it goes with).

    >>> AbsoluteClip(bound=2.0)
    AbsoluteClip(bound=2.0)
    """

    by_factors: ClassVar[bool] = False

    def norms(self, leaves: list[Float[Array, "row ..."]]) -> Float[Array, " row"]:
        return sum((_sizes(leaf) for leaf in leaves), jnp.zeros(()))


def _sizes(leaf: Array) -> Array:
    flat = jnp.abs(leaf.reshape(leaf.shape[0], -1))
    if flat.shape[1] > LARGE_LEAF:
        return jnp.sum(flat.astype(jnp.float64), axis=1)
    return jnp.sum(flat, axis=1).astype(jnp.float64)
