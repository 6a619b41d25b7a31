"""Accountants: what noisy gradient descent costs by each of them, and the noise or the steps that a budget allows.

A calculator for DP-SGD under add-or-remove-one: Poisson batches at a rate, Gaussian noise of a multiple of the clipping
bound, so many steps. No private row is involved. Upper bounds hold; a lower bound says what no proof can beat; an
approximation may understate and is no guarantee.

Reference: Koskela, Jaelkoe, Honkela 2020 (PLD); Mironov 2017 (RDP); Bun and Steinke 2016 (zCDP); Gopi, Lee, Wutschitz
2021 (PRV); Bu, Dong, Long, Su 2020 and Dong, Roth, Su 2022 (central limit).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, sqrt
from typing import Literal

from sfumato.checks import between, positive, whole
from sfumato.errors import ArgumentError
from sfumato.privacy.accounting import clt_epsilon, pld_epsilon, rdp_epsilon
from sfumato.privacy.adjacency import Adjacency
from sfumato.privacy.events import Concentrated, GaussianSum, PoissonGaussian
from sfumato.privacy.prv import bracket

MOST_STEPS = 10**6
"""What an accountant answers in bounded time."""
_LEAST_NOISE, _MOST_NOISE = 0.05, 1e6
_LARGE = 200.0
"""Above this epsilon protects nobody, and privacy loss distributions would take a lot of memory."""


@dataclass(frozen=True, kw_only=True)
class Accountant:
    """One way to count: its name, what its answer is, and the epsilon of an event at a delta."""

    name: str
    says: Literal["upper bound", "lower bound", "approximation"]
    note: str
    epsilon: Callable[[PoissonGaussian, float], float]


def descent(*, rate: float, noise: float, steps: int) -> PoissonGaussian:
    """So many steps of noisy descent, checked.

    >>> descent(rate=2.0, noise=1.0, steps=10)
    Traceback (most recent call last):
    sfumato.errors.ArgumentError: Expected rate=2.0 in [1e-12, 1].
    """
    between(1e-12, 1, rate=rate)
    between(_LEAST_NOISE, _MOST_NOISE, noise=noise)
    whole(1, steps=steps)
    between(1, MOST_STEPS, steps=steps)
    return PoissonGaussian(rate=rate, noise_multiplier=noise, steps=steps)


def epsilons(event: PoissonGaussian, delta: float) -> dict[str, float]:
    """The epsilon by each accountant; infinite where one has no answer below 200.

    >>> found = epsilons(descent(rate=0.01, noise=1.1, steps=1000), 1e-5)
    >>> found["PRV lower"] < found["PLD"] < found["RDP"] < found["zCDP"]
    True
    """
    check_delta(delta)
    return {accountant.name: accountant.epsilon(event, delta) for accountant in ACCOUNTANTS}


def least_noise(accountant: Accountant, *, rate: float, steps: int, epsilon: float, delta: float) -> float | None:
    """The least noise multiplier whose epsilon is at most the one given, to one part in 10^4; None where none is.

    >>> noise = least_noise(accountant_named("RDP"), rate=0.01, steps=1000, epsilon=1.0, delta=1e-5)
    >>> round(noise, 2)
    1.51
    """
    check_delta(delta)
    positive(epsilon=epsilon)

    def costs(noise: float) -> float:
        return accountant.epsilon(descent(rate=rate, noise=noise, steps=steps), delta)

    guess = 1.0
    if accountant.name not in ("RDP", "zCDP"):  # RDP is quick and lies a little above: begin the search there
        guess = least_noise(_RDP, rate=rate, steps=steps, epsilon=epsilon, delta=delta) or guess
    low, high = _around(lambda noise: costs(noise) <= epsilon, guess)
    if high > _MOST_NOISE:
        return None
    while high > low * (1 + 1e-4):
        # Epsilon is nearly a power of the noise: a little to both sides of where it should be closes in fast.
        cost_low, cost_high = costs(low), costs(high)
        part = log(cost_low / epsilon) / log(cost_low / cost_high) if 0 < cost_high < cost_low < inf else 0.5
        aim = low * (high / low) ** min(1.0, max(0.0, part))
        for middle in (aim * (1 - 4e-5), aim * (1 + 4e-5), sqrt(low * high)):
            if low < middle < high and high > low * (1 + 1e-4):
                low, high = (low, middle) if costs(middle) <= epsilon else (middle, high)
    return high


def _around(enough: Callable[[float], bool], guess: float) -> tuple[float, float]:
    """Two noises near each other, the larger of them enough; both past the most there is where none is enough."""
    high = guess
    while not enough(high):
        high *= 1.1
        if high > _MOST_NOISE:
            return high, high
    low = max(high / 1.1, _LEAST_NOISE)
    while low < high and enough(low):
        low, high = max(low / 1.1, _LEAST_NOISE), low
    return low, high


def most_steps(accountant: Accountant, *, rate: float, noise: float, epsilon: float, delta: float) -> int | None:
    """The most steps whose epsilon is at most the one given, up to a million; None where one step is too much."""
    check_delta(delta)
    positive(epsilon=epsilon)

    def costs(steps: int) -> float:
        return accountant.epsilon(descent(rate=rate, noise=noise, steps=steps), delta)

    if costs(1) > epsilon:
        return None
    low = high = 1
    if accountant.name not in ("RDP", "zCDP"):
        low = most_steps(_RDP, rate=rate, noise=noise, epsilon=epsilon, delta=delta) or 1
        low = low if costs(low) <= epsilon else 1
    cost_low, cost_high = costs(low), 0.0
    while cost_high <= epsilon:
        if high == MOST_STEPS:
            return MOST_STEPS
        high = min(MOST_STEPS, max(low + 1, round(1.3 * max(low, high))))
        cost_high = costs(high)
        low, cost_low = (high, cost_high) if cost_high <= epsilon else (low, cost_low)
    while high - low > 1:
        # Epsilon is nearly straight between near numbers of steps; a middle in between keeps the search from creeping.
        straight = low + (high - low) * (epsilon - cost_low) / (cost_high - cost_low)
        for middle in {min(high - 1, max(low + 1, round(straight))), (low + high) // 2}:
            if low < middle < high:
                cost = costs(middle)
                if cost <= epsilon:
                    low, cost_low = middle, cost
                else:
                    high, cost_high = middle, cost
    return low


def curves(*, rate: float, noise: float, steps: Sequence[int], delta: float) -> dict[str, list[float]]:
    """The epsilon by each accountant after each number of steps: Figure 9 of the DP-NF paper."""
    found: Mapping[int, dict[str, float]] = {
        number: epsilons(descent(rate=rate, noise=noise, steps=number), delta) for number in steps
    }
    return {accountant.name: [found[number][accountant.name] for number in steps] for accountant in ACCOUNTANTS}


def check_delta(delta: float) -> None:
    """Refuse a delta that is none, or too small for the accountants' round-off."""
    positive(delta=delta)
    if not 1e-10 <= delta < 1:
        raise ArgumentError(f"Expected delta={delta!r} of at least 1e-10 and below 1.")


def _pld(event: PoissonGaussian, delta: float) -> float:
    about = _rdp(event, delta)
    if about > _LARGE:
        return inf
    # Coarser than the grid of a certificate, for speed: an upper bound too, and looser by a few parts in 10^4.
    return pld_epsilon((event,), Adjacency(), delta, 1e-5 if about < 0.2 else 1e-4 if about < 50 else 1e-3)


def _rdp(event: PoissonGaussian, delta: float) -> float:
    return rdp_epsilon((_whole_batch(event),), Adjacency(), delta)


def _zcdp(event: PoissonGaussian, delta: float) -> float:
    rho = event.steps / (2 * event.noise_multiplier**2)
    return inf if rho > 1e4 else rdp_epsilon((Concentrated(rho=max(rho, 1e-12)),), Adjacency(), delta)


def _clt(event: PoissonGaussian, delta: float) -> float:
    return clt_epsilon((_whole_batch(event),), delta)


def _whole_batch(event: PoissonGaussian) -> PoissonGaussian | GaussianSum:
    """Steps that every row takes part in are one Gaussian sum, exactly."""
    if event.rate < 1 or event.noise_multiplier / sqrt(event.steps) < _LEAST_NOISE:
        return event
    return GaussianSum(noise_multiplier=event.noise_multiplier / sqrt(event.steps))


def _prv_lower(event: PoissonGaussian, delta: float) -> float:
    found = bracket(event, delta)
    return found.lower if found.upper < inf else inf  # out of reach: no answer, as by the others


_RDP = Accountant(
    name="RDP",
    says="upper bound",
    note="Renyi differential privacy: the moments accountant",
    epsilon=lru_cache(maxsize=512)(_rdp),
)

ACCOUNTANTS = (
    Accountant(
        name="PLD",
        says="upper bound",
        note="privacy loss distribution, pessimistic on a grid: as certificates state it",
        epsilon=lru_cache(maxsize=512)(_pld),
    ),
    _RDP,
    Accountant(
        name="zCDP",
        says="upper bound",
        note="zero-concentrated privacy: has no rule for sampling, so it counts every row in every step",
        epsilon=_zcdp,
    ),
    Accountant(
        name="PRV upper",
        says="upper bound",
        note="the loss summed on a grid of nearest points, and its largest error added",
        epsilon=lambda event, delta: bracket(event, delta).upper,
    ),
    Accountant(
        name="PRV lower",
        says="lower bound",
        note="the same with its largest error taken off: no accountant can prove less",
        epsilon=_prv_lower,
    ),
    Accountant(
        name="CLT",
        says="approximation",
        note="Gaussian central limit (GDP): MAY UNDERSTATE, never a guarantee",
        epsilon=_clt,
    ),
)
"""All ways to count, the one that certificates state first."""


def accountant_named(name: str) -> Accountant:
    """The accountant of that name, or an error that lists all."""
    for accountant in ACCOUNTANTS:
        if accountant.name.lower() == name.lower():
            return accountant
    raise ArgumentError(f"Unknown accountant {name!r}; there are: {', '.join(one.name for one in ACCOUNTANTS)}.")
