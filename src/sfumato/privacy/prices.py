"""Prices: the epsilon of each of many equal charges that a budget covers together, by the better of two compositions.

Charges are fixed in number and price before the first, and what is asked may depend on all answers before. Pure
composition adds epsilons up and has no delta. Zero-concentrated composition adds up epsilon^2 / 8 for a choice (its
log odds move within a range of epsilon) and epsilon^2 / 2 for anything that is epsilon-private. The sums are exact
fractions, so that nothing is lost or gained by rounding over ten thousand charges.

Reference: Dwork and Roth 2014 (pure); Bun and Steinke 2016, Cesar and Rogers 2021 (concentrated).
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter, sqrt
from typing import Literal

from sfumato.checks import positive, whole
from sfumato.errors import ArgumentError
from sfumato.privacy.accounting import largest_rho
from sfumato.privacy.adjacency import Adjacency
from sfumato.privacy.budget import Budget

Charge = Literal["choice", "pure"]
_OVER = {"choice": 8, "pure": 2}
"""What epsilon squared is divided by to give rho."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """What one charge costs, how many there are, and by which composition they fit into the budget."""

    epsilon: float
    times: int
    charge: Charge
    composition: Literal["pure", "concentrated"]


def price_of(budget: Budget, times: int, charge: Charge) -> Price:
    """The largest epsilon of each of so many charges that a budget covers together.

    >>> one = price_of(Budget(epsilon=1.0, delta=1e-6), 1, "choice")
    >>> many = price_of(Budget(epsilon=1.0, delta=1e-6), 10_000, "choice")
    >>> one.composition, many.composition, many.epsilon > 10 * 1.0 / 10_000
    ('pure', 'concentrated', True)
    """
    whole(1, times=times)
    pure = _rounded_down(budget.epsilon / times, lambda each: each * times <= Fraction(budget.epsilon))
    rho = _rho(budget)
    over = _OVER[charge]
    concentrated = _rounded_down(sqrt(float(over * rho / times)), lambda each: each**2 * times <= over * rho)
    if pure >= concentrated:
        return Price(epsilon=pure, times=times, charge=charge, composition="pure")
    return Price(epsilon=concentrated, times=times, charge=charge, composition="concentrated")


def most_times(budget: Budget, epsilon: float, charge: Charge) -> Price:
    """The most charges of a given epsilon that a budget covers together.

    >>> most_times(Budget(epsilon=1.0, delta=1e-6), 0.25, "pure").times
    4
    """
    positive(epsilon=epsilon)
    each = Fraction(epsilon)
    pure = int(Fraction(budget.epsilon) / each)
    concentrated = int(_OVER[charge] * _rho(budget) / each**2)
    if max(pure, concentrated) < 1:
        raise ArgumentError(f"Expected epsilon={epsilon!r} of one answer of at most the whole budget.")
    if pure >= concentrated:
        return Price(epsilon=epsilon, times=pure, charge=charge, composition="pure")
    return Price(epsilon=epsilon, times=concentrated, charge=charge, composition="concentrated")


def _rho(budget: Budget) -> Fraction:
    return Fraction(largest_rho((), Adjacency(), budget))


def _rounded_down(guess: float, fits: Callable[[Fraction], bool]) -> float:
    """The largest float near a guess that fits, told in exact fractions."""
    each = nextafter(nextafter(guess, inf), inf)
    while not fits(Fraction(each)):
        each = nextafter(each, 0.0)
    return each
