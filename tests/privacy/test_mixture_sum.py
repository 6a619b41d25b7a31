"""The sum of a round of mixture EM: no row moves it by more than one, some row does, and the answers lead somewhere."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from sfumato.fitting.activation_start import ActivationStart, with_activations
from sfumato.fitting.mixture_em import Ball, EmSettings, RowMoments, fit_mixture
from sfumato.models.flows.bijection import Affine
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.models.mixture import GaussianMixture
from sfumato.privacy import Adjacency, Budget, Curator, FlatClip, Ledger, Randomness, SumQuery
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import exact_sum
from sfumato.privacy.step import PrivateRows

FEATURES, COMPONENTS = 3, 4
VIEW = Affine(jnp.full(FEATURES, 0.1, jnp.float32), jnp.full(FEATURES, 0.4, jnp.float32))


def key_of(number):
    return jax.random.wrap_key_data(jnp.array([17, number], jnp.uint32))


def mixture(seed):
    """Components of all sizes, some of them far out."""
    draw = np.random.default_rng(seed)
    factors = np.tril(draw.normal(size=(COMPONENTS, FEATURES, FEATURES))) + 0.2 * np.eye(FEATURES)
    spreads = factors @ factors.transpose(0, 2, 1) * np.array([0.01, 1, 1, 9])[:, None, None]
    spreads += 1e-3 * np.eye(FEATURES)
    return GaussianMixture.of(draw.random(COMPONENTS) + 0.05, 3 * draw.normal(size=(COMPONENTS, FEATURES)), spreads)


def rows(seed):
    """Random cells and points, corners, the middle, and open cells: far rows lie on the edge of every ball."""
    draw = np.random.default_rng(seed)
    low = draw.random((60, FEATURES))
    low[:20] = draw.choice([0.0, 0.25, 0.5, 1.0], (20, FEATURES))
    width = np.where(draw.random((60, FEATURES)) < 0.5, 0.0, np.minimum(0.25, 1 - low))
    width[20:40] = 0
    return {"low": low.astype(np.float32), "width": width.astype(np.float32)}


def moments(seed, ball, draws):
    return RowMoments(mixture(seed), VIEW, key_of(seed), ball, draws)


def largest_norm(ball, draws=1):
    vectors = eqx.filter_jit(lambda moments, table: jax.vmap(moments)(table))  # compiled once for all mixtures
    found = [vectors(moments(seed, ball, draws), jax.tree.map(jnp.asarray, rows(seed))) for seed in range(6)]
    return np.linalg.norm(np.concatenate(found).astype(np.float64), axis=1).max()


@dataclass(frozen=True, kw_only=True)
class Loose(Ball):
    """A mutant: each block bounded by one by itself, and the whole said to be one."""

    @property
    def weights(self):
        return 1.0, 1.0, 1.0


@dataclass(frozen=True, kw_only=True)
class Open(Ball):
    """A mutant: rows past the ball are said to lie in it, by a radius that is half of what they are divided by."""

    @property
    def weights(self):
        a, b, c = super().weights
        return a, 2 * b, 4 * c


def test_no_row_has_a_vector_longer_than_one_and_some_row_reaches_it():
    ball = Ball(num_features=FEATURES, reach=1.5)
    assert np.sum(np.square(ball.weights)) == pytest.approx(1.0, abs=1e-12)
    assert 0.999 < largest_norm(ball) <= 1 + 1e-5
    assert largest_norm(ball, draws=8) <= 1 + 1e-5
    for mutant in (Loose(num_features=FEATURES, reach=1.5), Open(num_features=FEATURES, reach=1.5)):
        assert largest_norm(mutant) > 1.5


def test_neighbours_differ_by_no_more_than_the_noise_is_scaled_to():
    """Whole sums as the door takes them, in grid steps: with and without each of several rows."""
    ball = Ball(num_features=FEATURES, reach=1.5)
    query = SumQuery(
        function=moments(1, ball, 1), num_entries=COMPONENTS * ball.block, clip=FlatClip(bound=1.0), purpose="test"
    )
    table = rows(1)
    with jax.enable_x64(True):
        total = lambda kept: np.asarray(exact_sum(PrivateRows.of(jax.tree.map(lambda c: c[kept], table)), query))
        everyone = np.arange(60)
        whole = total(everyone)
        moved = [np.linalg.norm(whole - total(np.delete(everyone, place))) for place in (0, 7, 19, 20, 45)]
    assert 0.99 * GRID < max(moved) <= GRID


def curator_of(features, epsilon):
    cells = {"low": ndtr(features).astype(np.float32), "width": np.zeros(features.shape, np.float32)}
    ledger = Ledger(Budget(epsilon=epsilon, delta=1e-5), Adjacency())
    return ledger, Curator(cells, ledger=ledger, randomness=Randomness.from_seed(3), public_size=len(features))


def test_two_groups_are_found_and_the_whole_budget_is_spent():
    """With 6,000 rows the noise on a mean is below 0.01; what is found must lie within 0.1 of the two groups."""
    draw = np.random.default_rng(0)
    side = np.where(draw.random(6_000) < 0.3, -1.0, 1.0)
    ledger, curator = curator_of(np.stack([side, -side], axis=1) + 0.2 * draw.normal(size=(6_000, 2)), 0.5)
    unit = Affine(jnp.zeros(2, jnp.float32), jnp.ones(2, jnp.float32))
    found = fit_mixture(
        curator, EmSettings(components=2, rounds=10), unit, 2, share=None, discrete=False, key=key_of(0)
    )
    order = np.argsort(np.asarray(found.means)[:, 0])
    np.testing.assert_allclose(np.asarray(found.means)[order], [[-1, 1], [1, -1]], atol=0.1)
    np.testing.assert_allclose(np.exp(found.log_weights)[order], [0.3, 0.7], atol=0.05)
    np.testing.assert_allclose(np.sqrt(np.linalg.eigvalsh(found.covariances())), 0.2, atol=0.05)
    assert [entry.purpose for entry in ledger.entries] == [
        f"moments of a mixture, round {n} of 10" for n in range(1, 11)
    ]
    assert len({entry.event.noise_multiplier for entry in ledger.entries}) == 1


def test_activations_start_so_that_rows_leave_them_standardised():
    draw = np.random.default_rng(1)
    features = np.array([1.0, -0.5]) + np.array([0.3, 1.1]) * draw.normal(size=(6_000, 2))
    ledger, curator = curator_of(features, 2.0)
    start = MaskedAutoregressiveFlow.start(MafShape(2, 2, 4, 1, True), key=key_of(2))
    flow = with_activations(start, ActivationStart(share=0.5, rounds=2), curator)
    seen = np.asarray(jax.vmap(lambda row: flow.to_base().forward(row)[0])(jnp.asarray(features, jnp.float32)))
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(seen.std(axis=0), 1, atol=0.1)
    assert len(ledger.entries) == 4, "two rounds for each of two layers, each charged"
