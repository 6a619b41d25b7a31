"""Accounting: the epsilon of a list of events, and the noise that a budget asks for.

The headline is the privacy loss distribution (PLD) at a discretisation of 1e-5, a rigorous upper bound. Renyi
differential privacy (RDP) is a cross-check, and the headline where PLD has no answer (sampling without
replacement, noise chosen from answers) or, among choices, a larger one: both bound the same epsilon from above, so the
smaller of the two holds. The Gaussian central limit figure can be asked for because papers report it; it is an
approximation that may understate, and is never the headline. What an exposure may tell is taken off delta first.

Reference: Koskela, Jaelkoe, Honkela 2020 and Doroshenko et al. 2022 (PLD); Mironov 2017 and Wang, Balle,
Kasiviswanathan 2019 (RDP); Dong, Durfee, Rogers 2020 and Cesar, Rogers 2021 (choices); Bu, Dong, Long, Su 2020
(central limit).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from math import ceil, exp, expm1, inf, log, sqrt

import dp_accounting as dpa
import numpy as np
from dp_accounting import rdp
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import brentq
from scipy.stats import binom

from sfumato.errors import ArgumentError, BudgetError
from sfumato.privacy.adjacency import Adjacency, Relation
from sfumato.privacy.budget import LEAST_DELTA, Budget, gaussian_delta
from sfumato.privacy.events import (
    Concentrated,
    Event,
    ExponentialChoice,
    Exposure,
    FixedSizeGaussian,
    GaussianSum,
    LaplaceSum,
    NonPrivate,
    PoissonGaussian,
)
from sfumato.privacy.gaussian_loss import gaussian_loss
from sfumato.privacy.pure import pure_loss

_FINE, _COARSE = 1e-5, 1e-4
_LEAST_NOISE, _MOST_NOISE = 0.3, 1e7
_LARGE_CHOICE = 20.0
_NOTHING_LEFT = "The budget left is too small for this query at any noise: raise epsilon."
_WHOLE_ORDERS = (*range(2, 64), 80, 96, 128, 192, 256, 512, 1024)
_FEW_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024)
# Fractional orders below 2 matter only at epsilons far above any that protects, and their series may diverge.
_ORDERS = (*(2 + tenth / 10 for tenth in range(90)), *(order for order in _WHOLE_ORDERS if order > 10))
# Where RDP is proportional to the order, any order is as quick as another: from 1.01 to 10^6.
_PLAIN = (GaussianSum, ExponentialChoice, LaplaceSum, Concentrated)
_PLAIN_ORDERS = tuple(1 + 0.01 * 1.05**step for step in range(378))


@dataclass(frozen=True, kw_only=True)
class Statement:
    """An epsilon with the accountant that computed it."""

    epsilon: float
    accountant: str
    discretisation: float | None
    library: str


def headline(events: Sequence[Event], adjacency: Adjacency, delta: float) -> Statement:
    """The epsilon that a certificate states: PLD, or RDP where PLD has no rule, or a larger answer among choices.

    >>> round(headline([GaussianSum(noise_multiplier=1.0)], Adjacency(), 1e-5).epsilon, 4)
    4.3772
    """
    library = f"dp-accounting {version('dp-accounting')}"
    events = tuple(events)
    if any(isinstance(event, NonPrivate) for event in events):
        return Statement(epsilon=inf, accountant="none", discretisation=None, library=library)
    events, delta = without_exposures(events, delta)
    by_rdp = Statement(epsilon=inf, accountant="RDP", discretisation=None, library=library)
    if _needs_rdp(events, adjacency) or any(isinstance(event, ExponentialChoice) for event in events):
        by_rdp = replace(by_rdp, epsilon=rdp_epsilon(events, adjacency, delta))
    if _needs_rdp(events, adjacency):
        return by_rdp
    step = discretisation_of(events, adjacency, delta)
    by_pld = Statement(
        epsilon=pld_epsilon(events, adjacency, delta, step), accountant="PLD", discretisation=step, library=library
    )
    return min(by_pld, by_rdp, key=lambda statement: statement.epsilon)


def without_exposures(events: Sequence[Event], delta: float) -> tuple[tuple[Event, ...], float]:
    """The events that are no exposures, and what exposures leave them of delta: nothing, where it is too little.

    Proof: a (0, d)-private answer is dominated by two coins that agree but for an event of chance d. Together with
    events of profile rest(x) they have d + (1 - d) rest(x), which is at most d + rest(x). So epsilon of all at delta is
    at most epsilon of the rest at delta - d, by whichever accountant.
    """
    rest = tuple(event for event in events if not isinstance(event, Exposure))
    if len(rest) == len(events):
        return rest, delta
    left = delta - sum(event.delta for event in events if isinstance(event, Exposure))
    return rest, left if left >= LEAST_DELTA else 0.0


def _needs_rdp(events: Sequence[Event], adjacency: Adjacency) -> bool:
    """Where PLD has no rule: under replace-one, and for noise that was chosen from answers."""
    return adjacency.relation is Relation.REPLACE_ONE or any(isinstance(event, Concentrated) for event in events)


def discretisation_of(events: tuple[Event, ...], adjacency: Adjacency, delta: float) -> float:
    """1e-5; or 1e-4 where that would take long: several rows a unit, or an epsilon above 4.

    Either gives an upper bound; the coarser one is looser by a few parts in ten thousand.
    """
    mixed = any(isinstance(event, PoissonGaussian) and event.max_rows > 1 for event in events)
    return _COARSE if mixed or rdp_epsilon(events, adjacency, delta, _WHOLE_ORDERS) > 4 else _FINE


@lru_cache(maxsize=64)
def pld_epsilon(events: tuple[Event, ...], adjacency: Adjacency, delta: float, step: float = _FINE) -> float:
    """An upper bound on epsilon at delta by composing privacy loss distributions, under add-or-remove-one."""
    if adjacency.relation is not Relation.ADD_OR_REMOVE_ONE:
        raise ArgumentError("PLD accounting here is for add-or-remove-one; replace-one is accounted by RDP.")
    events, delta = without_exposures(events, delta)
    if delta <= 0 or any(isinstance(event, NonPrivate) for event in events):
        return inf
    if not events:
        return 0.0
    return float(privacy_loss(events, step).get_epsilon_for_delta(delta))


def privacy_loss(events: Sequence[Event], step: float) -> pld.PrivacyLossDistribution:
    """The privacy loss distribution of events together, under add-or-remove-one; pessimistic on a grid of ``step``."""
    sums = [event for event in events if isinstance(event, GaussianSum)]
    equal = Counter(event for event in events if isinstance(event, ExponentialChoice | LaplaceSum))
    rest = (event for event in events if not isinstance(event, GaussianSum | ExponentialChoice | LaplaceSum))
    parts = [_pld_of(event, step) for event in rest]
    for event, number in equal.items():
        loss_of = pure_loss if isinstance(event, LaplaceSum) else _choice_pld
        parts.append(loss_of(event.epsilon, step).self_compose(number))
    if sums:  # Gaussian sums compose exactly into one, which saves discretisation error
        deviation = 1 / sqrt(sum(event.noise_multiplier**-2 for event in sums))
        parts.append(gaussian_loss(deviation, step))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return total


@lru_cache(maxsize=64)
def _pld_of(event: Event, step: float) -> pld.PrivacyLossDistribution:
    if isinstance(event, Exposure):
        failure = dpa.pld.common.DifferentialPrivacyParameters(0.0, event.delta)
        return pld.from_privacy_parameters(failure, value_discretization_interval=step)
    if not isinstance(event, PoissonGaussian):
        raise ArgumentError(f"PLD has no rule for a {event.kind} event.")
    if event.rate >= 1:  # every row takes part in every step: all steps together are one Gaussian sum
        deviation = event.noise_multiplier / (event.max_rows * sqrt(event.steps))
        return gaussian_loss(deviation, step)
    if event.max_rows == 1:
        one = gaussian_loss(event.noise_multiplier, step, rate=event.rate)
    else:
        law = {float(k): float(binom.pmf(k, event.max_rows, event.rate)) for k in range(event.max_rows + 1)}
        law = {count: chance for count, chance in law.items() if chance > 0}
        one = pld.from_mixture_gaussian_mechanism(
            event.noise_multiplier, list(law), list(law.values()), value_discretization_interval=step
        )
    return one.self_compose(event.steps)


@lru_cache(maxsize=64)
def _choice_pld(epsilon: float, step: float) -> pld.PrivacyLossDistribution:
    """The privacy loss of an exponential choice: the worst of all whose log odds lie in a range of width epsilon.

    Proof: with log odds in [t - epsilon, t] the worst case takes both ends, with chances that make it a distribution,
    and has delta(x) = (E - e^t) (1 - e^(x - t)) / (E - 1) with E = e^epsilon. Over t that is largest at
    t = (epsilon + x) / 2, where it is (e^(epsilon / 2) - e^(x / 2))^2 / (E - 1). The largest of privacy profiles is a
    profile, and a pair that has it dominates in compositions (Zhu, Dong, Wang 2022).
    """
    if epsilon > _LARGE_CHOICE:  # as pure privacy, which is looser and takes no array of losses
        return pure_loss(epsilon, step)
    last = max(1, ceil(epsilon / step))
    losses = np.clip(np.arange(-last, last + 1) * step, -epsilon, epsilon)
    deltas = np.expm1((epsilon - losses) / 2) ** 2 * np.exp(losses) / expm1(epsilon)
    deltas[0] = -expm1(-last * step)  # below -epsilon every profile is 1 - e^x
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -last, last, deltas))


@lru_cache(maxsize=64)
def rdp_epsilon(
    events: tuple[Event, ...], adjacency: Adjacency, delta: float, orders: tuple[float, ...] = _ORDERS
) -> float:
    """A looser upper bound by Renyi differential privacy; infinite where RDP has no rule for an event.

    Laplace sums are epsilon-private, which gives epsilon^2 / 2 of zero-concentrated privacy (Bun and Steinke 2016), or
    their epsilons on top of that of all else at the same delta (Dwork and Roth 2014): the smaller of the two.
    """
    events, delta = without_exposures(events, delta)
    if delta <= 0:
        return inf
    pure = [event.epsilon for event in events if isinstance(event, LaplaceSum)]
    if pure:
        rest = tuple(event for event in events if not isinstance(event, LaplaceSum))
        apart = sum(pure) + (rdp_epsilon(rest, adjacency, delta, orders) if rest else 0.0)
    else:
        apart = inf
    relation = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    if adjacency.relation is Relation.REPLACE_ONE:
        relation = dpa.NeighboringRelation.REPLACE_ONE
    if all(isinstance(event, _PLAIN) for event in events):
        orders = _PLAIN_ORDERS
    accountant = rdp.RdpAccountant(orders, neighboring_relation=relation)
    for event in events:
        named = _rdp_event_of(event, adjacency)
        if named is None or not accountant.supports(named):
            return inf
        accountant.compose(named)
    return min(apart, float(accountant.get_epsilon(delta)))


def _rdp_event_of(event: Event, adjacency: Adjacency) -> dpa.DpEvent | None:
    match event:
        case GaussianSum():
            return dpa.GaussianDpEvent(event.noise_multiplier)
        case PoissonGaussian() if event.max_rows == 1 and adjacency.relation is Relation.ADD_OR_REMOVE_ONE:
            one = dpa.PoissonSampledDpEvent(event.rate, dpa.GaussianDpEvent(event.noise_multiplier))
            return dpa.SelfComposedDpEvent(one, event.steps)
        case FixedSizeGaussian() if adjacency.relation is Relation.REPLACE_ONE:
            one = dpa.SampledWithoutReplacementDpEvent(
                event.rows, event.batch, dpa.GaussianDpEvent(event.noise_multiplier)
            )
            return dpa.SelfComposedDpEvent(one, event.steps)
        case ExponentialChoice():
            # Bounded range gives eps^2/8 zCDP (Cesar and Rogers 2021).
            return dpa.ZCDpEvent(event.epsilon**2 / 8)
        case LaplaceSum():
            return dpa.ZCDpEvent(event.epsilon**2 / 2)
        case Concentrated():
            return dpa.ZCDpEvent(event.rho)
        case _:
            return None


def largest_rho(spent: Sequence[Event], adjacency: Adjacency, budget: Budget) -> float:
    """The largest rho of zero-concentrated privacy that, after ``spent``, stays within the budget.

    A part in 10^9 stays below, for the rounding of a sum of many parts.
    """
    spent = tuple(spent)

    def excess(log_rho: float) -> float:
        events = (*spent, Concentrated(rho=exp(log_rho)))
        return headline(events, adjacency, budget.delta).epsilon - budget.epsilon

    low, high = log(1e-11), log(1e3)
    if excess(low) > 0:
        raise BudgetError("The budget left is too small for a reserve: raise epsilon.")
    return exp(brentq(excess, low, high, xtol=1e-12)) * (1 - 1e-9)


def clt_epsilon(events: Sequence[Event], delta: float) -> float:
    """The Gaussian central limit figure of the DP-NF paper: an APPROXIMATION THAT MAY UNDERSTATE.

    For comparison with published figures only; infinite where it has no rule.
    """
    events, delta = without_exposures(events, delta)
    if delta <= 0:
        return inf
    squared = 0.0
    for event in events:
        match event:
            case GaussianSum():
                squared += event.noise_multiplier**-2
            case PoissonGaussian() if event.max_rows == 1:
                squared += event.rate**2 * event.steps * expm1(event.noise_multiplier**-2)
            case _:
                return inf
    mu = sqrt(squared)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2
    return float(brentq(lambda epsilon: gaussian_delta(epsilon, mu) - delta, 0.0, high))


def calibrate(make: Callable[[float], Event], spent: Sequence[Event], adjacency: Adjacency, budget: Budget) -> Event:
    """The event of least noise that, after ``spent``, stays within the budget.

    ``make`` turns a noise multiplier into an event. The search runs on the coarse discretisation and is
    finished on the one that the certificate will use; the answer never exceeds the budget and leaves at most
    1e-3 of epsilon, unless even the least noise there is (0.3 of the sensitivity) costs less.
    """

    def roughly(multiplier: float) -> float:
        events = (*spent, make(multiplier))
        if _needs_rdp(events, adjacency):
            return rdp_epsilon(events, adjacency, budget.delta)
        # One grid coarser than the statement's: ten times faster, and close enough to start from.
        coarse = 10 * discretisation_of(events, adjacency, budget.delta)
        by_pld = pld_epsilon(events, adjacency, budget.delta, coarse)
        if any(isinstance(event, ExponentialChoice) for event in events):
            return min(by_pld, rdp_epsilon(events, adjacency, budget.delta))
        return by_pld

    if headline(spent, adjacency, budget.delta).epsilon >= budget.epsilon:
        raise BudgetError(_NOTHING_LEFT)
    low, high = _bracket(roughly, budget.epsilon, _guess(make, spent, budget))
    if high < _LEAST_NOISE:
        return make(_LEAST_NOISE)  # less noise gains no accuracy, so the rest stays unspent
    start = brentq(lambda s: roughly(exp(s)) - budget.epsilon, log(low), log(high), xtol=1e-3)
    return make(_finish(lambda multiplier: (make(multiplier),), spent, adjacency, budget, exp(start)))


def calibrate_laplace(times: int, spent: Sequence[Event], adjacency: Adjacency, budget: Budget) -> LaplaceSum:
    """The Laplace sum of least noise of which, after ``spent``, so many stay within the budget together.

    The search begins where epsilons that add up would use the whole budget, and is finished as in ``calibrate``.
    """
    make = lambda multiplier: LaplaceSum(epsilon=1 / multiplier)
    if headline(spent, adjacency, budget.delta).epsilon >= budget.epsilon:
        raise BudgetError(_NOTHING_LEFT)
    several = lambda multiplier: (make(multiplier),) * times
    return make(_finish(several, spent, adjacency, budget, times / budget.epsilon))


def _finish(
    make: Callable[[float], tuple[Event, ...]],
    spent: Sequence[Event],
    adjacency: Adjacency,
    budget: Budget,
    start: float,
) -> float:
    """From a rough multiplier to one whose stated epsilon is within the budget, and within 1e-3 of it."""
    multiplier, over, within = start, 0.0, inf
    for _ in range(60):
        stated = headline((*spent, *make(multiplier)), adjacency, budget.delta).epsilon
        if budget.epsilon - 1e-3 * min(1.0, budget.epsilon) <= stated <= budget.epsilon:
            return multiplier
        if stated > budget.epsilon:
            over = max(over, multiplier)
        else:
            within = min(within, multiplier)
        # Epsilon falls about as one over the multiplier; where that step leaves the bracket, halve it instead.
        multiplier *= stated / (budget.epsilon * (1 - 1e-4))
        if not over < multiplier < within:
            multiplier = (over + within) / 2 if within < inf else 1.05 * over
    raise BudgetError("No noise level meets the budget; choose fewer steps or another epsilon.")


def _guess(make: Callable[[float], Event], spent: Sequence[Event], budget: Budget) -> float:
    """Where a search may start: the central limit figure, or RDP where that has no rule. It decides nothing."""
    several = getattr(make(1.0), "max_rows", 1)

    def single(multiplier: float) -> Event:
        # For several rows a unit: the answer for one, times their number, is of the right size.
        event = make(multiplier)
        return replace(event, max_rows=1) if isinstance(event, PoissonGaussian) else event

    relation = Relation.REPLACE_ONE if isinstance(make(1.0), FixedSizeGaussian) else Relation.ADD_OR_REMOVE_ONE
    adjacency = Adjacency(relation=relation)

    def about(multiplier: float) -> float:
        events = (*spent, single(multiplier))
        figure = clt_epsilon(events, budget.delta)
        return figure if figure < inf else rdp_epsilon(events, adjacency, budget.delta, _FEW_ORDERS)

    multiplier = 1.0
    while (figure := about(multiplier)) > budget.epsilon:
        multiplier *= 1.25
        if figure == inf or multiplier > _MOST_NOISE:  # neither knows these events
            return several
    return multiplier * several


def _bracket(epsilon: Callable[[float], float], target: float, guess: float) -> tuple[float, float]:
    high = guess
    while epsilon(high) > target:
        high *= 1.3
        if high > _MOST_NOISE:
            raise BudgetError(_NOTHING_LEFT)
    low = high / 1.3
    while high >= _LEAST_NOISE and epsilon(low) <= target:
        low, high = low / 1.3, low
    return low, high
