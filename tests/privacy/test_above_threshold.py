"""The sparse vector technique: its law, summed exactly over the noise, and the broken variants it must not be."""

from fractions import Fraction
from itertools import product
from math import exp

import pytest

from sfumato.errors import BudgetError
from sfumato.privacy.above_threshold import AboveThreshold
from sfumato.privacy.laplace import discrete_laplace

SHARE = 0.387


def tail(rate, at_least):
    """P(noise >= at_least) of two-sided geometric noise."""
    below = exp(-rate * abs(at_least)) / (1 + exp(-rate))
    return below if at_least > 0 else 1 - exp(-rate * (1 - at_least)) / (1 + exp(-rate))


def chance(answers, counts, epsilon, threshold, *, reset=True, quiet_counts=False):
    """The probability of answers to counts: a sum over the noise of the threshold, of each run by itself.

    Mutants: ``reset`` false keeps the noisy threshold after an answer above; ``quiet_counts`` adds no noise to counts.
    """
    first, each = SHARE * epsilon, (1 - SHARE) * epsilon / 2
    runs, run = [], []
    for answer, count in zip(answers, counts, strict=True):
        run.append((answer, count))
        if answer and reset:
            runs, run = [*runs, run], []
    total = 1.0
    for asked in [*runs, run] if run else runs:
        inside = 0.0
        for noise in range(-150, 151):
            product_ = exp(-first * abs(noise)) * (1 - exp(-first)) / (1 + exp(-first))
            for answer, count in asked:
                need = threshold + noise - count
                above = float(need <= 0) if quiet_counts else tail(each, need)
                product_ *= above if answer else 1 - above
            inside += product_
        total *= inside
    return total


def worst(epsilon, **mutant):
    """The largest ratio over answers of one run, counts of four members, and neighbours that move each by at most 1."""
    found = 1.0
    for counts in product((0, 2, 3), repeat=3):
        for moves in product((-1, 1), repeat=3):
            other = [count + move for count, move in zip(counts, moves, strict=True)]
            for answers in product((False, True), repeat=3):
                if True in answers[:-1]:  # one run: it ends with the first answer above
                    continue
                one, two = (chance(answers, c, epsilon, 3, **mutant) for c in (counts, other))
                if max(one, two) > 1e-9:
                    found = max(found, one / max(two, 1e-300))
    return found


def test_a_run_is_private_and_broken_variants_are_not():
    """A run of any answers costs at most epsilon. Without noise on counts, or with a threshold that is used again
    after an answer above, it costs more: both are known mistakes (Lyu, Su, Li 2017)."""
    epsilon = 1.0
    assert worst(epsilon) <= exp(epsilon) * (1 + 1e-9)
    assert worst(epsilon) > 1.5
    assert worst(epsilon, quiet_counts=True) > 1e6
    # Twenty answers below and four above, each less likely on the other table; it was charged as one run.
    answers = (False,) * 20 + (True,) * 4
    one, two = (
        chance(answers, counts, epsilon, 10, reset=False) for counts in ((9,) * 20 + (1,) * 4, (10,) * 20 + (0,) * 4)
    )
    assert one / two > exp(epsilon) * 1.2
    honest = [chance(answers, counts, epsilon, 10) for counts in ((9,) * 20 + (1,) * 4, (10,) * 20 + (0,) * 4)]
    assert honest[0] / honest[1] <= exp(4 * epsilon)  # the same as four runs, and four were charged


def test_the_code_has_that_law():
    """Answers to counts 1, 3, 2 at a threshold of 3 and epsilon 2: 4,000 runs, five standard errors (1e-5 alarms)."""
    counts, seen = (1, 3, 2), {}
    for _ in range(4000):
        asked = AboveThreshold(threshold=3, epsilon=2.0, charge=lambda: None)
        answers = tuple(asked.is_above(count) for count in counts)
        seen[answers] = seen.get(answers, 0) + 1
    for answers in product((False, True), repeat=3):
        expected = chance(answers, counts, 2.0, 3)
        assert abs(seen.get(answers, 0) / 4000 - expected) < 5 * (expected * (1 - expected) / 4000) ** 0.5


def test_runs_are_charged_before_they_begin_and_end_with_an_answer_above(monkeypatch):
    left = [2]

    def charge():
        if not left[0]:
            raise BudgetError("spent")
        left[0] -= 1

    asked = AboveThreshold(threshold=50, epsilon=5.0, charge=charge)
    assert [asked.is_above(0) for _ in range(200)] == [False] * 200  # sure but for 1e-20
    assert left == [1]
    assert asked.is_above(100) and left == [1]
    assert not asked.is_above(0) and left == [0]
    monkeypatch.setattr("os.getpid", lambda: -1)  # a forked process may not go on with its parent's threshold
    with pytest.raises(BudgetError):
        asked.is_above(0)
    monkeypatch.undo()
    with pytest.raises(BudgetError):  # and what was refused is no run
        asked.is_above(100)
    assert AboveThreshold(threshold=50, epsilon=1.0, charge=charge).sureness(50) > 0.99


def test_noise_is_two_sided_geometric():
    """P(x) proportional to exp(-|x| / 2): 6,000 draws, five standard errors at each of nine values (1e-5 alarms)."""
    rate = Fraction(1, 2)
    drawn = [discrete_laplace(rate) for _ in range(6000)]
    scale = (1 - exp(-0.5)) / (1 + exp(-0.5))
    for value in range(-4, 5):
        expected = scale * exp(-abs(value) / 2)
        assert abs(drawn.count(value) / 6000 - expected) < 5 * (expected * (1 - expected) / 6000) ** 0.5


def test_noise_is_exact_by_enumeration():
    """At rate 1 all strings of few bits: what is settled by then is the law, within the rest."""
    seen, undone = {}, 0.0
    stack = [()]
    while stack:
        prefix = stack.pop()
        place = [0]

        def bits(num, prefix=prefix, place=place):
            value = 0
            for _ in range(num):
                if place[0] >= len(prefix):
                    raise StopIteration
                value, place[0] = 2 * value + prefix[place[0]], place[0] + 1
            return value

        try:
            found = discrete_laplace(Fraction(1), bits=bits)
            seen[found] = seen.get(found, 0.0) + 2.0 ** -len(prefix)
        except StopIteration:
            if len(prefix) == 17:
                undone += 2.0**-17
            else:
                stack += [(*prefix, 0), (*prefix, 1)]
    assert undone < 0.12
    scale = (1 - exp(-1)) / (1 + exp(-1))
    for value in (-2, -1, 0, 1, 2):
        expected = scale * exp(-abs(value))
        assert seen[value] <= expected <= seen[value] + undone
