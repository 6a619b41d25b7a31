"""Randomness: 256 bits from the operating system, or a seed that marks the run as a test.

The key never leaves the process: it has no text form, is in no certificate and in no file.
"""

import hashlib
import os
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from sfumato.checks import whole
from sfumato.errors import ArgumentError


class Stream(IntEnum):
    """What a stretch of the key stream is for; part of the nonce, so that no two purposes share a block."""

    SAMPLING = 0
    NOISE = 1
    ROWS = 2
    START = 3


@dataclass(frozen=True)
class Randomness:
    """The secret key of one fit.

    Guarantees: ``from_os`` reads 256 fresh bits at each call, so forked or resumed processes never share noise; and a
    curator claims its key, so that no two fits can draw the same.

    >>> Randomness.from_seed(7).source
    'seed'
    >>> Randomness.from_os()
    Randomness(source='os')
    """

    source: Literal["os", "seed", "known"]
    _key: bytes = field(repr=False, compare=False)
    _claims: list[None] = field(repr=False, compare=False, default_factory=list)

    @classmethod
    def from_os(cls) -> "Randomness":
        return cls("os", os.urandom(32))

    @classmethod
    def from_seed(cls, seed: int) -> "Randomness":
        """A key anyone can recompute: for tests only, and the certificate says so."""
        whole(0, seed=seed)
        return cls("seed", hashlib.sha256(f"sfumato seed {int(seed)}".encode()).digest())

    @classmethod
    def known(cls, key: bytes) -> "Randomness":
        """A key that others know: for audits, whose runs must repeat. What is made with it protects nobody."""
        return cls("known", key)

    def claim(self) -> None:
        """Take the key for one fit. A second fit with it would draw the same noise, and two answers would cancel it."""
        if self._claims:
            raise ArgumentError("A source of randomness serves one fit: take a new one.")
        self._claims.append(None)

    @property
    def key(self) -> UInt32[Array, "8"]:
        return jnp.asarray(np.frombuffer(self._key, "<u4"))


def nonce(call: int | Array, step: int | Array, stream: Stream) -> UInt32[Array, "3"]:
    """The nonce of one stretch of the stream: which call of a door, which step of it, what for."""
    parts = (call, step, int(stream))
    return jnp.stack([jnp.asarray(part).astype(jnp.uint32) for part in parts])
