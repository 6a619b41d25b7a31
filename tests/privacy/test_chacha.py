"""The key stream equals RFC 8439 and an independent implementation."""

import jax.numpy as jnp
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from sfumato.privacy.chacha import keystream


def _stream(key: bytes, nonce: bytes, num_words: int) -> np.ndarray:
    words = keystream(jnp.asarray(np.frombuffer(key, "<u4")), jnp.asarray(np.frombuffer(nonce, "<u4")), num_words)
    return np.asarray(words)


def test_rfc_8439_vector_of_an_all_zero_key():
    # RFC 8439, appendix A.1, test vector 1.
    expected = bytes.fromhex(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert _stream(bytes(32), bytes(12), 16).astype("<u4").tobytes() == expected


def test_equals_an_independent_implementation():
    random = np.random.default_rng(0)
    for num_words in (1, 15, 16, 17, 1000):
        key, nonce = random.bytes(32), random.bytes(12)
        cipher = Cipher(algorithms.ChaCha20(key, bytes(4) + nonce), None).encryptor()
        expected = np.frombuffer(cipher.update(bytes(4 * num_words)), "<u4")
        assert np.array_equal(_stream(key, nonce, num_words), expected)


def test_a_stream_goes_on_from_any_block():
    key, nonce = (jnp.arange(size, dtype=jnp.uint32) for size in (8, 3))
    whole = np.asarray(keystream(key, nonce, 16 * 40))
    for first in (0, 1, 7, 39):
        assert np.array_equal(keystream(key, nonce, 16, first), whole[16 * first :][:16])
    assert not np.array_equal(keystream(key, nonce, 16, 1), whole[:16])


def test_no_block_is_shared_between_nonces():
    blocks = set()
    for call in range(4):
        for step in range(25):
            for stream in range(4):
                nonce = np.array([call, step, stream], "<u4").tobytes()
                words = _stream(bytes(range(32)), nonce, 16 * 250)
                blocks |= {words[i : i + 16].tobytes() for i in range(0, words.size, 16)}
    assert len(blocks) == 4 * 25 * 4 * 250  # 100,000
