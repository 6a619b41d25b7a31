"""Bounds: lower confidence bounds on epsilon, as pure functions of what an attack observed.

Each bound answers: which epsilon must the mechanism have at least, if the attack was not merely lucky? A bound above
the certified epsilon refutes the certificate at the stated confidence; a bound below it proves nothing. On pure noise
every bound here is 0 but for a chance of one minus the confidence.
"""

from math import inf, log, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import beta, binom, chi, norm, rankdata

from sfumato.checks import between, positive, whole
from sfumato.errors import ArgumentError
from sfumato.privacy.budget import gaussian_delta

_MOST_EPSILON = 1e6
"""Past this an attack has simply won, and the bound is said to be infinite."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def gaussian_bound(inside: np.ndarray, outside: np.ndarray, delta: float, confidence: float) -> float:
    """The epsilon that two normal samples show: of canaries that were in, and of canaries that were out.

    Assumes: the observations are independent and normal, of one unknown variance. That holds exactly for canaries
    which take part in every Gaussian sum, each with a coordinate of its own.
    Proof: the pooled two-sample statistic has a noncentral t distribution whose noncentrality is mu / sqrt(1/n1 +
    1/n0), mu being the distance of the means in deviations. Its tail grows with mu, so the mu at which the observed
    value has the tail 1 - confidence is an exact lower confidence limit. Telling N(mu, 1) from N(0, 1) is mu-Gaussian
    differential privacy, whose epsilon at delta grows with mu.
    Reference: Dong, Roth, Su 2022 (corollary 1); Nasr et al. 2023; Johnson and Welch 1940 (noncentral t).

    >>> random = np.random.default_rng(0)
    >>> gaussian_bound(random.normal(size=5_000), random.normal(size=5_000), 1e-5, 0.999)
    0.0
    >>> round(gaussian_bound(random.normal(1, 1, 5_000), random.normal(0, 1, 5_000), 1e-5, 0.999), 1)
    4.1
    """
    _check(delta, confidence)
    if not (np.all(np.isfinite(inside)) and np.all(np.isfinite(outside))):
        return inf  # no sound mechanism gives such scores: an alarm
    return gaussian_epsilon(least_distance(inside, outside, confidence), delta)


def least_distance(inside: np.ndarray, outside: np.ndarray, confidence: float) -> float:
    """The exact lower confidence limit of the distance of two normal means, in deviations; at least 0."""
    inside, outside = np.asarray(inside, np.float64), np.asarray(outside, np.float64)
    num_in, num_out = inside.size, outside.size
    if min(num_in, num_out) < 2:
        return 0.0
    freedom = num_in + num_out - 2
    squares = np.sum((inside - inside.mean()) ** 2) + np.sum((outside - outside.mean()) ** 2)
    error = sqrt(1 / num_in + 1 / num_out)
    gap = float(inside.mean() - outside.mean())
    if gap <= 0:
        return 0.0
    spread = sqrt(squares / freedom)
    if spread <= 1e-12 * gap:  # no noise at all
        return inf
    statistic = gap / spread / error
    excess = lambda centre: noncentral_tail(statistic, freedom, centre) - (1 - confidence)
    if excess(0.0) >= 0:
        return 0.0
    return error * float(brentq(excess, 0.0, 2 * statistic, xtol=1e-12, rtol=1e-12))


def noncentral_tail(statistic: float, freedom: int, centre: float) -> float:
    """P[T >= statistic] for a noncentral t variable T of that many degrees of freedom and that noncentrality.

    T is (Z + centre) / S with Z normal and S chi over the root of its freedom. One of the two is integrated out in
    closed form and the other by Gauss and Legendre: the one whose closed form is the smoother integrand. Library
    functions stop converging at the large statistics that a broken mechanism gives.

    >>> round(noncentral_tail(2.0, 10_000, 2.0), 4)
    0.5
    """
    root = sqrt(freedom)
    if statistic < sqrt(2) * root:
        low, high = chi.ppf(1e-16, freedom) / root, chi.isf(1e-16, freedom) / root
        ratio = low + (high - low) * (_NODES + 1) / 2
        density = chi.pdf(ratio * root, freedom) * root * (high - low) / 2
        return float(np.sum(_WEIGHTS * density * ndtr(centre - statistic * ratio)))
    deviate = 9 * _NODES
    below = chi.cdf(np.maximum((deviate + centre) / statistic, 0) * root, freedom)
    return float(np.sum(9 * _WEIGHTS * norm.pdf(deviate) * below))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon at delta of a mu-Gaussian mechanism, the inverse of ``gaussian_delta`` in epsilon.

    >>> round(gaussian_epsilon(1.0, 1e-5), 4)
    4.3772
    """
    if mu <= 0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if mu**2 > _MOST_EPSILON:
        return inf
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2
    return float(brentq(lambda epsilon: gaussian_delta(epsilon, mu) - delta, 0.0, high, xtol=1e-12))


def threshold_bound(inside: np.ndarray, outside: np.ndarray, delta: float, confidence: float) -> float:
    """The epsilon that a threshold on the scores shows, whatever their distribution.

    Assumes: the observations are independent, those inside of one law and those outside of another, in an order that
    says nothing (every second one belongs to the first half).
    Proof: every (epsilon, delta) mechanism has P[in is called in] <= e^epsilon P[out is called in] + delta, and the
    same with in and out exchanged. One half of the scores chooses the threshold and the side; on the other half, which
    had no part in the choice, both rates get exact binomial limits at half of the allowed error each, so by the union
    bound epsilon >= log((least rate of hits - delta) / most rate of false alarms) fails with at most the error.
    Reference: Clopper and Pearson 1934; Jagielski, Ullman, Oprea 2020; Kairouz, Oh, Viswanath 2015 (the region).

    >>> threshold_bound(np.zeros(100), np.zeros(100), 1e-5, 0.99)
    0.0
    >>> round(threshold_bound(np.ones(10_000), np.zeros(10_000), 1e-5, 0.99), 2)
    6.85
    """
    _check(delta, confidence)
    inside, outside = np.asarray(inside, np.float64), np.asarray(outside, np.float64)
    if np.any(np.isnan(inside)) or np.any(np.isnan(outside)):
        return inf  # no sound mechanism gives such scores: an alarm
    if min(inside.size, outside.size) < 4:
        return 0.0
    # Only the order counts, and ranks are finite where scores are not.
    ranks = rankdata(np.concatenate([inside, outside]))
    inside, outside = ranks[: inside.size], ranks[inside.size :]
    error = (1 - confidence) / 2
    threshold, side = _best_threshold(np.sort(inside[::2]), np.sort(outside[::2]), delta, error)
    seen_in, seen_out = side * inside[1::2], side * outside[1::2]
    if side < 0:  # call "out" what scores low
        seen_in, seen_out = seen_out, seen_in
    hits = np.array([np.count_nonzero(seen_in >= threshold)])
    alarms = np.array([np.count_nonzero(seen_out >= threshold)])
    return float(rate_bound(hits, seen_in.size, alarms, seen_out.size, delta, error)[0])


def _best_threshold(inside: np.ndarray, outside: np.ndarray, delta: float, error: float) -> tuple[float, int]:
    """The threshold and side of the greatest bound on sorted scores; a side of -1 calls "out" what scores low."""
    best: tuple[float, float, int] = (-1.0, 0.0, 1)
    for side, hitting, alarming in ((1, inside, outside), (-1, -outside[::-1], -inside[::-1])):
        # Thresholds at quantiles of both samples: finer ones would only follow the noise of this half.
        grid = np.unique(np.quantile(np.concatenate([hitting, alarming]), np.linspace(0, 1, 401)[1:]))
        hits = hitting.size - np.searchsorted(hitting, grid, side="left")
        alarms = alarming.size - np.searchsorted(alarming, grid, side="left")
        bounds = rate_bound(hits, hitting.size, alarms, alarming.size, delta, error)
        at = int(np.argmax(bounds))
        best = max(best, (float(bounds[at]), float(grid[at]), side))
    return best[1], best[2]


def error_limits(inside: np.ndarray, outside: np.ndarray, confidence: float) -> tuple[float, float]:
    """Upper confidence limits of both error rates of a threshold: of calling "in" what is out, and the other way.

    Half of the scores chooses the threshold, the other half gives the limits, each at half of the allowed error.
    """
    error = (1 - confidence) / 2
    ranks = rankdata(np.concatenate([inside, outside]))
    inside, outside = ranks[: inside.size], ranks[inside.size :]
    grid = np.quantile(ranks, np.linspace(0, 1, 401))
    alarms = [np.mean(outside[::2] >= at) + np.mean(inside[::2] < at) for at in grid]
    threshold = grid[int(np.argmin(alarms))]
    return (
        _most_rate(int(np.count_nonzero(outside[1::2] >= threshold)), outside[1::2].size, error),
        _most_rate(int(np.count_nonzero(inside[1::2] < threshold)), inside[1::2].size, error),
    )


def _most_rate(hits: int, num: int, error: float) -> float:
    return 1.0 if hits >= num else float(beta.isf(error, hits + 1, num - hits))


def rate_bound(
    hits: np.ndarray, num_hitting: int, alarms: np.ndarray, num_alarming: int, delta: float, error: float
) -> np.ndarray:
    """log((least hit rate - delta) / most false alarm rate), each rate limited at ``error``; at least 0."""
    hits, alarms = np.asarray(hits, np.float64), np.asarray(alarms, np.float64)
    with np.errstate(invalid="ignore"):
        least = np.where(hits > 0, beta.ppf(error, hits, num_hitting - hits + 1), 0.0)
        most = np.where(alarms < num_alarming, beta.isf(error, alarms + 1, num_alarming - alarms), 1.0)
    return np.log(np.maximum(np.maximum(least - delta, 0) / most, 1.0))


def one_run_bound(num_canaries: int, guesses: int, correct: int, delta: float, confidence: float) -> float:
    """The epsilon that guesses about the coins of many canaries in ONE run show.

    Assumes: each of ``num_canaries`` was in or out by a fair coin of its own; the number of guesses was fixed before
    the run; the guesses are made from the output. Nothing is assumed about how the canaries act on each other.
    Proof: for pure epsilon each guess is right with probability at most q = e^epsilon / (1 + e^epsilon) given the ones
    before, so the number of right ones is below Binomial(guesses, q) in distribution; delta adds at most
    ``one_run_tail``'s second part. The tail grows with epsilon, so the epsilon at which it is 1 - confidence is a lower
    confidence limit.
    Reference: Steinke, Nasr, Jagielski 2023, "Privacy auditing with one training run" (theorem 5.2).

    >>> one_run_bound(1_000, 100, 52, 1e-5, 0.99)
    0.0
    >>> round(one_run_bound(1_000, 1_000, 1_000, 0.0, 0.95), 3)  # log(p / (1 - p)) at p = 0.05 ** (1 / 1000)
    5.809
    """
    whole(0, num_canaries=num_canaries, guesses=guesses, correct=correct)
    between(0, 1, delta=delta)
    between(0.5, 1 - 1e-12, confidence=confidence)
    if correct > guesses or guesses > num_canaries:
        raise ArgumentError("Expected no more right guesses than guesses, and no more guesses than canaries.")
    excess = lambda epsilon: one_run_tail(num_canaries, guesses, correct, epsilon, delta) - (1 - confidence)
    if correct == 0 or excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-9))


def one_run_tail(num_canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The most probability that an (epsilon, delta) mechanism gives to so many right guesses or more.

    With f(v) = P[Binomial(guesses, q) >= v] it is f(v) + c max_i (f(v - i) - f(v)) / i, where c is 2 ``num_canaries``
    delta. Where c is above i the weight of f(v) is taken as 0 and not below: larger, so still a bound, and then every
    part grows with epsilon, which makes the bisection of ``one_run_bound`` sound.
    """
    chance = 1 / (1 + np.exp(-epsilon))
    weight = 2 * num_canaries * delta / np.arange(1, correct + 1)
    tails = binom.sf(np.arange(correct - 1, -1, -1) - 1, guesses, chance)  # f(v - 1), ..., f(0)
    exact = binom.sf(correct - 1, guesses, chance)
    return float(min(1.0, max(exact, np.max(np.maximum(1 - weight, 0) * exact + weight * tails))))


def _check(delta: float, confidence: float) -> None:
    positive(delta=delta)
    between(0, 1, delta=delta)
    between(0.5, 1 - 1e-12, confidence=confidence)


def most_provable(num_canaries: int, confidence: float) -> float:
    """The greatest epsilon that ``threshold_bound`` could show with so many canaries, half of them in.

    >>> round(most_provable(10_000, 0.999), 1)
    5.8
    """
    quarter = max(1, num_canaries // 4)
    error = (1 - confidence) / 2
    return max(0.0, log(error ** (1 / quarter) / -np.expm1(np.log(error) / quarter)))
