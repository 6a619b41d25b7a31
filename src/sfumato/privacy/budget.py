"""Budget: the epsilon and delta a fit may spend, and how a part of it is given to one query."""

from dataclasses import dataclass
from math import exp, inf, sqrt

from scipy.optimize import brentq
from scipy.special import log_ndtr

from sfumato.checks import between, positive
from sfumato.errors import ArgumentError

_MIN_EPSILON, _MAX_EPSILON = 0.01, 1_000.0
LEAST_DELTA = 1e-10


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a fit may spend in all: (epsilon, delta) for one unit.

    >>> Budget(epsilon=1.0, delta=1e-6).epsilon
    1.0
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon, delta=self.delta)
        if self.epsilon > _MAX_EPSILON:
            raise ArgumentError(f"Expected epsilon={self.epsilon!r} of at most {_MAX_EPSILON:g}; more protects nobody.")
        if self.epsilon < _MIN_EPSILON:
            raise ArgumentError(f"Expected epsilon={self.epsilon!r} of at least {_MIN_EPSILON:g}.")
        if self.delta < LEAST_DELTA:
            # Below this the round-off of the accountant's Fourier transforms is no longer small beside delta.
            raise ArgumentError(f"Expected delta={self.delta!r} of at least {LEAST_DELTA:g}.")
        if self.delta >= 1:
            raise ArgumentError(f"Expected delta={self.delta!r} below 1, and well below one over the rows.")

    def multiplier(self, share: float) -> float:
        """The noise multiplier of one Gaussian query that may use ``share`` of the budget.

        Gaussian mechanisms add up in mu squared (mu is one over the multiplier), so a share is a share of
        the mu squared that the whole budget is worth. What is left over is measured by the accountant, not
        by this rule, so an unlucky share wastes nothing.

        Reference: Dong, Roth, Su, "Gaussian Differential Privacy", corollaries 1 and 2.
        """
        between(0, 1, share=share)
        positive(share=share)
        return 1.0 / (gaussian_mu(self.epsilon, self.delta) * sqrt(share))


def default_delta(rows: int | None) -> float:
    """A tenth of one over the declared rows, at most 1e-6: from a public number only.

    >>> default_delta(10**6), default_delta(None)
    (1e-07, 1e-06)
    """
    return 1e-6 if rows is None else min(1e-6, 1 / (10 * rows))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu at which one Gaussian mechanism is exactly (epsilon, delta)-private."""

    def excess(mu: float) -> float:
        return gaussian_delta(epsilon, mu) - delta

    high = 1.0
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, 1e-9, high, xtol=1e-14, rtol=1e-13))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The delta of a mu-Gaussian mechanism at epsilon (Dong, Roth, Su, corollary 1)."""
    if mu in (0, inf):  # nothing was told, or everything
        return 0.0 if mu == 0 else 1.0
    first = log_ndtr(-epsilon / mu + mu / 2)
    second = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return float(exp(first) - exp(min(second, first)))
