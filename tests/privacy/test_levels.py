"""The door for texts that nobody has listed: its threshold, its charges, and what comes out.

Frequencies are compared with exact tails; the fixed keys make every run the same, and a fresh key would fail one time
in a million (five deviations, two sides).
"""

from itertools import product
from math import sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import sfumato.privacy.curator as room
import sfumato.privacy.levels as levels
from sfumato.errors import ArgumentError, BudgetError
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness, Relation, Texts
from sfumato.privacy.accounting import clt_epsilon, headline, largest_rho, pld_epsilon, rdp_epsilon
from sfumato.privacy.budget import gaussian_delta
from sfumato.privacy.events import Exposure, GaussianSum, PoissonGaussian

LOOSE = Budget(epsilon=0.05, delta=0.12)
"""Much delta, so that exposures are frequent enough to be counted."""


def curator_of(columns, *, budget=LOOSE, adjacency=None, seed=0):
    """A curator over columns of texts, given as lists of one text or None a row."""
    texts = []
    for column in columns:
        names = tuple(dict.fromkeys(text for text in column if text is not None))
        place = {name: at for at, name in enumerate(names)} | {None: -1}
        texts.append(Texts(np.array([place[text] for text in column], np.int64), names))
    ledger = Ledger(budget, adjacency or Adjacency())
    rows = np.zeros((len(columns[0]), 0), np.int32)
    return Curator(rows, texts=texts, ledger=ledger, randomness=Randomness.from_seed(seed), public_size=100)


def partitions(rows, most):
    """Every way in which a unit can spread so many rows over texts of its own."""
    if rows == 0:
        yield ()
    for first in range(min(rows, most), 0, -1):
        for rest in partitions(rows - first, first):
            yield (first, *rest)


def worst_chance(threshold, deviation, max_rows):
    """The exact chance that any text of one unit alone comes out, at its worst over all that the unit may hold."""
    reaches = lambda rows: norm.sf((threshold - rows - 0.5) / deviation)
    ways = [way for rows in range(1, max_rows + 1) for way in partitions(rows, rows)]
    return max(1 - np.prod([1 - reaches(rows) for rows in way]) for way in ways)


CASES = list(product((0.7, 3.0, 20.0, 300.0), (1, 2, 5, 9), (0.05, 1e-4)))


@pytest.mark.parametrize(("deviation", "max_rows", "delta"), CASES)
def test_a_unit_alone_passes_no_more_often_than_stated(deviation, max_rows, delta):
    threshold = levels.least_threshold(deviation, max_rows, delta)
    assert worst_chance(threshold, deviation, max_rows) <= delta
    assert levels.exposure_chance(threshold, deviation, max_rows) <= delta


def test_the_enumeration_rejects_thresholds_that_are_too_low():
    """One lower is too low for a lone row everywhere, and a threshold for single rows is for units of several."""
    lower = [c for c in CASES if c[1] == 1 and worst_chance(levels.least_threshold(*c) - 1, c[0], 1) > c[2]]
    assert lower == [case for case in CASES if case[1] == 1 and levels.least_threshold(*case) > 2]
    several = [case for case in CASES if case[1] > 1]
    assert all(worst_chance(levels.least_threshold(s, 1, d), s, m) > d for s, m, d in several)


def told(count, *, columns=1, adjacency=None, delta=0.05, num=20_000, seed=1):
    """How many texts of so many rows each come out of a column that has nothing else, and the chance that is exact."""
    adjacency = adjacency or Adjacency()
    rows = [f"text {place}" for place in range(num) for _ in range(count)]
    curator = curator_of([rows] * columns, adjacency=adjacency, seed=seed)
    found = curator.noisy_levels(share=0.3, delta=delta, purpose="test")
    deviation = LOOSE.multiplier(0.3) * adjacency.sum_factor * sqrt(columns)
    threshold = levels.least_threshold(deviation, adjacency.max_rows, delta / columns)
    return [len(each) for each in found], norm.sf((threshold - count - 0.5) / deviation)


def test_rare_texts_come_out_as_often_as_the_tail_says():
    """Of 20,000 texts of one row, of three rows of one unit, and of each of two columns."""
    three = Adjacency(unit="person", max_rows=3)
    for count, columns, adjacency in ((1, 1, None), (3, 1, three), (1, 2, None)):
        found, chance = told(count, columns=columns, adjacency=adjacency)
        assert chance <= 0.05 / columns
        for number in found:
            assert abs(number - 20_000 * chance) <= 5 * sqrt(20_000 * chance * (1 - chance))


@pytest.mark.parametrize("name", ["threshold", "unit", "columns", "noise"])
def test_the_frequency_rejects_a_broken_door(monkeypatch, name):
    real, draw = levels.least_threshold, levels.gaussian_integers
    broken = {
        "threshold": lambda deviation, max_rows, delta: real(deviation, max_rows, delta) - 1,
        "unit": lambda deviation, max_rows, delta: real(deviation, 1, delta),
        "columns": lambda deviation, max_rows, delta: real(deviation, max_rows, 2 * delta),
        "noise": real,
    }
    monkeypatch.setattr(room, "least_threshold", broken[name])
    if name == "noise":
        monkeypatch.setattr(levels, "gaussian_integers", lambda k, n, m, s: draw(k, n, m, 0.9 * s))
    with pytest.raises(AssertionError):
        test_rare_texts_come_out_as_often_as_the_tail_says()


def test_both_parts_are_charged_before_any_noise(monkeypatch):
    drawn = []
    real = levels.gaussian_integers
    monkeypatch.setattr(levels, "gaussian_integers", lambda *given: drawn.append(1) or real(*given))
    curator = curator_of([["a"] * 9])
    curator.noisy_levels(share=0.3, delta=0.05, purpose="test")
    kinds = [type(entry.event) for entry in curator._ledger.entries]
    assert (kinds, len(drawn)) == ([Exposure, GaussianSum], 1)
    for share, delta in ((0.9, 0.01), (0.1, 0.1)):  # past epsilon; past delta with what is spent of it
        curator = curator_of([["a"] * 9], budget=Budget(epsilon=0.3, delta=0.1))
        curator.noisy_levels(share=0.5, delta=0.01, purpose="test")
        with pytest.raises(BudgetError, match="nothing was drawn"):
            curator.noisy_levels(share=share, delta=delta, purpose="test")
    assert len(drawn) == 3


def test_what_comes_out_is_sorted_and_does_not_follow_the_rows():
    column = ["zebra", "ant", None, "Mole", "ant"] * 400 + ["only once"]
    first = curator_of([column]).noisy_levels(share=0.5, delta=1e-3, purpose="test")
    again = curator_of([column[::-1]]).noisy_levels(share=0.5, delta=1e-3, purpose="test")
    assert first == again
    assert list(first[0]) == list(again[0]) == ["Mole", "ant", "zebra"]


def test_texts_have_no_text_form_and_a_row_has_one():
    texts = Texts(np.array([0, 0]), ("secret",))
    assert "secret" not in repr(texts)
    with pytest.raises(ArgumentError):
        Texts(np.array([0, 1]), ("a", "a"))
    with pytest.raises(ArgumentError):
        Texts(np.zeros((2, 2), np.int64), ("a",))


# --- what an exposure costs -----------------------------------------------------------------------------------

SUM = GaussianSum(noise_multiplier=4.0)
LOST = Exposure(delta=4e-6)


def exact_epsilon(delta):
    """Of a Gaussian mechanism beside a failure of chance d: d + (1 - d) gaussian_delta = delta, solved."""
    profile = lambda epsilon: LOST.delta + (1 - LOST.delta) * gaussian_delta(epsilon, 1 / SUM.noise_multiplier)
    return brentq(lambda epsilon: profile(epsilon) - delta, 0.0, 10.0, xtol=1e-13)


def test_no_accountant_is_below_the_exact_epsilon():
    delta = 1e-5
    exact = exact_epsilon(delta)
    stated = headline((SUM, LOST), Adjacency(), delta)
    assert stated.accountant == "PLD"
    for epsilon in (stated.epsilon, pld_epsilon((LOST, SUM), Adjacency(), delta), clt_epsilon((SUM, LOST), delta)):
        assert exact - 1e-9 <= epsilon <= exact + 1e-3
    assert exact <= rdp_epsilon((SUM, LOST), Adjacency(), delta) <= 1.2 * exact
    replaced = Adjacency(relation=Relation.REPLACE_ONE)
    assert exact <= headline((SUM, LOST), replaced, delta).epsilon <= 1.2 * exact
    # The mutant: an accountant that overlooks the exposure.
    assert headline((SUM,), Adjacency(), delta).epsilon < exact - 1e-2


def test_exposures_add_up_and_may_use_up_delta():
    both = (SUM, LOST, LOST)
    assert headline(both, Adjacency(), 1e-5).epsilon == headline((SUM, Exposure(delta=8e-6)), Adjacency(), 1e-5).epsilon
    for accountant in (pld_epsilon, rdp_epsilon):
        assert accountant((*both, LOST), Adjacency(), 1e-5) == float("inf")
    assert headline((*both, LOST), Adjacency(), 1e-5).epsilon == clt_epsilon((*both, LOST), 1e-5) == float("inf")
    assert headline((LOST,), Adjacency(), 1e-5).epsilon == 0


def test_what_is_calibrated_after_an_exposure_stays_within_the_budget_and_uses_it():
    budget = Budget(epsilon=0.1, delta=1e-5)
    ledger = Ledger(budget, Adjacency())
    ledger.charge(LOST, "texts")
    step = lambda multiplier: PoissonGaussian(rate=0.1, noise_multiplier=multiplier, steps=10)
    spent = headline((*ledger.events, ledger.calibrate(step)), Adjacency(), budget.delta).epsilon
    assert 0.998 * budget.epsilon <= spent <= budget.epsilon
    rho = largest_rho(ledger.events, Adjacency(), budget)
    assert rho < largest_rho((), Adjacency(), budget)
    ledger.reserve("the rest")
    assert headline(ledger.events, Adjacency(), budget.delta).epsilon <= budget.epsilon
