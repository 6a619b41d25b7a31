"""Starts: the random numbers that parameters begin with."""

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FEWEST = 1_024


def normal(key: Array, *shape: int) -> Float[Array, "..."]:
    """Standard normal numbers, those of ``jax.random.normal``, drawn in lengths of a power of two.

    A program of draws takes a second to compile, and models have arrays of many shapes.

    >>> found = normal(jax.random.key(1), 3, 2)
    >>> bool(jnp.all(found == jax.random.normal(jax.random.key(1), (3, 2))))
    True
    """
    size = prod(shape)
    found = jax.random.normal(key, (max(FEWEST, 1 << max(0, size - 1).bit_length()),), jnp.float32)
    if isinstance(found, jax.core.Tracer):  # it is part of a program already
        return found[:size].reshape(shape)
    return jnp.asarray(np.asarray(found)[:size].reshape(shape))
