"""Taps: where the gradient of what a layer gives out is read off.

A tap is an array of zeros that a layer adds to what it gives out. The gradient in the tap is then what came back to the
layer, which is half of the gradient of the layer's weights for one row (the other half is what went in).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_jvp
def tapped(value: Float[Array, "*size"], tap: Float[Array, "*size"]) -> Float[Array, "*size"]:
    """``value + tap`` for a tap of zeros, and its gradients, without reading the zeros: another tap is not added.

    Those of all rows of a batch would be as much to read as the values themselves.

    >>> jax.grad(lambda tap: jnp.sum(tapped(jnp.array([1.0, 2.0]), tap) ** 2))(jnp.zeros(2)).tolist()
    [2.0, 4.0]
    """
    # A choice that a compiler drops. JAX needs it: where several taps share a value (draws that share a layer), each
    # has a gradient of its own only if what is given out is one for each of them.
    return jnp.where(jnp.bool_(True), value, tap.astype(value.dtype))


@tapped.defjvp
def _(given: tuple[Array, Array], moved: tuple[Array, Array]) -> tuple[Array, Array]:
    return tapped(*given), moved[0] + moved[1].astype(moved[0].dtype)


@jax.custom_jvp
def made_once(value: Float[Array, "*size"]) -> Float[Array, "*size"]:
    """The value as it is; what comes back to it is computed once, for the tap and for what lies before.

    A compiler for GPUs computes it for each of them. That is for wide layers: of narrow ones it is the faster way.

    >>> jax.grad(lambda x: jnp.sum(made_once(x) ** 2))(jnp.array([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """
    return value


@made_once.defjvp
def _(given: tuple[Array], moved: tuple[Array]) -> tuple[Array, Array]:
    return made_once(*given), jax.lax.optimization_barrier(*moved)
