"""Gaussian loss: the privacy loss distribution of one Gaussian step, of all rows or of a Poisson batch.

It is what dp-accounting's ``from_gaussian_mechanism`` builds, dot by dot and from the library's own bounds and
distribution functions. The library looks for the outcome of each loss in a loop; here all are found at once, which
makes a calibration about twice as fast.

Proof that rounding does no harm where outcomes are found: of an event "the outcome lies beyond x" the profile takes
the best x, so an x that is off by a relative 1e-15 lowers it by the square of that.

Reference: Doroshenko et al. 2022, "Connect the dots"; Koskela, Jaelkoe, Honkela 2020 (Poisson batches).
"""

from functools import partial
from math import ceil, floor, log1p

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from jaxtyping import Float


def gaussian_loss(noise: float, step: float, *, rate: float = 1.0) -> pld.PrivacyLossDistribution:
    """The privacy loss of a sum of sensitivity 1 with Gaussian noise, over rows that take part at ``rate`` each.

    Pessimistic on a grid of ``step``, under add-or-remove-one.

    >>> round(gaussian_loss(1.0, 1e-4).get_epsilon_for_delta(1e-5), 3)
    4.377
    """
    one = partial(_mass, noise, step, rate)
    if rate >= 1:
        return pld.PrivacyLossDistribution(one(AdjacencyType.REMOVE))
    return pld.PrivacyLossDistribution(one(AdjacencyType.REMOVE), one(AdjacencyType.ADD))


def _mass(noise: float, step: float, rate: float, adjacency: AdjacencyType) -> pld_pmf.PLDPmf:
    mechanism = GaussianPrivacyLoss(noise, sampling_prob=rate, adjacency_type=adjacency)
    bounds = mechanism.connect_dots_bounds()
    first, last = floor(bounds.epsilon_lower / step), ceil(bounds.epsilon_upper / step)
    deltas = _profile(mechanism, noise, np.arange(first, last + 1) * step)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, first, last, deltas)


def _profile(
    mechanism: GaussianPrivacyLoss, noise: float, losses: Float[np.ndarray, " dots"]
) -> Float[np.ndarray, " dots"]:
    """The least delta at each loss: the chance of outcomes of at least that loss, less exp(loss) times the other's."""
    rate, sign = mechanism.sampling_prob, -1.0 if mechanism.adjacency_type is AdjacencyType.ADD else 1.0
    if rate >= 1:
        reached, inner = np.ones(losses.shape, bool), losses
    else:
        # A removed row makes no outcome less likely than by the factor 1 - rate, an added one none more by its inverse.
        reached = sign * losses > log1p(-rate)
        with np.errstate(divide="ignore"):
            inner = np.log1p(np.maximum(np.expm1(sign * losses[reached]) / rate, -1.0))
    deltas = np.zeros(losses.shape) if sign < 0 else -np.expm1(losses)
    outcome = -sign * (0.5 + noise**2 * inner)
    deltas[reached] = mechanism.mu_upper_cdf(outcome) - np.exp(losses[reached] + mechanism.mu_lower_log_cdf(outcome))
    return np.clip(deltas, 0, 1)
