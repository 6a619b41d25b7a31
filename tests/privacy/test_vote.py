"""The vote of DP-AD: exact ratios of its chances over all neighbouring votes, and the mutants they refute."""

from fractions import Fraction
from itertools import pairwise, product
from math import exp

import pytest

from sfumato.errors import ArgumentError
from sfumato.privacy import Budget
from sfumato.privacy.accounting import headline
from sfumato.privacy.adjacency import Adjacency
from sfumato.privacy.choice import exponential_weights
from sfumato.privacy.events import Concentrated, ExponentialChoice
from sfumato.privacy.prices import most_times, price_of
from sfumato.privacy.vote import noisy_majority, vote_weights

EPSILONS = (0.01, 0.3, 1.0, 5.0)


def worst_ratio(weights, members, epsilon):
    """The largest ratio of an outcome's probability over all pairs of vote vectors that differ in one member."""
    found = {}
    for votes in product((0, 1), repeat=members):
        yes, no = weights(sum(votes), members, epsilon)
        found[votes] = (Fraction(yes, yes + no), Fraction(no, yes + no))
    worst = Fraction(1)
    for votes, chances in found.items():
        for place in range(members):
            other = found[(*votes[:place], 1 - votes[place], *votes[place + 1 :])]
            worst = max(worst, *(one / two for one, two in zip(chances, other, strict=True)))
    return worst


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("members", [1, 2, 3, 8])
def test_no_neighbouring_votes_differ_by_more_than_epsilon(members, epsilon):
    """Every vote vector against every neighbour, in exact fractions; and with all vectors of 8 the bound is near."""
    worst = worst_ratio(vote_weights, members, epsilon)
    assert worst <= Fraction(exp(epsilon)) * (1 + Fraction(1, 10**12))
    if members == 8 and epsilon >= 1:
        assert float(worst) > 0.95 * exp(epsilon)


@pytest.mark.parametrize("members", [10, 101, 3000])
def test_many_members_by_their_counts(members):
    """Chances depend on the count alone, so all neighbouring counts are all neighbouring vectors."""
    for epsilon in EPSILONS:
        pairs = [vote_weights(yes, members, epsilon) for yes in range(members + 1)]
        chances = [(Fraction(yes, yes + no), Fraction(no, yes + no)) for yes, no in pairs]
        bound = Fraction(exp(epsilon)) * (1 + Fraction(1, 10**12))
        for one, other in pairwise(chances):
            assert all(a <= bound * b and b <= bound * a for a, b in zip(one, other, strict=True))


MUTANTS = {
    "no factor of two: scores taken to rise together": lambda yes, k, e: exponential_weights([yes, k - yes], 1, 2 * e),
    "the odds of a margin at sensitivity one": lambda yes, k, e: exponential_weights([2 * (2 * yes - k), 0], 1, e),
    "a vote without noise": lambda yes, k, e: (1, 0) if 2 * yes > k else (0, 1),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_sensitivities_are_found(name):
    try:
        worst = worst_ratio(MUTANTS[name], 8, 1.0)
    except ZeroDivisionError:
        return  # an outcome that is impossible for one of two neighbours
    assert worst > Fraction(exp(1.0)) * Fraction(11, 10)


def test_the_draw_has_the_stated_chances():
    """3 of 10 at epsilon 1: P(yes) = 1 / (1 + e^2) = 0.1192; 4,000 draws, five standard errors (1 in 10^6 alarms)."""
    drawn = sum(noisy_majority(3, 10, 1.0) for _ in range(4000)) / 4000
    expected = 1 / (1 + exp(2))
    assert abs(drawn - expected) < 5 * (expected * (1 - expected) / 4000) ** 0.5
    with pytest.raises(ArgumentError):
        noisy_majority(11, 10, 1.0)


def test_prices_fill_the_budget_and_never_pass_it():
    """Few questions are cheaper by pure composition, many by concentrated; both are exact, and the better is taken."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    for times in (1, 2, 3, 10, 1000, 10_000):
        price = price_of(budget, times, "choice")
        if price.composition == "pure":
            assert Fraction(price.epsilon) * times <= 1
        else:
            rho = float(Fraction(price.epsilon) ** 2 * times / 8)
            assert 0.9999 < headline((Concentrated(rho=rho),), Adjacency(), 1e-6).epsilon <= 1.0
            assert price.epsilon > 1.0 / times
    assert price_of(budget, 2, "choice").composition == "pure"
    many = price_of(budget, 10_000, "choice")
    assert many.composition == "concentrated"
    # An independent accountant: as many choices of that epsilon, by their privacy loss distributions.
    few = price_of(budget, 200, "choice")
    assert headline((ExponentialChoice(epsilon=few.epsilon),) * 200, Adjacency(), 1e-6).epsilon <= 1.0
    assert price_of(budget, 200, "pure").epsilon == pytest.approx(few.epsilon / 2, rel=1e-9)  # rho is four times larger
    assert most_times(budget, many.epsilon, "choice").times in (10_000, 10_001)
    assert most_times(budget, 0.5, "choice").times == 2
    with pytest.raises(ArgumentError):
        most_times(budget, 1.5, "choice")
