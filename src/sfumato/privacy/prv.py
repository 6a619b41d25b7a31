"""PRV: an epsilon of noisy descent between a rigorous lower and a rigorous upper bound.

The privacy loss of one step is a random variable; that of all steps is a sum of independent ones. It is laid on a
grid of step h by rounding to the nearest point, shifted so that the mean stays, and summed by Fourier transforms.
Proof of the bounds: each step is then off by at most h/2 around a mean of zero, so that by Hoeffding's inequality the
sum is off by more than t with probability at most 2 exp(-2 t^2 / (steps h^2)). What lies outside of the window of the
transform is bounded by Renyi differential privacy. With both in ``slack``, delta(x) lies between delta'(x + t) -
slack and delta'(x - t) + slack, where delta' is that of the grid; up to the round-off of double precision.

Reference: Gopi, Lee, Wutschitz 2021, "Numerical composition of differential privacy".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, log, log1p, sqrt

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from sfumato.errors import ArgumentError
from sfumato.privacy.accounting import rdp_epsilon
from sfumato.privacy.adjacency import Adjacency
from sfumato.privacy.events import PoissonGaussian

_SLACK = 1e-3
"""The share of delta that all errors of the grid may come to together."""
_MOST_POINTS = 2**20


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """An epsilon from below and from above, and the estimate between them."""

    lower: float
    estimate: float
    upper: float


@lru_cache(maxsize=256)
def bracket(event: PoissonGaussian, delta: float, width: float = 0.005) -> Bracket:
    """The epsilon of noisy descent at delta, under add-or-remove-one, within about ``width`` to both sides.

    The width is raised where a grid that fine would be too large. Where losses reach past 500 nothing is known: the
    bounds are then 0 and infinity.

    >>> found = bracket(PoissonGaussian(rate=0.01, noise_multiplier=1.1, steps=1000), 1e-5)
    >>> found.lower < found.estimate < found.upper < found.lower + 0.02
    True
    """
    if event.max_rows != 1:
        raise ArgumentError("PRV bounds are for one row a unit; use PLD for several.")
    slack = _SLACK * delta
    reach = _window(event, slack / 8)
    if reach > 500:
        return Bracket(lower=0.0, estimate=inf, upper=inf)
    # Rounding, truncation of every step and the window take a part of the slack each.
    per_width = sqrt(2 / (event.steps * log(8 / slack)))
    width = max(width, 2 * (reach + 1) / (_MOST_POINTS * per_width))
    reach += 2 * width
    grid = width * per_width
    sides = [_Sum.of(law, event.steps, grid, reach) for law in (_removed(event), _added(event))]
    lower = max(side.epsilon(delta + slack) for side in sides) - width
    upper = max(side.epsilon(delta - slack) for side in sides) + width
    return Bracket(lower=max(0.0, lower), estimate=max(side.epsilon(delta) for side in sides), upper=upper)


@dataclass(frozen=True, kw_only=True)
class _Sum:
    """The privacy loss of all steps on a grid."""

    losses: Float[np.ndarray, " point"]
    chances: Float[np.ndarray, " point"]

    @classmethod
    def of(cls, law: "_Law", steps: int, grid: float, reach: float) -> "_Sum":
        """Round the loss of one step to the grid, keep its mean, and add up so many of them."""
        half = ceil(reach / grid)
        points = np.arange(-half, half) * grid
        borders = np.concatenate([points - grid / 2, [points[-1] + grid / 2]])
        chances = np.diff(law.cdf(borders))
        chances /= chances.sum()
        shift = law.mean - float(points @ chances)
        # Entry 0 stands for a loss of zero, so that a sum of n losses does not move.
        spectrum = np.fft.rfft(np.fft.ifftshift(chances))
        total = np.fft.fftshift(np.fft.irfft(spectrum**steps, len(chances)))
        # Points are losses modulo the window; the shift of all steps moves the window with them.
        turn = round(steps * shift / grid)
        losses = points + (steps * shift - turn * grid)
        return cls(losses=losses, chances=np.maximum(np.roll(total, turn), 0.0))

    def epsilon(self, delta: float) -> float:
        """The least epsilon at which the grid has this delta."""
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, float(self.losses[-1])
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high

    def delta(self, epsilon: float) -> float:
        """E[max(0, 1 - exp(epsilon - loss))]."""
        above = self.losses > epsilon
        return float(-np.expm1(epsilon - self.losses[above]) @ self.chances[above])


@dataclass(frozen=True, kw_only=True)
class _Law:
    """The privacy loss of one step: its distribution function and its mean."""

    cdf: Callable[[Float[np.ndarray, " point"]], Float[np.ndarray, " point"]]
    mean: float


def _removed(event: PoissonGaussian) -> _Law:
    """The loss where the table has the row: log((1 - q) + q exp((2x - 1) / 2s^2)) with x from the mixture."""
    rate, noise = event.rate, event.noise_multiplier

    def cdf(losses: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
        place = _place_of(losses, rate, noise)
        return (1 - rate) * ndtr(place / noise) + rate * ndtr((place - 1) / noise)

    x, losses = _losses(rate, noise)
    weights = (1 - rate) * np.exp(-((x / noise) ** 2) / 2) + rate * np.exp(-(((x - 1) / noise) ** 2) / 2)
    return _Law(cdf=cdf, mean=float(weights @ losses / weights.sum()))


def _added(event: PoissonGaussian) -> _Law:
    """The loss where it has not: minus that, with x from the noise alone."""
    rate, noise = event.rate, event.noise_multiplier
    x, losses = _losses(rate, noise)
    weights = np.exp(-((x / noise) ** 2) / 2)
    mean = -float(weights @ losses / weights.sum())
    return _Law(cdf=lambda losses: ndtr(-_place_of(-losses, rate, noise) / noise), mean=mean)


def _losses(rate: float, noise: float) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Even points of the real line and the losses there: sums over them are integrals to the last digits."""
    x = np.linspace(-12 * noise, 1 + 12 * noise, 40_001)
    with np.errstate(divide="ignore"):
        return x, np.logaddexp(np.log1p(-rate), log(rate) + (2 * x - 1) / (2 * noise**2))


def _place_of(losses: Float[np.ndarray, " point"], rate: float, noise: float) -> Float[np.ndarray, " point"]:
    """Where on the real line the loss of a row that is there has these values; minus infinity below the least."""
    if rate >= 1:
        return losses * noise**2 + 0.5
    least = log1p(-rate)
    inside = losses > least
    with np.errstate(divide="ignore"):
        # log((e^loss - (1 - q)) / q), of differences that may be small
        odds = np.log(np.expm1(np.where(inside, losses - least, 1.0))) + least - log(rate)
    return np.where(inside, odds * noise**2 + 0.5, -inf)


def _window(event: PoissonGaussian, slack: float) -> float:
    """A loss that the sum of all steps, or any one step, passes to either side with probability at most ``slack``.

    By RDP: delta(x) >= P(loss > x + 1) (1 - 1/e), so where delta is known to be small, so is the tail one further on.
    The tail to the other side is smaller by the factor exp(-loss).
    """
    alone = replace(event, steps=1)
    total = rdp_epsilon((event,), Adjacency(), slack / 2)
    return 1 + max(total, rdp_epsilon((alone,), Adjacency(), slack / (2 * event.steps)))
