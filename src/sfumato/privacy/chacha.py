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
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
_QUARTERS = _COLUMNS + _DIAGONALS


def _rotate(x: Array, bits: int) -> Array:
    return (x << bits) | (x >> (32 - bits))


def _quarter_round(words: list[Array], a: int, b: int, c: int, d: int) -> None:
    words[a] = words[a] + words[b]
    words[d] = _rotate(words[d] ^ words[a], 16)
    words[c] = words[c] + words[d]
    words[b] = _rotate(words[b] ^ words[c], 12)
    words[a] = words[a] + words[b]
    words[d] = _rotate(words[d] ^ words[a], 8)
    words[c] = words[c] + words[d]
    words[b] = _rotate(words[b] ^ words[c], 7)


def _double_round(_: int, state: tuple[Array, ...]) -> tuple[Array, ...]:
    # Sixteen vectors, one a word, with a block a place: every operation is elementwise and the whole round fuses.
    words = list(state)
    for quarter in _QUARTERS:
        _quarter_round(words, *quarter)
    return tuple(words)


def keystream(
    key: UInt32[Array, "8"], nonce: UInt32[Array, "3"], num_words: int, first_block: int | Array = 0
) -> UInt32[Array, " num_words"]:
    """So many 32-bit words of the ChaCha20 stream of a 256-bit key and a 96-bit nonce, from a block of 16 words on.

    Guarantees: equal to RFC 8439 with the block counter starting at ``first_block``; no state is kept, so a caller that
    never repeats a nonce never repeats a block.
    """
    num_blocks = -(-num_words // 16)
    start = (
        *(jnp.full(num_blocks, word, jnp.uint32) for word in _CONSTANTS),
        *(jnp.broadcast_to(key[i], (num_blocks,)) for i in range(8)),
        jnp.asarray(first_block, jnp.uint32) + jnp.arange(num_blocks, dtype=jnp.uint32),
        *(jnp.broadcast_to(nonce[i], (num_blocks,)) for i in range(3)),
    )
    # Hardly unrolled: one kernel of all rounds takes minutes to compile, above all on a GPU, where turns cost the time
    # of a launch or two.
    unroll = 1 if jax.default_backend() == "cpu" else 2
    mixed = jax.lax.fori_loop(0, 10, _double_round, start, unroll=unroll)
    return jnp.stack([a + b for a, b in zip(mixed, start, strict=True)], axis=1).reshape(-1)[:num_words]


compiled_keystream = jax.jit(keystream, static_argnums=2)
"""The same as one compiled program a length, for callers that are not compiled themselves."""
