"""The steps of a descent by either kind of loss: noise on every weight, in every step, also where it is drawn ahead.

Each statistical check states its false-alarm rate. The planted bugs (``tests/planted``) are the mutants they reject.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sfumato.privacy.curator as curator_module
import sfumato.privacy.step as step_module
from privacy.doors import Pulls, curator_of, gradients_of, linear_loss, multiplier_of, plan_of
from privacy.test_noise import _assert_deviation
from sfumato.errors import ArgumentError
from sfumato.privacy import Randomness
from sfumato.privacy.chacha import keystream
from sfumato.privacy.clipping import GRID
from sfumato.privacy.factored import MOST_DRAWN
from sfumato.privacy.factors import FactoredLoss
from sfumato.privacy.randomness import Stream, nonce
from sfumato.privacy.step import PrivateRows, factored_step, gradient_step, participants, run_steps

LOSSES = {"plain": lambda num: linear_loss, "factored": lambda num: Pulls(num // 4, num - num // 4)}

over_losses = pytest.mark.parametrize("kind", LOSSES)


def draw_ahead(monkeypatch, steps):
    for module in (step_module, curator_module):
        monkeypatch.setattr(module, "steps_ahead", lambda: steps)


def test_pulls_are_a_loss_in_factors():
    assert isinstance(Pulls(1, 1), FactoredLoss) and not isinstance(linear_loss, FactoredLoss)


def test_noise_scale_of_a_descent_by_factors():
    """Through the public door, with no rows at all: 10**6 numbers, and each of two arrays by itself. Alarm: 1e-6 each.

    The expected batch is 100 and the bound is 2.
    """
    curator = curator_of(np.zeros((0, 20_000)), size=1000)
    noise = gradients_of(curator, plan_of(rate=0.1, bound=2.0, steps=50), 20_000, LOSSES["factored"](20_000)) * 100
    for part in (noise, noise[:, :5_000], noise[:, 5_000:]):
        _assert_deviation(part.ravel(), multiplier_of(curator) * 2.0)


def run(kind, rows, *, rate, start, stop):
    """The gradients of steps from start to stop, at ``DEVIATION``: what the door runs, without calibrating anything."""
    num, held = rows.shape[1], PrivateRows.of({"x": rows.astype(np.float32)})
    params, plan = jnp.zeros(num, jnp.float32), plan_of(rate=rate, bound=0.5, steps=stop)
    update = lambda gradient, kept, params: (params - gradient, (kept[0].at[kept[1]].set(gradient), kept[1] + 1))
    with jax.enable_x64(True):
        make = factored_step if kind == "factored" else gradient_step
        gradient = make(LOSSES[kind](num), params, plan, DEVIATION, EXPECTED)
        carry = params, (jnp.zeros((stop - start, num), jnp.float32), jnp.zeros((), jnp.int32))
        steps = jax.jit(lambda carry, key, start, stop: run_steps(gradient, update, carry, held, key, 5, start, stop))
        params, (kept, taken) = steps(carry, Randomness.from_seed(3).key, start, stop)
    assert int(taken) == stop - start
    np.testing.assert_allclose(params, -np.sum(kept, axis=0), rtol=1e-4, atol=1e-4)
    return np.asarray(kept, np.float64)


DEVIATION, EXPECTED = 3.0 * GRID, 90.0


@over_losses
def test_a_step_without_rows_has_noise_on_every_weight(kind):
    """A rate so small that no row is ever drawn. 400 numbers within six deviations: false alarm 2e-9."""
    noise = run(kind, np.ones((50, 8)), rate=1e-8, start=0, stop=50) * EXPECTED / 0.5 / 3.0
    assert np.count_nonzero(noise) == noise.size
    assert abs(np.mean(noise**2) - 1) < 6 * np.sqrt(2 / 400)


@over_losses
def test_noise_differs_between_steps_that_are_drawn_ahead(monkeypatch, kind):
    """No two of ten steps are equal or correlated; six deviations of 45 pairs: false alarm 1e-7."""
    draw_ahead(monkeypatch, 4)
    noise = run(kind, np.zeros((0, 2000)), rate=0.1, start=0, stop=10)
    assert np.abs(np.corrcoef(noise) - np.eye(10)).max() < 6 / np.sqrt(2000)


@over_losses
def test_drawing_ahead_changes_no_bit(monkeypatch, kind):
    """From step 3 to step 13 in groups of four, the last of which is cut; whole batches, and noise, in every step."""
    rows, found = np.random.default_rng(1).normal(size=(300, 12)), []
    for ahead in (1, 4):
        draw_ahead(monkeypatch, ahead)
        found.append(run(kind, rows, rate=0.3, start=3, stop=13))
    assert np.array_equal(*found) and np.count_nonzero(found[0]) == 120
    later = run(kind, rows, rate=0.3, start=7, stop=13)
    assert np.array_equal(later, found[0][4:]), "where a stretch starts does not matter either"


def test_a_loss_in_factors_adds_up_as_its_plain_form():
    """The same rows and the same noise by both ways, to what rounding on the grid and the slack may leave."""
    rows = np.random.default_rng(2).normal(size=(400, 6)) * np.logspace(-3, 3, 400)[:, None]
    found = [gradients_of(curator_of(rows), plan_of(rate=0.5, steps=3), 6, LOSSES[kind](6)) for kind in LOSSES]
    np.testing.assert_allclose(found[0], found[1], atol=2e-5)


def test_a_batch_past_the_slack_is_refused():
    with pytest.raises(ArgumentError, match="batch"):
        factored_step(Pulls(1, 1), jnp.zeros(2), plan_of(), 1.0, MOST_DRAWN)


@pytest.mark.parametrize("rate", [1e-8, 0.01, 0.5, 1.0], ids=str)
def test_every_drawn_row_takes_part_once(rate):
    """The places of a step's rows are those that the sampling took, each once, in order, and no row of padding."""
    rows, key = PrivateRows.of({"x": np.zeros((1000, 1), np.float32)}), Randomness.from_seed(4).key
    plan = plan_of(rate=rate, bound=1.0, steps=1)
    with jax.enable_x64(True):
        order, count, _ = jax.jit(lambda key: participants(plan, rows, key, 1, 3))(key)
        words = keystream(key, nonce(1, 3, Stream.SAMPLING), rows.real.shape[0])
        taken = np.flatnonzero(plan.sampling.draw(words, rows.real))
    assert int(count) == len(taken) and order.shape == rows.real.shape
    assert np.array_equal(order[: int(count)], taken) and not np.asarray(order[int(count) :]).any()
