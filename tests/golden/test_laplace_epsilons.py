"""The epsilon of Laplace sums, against the exact composition of pure privacy (Kairouz, Oh, Viswanath 2015)."""

import json
from math import inf, log, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from sfumato.errors import BudgetError
from sfumato.privacy import Adjacency, Budget, Certificate, Ledger, Randomness, Relation
from sfumato.privacy.accounting import calibrate_laplace, clt_epsilon, headline, pld_epsilon, rdp_epsilon
from sfumato.privacy.certificate import certify
from sfumato.privacy.concentrated import rho_of
from sfumato.privacy.events import Concentrated, GaussianSum, LaplaceSum, PoissonGaussian
from sfumato.privacy.pure import pure_loss
from sfumato.release.wording import event_words

PERSON = Adjacency()


def sums(epsilon, times):
    return (LaplaceSum(epsilon=epsilon),) * times


def exact_epsilon(epsilon, times, delta):
    """Of so many randomised responses: the least x at which the chance of losses above it, net, is at most delta."""
    wrong = np.arange(times + 1)
    losses = (times - 2 * wrong) * epsilon
    chances = binom.pmf(wrong, times, 1 / (1 + np.exp(epsilon)))

    def excess(x):
        return float(np.sum(np.where(losses > x, -chances * np.expm1(np.minimum(0, x - losses)), 0))) - delta

    return brentq(excess, 0.0, times * epsilon, xtol=1e-13) if excess(0.0) > 0 else 0.0


GOLDEN = [(0.5, 1, 0.499984), (0.1, 20, 1.597981), (0.05, 100, 1.968130), (0.123456, 7, 0.863350), (0.3, 20, 5.386763)]


@pytest.mark.parametrize(("epsilon", "times", "golden"), GOLDEN)
def test_sums_compose_as_randomised_responses_do(epsilon, times, golden):
    """Never below the exact figure, at most a few grid steps above it, and never above the plain sum of epsilons."""
    stated = headline(sums(epsilon, times), PERSON, 1e-5)
    exact = exact_epsilon(epsilon, times, 1e-5)
    assert stated.accountant == "PLD"
    assert exact - 1e-9 <= stated.epsilon <= exact + 2 * stated.discretisation
    assert stated.epsilon <= times * epsilon
    assert stated.epsilon == pytest.approx(golden, abs=2e-6)
    assert stated.epsilon <= rdp_epsilon(sums(epsilon, times), PERSON, 1e-5) <= times * epsilon + 1e-12


def test_one_sum_has_its_closed_form():
    """(E - e^x) / (E + 1) = delta, at x = log(E - delta (E + 1)) with E = e^epsilon."""
    for epsilon, delta in ((0.02, 1e-4), (1.0, 1e-5), (3.3, 1e-3)):
        closed = log(np.exp(epsilon) - delta * (1 + np.exp(epsilon)))
        assert pld_epsilon(sums(epsilon, 1), PERSON, delta) == pytest.approx(closed, abs=1e-7)


@pytest.mark.parametrize("epsilon", [3e-6, 1e-5, 0.0123456789, 0.5, 2.71828, 700.0])
def test_the_loss_on_the_grid_is_never_below_the_exact_profile(epsilon):
    """At points on and off the grid, both signs; an epsilon below one grid step is looser, and sound."""
    step = 1e-3 if epsilon > 1 else 1e-5
    points = np.concatenate([np.linspace(-1.2, 1.2, 97) * epsilon, np.arange(-3, 4) * step])
    exact = np.maximum(0, -np.expm1(np.maximum(points, -epsilon) - epsilon)) / (1 + np.exp(-epsilon))
    exact = np.where(points < -epsilon, -np.expm1(np.minimum(points, 0)), exact)
    found = np.array([pure_loss(epsilon, step).get_delta_for_epsilon(point) for point in points])
    assert np.all(found >= exact - 1e-12)
    if epsilon > step:
        assert np.all(found <= exact + 1e-3)


def test_other_events_compose_with_laplace_sums():
    """Beside Gaussian noise at most the epsilons add up; one accountant is the mirror of the other."""
    gaussian = (GaussianSum(noise_multiplier=8.0),)
    alone = headline(gaussian, PERSON, 1e-6).epsilon
    both = headline((*gaussian, *sums(0.05, 4)), PERSON, 1e-6).epsilon
    assert alone < both < alone + 0.2
    assert both <= rdp_epsilon((*gaussian, *sums(0.05, 4)), PERSON, 1e-6) <= rdp_epsilon(gaussian, PERSON, 1e-6) + 0.2
    replace = Adjacency(relation=Relation.REPLACE_ONE)
    assert headline(sums(0.1, 3), replace, 1e-6).accountant == "RDP"
    assert headline(sums(0.1, 3), replace, 1e-6).epsilon <= 0.3 + 1e-12
    assert clt_epsilon(sums(0.1, 1), 1e-5) == inf
    several = PoissonGaussian(rate=0.1, noise_multiplier=9.0, steps=2, max_rows=2)
    assert rdp_epsilon((several, *sums(0.1, 1)), Adjacency(unit="p", max_rows=2), 1e-6) == inf


def test_rho_is_half_of_epsilon_squared_and_that_is_what_rdp_counts():
    assert rho_of(LaplaceSum(epsilon=0.5)) == 1 / 8
    many = sums(0.01, 400)
    as_one = (Concentrated(rho=400 * 0.01**2 / 2),)
    assert rdp_epsilon(many, PERSON, 1e-6) == pytest.approx(rdp_epsilon(as_one, PERSON, 1e-6), rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "times"), [(0.1, 1e-5, 1), (0.1, 1e-5, 20), (1.0, 1e-6, 20), (8.0, 1e-7, 5)]
)
def test_calibration_meets_the_target_and_never_exceeds_it(epsilon, delta, times):
    budget = Budget(epsilon=epsilon, delta=delta)
    spent = (GaussianSum(noise_multiplier=budget.multiplier(0.04)),)
    event = calibrate_laplace(times, spent, PERSON, budget)
    stated = headline((*spent, *(event,) * times), PERSON, delta).epsilon
    assert epsilon - 1e-3 * min(1.0, epsilon) <= stated <= epsilon
    with pytest.raises(BudgetError):
        calibrate_laplace(times, (GaussianSum(noise_multiplier=0.999 * budget.multiplier(1.0)),), PERSON, budget)


def test_a_certificate_states_laplace_noise_and_is_derived_again():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5), PERSON)
    for number in range(3):
        ledger.charge(LaplaceSum(epsilon=0.2), f"round {number}")
    certificate = certify(ledger, Randomness.from_os(), {})
    read = Certificate.from_dict(json.loads(json.dumps(certificate.to_dict())))
    assert read == certificate
    assert read.rederive() == pytest.approx(certificate.epsilon, abs=1e-9)
    assert certificate.randomness["noise"] == "two-sided geometric (Laplace) on an integer grid"
    ledger.charge(GaussianSum(noise_multiplier=40.0), "more")
    both = certify(ledger, Randomness.from_os(), {}).randomness["noise"]
    assert both == "rounded Gaussian and two-sided geometric (Laplace) on an integer grid"
    assert "Laplace" in event_words(LaplaceSum(epsilon=0.2)) and "0.2" in event_words(LaplaceSum(epsilon=0.2))


def test_a_certificate_by_zero_concentrated_privacy():
    """Gaussian and Laplace sums by their rho, never below the headline; no figure where sums are sampled."""
    budget = Budget(epsilon=3.0, delta=1e-6)
    ledger = Ledger(budget, Adjacency())
    for event in (GaussianSum(noise_multiplier=4.0), GaussianSum(noise_multiplier=4.0), LaplaceSum(epsilon=0.25)):
        ledger.charge(event, "sum")
    stated = certify(ledger, Randomness.from_os(), {})
    rho = 2 / (2 * 4.0**2) + 0.25**2 / 2
    simple = rho + 2 * sqrt(rho * log(1e6))  # Bun and Steinke 2016, proposition 1.3: a looser conversion
    assert stated.epsilon <= stated.epsilon_zcdp < simple
    ledger.charge(PoissonGaussian(rate=0.01, noise_multiplier=10.0, steps=1), "steps")
    assert certify(ledger, Randomness.from_os(), {}).epsilon_zcdp is None
