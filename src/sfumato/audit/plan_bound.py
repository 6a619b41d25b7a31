"""Plan bound: the epsilon of a sampled plan from error rates, given the form of its law.

A threshold on scores shows an epsilon by itself only at rare errors, which need very many canaries. But the law of the
scores is known up to how much noise there really was: it is that of the charged events with every noise multiplied by
some factor. The error rates in the middle, which few canaries suffice to measure, tell that factor, and the accountant
tells its epsilon.
Reference: the trade-off view of Dong, Roth, Su 2022, as used for auditing by Nasr et al. 2023.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf, log

import numpy as np

from sfumato.audit.bounds import error_limits
from sfumato.privacy.accounting import headline, privacy_loss
from sfumato.privacy.adjacency import Adjacency
from sfumato.privacy.events import Event, GaussianSum, LaplaceSum, PoissonGaussian

_STEP = 1e-3
_GRID = np.concatenate([[0.0], np.geomspace(1e-3, 30, 120)])
_LEAST, _MOST = 1 / 8, 64.0


def plan_bound(
    inside: np.ndarray,
    outside: np.ndarray,
    events: Sequence[Event],
    adjacency: Adjacency,
    delta: float,
    confidence: float,
) -> float:
    """The epsilon that the events have at least, if their noise is what the scores of canaries show it to be.

    Assumes: independent scores, and a mechanism that is the charged one with its noise scaled by a common factor.
    Proof: a threshold with error rates a and b refutes every (epsilon, delta') with b < 1 - delta' - e^epsilon a or
    e^epsilon b < 1 - delta' - a, and so it refutes a factor if it refutes one of the pairs that the accountant proves
    for it. More noise is refuted the sooner; the epsilon of the least factor that is refuted at the upper confidence
    limits of both rates is a lower confidence limit. It is above the certified epsilon if and only if the events
    themselves are refuted.
    """
    if np.any(np.isnan(inside)) or np.any(np.isnan(outside)):
        return inf
    false_alarm, miss = error_limits(inside, outside, confidence)

    def refuted(factor: float) -> bool:
        return miss < least_miss(scaled(events, factor), false_alarm)

    low, high = log(_LEAST), log(_MOST)
    if not refuted(_MOST):
        return 0.0
    if refuted(_LEAST):
        return headline(scaled(events, _LEAST), adjacency, delta).epsilon
    while high - low > 2e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if refuted(exp(middle)) else (middle, high)
    return headline(scaled(events, exp(high)), adjacency, delta).epsilon


def least_miss(events: Sequence[Event], false_alarm: float) -> float:
    """The least rate of misses that any test of these events can have at a rate of false alarms.

    >>> from scipy.stats import norm
    >>> exact = norm.cdf(norm.isf(0.1) - 1)  # of telling N(1, 1) from N(0, 1)
    >>> bool(abs(least_miss([GaussianSum(noise_multiplier=1.0)], 0.1) - exact) < 1e-4)
    True
    """
    deltas = np.asarray(privacy_loss(events, _STEP).get_delta_for_epsilon(_GRID))
    rest = 1 - deltas
    return float(max(0.0, np.max(rest - np.exp(_GRID) * false_alarm), np.max(np.exp(-_GRID) * (rest - false_alarm))))


def scaled(events: Sequence[Event], factor: float) -> list[Event]:
    """The same events with all noise multiplied by a factor."""
    return [_scaled(event, factor) for event in events]


def _scaled(event: Event, factor: float) -> Event:
    match event:
        case GaussianSum() | PoissonGaussian():
            return replace(event, noise_multiplier=event.noise_multiplier * factor)
        case LaplaceSum():
            return replace(event, epsilon=event.epsilon / factor)
        case _:
            return event
