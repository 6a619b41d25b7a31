"""Laws of mixtures: the density is the one that is written down, what is drawn follows it, and noise never breaks it.

Statistical tests draw with fixed seeds. Their false-alarm rate over the choice of seeds is 1e-6, and each is also shown
a mutant that it must reject.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chi2, multivariate_normal

from sfumato.errors import ArgumentError, ReleaseError
from sfumato.fitting.activation_start import ActivationStart
from sfumato.fitting.mixture_em import Ball, EmSettings, Estimate, within
from sfumato.fitting.priors import MixturePrior, PublicMixture, with_prior
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.models.mixture import GaussianMixture
from sfumato.models.registry import skeleton
from sfumato.synthesizers import Maf

FALSE_ALARM = 1e-6
WEIGHTS = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[0.0, 1.0], [-2.0, 0.5], [3.0, -1.0]])
FACTORS = np.array([[[1.0, 0.0], [0.8, 0.5]], [[0.3, 0.0], [0.0, 2.0]], [[0.7, 0.0], [-0.6, 0.1]]])
COVARIANCES = FACTORS @ FACTORS.transpose(0, 2, 1)


def key_of(number):
    return jax.random.wrap_key_data(jnp.array([13, number], jnp.uint32))


def mixture():
    return GaussianMixture.of(WEIGHTS, MEANS, COVARIANCES)


def flow_of(num_features=2, blocks=3):
    return MaskedAutoregressiveFlow.start(MafShape(num_features, blocks, 8, 1, False), key=key_of(5))


def jiggled(flow):
    """The flow with random networks; a flow at its start is the identity and would pass almost anything."""
    leaves, structure = jax.tree.flatten(flow.blocks)
    keys = jax.random.split(key_of(6), len(leaves))
    moved = [leaf + 0.3 * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    return eqx.tree_at(lambda model: model.blocks, flow, jax.tree.unflatten(structure, moved))


def written_down(points):
    parts = [multivariate_normal(mean, spread).logpdf(points) for mean, spread in zip(MEANS, COVARIANCES, strict=True)]
    return logsumexp(np.array(parts) + np.log(WEIGHTS)[:, None], axis=0)


def test_the_density_is_that_of_scipy():
    points = np.random.default_rng(0).normal(size=(200, 2)) * 2
    found = jax.vmap(mixture().log_prob)(jnp.asarray(points, jnp.float32))
    np.testing.assert_allclose(found, written_down(points), rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(mixture().covariances(), COVARIANCES, rtol=1e-4, atol=1e-5)


def cells_statistic(model):
    """Pearson's statistic of 20,000 draws over squares of the plane that expect at least 20, and its bound."""
    drawn = np.asarray(jax.vmap(model.sample)(jax.random.split(key_of(1), 20_000)), np.float64)
    grid = np.linspace(-6, 6, 9)
    counts, _, _ = np.histogram2d(drawn[:, 0], drawn[:, 1], bins=[grid, grid])
    fine = np.linspace(-6, 6, 1_601)
    middle = (fine[1:] + fine[:-1]) / 2
    at = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1)
    mass = np.exp(written_down(at.reshape(-1, 2))).reshape(1_600, 1_600) * (fine[1] - fine[0]) ** 2
    expected = mass.reshape(8, 200, 8, 200).sum(axis=(1, 3)).ravel() * len(drawn)
    large = expected > 20
    observed = np.append(counts.ravel()[large], len(drawn) - counts.ravel()[large].sum())
    expected = np.append(expected[large], len(drawn) - expected[large].sum())
    return float(np.sum((observed - expected) ** 2 / expected)), float(chi2(large.sum()).isf(FALSE_ALARM))


def test_what_is_drawn_follows_the_density():
    statistic, bound = cells_statistic(mixture())
    assert statistic < bound
    wrong = GaussianMixture.of(WEIGHTS + np.array([0.1, -0.05, -0.05]), MEANS, COVARIANCES)
    turned = eqx.tree_at(lambda model: model.whiteners, mixture(), mixture().whiteners.transpose(0, 2, 1))
    for mutant in (wrong, turned):
        statistic, bound = cells_statistic(mutant)
        assert statistic > bound


def test_an_affine_map_of_a_mixture_is_the_map_of_its_rows():
    matrix, shift = np.array([[0.0, -2.0], [0.5, 1.0]]), np.array([1.0, -3.0])
    point = np.array([0.3, -0.4])
    moved = mixture().moved(matrix, shift).log_prob(jnp.asarray(matrix @ point + shift, jnp.float32))
    assert float(moved) == pytest.approx(
        float(mixture().log_prob(jnp.asarray(point, jnp.float32))) - np.log(abs(np.linalg.det(matrix))), abs=1e-4
    )


@pytest.mark.parametrize(
    "parts",
    [
        ([1.0, -1.0], [[0.0], [1.0]], [[[1.0]], [[1.0]]]),
        ([1.0], [[0.0, 1.0]], [[[1.0, 2.0], [2.0, 1.0]]]),
        ([1.0], [[0.0, 1.0]], [[[1.0, 0.5], [0.0, 1.0]]]),
        ([1.0], [[np.nan]], [[[1.0]]]),
        ([1.0], [[0.0]], [[[1.0]], [[1.0]]]),
    ],
    ids=["weight", "indefinite", "asymmetric", "nan", "number"],
)
def test_what_is_no_mixture_is_refused(parts):
    with pytest.raises(ArgumentError):
        GaussianMixture.of(*parts)
    with pytest.raises(ArgumentError):
        PublicMixture(**dict(zip(("weights", "means", "covariances"), parts, strict=True)))


# --- as the base of a flow ------------------------------------------------------------------------------------


def test_a_standard_mixture_of_one_is_the_standard_base():
    plain = jiggled(flow_of())
    over = plain.over(GaussianMixture.standard(2))
    points = jax.random.normal(key_of(2), (100, 2))
    assert np.array_equal(jax.vmap(over.log_prob)(points), jax.vmap(plain.log_prob)(points))


def test_a_flow_over_a_mixture_survives_its_description():
    for model in (mixture(), jiggled(flow_of()).over(mixture()), jiggled(flow_of())):
        leaves = jax.tree.leaves(eqx.filter(model, eqx.is_array))
        sizes = [leaf.size for leaf in leaves]
        built = skeleton(model.describe(), sizes)
        assert jax.tree.structure(eqx.filter(built, _is_shape)) == jax.tree.structure(eqx.filter(model, eqx.is_array))
        assert [leaf.shape for leaf in jax.tree.leaves(built) if _is_shape(leaf)] == [leaf.shape for leaf in leaves]
        with pytest.raises(ReleaseError):
            skeleton(model.describe(), sizes[:-1])
    assert "base_components" not in flow_of().describe(), "files without a mixture are written as before"


def _is_shape(leaf):
    return isinstance(leaf, jax.ShapeDtypeStruct)


def test_a_public_mixture_costs_nothing_and_is_the_density_of_the_start():
    """Behind scales and an odd number of reversals, the flow has the density of the mixture over its features."""
    public = PublicMixture(
        weights=tuple(WEIGHTS),
        means=tuple(map(tuple, MEANS)),
        covariances=tuple(tuple(map(tuple, c)) for c in COVARIANCES),
    )
    start = flow_of(blocks=3).rescaled(np.array([0.5, -1.0]), np.array([2.0, 0.3]))
    flow = with_prior(start, public, None, discrete=False, key=key_of(3))
    points = np.random.default_rng(1).normal(size=(50, 2))
    found = jax.vmap(flow.log_prob)(jnp.asarray(points, jnp.float32))
    np.testing.assert_allclose(found, written_down(points), rtol=1e-3, atol=1e-3)
    with pytest.raises(ArgumentError, match="over 3 features"):
        with_prior(flow_of(num_features=3), public, None, discrete=False, key=key_of(3))


def test_settings_that_cannot_be_are_refused_before_anything_is_bought():
    with pytest.raises(ArgumentError, match="act_norm"):
        Maf(activations=ActivationStart())
    with pytest.raises(ArgumentError, match="95 %"):
        Maf(act_norm=True, activations=ActivationStart(share=0.4), prior=MixturePrior(share=0.6))
    with pytest.raises(ArgumentError, match="MixturePrior"):
        Maf(prior=5)


# --- after the noisy sum --------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 1.0, 1e4, 1e9])
def test_no_answer_makes_a_covariance_indefinite(noise):
    """Answers of noise alone, however loud: covariances stay symmetric and above the floor, and all is finite."""
    settings, draw = EmSettings(components=3, floor=0.05), np.random.default_rng(int(noise) % 97)
    ball = Ball(num_features=4, reach=settings.reach)
    estimate = Estimate.start(settings, 4, key_of(4))
    for _ in range(30):
        estimate = estimate.after(noise * draw.normal(size=3 * ball.block), ball, noise, 1.0)
        assert np.array_equal(estimate.covariances, estimate.covariances.transpose(0, 2, 1))
        assert np.linalg.eigvalsh(estimate.covariances).min() >= settings.floor**2 * (1 - 1e-9)
        assert np.all(estimate.weights > 0) and np.all(np.isfinite(estimate.means))
        estimate.mixture()


def test_without_the_projection_an_answer_does_make_one_indefinite(monkeypatch):
    monkeypatch.setattr("sfumato.fitting.mixture_em.within", lambda matrix, least, most: matrix)
    ball = Ball(num_features=4, reach=3.0)
    estimate = Estimate.start(EmSettings(components=3), 4, key_of(4))
    loud = 1e4 * np.random.default_rng(0).normal(size=3 * ball.block)
    with pytest.raises((ArgumentError, np.linalg.LinAlgError)):
        for _ in range(3):
            estimate = estimate.after(loud, ball, 0.0, 1.0)
            estimate.mixture()


def test_the_nearest_covariance_keeps_what_is_sound():
    assert within(COVARIANCES[0], 1e-6, 1e6) == pytest.approx(COVARIANCES[0], abs=1e-12)
