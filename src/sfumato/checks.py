"""Argument checks with one form of message: what was expected, what came, what to do."""

import sys
from numbers import Integral, Real

from sfumato.errors import ArgumentError


def positive(**values: float) -> None:
    """Refuse a value that is not a finite number above zero.

    >>> positive(epsilon=1.0)
    >>> positive(epsilon=float("nan"))
    Traceback (most recent call last):
    sfumato.errors.ArgumentError: Expected epsilon=nan to be a finite number above 0.
    """
    for name, value in values.items():
        if not _is_real(value) or not 0 < value <= sys.float_info.max:
            raise ArgumentError(f"Expected {name}={value!r} to be a finite number above 0.")


def between(low: float, high: float, **values: float) -> None:
    """Refuse a value outside the closed interval from low to high.

    >>> between(0, 1, rate=1.3)
    Traceback (most recent call last):
    sfumato.errors.ArgumentError: Expected rate=1.3 in [0, 1].
    """
    for name, value in values.items():
        if not _is_real(value) or not low <= value <= high:
            raise ArgumentError(f"Expected {name}={value!r} in [{low}, {high}].")


def whole(low: int, **values: int) -> None:
    """Refuse what is not a whole number of at least low.

    >>> whole(1, steps=0)
    Traceback (most recent call last):
    sfumato.errors.ArgumentError: Expected steps=0 to be a whole number of at least 1.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < low:
            raise ArgumentError(f"Expected {name}={value!r} to be a whole number of at least {low}.")


def instance(kind: type, **values: object) -> None:
    """Refuse what is not of a kind: a group of settings, say, for which a word or a number was given.

    >>> instance(dict, levels="a")
    Traceback (most recent call last):
    sfumato.errors.ArgumentError: Expected levels='a' to be a dict.
    """
    for name, value in values.items():
        if not isinstance(value, kind):
            raise ArgumentError(f"Expected {name}={value!r} to be a {kind.__name__}.")


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
