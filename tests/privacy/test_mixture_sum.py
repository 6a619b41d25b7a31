"""The sum of a round of mixture EM: no row moves it by more than one, some row does, and the answers lead somewhere."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from sfumato.errors import ArgumentError
from sfumato.fitting.activation_start import ActivationStart, with_activations
from sfumato.fitting.mixture_em import AbsoluteBall, Ball, EmSettings, RowMoments, fit_mixture
from sfumato.models.flows.bijection import Affine
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.models.mixture import GaussianMixture
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness, SumQuery
from sfumato.privacy.accounting import headline
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import Counted, exact_sum
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


def largest_norm(ball, draws=1, order=2):
    vectors = eqx.filter_jit(lambda moments, table: jax.vmap(moments)(table))  # compiled once for all mixtures
    found = [vectors(moments(seed, ball, draws), jax.tree.map(jnp.asarray, rows(seed))) for seed in range(6)]
    return np.linalg.norm(np.concatenate(found).astype(np.float64), order, axis=1).max()


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


def on_the_diagonal(ball):
    """The vector of a row far out on the diagonal, which one component alone answers for."""
    d = ball.num_features
    alone = GaussianMixture.of(np.array([1.0]), np.zeros((1, d)), np.eye(d)[None])
    unit = Affine(jnp.zeros(d, jnp.float32), jnp.ones(d, jnp.float32))
    vector = eqx.filter_jit(RowMoments(alone, unit, key_of(0), ball, 1).at)
    return np.asarray(vector(jnp.full(d, 20.0, jnp.float32)), np.float64)


@dataclass(frozen=True, kw_only=True)
class Euclidean(AbsoluteBall):
    """A mutant: the weights of the Euclidean norm where absolute values are charged."""

    @property
    def weights(self):
        return Ball(num_features=self.num_features, reach=self.reach).weights


def test_no_row_has_absolute_values_of_more_than_one_in_sum_and_some_row_reaches_it():
    ball = AbsoluteBall(num_features=FEATURES, reach=1.5)
    assert largest_norm(ball, order=1) <= 1 + 1e-5
    assert largest_norm(Euclidean(num_features=FEATURES, reach=1.5), order=1) > 1.5
    for d in (1, 6):
        ball = AbsoluteBall(num_features=d, reach=1.5)
        assert np.dot(ball.weights, ball.bounds) == pytest.approx(1.0, abs=1e-12)
        assert np.abs(on_the_diagonal(ball)).sum() == pytest.approx(1.0, abs=1e-5)


def test_the_weights_for_absolute_values_cost_least():
    """Moved a little to any side within the bound, blocks or off-diagonal entries, they cost more."""
    for d in (2, 5):
        best = AbsoluteBall(num_features=d, reach=1.5)
        cost = lambda ball, weights: np.sum(
            np.array(ball.costs) / np.square(weights) * np.dot(weights, ball.bounds) ** 2
        )
        least = cost(best, np.array(best.weights))
        for place, factor in ((0, 0.97), (0, 1.03), (1, 0.97), (1, 1.03), (2, 0.97), (2, 1.03)):
            moved = np.array(best.weights)
            moved[place] *= factor
            assert cost(best, moved) > least
        for factor in (0.97, 1.03):

            class Moved(AbsoluteBall):
                off_diagonal = factor * best.off_diagonal

            other = Moved(num_features=d, reach=1.5)
            assert cost(other, np.array(other.weights)) > least


@pytest.mark.parametrize(("kind", "order"), [(Ball, 2), (AbsoluteBall, 1)])
def test_neighbours_differ_by_no_more_than_the_noise_is_scaled_to(kind, order):
    """Whole sums as the door takes them, in grid steps: with and without each of several rows."""
    ball = kind(num_features=FEATURES, reach=1.5)
    query = SumQuery(function=moments(1, ball, 1), num_entries=COMPONENTS * ball.block, clip=ball.clip, purpose="test")
    table = rows(1)
    with jax.enable_x64(True):
        total = lambda kept: np.asarray(
            exact_sum(Counted(PrivateRows.of(jax.tree.map(lambda c: c[kept], table))), query)
        )
        everyone = np.arange(60)
        whole = total(everyone)
        moved = [np.linalg.norm(whole - total(np.delete(everyone, place)), order) for place in (0, 7, 19, 20, 45)]
    assert (0.99 if order == 2 else 0.8) * GRID < max(moved) <= GRID


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


def test_laplace_noise_finds_the_groups_too_and_spends_the_whole_budget():
    """At 6,000 rows and epsilon 4 in four rounds the noise on a mean is below 0.02."""
    draw = np.random.default_rng(0)
    side = np.where(draw.random(6_000) < 0.3, -1.0, 1.0)
    ledger, curator = curator_of(np.stack([side, -side], axis=1) + 0.2 * draw.normal(size=(6_000, 2)), 4.0)
    unit = Affine(jnp.zeros(2, jnp.float32), jnp.ones(2, jnp.float32))
    settings = EmSettings(components=2, rounds=4, noise="laplace")
    found = fit_mixture(curator, settings, unit, 2, share=None, discrete=False, key=key_of(0))
    order = np.argsort(np.asarray(found.means)[:, 0])
    np.testing.assert_allclose(np.asarray(found.means)[order], [[-1, 1], [1, -1]], atol=0.15)
    np.testing.assert_allclose(np.exp(found.log_weights)[order], [0.3, 0.7], atol=0.05)
    assert [entry.event.kind for entry in ledger.entries] == ["laplace_sum"] * 4
    assert len({entry.event.epsilon for entry in ledger.entries}) == 1
    assert 3.999 <= headline(ledger.events, Adjacency(), 1e-5).epsilon <= 4.0


def test_noise_of_another_name_is_refused():
    for noise in ("Laplace", "", None):
        with pytest.raises(ArgumentError, match="'gaussian' or 'laplace'"):
            EmSettings(noise=noise)


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
