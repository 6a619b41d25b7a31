"""Clipping: bounds what one row can add to a sum, exactly, on a grid of whole numbers.

A row's vector is scaled to the bound and cut towards zero onto a grid of 2**20 steps a bound. Sums of whole
numbers are exact and do not depend on the order of the rows, so there is no summation error to bound: the
sensitivity is the grid norm of one row and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from sfumato.checks import between
from sfumato.errors import ArgumentError

GRID = 2**20
"""Grid steps per clipping bound: the sensitivity of one row, in grid units."""

MOST_ROWS_AT_ONCE = 1024
"""Rows that a 32-bit sum can hold: 1,024 rows of at most 2**20 a coordinate stay below 2**31."""

_UNIT_ROUNDOFF = 2.0**-24
LARGE_LEAF = 2**14
"""Entries of a leaf that are summed in float32 at most."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One array of a gradient: its layer, how many of its entries can move, how many axes one unit of it has.

    A row of a weight matrix is a unit (``fan`` 1); each entry of a bias is one by itself (``fan`` 0).
    """

    layer: str
    entries: int
    fan: int


@dataclass(frozen=True, kw_only=True)
class FlatClip:
    """Scales a row's whole vector down to the norm ``bound`` where it is longer.

    Guarantees: for any input, each row adds a vector of whole numbers of Euclidean norm at most ``GRID``; a row
    with a NaN, an infinity or an overflow in its norm adds zero.

    Proof: the norm is computed in float32 with a relative error of at most (n + 8) * 2**-24, n the largest
    leaf summed in float32 (any order of summation of n positive terms errs by less than n roundings; larger
    leaves are summed in float64). The row is scaled to bound * (1 - slack) with that slack, so its exact norm
    stays below the bound, and cutting towards zero shortens every coordinate.

    Reference: Abadi et al. 2016 (flat clipping); Casacuberta et al. 2022 (why float sums are not safe).
    """

    bound: float

    by_factors: ClassVar[bool] = True
    """Whether norms of layers are enough to clip by, so that no gradient of a single row is needed."""

    def __post_init__(self) -> None:
        between(1e-6, 1e6, bound=self.bound)

    def bounds(self, parts: Sequence[Part]) -> dict[str, float]:
        """The bound of each group of layers that is clipped together; here they are all one group."""
        return {"all": self.bound}

    def group(self, part: Part) -> str:
        """The group in ``bounds`` that an array belongs to."""
        return "all"

    def shaped(
        self, vectors: list[Float[Array, "row ..."]], parts: Sequence[Part], keys: Array
    ) -> list[Float[Array, "row ..."]]:
        """The vectors as they go to ``grid_sum``, which bounds them whatever was done here; flat clipping does nothing.

        ``keys`` holds a key for each row, for shapes that are random.
        """
        return vectors

    def grid_sum(self, vectors: PyTree[Float[Array, "row ..."]], valid: Bool[Array, " row"]) -> PyTree[Array]:
        """The sum over valid rows of their clipped vectors, as 32-bit whole numbers in grid units."""

        def total(vectors: PyTree[Array]) -> PyTree[Array]:
            factor = self.factors(vectors, valid)

            def leaf_sum(leaf: Array) -> Array:
                weight = factor.reshape((-1,) + (1,) * (leaf.ndim - 1))
                # A NaN times a zero weight is NaN, so invalid rows are cut out and not only weighted.
                steps = jnp.where(weight > 0, leaf * weight, 0.0).astype(jnp.int32)
                return jnp.sum(steps, axis=0, dtype=jnp.int32)

            return jax.tree.map(leaf_sum, vectors)

        # Shorter floats become float32, for which the slack is proven.
        return from_memory(total, jax.tree.map(_as_float32, vectors), jnp.any(valid))

    def factors(self, vectors: PyTree[Float[Array, "row ..."]], valid: Bool[Array, " row"]) -> Float[Array, " row"]:
        """What each row is multiplied with to stand on the grid; zero for rows that do not count."""
        leaves = jax.tree.leaves(vectors)
        norm = self.norms(leaves)
        target = self.bound * (1 - _slack(leaves))
        scale = jnp.minimum(1.0 - _slack(leaves), target / norm) * (GRID / self.bound)
        usable = valid & jnp.isfinite(norm)
        return jnp.where(usable, scale, 0.0).astype(jnp.float32)

    def norms(self, leaves: list[Float[Array, "row ..."]]) -> Float[Array, " row"]:
        """The norm of each row over all arrays of its vector; here the Euclidean one."""
        return jnp.sqrt(sum(_squares(leaf) for leaf in leaves))


def from_memory(function: Callable[[Any], Any], values: Any, needed: Bool[Array, ""]) -> Any:
    """function(values), all of which sees the very same numbers; zeros where it is not ``needed``.

    A norm and a sum must be taken of the same numbers. A compiler may compute a number once for each of its uses, with
    other roundings, and one that runs on CPUs drops optimisation barriers before it does so. So the values are handed
    into a loop of one turn: it cannot know how many turns there are, and everything inside depends on the turn, so that
    nothing can be moved in or out.
    """

    def turn(number: Array, found: Any) -> Any:
        same = jax.tree.map(lambda value: jnp.where(number == 0, value, jnp.zeros_like(value)), values)
        return jax.tree.map(jnp.add, found, function(same))

    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, values))
    return jax.lax.fori_loop(0, needed.astype(jnp.int32), turn, start)


def _as_float32(leaf: Array) -> Array:
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise ArgumentError(f"Expected real numbers to clip, found {leaf.dtype}.")
    return leaf.astype(jnp.float32)


def _squares(leaf: Array) -> Array:
    flat = leaf.reshape(leaf.shape[0], -1)
    if flat.shape[1] > LARGE_LEAF:
        return jnp.sum(flat.astype(jnp.float64) ** 2, axis=1)
    return jnp.sum(flat * flat, axis=1).astype(jnp.float64)


def _slack(leaves: list[Array]) -> float:
    sizes = [leaf[0].size for leaf in leaves]
    return (max(min(size, LARGE_LEAF) for size in sizes) + 8) * _UNIT_ROUNDOFF
