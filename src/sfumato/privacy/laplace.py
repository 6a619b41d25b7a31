"""Laplace: two-sided geometric noise on whole numbers, drawn exactly from random bits. No float takes part.

Reference: Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", algorithms 1 and 2.
"""

import secrets
from collections.abc import Callable
from fractions import Fraction

from sfumato.errors import ArgumentError


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
