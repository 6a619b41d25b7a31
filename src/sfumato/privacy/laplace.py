"""Laplace: two-sided geometric noise on whole numbers, drawn exactly from random bits. No float takes part.

A vector of whole numbers that neighbours move by at most s in the sum of absolute values is epsilon-private with such
noise of rate epsilon / s on each entry: the odds of any outcome change by at most exp(rate * s). Whole numbers with
noise of whole numbers leave none of the holes of floats, and no tail is cut off.

Reference: Dwork, McSherry, Nissim, Smith 2006; Ghosh, Roughgarden, Sundararajan 2009 (two-sided geometric noise);
Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", algorithms 1 and 2.
"""

import secrets
from collections.abc import Callable
from fractions import Fraction
from math import ceil

import numpy as np
from jaxtyping import Array, UInt32

from sfumato.errors import ArgumentError
from sfumato.privacy.chacha import compiled_keystream
from sfumato.privacy.randomness import Stream, nonce

_WORDS = 4096
"""Random words that are made at once."""


def discrete_laplace(rate: Fraction, *, bits: Callable[[int], int] = secrets.randbits) -> int:
    """A whole number x with probability proportional to exp(-rate |x|).

    Guarantees: exact, for any fraction above zero. Added to a whole number that neighbours move by 1, it is
    rate-differentially private.

    >>> isinstance(discrete_laplace(Fraction(1, 2)), int)
    True
    """
    if rate <= 0:
        raise ArgumentError("The rate of noise must be above zero.")
    scale, every = rate.denominator, rate.numerator
    while True:
        low = _below(scale, bits)
        if not _bernoulli_exp(Fraction(low, scale), bits):
            continue
        high = 0
        while _bernoulli_exp(Fraction(1), bits):
            high += 1
        # low + scale * high is geometric at the rate 1 / scale; every so many of its steps are one step of ours.
        size = (low + scale * high) // every
        negative = bool(bits(1))
        if not (negative and size == 0):  # zero has one sign only
            return -size if negative else size


def laplace_scale(epsilon: float, sensitivity: int) -> int:
    """The least whole scale whose noise, of rate 1 / scale, covers a sensitivity in grid steps: rounded up, exactly.

    >>> laplace_scale(0.3, 10)
    34
    """
    return ceil(sensitivity / Fraction(epsilon))


def laplace_integers(key: UInt32[Array, "8"], call: int, num: int, scale: int) -> list[int]:
    """So many whole numbers x, independent, each with probability proportional to exp(-|x| / scale).

    Guarantees: exact given random bits, which are those of the secret stream under nonces of this call alone. The
    numbers are Python's, so that none is too large.
    Cost: about 10 microseconds a number.
    """
    bits, rate = StreamBits(key, call), Fraction(1, scale)
    return [discrete_laplace(rate, bits=bits) for _ in range(num)]


class StreamBits:
    """Random bits from the secret stream of one call of a door; no word of it is used twice."""

    def __init__(self, key: UInt32[Array, "8"], call: int) -> None:
        self._key = key
        self._call = call
        self._block = 0
        self._words: list[int] = []

    def __repr__(self) -> str:
        return "StreamBits()"

    def __call__(self, num: int) -> int:
        """A whole number from 0 to below 2**num, evenly."""
        value = 0
        for _ in range(-(-num // 32)):
            value = (value << 32) | self._word()
        return value >> (-num % 32)

    def _word(self) -> int:
        if not self._words:
            place = nonce(self._call, self._block, Stream.NOISE)
            self._words = np.asarray(compiled_keystream(self._key, place, _WORDS)).tolist()
            self._block += 1
        return self._words.pop()


def _bernoulli_exp(rate: Fraction, bits: Callable[[int], int]) -> bool:
    """True with probability exp(-rate), for a rate in [0, 1]."""
    turns = 1
    while _below(rate.denominator * turns, bits) < rate.numerator:
        turns += 1
    return turns % 2 == 1


def _below(bound: int, bits: Callable[[int], int]) -> int:
    """A whole number from 0 to below a bound, evenly."""
    num_bits = (bound - 1).bit_length()
    while True:
        drawn = bits(num_bits) if num_bits else 0
        if drawn < bound:
            return drawn
