"""Pure: the privacy loss of an answer of which nothing is known but that it is epsilon-private, with no delta.

A vector with Laplace noise is such an answer: a unit that moves it by at most s in the sum of absolute values changes
the log odds of each outcome by at most epsilon. How the loss is spread below that depends on how a unit's part is
spread over the entries. That a single number with Laplace noise is the worst of all vectors is not proven here, so its
law is not used. Randomised response is: it dominates every epsilon-private answer, in compositions too.

Reference: Kairouz, Oh, Viswanath 2015 (randomised response dominates); Bun and Steinke 2016 (rho = epsilon^2 / 2);
Zhu, Dong, Wang 2022 (dominating pairs); Doroshenko et al. 2022 (connected dots).
"""

from functools import lru_cache
from math import ceil, exp, expm1

from dp_accounting.pld import privacy_loss_distribution as pld


@lru_cache(maxsize=64)
def pure_loss(epsilon: float, step: float) -> pld.PrivacyLossDistribution:
    """The privacy loss distribution of randomised response at ``epsilon``, pessimistic on a grid of ``step``.

    Guarantees: its profile is at least max(0, (E - e^x) / (E + 1)) with E = e^epsilon, at every x.
    Proof: let low < epsilon <= high be neighbours on the grid. The profile of randomised response is convex in e^x,
    straight between -epsilon and epsilon, and zero from epsilon on. A loss of ``high`` with the chance below has the
    same profile at ``low`` and is straight from there to zero at ``high``, so it lies above; between -low and low both
    are straight and equal, and below -low the same holds by symmetry, since P(-x) = e^-x P(x) for both.
    """
    last = max(1, ceil(epsilon / step))
    low, high = (last - 1) * step, last * step
    at_high = min(-expm1(low - epsilon) / (-expm1(-step) * (1 + exp(-epsilon))), 1 / (1 + exp(-high)))
    at_low = max(0.0, 1 - at_high * (1 + exp(-high))) / (1 + exp(-low))
    masses = {last: at_high, -last: at_high * exp(-high)}
    for place, mass in ((last - 1, at_low), (1 - last, at_low * exp(-low))):
        masses[place] = masses.get(place, 0.0) + mass
    return pld.PrivacyLossDistribution.create_from_rounded_probability(
        {place: max(0.0, mass) for place, mass in masses.items()}, 0.0, step
    )
