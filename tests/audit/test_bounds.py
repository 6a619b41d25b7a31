"""The bounds: closed forms, coverage on exact mechanisms, silence on pure noise (G9).

False alarms: a bound at confidence c is above the truth in at most 1 - c of all runs. The limits below allow the counts
that a binomial of that rate passes with probability 1e-6. Seeds are fixed, so each test either always or never fails.
"""

from itertools import pairwise
from math import exp, inf, log, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta, binom, chi, nct, norm

from sfumato.audit.bounds import (
    error_limits,
    gaussian_bound,
    gaussian_epsilon,
    least_distance,
    most_provable,
    noncentral_tail,
    one_run_bound,
    one_run_tail,
    rate_bound,
    threshold_bound,
)
from sfumato.audit.finding import Finding
from sfumato.audit.plan_bound import least_miss, plan_bound, scaled
from sfumato.audit.repeats import repeats
from sfumato.errors import ArgumentError
from sfumato.privacy import Adjacency
from sfumato.privacy.accounting import headline
from sfumato.privacy.budget import gaussian_mu
from sfumato.privacy.events import GaussianSum, PoissonGaussian

DELTA = 1e-5


def alarms_allowed(rate, runs):
    """The count that a rate of false alarms passes once in a million."""
    return int(binom.isf(1e-6, runs, rate))


# Closed forms


@pytest.mark.parametrize("freedom", [20, 1_998, 9_998, 99_998, 999_998])
@pytest.mark.parametrize("centre", [0.0, 3.0, 50.0, 900.0])
def test_the_noncentral_tail_is_that_of_scipy_where_scipy_converges(freedom, centre):
    for deviations in (-3.1, 0.0, 3.1):
        statistic = centre + deviations * sqrt(1 + centre**2 / (2 * freedom))
        if statistic > 0:
            assert noncentral_tail(statistic, freedom, centre) == pytest.approx(
                nct.sf(statistic, freedom, centre), rel=1e-6, abs=1e-12
            )


def test_the_noncentral_tail_holds_where_a_broken_mechanism_leads():
    """Far out T is centre / S, so its tail is the distribution function of S."""
    statistic, freedom = 1e9, 1_998
    expected = chi.cdf(0.95 * sqrt(freedom), freedom)
    assert noncentral_tail(statistic, freedom, 0.95 * statistic) == pytest.approx(expected, rel=1e-6)


def test_the_least_distance_of_large_samples_is_the_normal_one():
    """With many observations the limit is the estimate less 3.09 standard errors."""
    random = np.random.default_rng(0)
    inside, outside = random.normal(0.7, 1, 10**6), random.normal(0, 1, 10**6)
    estimate = (inside.mean() - outside.mean()) / np.concatenate([inside - 0.7, outside]).std()
    error = sqrt(2e-6) * sqrt(1 + estimate**2 / 8 / 2 * 2)
    assert least_distance(inside, outside, 0.999) == pytest.approx(estimate - norm.isf(0.001) * error, abs=2e-4)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_the_epsilon_of_a_mu_is_the_accountants(mu):
    stated = headline([GaussianSum(noise_multiplier=1 / mu)], Adjacency(), DELTA).epsilon
    assert gaussian_epsilon(mu, DELTA) <= stated <= gaussian_epsilon(mu, DELTA) * 1.001
    assert gaussian_mu(gaussian_epsilon(mu, DELTA), DELTA) == pytest.approx(mu, rel=1e-6)


def test_the_epsilon_of_a_mu_is_the_integral_of_the_excess():
    epsilon = gaussian_epsilon(1.5, DELTA)
    excess = lambda x: max(norm.pdf(x - 1.5) - exp(epsilon) * norm.pdf(x), 0.0)
    crossing = epsilon / 1.5 + 0.75
    assert quad(excess, crossing, crossing + 12)[0] == pytest.approx(DELTA, rel=1e-6)


def test_rates_have_exact_binomial_limits():
    """No false alarm in n: the most rate is 1 - error ** (1 / n); all hits: the least is error ** (1 / n)."""
    found = float(rate_bound(np.array([500]), 500, np.array([0]), 500, 0.0, 0.01)[0])
    assert found == pytest.approx(log(0.01 ** (1 / 500) / (1 - 0.01 ** (1 / 500))))
    assert float(rate_bound(np.array([50]), 100, np.array([50]), 100, 0.0, 0.01)[0]) == 0.0
    some = float(rate_bound(np.array([90]), 100, np.array([10]), 100, 1e-3, 0.01)[0])
    assert some == pytest.approx(log((beta.ppf(0.01, 90, 11) - 1e-3) / beta.isf(0.01, 11, 90)))


def test_perfect_scores_show_all_that_can_be_shown():
    found = threshold_bound(np.ones(5_000), np.zeros(5_000), 1e-12, 0.999)
    assert found == pytest.approx(most_provable(10_000, 0.999), rel=1e-6)
    assert threshold_bound(np.zeros(5_000), np.ones(5_000), 1e-12, 0.999) == 0.0, "the side is known: in scores high"


def test_the_one_run_tail_is_the_formula_of_the_paper():
    """Against a plain loop over the sum, for 2 m delta below one, where the two are the same."""
    for num, guesses, correct, epsilon, delta in ((500, 100, 80, 0.7, 1e-5), (1000, 1000, 600, 0.2, 1e-4)):
        chance = exp(epsilon) / (1 + exp(epsilon))
        probability = [binom.pmf(k, guesses, chance) for k in range(guesses + 1)]
        most = max(sum(probability[correct - i : correct]) / i for i in range(1, correct + 1))
        expected = sum(probability[correct:]) + 2 * num * delta * most
        assert one_run_tail(num, guesses, correct, epsilon, delta) == pytest.approx(expected, rel=1e-9)


def test_the_one_run_tail_grows_with_epsilon_even_for_many_canaries():
    tails = [one_run_tail(10**5, 2_000, 1_500, epsilon, 1e-4) for epsilon in np.linspace(0, 3, 200)]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(tails))


def test_one_run_without_delta_is_a_binomial_limit():
    found = one_run_bound(1_000, 1_000, 900, 0.0, 0.95)
    least = beta.ppf(0.05, 900, 101)
    assert found == pytest.approx(log(least / (1 - least)), rel=1e-6)
    assert one_run_bound(1_000, 1_000, 900, 1e-4, 0.95) < found


def test_what_cannot_be_is_refused():
    with pytest.raises(ArgumentError):
        one_run_bound(10, 20, 5, DELTA, 0.95)
    with pytest.raises(ArgumentError):
        gaussian_bound(np.zeros(9), np.zeros(9), DELTA, 1.5)
    with pytest.raises(ArgumentError):
        threshold_bound(np.zeros(9), np.zeros(9), -1.0, 0.99)


def test_no_noise_is_an_infinite_bound_and_no_observation_none():
    assert gaussian_bound(np.ones(100), np.zeros(100), DELTA, 0.999) == inf
    assert gaussian_bound(np.zeros(100), np.zeros(100), DELTA, 0.999) == 0.0
    assert gaussian_bound(np.ones(1), np.zeros(100), DELTA, 0.999) == 0.0
    assert gaussian_bound(np.ones(100) + 1e-9 * np.arange(100), np.zeros(100), DELTA, 0.999) == inf


def test_a_finding_says_how_much_and_whether_too_much():
    finding = Finding(name="x", certified=2.0, lower=inf, delta=DELTA, confidence=0.999, observations=7)
    assert finding.violated and finding.to_dict()["lower"] == "infinity" and finding.ratio == inf
    assert not Finding(name="x", certified=2.0, lower=2.0, delta=DELTA, confidence=0.999, observations=7).violated


# Coverage: how often a bound passes the truth, on mechanisms whose epsilon is known


@pytest.mark.parametrize(("mu", "confidence"), [(0.6, 0.9), (1.6, 0.9), (1.0, 0.99)])
def test_the_gaussian_bound_is_above_the_truth_as_often_as_it_says(mu, confidence):
    """The exact limit is also not wasteful: it must pass the truth in about 1 - confidence of 600 runs."""
    random, runs, truth = np.random.default_rng(11), 600, gaussian_epsilon(mu, DELTA)
    above = sum(
        gaussian_bound(random.normal(mu, 1, 120), random.normal(0, 1, 80), DELTA, confidence) > truth
        for _ in range(runs)
    )
    assert above <= alarms_allowed(1 - confidence, runs)
    assert above >= binom.ppf(1e-6, runs, 1 - confidence)


def test_a_bound_that_takes_its_estimate_for_the_truth_fails_the_coverage_test():
    random, runs, truth = np.random.default_rng(11), 500, gaussian_epsilon(1.0, DELTA)
    naive = [random.normal(1, 1, 120).mean() - random.normal(0, 1, 80).mean() for _ in range(runs)]
    assert sum(gaussian_epsilon(mu, DELTA) > truth for mu in naive) > alarms_allowed(0.1, runs)


@pytest.mark.parametrize("side", [1, -1])
def test_the_threshold_bound_covers_randomised_response(side):
    """The mechanism whose epsilon a threshold finds exactly: the answer is true with probability e^2 / (1 + e^2)."""
    random, runs, truth = np.random.default_rng(12), 1_000, 2.0
    chance = exp(truth) / (1 + exp(truth))
    above, best = 0, 0.0
    for _ in range(runs):
        inside = np.where(random.random(300) < chance, 1.0, 0.0)
        outside = np.where(random.random(300) < chance, 0.0, 1.0)
        if side < 0:  # most are called in; only a low score tells
            inside, outside = -outside, -inside
        found = threshold_bound(inside, outside, 1e-9, 0.9)
        above, best = above + (found > truth), max(best, found)
    assert above <= alarms_allowed(0.1, runs)
    assert best > 0.7 * truth


def test_choosing_the_threshold_on_the_same_scores_fails_the_coverage_test():
    """Why one half chooses: on pure noise the best of all thresholds is above 0 far more often than it says."""
    random, found, num = np.random.default_rng(13), 0, 2_000
    for _ in range(200):
        inside, outside = np.sort(random.normal(size=num)), np.sort(random.normal(size=num))
        hits, alarms = np.arange(num, 0, -1), num - np.searchsorted(outside, inside)
        found += bool(np.max(rate_bound(hits, num, alarms, num, DELTA, 0.15)) > 0)
    assert found > alarms_allowed(0.3, 200)


def test_the_one_run_bound_covers_randomised_response():
    random, runs, truth = np.random.default_rng(14), 2_000, 1.0
    correct = random.binomial(400, exp(truth) / (1 + exp(truth)), size=runs)
    bounds = {right: one_run_bound(400, 400, int(right), 1e-9, 0.9) for right in np.unique(correct)}
    above = sum(bounds[right] > truth for right in correct)
    assert binom.ppf(1e-6, runs, 0.05) <= above <= alarms_allowed(0.1, runs)


# G9: pure noise


@pytest.mark.parametrize("num", [1_000, 10_000, 100_000])
def test_pure_noise_shows_nothing(num):
    """Each bound is 0 in at least 95 of 100 runs without a signal; at confidence 0.999 all but 0.1 % should be."""
    random = np.random.default_rng(num)
    silent = {"gaussian": 0, "threshold": 0, "one run": 0}
    for _ in range(100):
        inside, outside = random.normal(size=num // 2), random.normal(size=num // 2)
        silent["gaussian"] += gaussian_bound(inside, outside, DELTA, 0.999) == 0
        silent["threshold"] += threshold_bound(inside, outside, DELTA, 0.999) == 0
        guesses = num // 5
        right = int(random.binomial(guesses, 0.5))
        silent["one run"] += one_run_bound(num, guesses, right, DELTA, 0.999) == 0
    assert min(silent.values()) >= 99, silent


# Scores that are no numbers, and attacks that could not win


def test_scores_that_are_no_numbers_are_alarms():
    sound, broken = np.zeros(100), np.r_[np.zeros(99), np.nan]
    assert gaussian_bound(broken, sound, DELTA, 0.99) == inf
    assert gaussian_bound(sound + inf, sound, DELTA, 0.99) == inf
    assert threshold_bound(broken, sound, DELTA, 0.99) == inf
    assert plan_bound(broken, sound, [GaussianSum(noise_multiplier=1.0)], Adjacency(), DELTA, 0.99) == inf
    apart = threshold_bound(np.full(1_000, inf), np.full(1_000, -inf), DELTA, 0.99)
    assert apart == pytest.approx(threshold_bound(np.ones(1_000), np.zeros(1_000), DELTA, 0.99))
    assert Finding(name="x", certified=4.0, lower=float("nan"), delta=DELTA, confidence=0.9, observations=1).violated


def test_an_attack_that_could_not_win_does_not_say_that_all_is_well():
    given = {"name": "x", "certified": 4.0, "delta": DELTA, "confidence": 0.9, "observations": 1}
    assert Finding(**given, lower=2.0).verdict == "not refuted"
    assert Finding(**given, lower=2.0, most=3.0).verdict == "too weak to refute"
    assert Finding(**given, lower=5.0).verdict == "REFUTED"
    for wrong in (2.0, 0.1):
        with pytest.raises(ArgumentError):
            one_run_bound(100, 50, 40, 0.0, wrong)


# The bound of a sampled plan


@pytest.mark.parametrize("factor", [1.0, 0.8])
def test_the_bound_of_a_plan_is_tight_and_sound(factor):
    """Scores of an exact Gaussian mechanism with its noise scaled; at 90 %, over 200 runs of 2,000 canaries."""
    event, random, runs = GaussianSum(noise_multiplier=1.2), np.random.default_rng(8), 200
    deviation = factor * event.noise_multiplier
    false_alarms = 0
    for _ in range(runs):
        inside, outside = random.normal(1, deviation, 1_000), random.normal(0, deviation, 1_000)
        alarm, miss = error_limits(inside, outside, 0.9)
        truth = least_miss(scaled([event], factor), alarm)
        false_alarms += miss < truth
    assert false_alarms <= alarms_allowed(0.1, runs)
    lower = plan_bound(inside, outside, [event], Adjacency(), DELTA, 0.9)
    truth = headline(scaled([event], factor), Adjacency(), DELTA).epsilon
    assert 0.7 * truth < lower <= 1.05 * truth


def test_the_bound_of_a_plan_is_silent_on_pure_noise():
    """G9: 100 runs, no signal, at 99.9 %."""
    random, events = np.random.default_rng(9), [PoissonGaussian(rate=0.1, noise_multiplier=2.0, steps=20)]
    found = [
        plan_bound(random.normal(size=500), random.normal(size=500), events, Adjacency(), DELTA, 0.999)
        for _ in range(100)
    ]
    assert sum(lower == 0 for lower in found) >= 95


def test_related_noise_is_told_and_sound_noise_is_not():
    """False alarms: one in a million; here 200 sound sets of lines, and four kinds of relation."""
    random = np.random.default_rng(10)
    assert [repeats(list(random.normal(size=(5, 2_000)))) for _ in range(200)].count([]) == 200
    lines = random.normal(size=(4, 2_000))
    assert repeats([*lines, -lines[2]]) == ["the noise of two answers is related"]
    assert repeats([*lines, lines[0] + random.normal(size=2_000)]) == ["the noise of two answers is related"]
    assert repeats([*lines, np.tile(lines[0, :1_000], 2)])[-1] == "the noise of two coordinates is related"
    assert repeats([np.repeat(lines[0, :1_000], 2)]) == ["the noise of two coordinates is related"]
