"""Laws of the copula: draws stay in their cells, their density is what it is said to be, masses are the normal's.

Random points have a fixed seed, so each test either always or never fails.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import ndtr
from scipy import stats
from scipy.special import ndtri

from sfumato.models.flows.copula import Copula
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.share_cells import ShareCells
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape

MATRIX = np.array([[1.0, 0.8, -0.3], [0.8, 1.0, 0.1], [-0.3, 0.1, 1.0]])
COPULA = Copula(jnp.asarray(np.linalg.cholesky(MATRIX), jnp.float32))
UNIFORM = jnp.asarray(np.random.default_rng(3).random((20_000, 3)), jnp.float32)


def cells(*ends):
    """The cells [low, high] of a row behind its marginals; a point has equal ends."""
    low, high = np.array(ends, np.float32).T
    return ShareCells(jnp.asarray(low), jnp.asarray(high - low), jnp.zeros(len(ends), jnp.float32))


CASES = {
    "two levels each": cells((0, 0.9), (0.9, 1), (0.4, 0.5)),
    "against the correlation": cells((0, 0.05), (0.97, 1), (0.5, 1)),
    "a point and a small cell": cells((0.2, 0.2), (0.7, 0.7001), (0, 0.5)),
    "a missing value": cells((0, 1), (0.9, 1), (0, 1)),
}


def drawn(row, copula=COPULA, uniform=UNIFORM):
    return jax.jit(jax.vmap(copula.draw, (None, 0)))(row, uniform)


@pytest.mark.parametrize("name", CASES)
def test_points_lie_in_their_cells(name):
    row = CASES[name]
    places = np.asarray(ndtr(jax.vmap(COPULA.colour)(drawn(row))))
    assert np.all(places >= np.asarray(row.low) - 2e-6)
    assert np.all(places <= np.asarray(row.low + row.width) + 2e-6)


def mean_weight(row, copula, draw=None):
    """The mean of one over the density of points; the density integrates to one if and only if it is one too."""
    z = jax.vmap(COPULA.colour)(drawn(row) if draw is None else draw)
    return float(jnp.mean(jnp.exp(-jax.vmap(copula.log_proposal, (None, 0))(row, z))))


@pytest.mark.parametrize("name", CASES)
def test_the_density_of_draws_is_what_it_is_said_to_be(name):
    """Within four deviations of the mean of 20,000 points, of which one in 16,000 tests would fall out by chance.

    A copula that takes one of its scales for another is found out.
    """
    row = CASES[name]
    z = jax.vmap(COPULA.colour)(drawn(row))
    weights = np.exp(-np.asarray(jax.vmap(COPULA.log_proposal, (None, 0))(row, z), float))
    assert abs(weights.mean() - 1) < 4 * weights.std() / np.sqrt(len(weights)) + 1e-3
    mutant = Copula(COPULA.factor.at[1, 1].set(1.0))
    assert abs(mean_weight(row, mutant) - 1) > 0.03


def test_without_correlation_points_are_even_in_their_cells():
    independent = Copula.independent(3)
    for row in CASES.values():
        expected = jax.vmap(row.point)(UNIFORM[:500])
        assert np.allclose(drawn(row, independent, UNIFORM[:500]), expected, atol=2e-2, rtol=1e-3)
        inner = jnp.clip(expected, -4, 4)
        assert np.allclose(jax.vmap(independent.log_proposal, (None, 0))(row, inner), 0, atol=2e-2)


def test_whitening_undoes_colouring():
    x = jnp.asarray([0.3, -1.2, 2.0])
    assert np.allclose(COPULA.whiten(COPULA.colour(x)), x, atol=1e-5)
    jacobian = jax.jacobian(COPULA.whiten)(x)
    assert float(COPULA.log_det()) == pytest.approx(np.linalg.slogdet(np.asarray(jacobian, float))[1], abs=1e-5)


def test_cells_that_the_copula_rules_out_give_numbers():
    """A factor that nearly determines the second feature, in a cell forty deviations away."""
    sharp = Copula(jnp.asarray([[1.0, 0.0], [0.995, 0.1]], jnp.float32))
    row = cells((0, 0.001), (0.999, 1))
    x = drawn(row, sharp, UNIFORM[:200, :2])
    z = jax.vmap(sharp.colour)(x)
    assert np.isfinite(np.asarray(x)).all()
    assert np.isfinite(np.asarray(jax.vmap(sharp.log_proposal, (None, 0))(row, z))).all()
    assert np.all(np.asarray(z[:, 1]) >= ndtri(0.999) - 1e-3)


def behind_copula(copula=COPULA):
    """A flow before training behind a copula: its density is the normal one."""
    shape = SplineFlowShape(3, 2, 8, 2, 4, 8, 1, "low-rank")
    flow = SplineFlow.start(shape, key=jax.random.PRNGKey(0))
    return flow.behind(MarginalMap.identity(3), copula)


def masses(flow, low, width, draws=65_536):
    points = jnp.asarray(np.random.default_rng(5).random((draws, 3)), jnp.float32)
    given = (jnp.asarray(low, jnp.float32), jnp.asarray(width, jnp.float32))
    return float(eqx.filter_jit(lambda flow: flow.log_mean_density(*given, points))(flow))


@pytest.mark.parametrize("low", [(0, 0, 0), (0, 0.9, 0.5), (0.9, 0, 0.5)])
def test_the_mass_of_cells_is_that_of_the_normal(low):
    """By the distribution function of a normal in three dimensions, within four deviations of the sampling.

    Without the determinant it would be off by 0.6.
    """
    width = [0.9 if start == 0 else 0.1 if start == 0.9 else 0.5 for start in low]
    width[2] = 0.5
    normal = stats.multivariate_normal(np.zeros(3), MATRIX)
    ends = ndtri(np.clip([low, np.add(low, width)], 1e-9, 1 - 1e-9))
    expected = np.log(normal.cdf(ends[1], lower_limit=ends[0])) - np.sum(np.log(width))
    assert masses(behind_copula(), low, width) == pytest.approx(expected, abs=0.025)


def test_the_density_of_points_is_that_of_the_normal():
    x = np.array([0.3, -0.9, 0.5])
    expected = stats.multivariate_normal(np.zeros(3), MATRIX).logpdf(x)
    assert float(behind_copula().log_prob(jnp.asarray(x, jnp.float32))) == pytest.approx(expected, abs=1e-4)


def test_samples_have_the_correlations():
    """20,000 samples: within 0.035, five deviations of each coefficient."""
    keys = jax.random.split(jax.random.PRNGKey(2), 20_000)
    rows = np.asarray(eqx.filter_jit(lambda flow: jax.vmap(flow.sample)(keys))(behind_copula()))
    assert np.allclose(np.corrcoef(rows.T), MATRIX, atol=0.035)
    independent = np.asarray(eqx.filter_jit(lambda flow: jax.vmap(flow.sample)(keys))(behind_copula(None)))
    assert not np.allclose(np.corrcoef(independent.T), MATRIX, atol=0.2)


def test_bins_in_another_order_lead_there_and_back():
    """Three levels of shares 0.5, 0.2 and 0.3 in the order third, first, second."""
    edges, shares = jnp.asarray([[0, 1 / 3, 2 / 3, 1]]), jnp.asarray([[0, 0.5, 0.7, 1.0]])
    reordered = MarginalMap(edges, shares, jnp.asarray([[0.3, 0.8, 0.0]]))
    x = jnp.asarray(ndtri(np.linspace(0.01, 0.99, 97)), jnp.float32)[:, None]
    there, log_slope = jax.vmap(reordered.forward)(x)
    assert np.allclose(jax.vmap(reordered.inverse)(there), x, atol=1e-3)
    order = [float(ndtr(there[place, 0])) for place in (90, 10, 50)]
    assert order == sorted(order)
    slopes = jax.vmap(jax.jacobian(lambda z: reordered.forward(z)[0]))(x)[:, 0, 0]
    assert np.allclose(np.log(np.asarray(slopes)), log_slope, atol=1e-2)
    row = ShareCells.behind(reordered, jnp.asarray([2 / 3]), jnp.asarray([1 / 3]))
    assert np.allclose([float(row.low[0]), float(row.width[0])], [0.0, 0.3], atol=1e-5)
