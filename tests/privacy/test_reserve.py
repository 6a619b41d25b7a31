"""Reserves and choices in the accounts: exact sums of rho, nothing past the total, and profiles that hold."""

from fractions import Fraction
from math import exp, expm1

import numpy as np
import pytest

from privacy.doors import curator_of
from sfumato.errors import BudgetError
from sfumato.privacy import Adjacency, Budget, CountQuery, Ledger, Relation
from sfumato.privacy.accounting import _choice_pld, headline, rdp_epsilon
from sfumato.privacy.certificate import certify
from sfumato.privacy.concentrated import epsilon_of, multiplier_of, rho_of
from sfumato.privacy.events import Concentrated, ExponentialChoice, GaussianSum, PoissonGaussian
from sfumato.privacy.randomness import Randomness

BUDGETS = [Budget(epsilon=1.0, delta=1e-9), Budget(epsilon=0.01, delta=1e-6), Budget(epsilon=20.0, delta=1e-5)]
RELATIONS = [Adjacency(), Adjacency(unit="p", max_rows=3), Adjacency(relation=Relation.REPLACE_ONE)]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: str(budget.epsilon))
@pytest.mark.parametrize("adjacency", RELATIONS, ids=["row", "person", "replace"])
def test_a_reserve_takes_the_whole_budget_and_not_more(budget, adjacency):
    ledger = Ledger(budget, adjacency)
    ledger.charge(GaussianSum(noise_multiplier=budget.multiplier(0.1)), "first")
    ledger.reserve("all the rest")
    stated = headline(ledger.events, adjacency, budget.delta)
    assert stated.accountant == "RDP"
    assert 0.9999 * budget.epsilon < stated.epsilon <= budget.epsilon


def test_parts_chosen_from_answers_add_up_exactly():
    """Random parts down to nothing: the ledger takes all of them, then nothing more, and the statement stays."""
    budget, random = BUDGETS[0], np.random.default_rng(0)
    ledger = Ledger(budget, Adjacency())
    left = total = ledger.reserve("parts")
    stated = headline(ledger.events, Adjacency(), budget.delta).epsilon
    for _ in range(40):
        part = left * Fraction(float(random.uniform(0.01, 0.3)))
        event = (
            GaussianSum(noise_multiplier=multiplier_of(part))
            if random.random() < 0.5
            else ExponentialChoice(epsilon=epsilon_of(part))
        )
        assert part * (1 - Fraction(1, 2**50)) < rho_of(event) <= part
        ledger.charge(event, "part")
        left -= rho_of(event)
    last = GaussianSum(noise_multiplier=multiplier_of(left))
    ledger.charge(last, "the last")
    assert left - rho_of(last) < total * Fraction(1, 2**48)
    with pytest.raises(BudgetError, match="reserve"):
        ledger.charge(ExponentialChoice(epsilon=1e-6), "too much")
    assert len(ledger.entries) == 42 and [entry.event.kind for entry in ledger.charges] == ["concentrated"]
    assert headline(ledger.events, Adjacency(), budget.delta).epsilon == stated
    assert rdp_epsilon(ledger.drawn, Adjacency(), budget.delta) <= budget.epsilon
    assert [purpose for purpose, _ in certify(ledger, Randomness.from_os(), {}).charges] == ["parts"]


def test_a_reserve_pays_for_no_gradients():
    ledger = Ledger(BUDGETS[0], Adjacency())
    ledger.reserve("parts")
    with pytest.raises(BudgetError, match="sums over all rows"):
        ledger.charge(PoissonGaussian(rate=0.01, noise_multiplier=50.0, steps=1), "gradients")


def test_no_two_calls_paid_from_a_reserve_share_noise():
    curator = curator_of(np.zeros((5, 1)), budget=BUDGETS[2])
    part = curator.reserve("parts") / 10
    query = CountQuery(function=lambda row: row["x"].astype(int), sizes=(50,), purpose="test")
    answers = [curator.noisy_sum_at(query, noise_multiplier=multiplier_of(part)) for _ in "ab"]
    assert not np.any(answers[0] == answers[1])


def test_the_least_noise_takes_all_that_is_left():
    curator = curator_of(np.zeros((5, 1)), budget=Budget(epsilon=0.3, delta=1e-6))
    query = CountQuery(function=lambda row: row["x"].astype(int), sizes=(2,), purpose="test")
    curator.noisy_sum(query, share=0.3)
    curator._ledger.charge(ExponentialChoice(epsilon=0.02), "choice")
    curator.noisy_sum_at(query, noise_multiplier=curator.least_noise())
    stated = headline(curator._ledger.events, Adjacency(), 1e-6)
    assert 0.2995 < stated.epsilon <= 0.3


def profile(ours, others, level):
    return float(np.sum(np.maximum(ours - np.exp(level) * others, 0)))


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 4.0])
def test_the_loss_of_a_choice_bounds_every_choice(epsilon):
    """Choices of two to five candidates whose scores move by up to one; two candidates reach the bound."""
    random, bound = np.random.default_rng(3), _choice_pld(epsilon, 1e-4)
    narrow = _choice_pld(0.9 * epsilon, 1e-4)
    tightest, broken = 0.0, 0.0
    for _ in range(400):
        size = random.integers(2, 6)
        scores = random.normal(0, 3 / epsilon, size)
        moved = scores + random.choice([-1.0, 1.0], size)
        ours, others = (np.exp(epsilon * (s - s.max()) / 2) for s in (scores, moved))
        ours, others = ours / ours.sum(), others / others.sum()
        for level in random.uniform(-epsilon, epsilon, 5):
            found, allowed = profile(ours, others, level), bound.get_delta_for_epsilon(level)
            assert found <= allowed + 1e-12
            tightest = max(tightest, found / allowed)
            broken = max(broken, found - narrow.get_delta_for_epsilon(level))
    assert tightest > 0.98
    assert broken > 1e-4, "the profile of a smaller epsilon is refuted"


def test_the_loss_of_a_choice_is_the_largest_over_its_ranges():
    epsilon = 1.3
    for level in (-0.9, 0.0, 0.4, 1.2):
        tops = np.linspace(0, epsilon, 20_001)
        deltas = (exp(epsilon) - np.exp(tops)) * np.maximum(0, 1 - np.exp(level - tops)) / expm1(epsilon)
        deltas += (np.exp(tops) - 1) * np.maximum(0, 1 - np.exp(level - tops + epsilon)) / expm1(epsilon)
        assert abs(deltas.max() - _choice_pld(epsilon, 1e-4).get_delta_for_epsilon(level)) < 1e-6


def test_a_total_is_an_event_of_a_certificate():
    assert Concentrated(rho=0.1).kind == "concentrated"
    assert rdp_epsilon((Concentrated(rho=1 / 8),), Adjacency(), 1e-5) == pytest.approx(
        rdp_epsilon((GaussianSum(noise_multiplier=2.0),), Adjacency(), 1e-5)
    )
