"""The calculator: known values, order of the accountants, monotone, and inverses that are inverses."""

from math import inf

import pytest

from sfumato.errors import ArgumentError
from sfumato.privacy.accountants import (
    ACCOUNTANTS,
    accountant_named,
    curves,
    descent,
    epsilons,
    least_noise,
    most_steps,
)
from sfumato.privacy.prv import bracket

Q = 100 / 21384  # figure 9 of the DP-NF paper: Life Science, noise 2.1, delta 1e-4

# rate, noise, steps, delta; PLD and RDP by dp-accounting 0.6.0, PRV by prv-accountant 0.2.0, CLT by hand:
# mu = rate sqrt(steps (exp(1 / noise^2) - 1)), then corollary 1 of Dong, Roth and Su.
KNOWN = (
    (Q, 2.1, 5000, 1e-4, 0.496332, 0.5591, 0.49636, 0.490586),
    (Q, 2.1, 20_000, 1e-4, 1.077833, 1.2011, 1.07785, 1.071490),
    (0.01, 0.7, 1000, 1e-5, 4.618288, 5.4233, 4.61832, 3.475796),
    (1.0, 10.0, 100, 1e-5, 4.377178, 4.7285, 4.37719, 4.377178),
)


@pytest.mark.parametrize(("rate", "noise", "steps", "delta", "pld", "rdp", "prv", "clt"), KNOWN)
def test_known_values(rate, noise, steps, delta, pld, rdp, prv, clt):
    event = descent(rate=rate, noise=noise, steps=steps)
    found = epsilons(event, delta)
    assert -1e-6 < found["PLD"] - pld < 3e-4 * pld  # on a coarser grid, so never below
    assert abs(found["RDP"] - rdp) < 2e-3 * rdp
    assert abs(bracket(event, delta).estimate - prv) < 1e-4
    assert abs(found["CLT"] - clt) < 1e-5


@pytest.mark.parametrize(("rate", "noise", "steps", "delta"), [known[:4] for known in KNOWN])
def test_bounds_lie_in_order_and_the_central_limit_below_the_lower_bound(rate, noise, steps, delta):
    found = epsilons(descent(rate=rate, noise=noise, steps=steps), delta)
    assert found["PRV lower"] <= found["PLD"] <= found["PRV upper"] < found["PRV lower"] + 0.02
    assert found["PLD"] < found["RDP"] <= found["zCDP"]
    if rate < 1:  # it understates: lower than anything that can be proven
        assert found["CLT"] < found["PRV lower"]


def test_a_grid_whose_mean_moved_would_be_found_out(monkeypatch):
    """The bracket holds because rounding keeps the mean. A mean that is off by 1e-5 a step is outside of it."""
    from sfumato.privacy import prv

    event, honest = descent(rate=Q, noise=2.1, steps=5000), prv._removed
    true = bracket(event, 1e-4)
    moved = lambda event: prv._Law(cdf=honest(event).cdf, mean=honest(event).mean - 1e-5)
    monkeypatch.setattr(prv, "_removed", moved)
    monkeypatch.setattr(prv, "_added", moved)
    assert bracket.__wrapped__(event, 1e-4).upper < true.lower


def test_more_steps_and_less_noise_cost_more():
    steps = [1, 100, 1000]
    for heights in curves(rate=0.02, noise=1.5, steps=steps, delta=1e-5).values():
        assert heights == sorted(heights) and heights[1] < heights[-1]
    for accountant in ACCOUNTANTS:
        costs = [accountant.epsilon(descent(rate=0.02, noise=noise, steps=100), 1e-5) for noise in (1.5, 3.0)]
        assert costs[0] > costs[1]


@pytest.mark.parametrize("name", ["PLD", "RDP", "zCDP", "PRV upper", "CLT"])
def test_the_inverse_is_an_inverse(name):
    accountant = accountant_named(name)
    noise = least_noise(accountant, rate=0.1, steps=20, epsilon=4.5, delta=1e-5)
    cost = lambda noise, steps: accountant.epsilon(descent(rate=0.1, noise=noise, steps=steps), 1e-5)
    assert cost(noise, 20) <= 4.5 < cost(noise / 1.001, 20)
    steps = most_steps(accountant, rate=0.1, noise=noise, epsilon=4.5, delta=1e-5)
    assert cost(noise, steps) <= 4.5 < cost(noise, steps + 1)
    assert steps >= 20


def test_what_has_no_answer_says_so():
    assert least_noise(accountant_named("zCDP"), rate=1.0, steps=10**6, epsilon=1e-6, delta=1e-10) is None
    assert most_steps(accountant_named("RDP"), rate=0.5, noise=0.5, epsilon=0.1, delta=1e-5) is None
    assert epsilons(descent(rate=0.5, noise=0.1, steps=10**5), 1e-5)["PLD"] == inf


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rate": 0.0}, "rate"),
        ({"rate": 1.5}, "rate"),
        ({"noise": 0.0}, "noise"),
        ({"noise": float("nan")}, "noise"),
        ({"steps": 0}, "steps"),
        ({"steps": 10**9}, "steps"),
    ],
)
def test_arguments_are_checked(fields, words):
    with pytest.raises(ArgumentError, match=words):
        descent(**{"rate": 0.1, "noise": 1.0, "steps": 10, **fields})
    with pytest.raises(ArgumentError, match="delta"):
        epsilons(descent(rate=0.1, noise=1.0, steps=1), 1e-11)
