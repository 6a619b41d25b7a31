"""Noise: Gaussian noise on integers that leaves no holes.

A float32 sum with float32 noise is formally broken: which outputs are reachable depends on the sum, so an
attacker who knows the other rows can rule out a hypothesis from a handful of coordinates (Mironov 2012; Haney
et al. 2022). Here every private sum is a whole number on a public grid, and the noise is a Gaussian of 53 bits,
rounded to whole numbers. For a whole number s, round(s + g) = s + round(g), so the output is the exact Gaussian
mechanism followed by rounding: post-processing, at no cost in privacy.

Limits: the tail is cut at 9.4 standard deviations, which a draw passes with probability 5e-21; and the normal
deviate has a relative error near 2**-52, so that the probability of a whole number is off by about one part
in 2**52 / noise deviation.
"""

from functools import partial
from math import factorial, pi

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64, Int64, UInt32, UInt64

from sfumato.errors import ArgumentError
from sfumato.privacy.chacha import keystream

MOST_DEVIATION = 2.0**55
"""In grid units. The tail of 9.4 deviations is then below 2**59, and a sum with its noise stays within 64 bits."""


_PIECE = 4_096
"""Pairs that are drawn at once outside of a program, so that one program serves every length."""

_PIECE_BLOCKS = _PIECE // 4  # of 16 words, 4 words a pair
_MOST_PAIRS = 2**34
"""Past these the counter of blocks would begin anew, and with it the noise."""

_TERMS = 10  # of a Taylor sum up to a quarter of pi: the next one is below 2**-68


def check_deviation(deviation: float) -> None:
    """Refuse noise that would not fit into whole numbers of 64 bits: cut off there, it would show what it hides."""
    if not deviation <= MOST_DEVIATION:
        raise ArgumentError(
            "The noise that this budget asks for is too large to be added exactly: "
            "raise epsilon, or lower max_rows of the unit."
        )


def normals(key: UInt32[Array, "8"], nonce: UInt32[Array, "3"], num: int) -> Float64[Array | np.ndarray, " num"]:
    """Standard normal deviates in float64 from the secret stream, by Box and Muller's polar angle.

    Needs 64-bit mode: 64 random bits give the radius, which is what lets the tail reach 9.4.
    Where it is called by itself, pairs are drawn in pieces of one length, so that one program is compiled; what is not
    needed is thrown away. A pair depends on its place in the stream and not on how many there are.
    """
    num_pairs = -(-num // 2)
    if num_pairs > _MOST_PAIRS:
        raise ArgumentError("More noise than one nonce has blocks of the key stream for.")
    if isinstance(nonce, jax.core.Tracer):
        return jnp.concatenate(_pairs(key, nonce, num_pairs, 0))[:num]
    pieces = [_pairs(key, nonce, _PIECE, at * _PIECE_BLOCKS) for at in range(max(1, -(-num_pairs // _PIECE)))]
    found = [np.concatenate([np.asarray(piece[side]) for piece in pieces])[:num_pairs] for side in range(2)]
    return np.concatenate(found)[:num]


@partial(jax.jit, static_argnums=2)
def _pairs(
    key: UInt32[Array, "8"], nonce: UInt32[Array, "3"], num_pairs: int, first_block: int | Array
) -> tuple[Float64[Array, " pair"], Float64[Array, " pair"]]:
    words = keystream(key, nonce, 4 * num_pairs, first_block).reshape(num_pairs, 4).astype(jnp.uint64)
    first = (words[:, 0] << 32) | words[:, 1]
    second = (words[:, 2] << 32) | words[:, 3]
    radius = jnp.sqrt(-2 * jnp.log((first.astype(jnp.float64) + 1) * 2.0**-64))
    cosine, sine = _on_the_circle(second)
    return radius * cosine, radius * sine


def _on_the_circle(words: UInt64[Array, " pair"]) -> tuple[Float64[Array, " pair"], Float64[Array, " pair"]]:
    """Cosine and sine of an even angle: three bits say which eighth of the circle, the others where in it.

    Inside an eighth both are Taylor sums, whose rest is below 2**-68. On a CPU many are made at once, where the
    library's functions take one number at a time.
    """
    angle = (words & (2**61 - 1)).astype(jnp.float64) * (pi / 4 * 2.0**-61)
    square = angle * angle
    near, far = _taylor(square, 0), angle * _taylor(square, 1)
    swapped = (words >> 61) & 1 == 1
    cosine, sine = jnp.where(swapped, far, near), jnp.where(swapped, near, far)
    return jnp.where((words >> 62) & 1 == 1, -cosine, cosine), jnp.where((words >> 63) == 1, -sine, sine)


def _taylor(square: Float64[Array, " pair"], first: int) -> Float64[Array, " pair"]:
    """The cosine (``first`` 0), or the sine over its angle (``first`` 1), by the square of the angle."""
    total = jnp.zeros_like(square)
    for power in range(_TERMS - 1, -1, -1):
        total = total * square + (-1) ** power / factorial(2 * power + first)
    return total


def gaussian_integers(
    key: UInt32[Array, "8"], nonce: UInt32[Array, "3"], num: int, deviation: float | Array
) -> Int64[Array | np.ndarray, " num"]:
    """Gaussian noise of the given standard deviation, rounded to whole numbers.

    Guarantees: s + noise is distributed as the Gaussian mechanism on s, rounded, for whole s (module docstring).
    """
    found = normals(key, nonce, num)
    if isinstance(found, np.ndarray):  # outside of a program JAX would compile one for every length
        return np.round(np.asarray(deviation) * found).astype(np.int64)
    return jnp.round(deviation * found).astype(jnp.int64)
