"""Sampling: batches have the law that the accountant assumes (G5), through the words the step uses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privacy.doors import WIDE, curator_of, gradients_of, plan_of
from sfumato.errors import ArgumentError
from sfumato.privacy import FixedSizeSampling, PoissonSampling, Randomness
from sfumato.privacy.chacha import keystream
from sfumato.privacy.randomness import Stream, nonce

NUM_BATCHES, NUM_ROWS = 2000, 1000


def draw_batches(sampling, num_batches: int = NUM_BATCHES, num_rows: int = NUM_ROWS) -> np.ndarray:
    """Who takes part in each batch, drawn with the stream and the nonces of a real descent."""
    key = Randomness.from_seed(11).key
    real = jnp.ones(num_rows, bool)

    def one(step):
        return sampling.draw(keystream(key, nonce(1, step, Stream.SAMPLING), num_rows * sampling.words_per_row), real)

    with jax.enable_x64(True):
        return np.asarray(jax.lax.map(one, jnp.arange(num_batches), batch_size=50))


def test_poisson_batches_have_the_poisson_law():
    """Mean and variance of sizes, inclusion of each row, co-occurrence in consecutive batches.

    All within five standard errors: false alarm below 6e-7 each for sizes and pairs, 6e-4 over 1,000 rows; the key
    is fixed, so the outcome repeats. Fixed-size and shuffled batches fail the variance by tens of deviations.
    """
    rate = 0.1
    batches = draw_batches(PoissonSampling(rate=rate))
    sizes = batches.sum(axis=1)
    variance = NUM_ROWS * rate * (1 - rate)
    assert abs(sizes.mean() - NUM_ROWS * rate) < 5 * np.sqrt(variance / NUM_BATCHES)
    assert abs(sizes.var() / variance - 1) < 5 * np.sqrt(2 / NUM_BATCHES)
    inclusion = batches.mean(axis=0)
    assert np.abs(inclusion - rate).max() < 5.5 * np.sqrt(rate * (1 - rate) / NUM_BATCHES)
    again = int(np.sum(batches[1:] & batches[:-1]))
    expected = (NUM_BATCHES - 1) * NUM_ROWS * rate**2
    assert abs(again - expected) < 5 * np.sqrt(expected)


def test_poisson_at_the_ends():
    assert draw_batches(PoissonSampling(rate=1.0), 3).all()
    assert draw_batches(PoissonSampling(rate=1e-9), 3).sum() == 0
    for rate in (0.0, 1.5, float("nan")):
        with pytest.raises(ArgumentError, match="rate"):
            PoissonSampling(rate=rate)


def test_padding_is_never_drawn():
    words = jnp.zeros(8, jnp.uint32)
    real = jnp.arange(8) < 3
    assert np.asarray(PoissonSampling(rate=0.5).draw(words, real)).tolist() == [True] * 3 + [False] * 5


def test_fixed_size_batches_have_their_size_and_are_uniform():
    batches = draw_batches(FixedSizeSampling(batch=100, rows=NUM_ROWS))
    assert (batches.sum(axis=1) == 100).all()
    inclusion = batches.mean(axis=0)
    assert np.abs(inclusion - 0.1).max() < 5.5 * np.sqrt(0.09 / NUM_BATCHES)
    pairs = np.mean(batches[:, 0] & batches[:, 1])
    assert abs(pairs - 0.1 * 99 / 999) < 5 * np.sqrt(0.01 / NUM_BATCHES)


def test_a_descent_never_truncates_its_batches():
    """Rows that add one to the sum count themselves: the sums of a real descent have the binomial law.

    A batch cut at its expected size, or filled up to it, fails by the mean or the variance. Five standard errors,
    false alarm below 2e-6 together; the key is fixed.
    """
    num_rows, rate, steps = 3000, 0.3, 400
    curator = curator_of(np.ones((num_rows, 1)), budget=WIDE)
    counts = gradients_of(curator, plan_of(rate=rate, steps=steps), 1)[:, 0] * num_rows * rate
    noise = curator._ledger.entries[-1].event.noise_multiplier
    expected = num_rows * rate * (1 - rate) + noise**2
    slack = 2e-5 * num_rows * rate  # clipping leaves a hair of each unit vector off
    assert abs(counts.mean() - num_rows * rate) < 5 * np.sqrt(expected / steps) + slack
    assert abs(counts.var() / expected - 1) < 5 * np.sqrt(2 / steps)


def test_empty_batches_still_get_noise_and_still_count():
    """One row at a small rate, so that nearly every batch is empty: every step has noise, and the ledger holds it.

    A rate so small that no row is ever drawn is in ``test_steps``; the accountant takes twenty seconds for it.
    """
    curator = curator_of(np.ones((1, 3)), size=1000)
    noisy = gradients_of(curator, plan_of(rate=0.01, steps=100), 3)
    assert np.count_nonzero(noisy) == noisy.size
    assert curator._ledger.entries[-1].event.steps == 100
