"""The privacy loss of a Gaussian step, all dots at once, against the library's, dot by dot."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from sfumato.privacy.gaussian_loss import gaussian_loss

ROUNDING = 4 * 4 * 2.0**-52
SETTINGS = [
    (1.0, 1.0, 1e-4),
    (0.5, 1.0, 1e-4),
    (30.0, 1.0, 1e-5),
    (1e6, 1.0, 1e-5),
    (1.0, 0.01, 1e-4),
    (2.5, 0.01, 1e-5),
    (50.0, 0.17, 1e-5),
    (0.7, 0.5, 1e-3),
    (1.0, 1 - 1e-9, 1e-3),
    (2.0, 1e-6, 1e-5),
    (0.3, 0.9, 1e-3),
    (0.3, 0.001, 1e-3),
    (0.03, 0.5, 0.1),  # losses above 709, whose exponential is not a number
    (0.03, 1.0, 0.1),
]


def sides(loss):
    return loss._pmf_remove.to_dense_pmf(), loss._pmf_add.to_dense_pmf()


def differ(ours, theirs):
    """How far two privacy losses are apart: in places, in chances, and in what is infinite."""
    pairs = list(zip(sides(ours), sides(theirs), strict=True))
    if any(one._lower_loss != two._lower_loss or one.size != two.size for one, two in pairs):
        return np.inf
    return max(
        max(np.max(np.abs(one._probs - two._probs)), abs(one._infinity_mass - two._infinity_mass)) for one, two in pairs
    )


@pytest.mark.parametrize(("noise", "rate", "step"), SETTINGS)
def test_it_is_what_the_library_builds(noise, rate, step):
    """A chance is a difference of four profiles over the step of the grid, each rounded by some 2^-52 in both."""
    ours = gaussian_loss(noise, step, rate=rate)
    theirs = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=step)
    assert differ(ours, theirs) <= ROUNDING / step
    for delta in (1e-3, 1e-5, 1e-9):
        assert abs(ours.get_epsilon_for_delta(delta) - theirs.get_epsilon_for_delta(delta)) < 1e-12


def test_mutants_are_told_apart():
    """Another rate by a part in a million, another noise by one, or one direction for both."""
    sound = gaussian_loss(1.0, 1e-4, rate=0.01)
    wrong = [
        gaussian_loss(1.0, 1e-4, rate=0.01 * (1 + 1e-6)),
        gaussian_loss(1.0 * (1 - 1e-6), 1e-4, rate=0.01),
        pld.PrivacyLossDistribution(sound._pmf_remove),
    ]
    assert all(differ(mutant, sound) > ROUNDING / 1e-4 for mutant in wrong)
