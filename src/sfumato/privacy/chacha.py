"""The ChaCha20 key stream, written in JAX so that noise is drawn where the sums are, inside the compiled loop.

JAX's own generators hold 64 (threefry) or 128 bits (rbg) of key; noise that must not be guessed deserves the
256 bits that ChaCha20 takes, and a cipher that was designed to be unpredictable. Each (purpose, step) pair has
a nonce of its own, so that no block of the stream is ever used twice under one key.

Reference: RFC 8439, section 2.3, whose test vectors are in ``tests/privacy/test_chacha.py``.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_WORDS_PER_BLOCK = 16


def _rotate(x: Array, bits: int) -> Array:
    return (x << bits) | (x >> (32 - bits))


def _quarter_round(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array, Array, Array]:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


def _double_round(_: int, rows: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
    # The sixteen words stand as four rows of four, so that the four columns, and then the four diagonals,
    # are each one vectorised quarter round.
    a, b, c, d = _quarter_round(*rows)
    b, c, d = jnp.roll(b, -1, 0), jnp.roll(c, -2, 0), jnp.roll(d, -3, 0)
    a, b, c, d = _quarter_round(a, b, c, d)
    return a, jnp.roll(b, 1, 0), jnp.roll(c, 2, 0), jnp.roll(d, 3, 0)


def keystream(key: UInt32[Array, "8"], nonce: UInt32[Array, "3"], num_words: int) -> UInt32[Array, " num_words"]:
    """The first ``num_words`` 32-bit words of the ChaCha20 stream of a 256-bit key and a 96-bit nonce.

    Guarantees: equal to RFC 8439 with the block counter starting at 0; no state is kept, so a caller that never
    repeats a nonce never repeats a block.
    """
    num_blocks = -(-num_words // _WORDS_PER_BLOCK)
    counter = jnp.arange(num_blocks, dtype=jnp.uint32)
    words = [jnp.full(num_blocks, word, jnp.uint32) for word in _CONSTANTS]
    words += [jnp.broadcast_to(key[i], (num_blocks,)) for i in range(8)]
    words += [counter] + [jnp.broadcast_to(nonce[i], (num_blocks,)) for i in range(3)]
    start = jnp.stack(words).reshape(4, 4, num_blocks)
    rows = (start[0], start[1], start[2], start[3])
    mixed = jax.lax.fori_loop(0, 10, _double_round, rows)
    blocks = (jnp.stack(mixed) + start).reshape(_WORDS_PER_BLOCK, num_blocks)
    return blocks.T.reshape(-1)[:num_words]
