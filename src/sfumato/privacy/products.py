"""Products: sums over rows and uses of what goes into the products of factors, in as many bits as their proofs ask."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def grouped(values: Array, added: int) -> Array:
    """Rows in equal groups of at most ``added``, whose sums are made by themselves."""
    num_rows = values.shape[0]
    size = next(size for size in range(min(added, max(1, num_rows)), 0, -1) if num_rows % size == 0)
    return values.reshape(-1, size, *values.shape[1:])


def contracted(into: Array, back: Array) -> Array:
    """The sum of outer products over each group of rows and all uses, [group, matrix, output, input].

    The left side of a product is copied first, and the largest layers have fewer inputs than outputs.
    """
    return jnp.swapaxes(jnp.einsum("cnbui,cnbuo->cbio", into, back), -1, -2)


def gram(values: Array) -> Array:
    """The inner products of all pairs of uses, [row, matrix, use, use]."""
    return jnp.einsum("nbui,nbvi->nbuv", wide(values), wide(values))


def of_pairs(products: Array) -> tuple[Array, Array]:
    """From the inner products of a row's outer products, its squared norm, and the norm if nothing cancelled."""
    alone = jnp.diagonal(products, axis1=2, axis2=3)
    return jnp.sum(products, axis=(1, 2, 3)), jnp.max(jnp.sum(jnp.sqrt(alone), axis=2), axis=1)


def wide(values: Array) -> Array:
    """The same numbers in 64 bits."""
    return values.astype(jnp.float64)


def by_group(values: Array, groups: int) -> Array:
    """The sums of equal groups of entries that stand together."""
    parts = values.reshape(*values.shape[:-1], groups, -1)
    if jax.default_backend() != "cpu":
        return jnp.sum(parts, axis=-1)
    # The same sum: a CPU adds up short rows one number at a time, and multiplies matrices several at a time.
    return matmul(parts, np.ones(parts.shape[-1], parts.dtype))


def matmul(left: Array, right: np.ndarray) -> Array:
    """The product in as many bits as its sides have, on every machine."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
