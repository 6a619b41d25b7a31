"""Concentrated: what sums and choices cost in zero-concentrated privacy, as exact fractions.

Noise that is chosen from earlier answers is covered by no composition theorem for parameters fixed in advance. Under
zero-concentrated privacy the costs only have to stay, in sum, within a total that was fixed in advance; each may
depend on all answers before it. The total is one ``Concentrated`` event, and the ledger is the filter that keeps it.

Reference: Bun and Steinke 2016 (zero-concentrated privacy); Cesar and Rogers 2021 (rho of a choice); Feldman and
Zrnic 2021, Whitehouse et al. 2023 (filters).
"""

from collections.abc import Iterable
from fractions import Fraction
from math import inf, nextafter, sqrt

from sfumato.errors import BudgetError
from sfumato.privacy.events import Concentrated, Event, ExponentialChoice, GaussianSum, LaplaceSum


def rho_of(event: Event) -> Fraction:
    """The rho of one sum or choice, exactly.

    A Gaussian sum of multiplier m has 1 / (2 m^2). The log odds of an exponential choice at epsilon lie in a range of
    width epsilon, which gives epsilon^2 / 8; those of a Laplace sum in twice that, which gives epsilon^2 / 2.

    >>> rho_of(GaussianSum(noise_multiplier=2.0)), rho_of(ExponentialChoice(epsilon=0.5))
    (Fraction(1, 8), Fraction(1, 32))
    """
    match event:
        case GaussianSum():
            return 1 / (2 * Fraction(event.noise_multiplier) ** 2)
        case ExponentialChoice():
            return Fraction(event.epsilon) ** 2 / 8
        case LaplaceSum():
            return Fraction(event.epsilon) ** 2 / 2
        case _:
            raise BudgetError("A reserve pays for sums over all rows and for choices, and for nothing else.")


def total_rho(events: Iterable[Event]) -> Fraction:
    """The rho of all events together. Events that it has no rule for, sampled sums among them, raise an error.

    >>> total_rho([GaussianSum(noise_multiplier=2.0)] * 4)
    Fraction(1, 2)
    """
    of = lambda event: Fraction(event.rho) if isinstance(event, Concentrated) else rho_of(event)
    return sum((of(event) for event in events), Fraction(0))


def multiplier_of(rho: Fraction) -> float:
    """The least noise multiplier, as a float, of a sum that costs at most ``rho``."""
    multiplier = sqrt(1 / (2 * rho))
    while 1 / (2 * Fraction(multiplier) ** 2) > rho:
        multiplier = nextafter(multiplier, inf)
    return multiplier


def epsilon_of(rho: Fraction) -> float:
    """The largest epsilon, as a float, of a choice that costs at most ``rho``."""
    epsilon = sqrt(8 * rho)
    while Fraction(epsilon) ** 2 / 8 > rho:
        epsilon = nextafter(epsilon, 0.0)
    return epsilon
