"""Critics: what a row can add, by groups and as a whole; made rows bounded as real ones; bounds that follow norms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from sfumato.fitting.critic_loss import Scene, real_part, row_norms
from sfumato.fitting.critics import WholeCritic, part_of, steepness
from sfumato.fitting.grouped_critic import GroupedCritic, Grouping, grouped_critic
from sfumato.models.generators.blocks import Block, RowBlocks
from sfumato.models.generators.critic import CriticShape
from sfumato.models.generators.generator import Generator, GeneratorShape
from sfumato.privacy.clipping import GRID
from sfumato.privacy.factored import factors_of, row_gradients

BLOCKS = RowBlocks((Block("choice", 3, None), Block("point", None, None), Block("bits", 4, None)))
SHAPE = CriticShape(BLOCKS.width, width=5, depth=2)
KEY = jax.random.key(0)
WEIGHTS = SHAPE.start(jax.random.key(1))
ROWS = jax.random.uniform(jax.random.key(2), (40, BLOCKS.width), jnp.float32)


def scene():
    return Scene(Generator.start(GeneratorShape(BLOCKS, latent=2, width=4, depth=1), key=KEY))


def grouped(**settings):
    return grouped_critic(scene(), SHAPE, "log", Grouping(groups=3, **settings), rows=ROWS, key=jax.random.key(3))


def gradient_of(weights, row, kind="log", real=True):
    part = part_of(kind, real=real)
    return ravel_pytree(jax.grad(lambda weights: part(SHAPE.score(weights, row)))(weights))[0]


def cells(num, seed=4):
    random = np.random.default_rng(seed)
    low = np.stack([random.integers(0, 3, num) / 3, random.random(num), random.integers(0, 4, num) / 4], axis=1)
    return {
        "low": jnp.asarray(low, jnp.float32),
        "width": jnp.asarray(np.tile([1 / 3, 0.0, 0.25], (num, 1)), jnp.float32),
    }


def test_a_critic_that_sees_labels_apart_is_bounded_by_the_same_factors():
    """Its first layer has weights for each label; of a row all but those of its own label are given no gradient."""
    shape = CriticShape(BLOCKS.width, width=5, depth=1, label=(0, 3))
    weights = shape.start(jax.random.key(1))
    rows = jax.vmap(lambda low, width: BLOCKS.embed(low, width, jnp.full(3, 0.5)))(*cells(20).values())
    one = lambda row: jax.grad(lambda weights: real_part("log", shape.score(weights, row)))(weights)
    gradients = jax.vmap(one)(rows)
    first = np.asarray(gradients["weight0"]).reshape(20, 5, 4, BLOCKS.width)
    mine = np.argmax(np.asarray(rows[:, :3]), axis=1)
    moved = np.abs(first[:, :, 1:]).max(axis=(1, 3)) > 0
    assert np.array_equal(moved, np.arange(3) == mine[:, None])
    norms = jax.vmap(lambda row: row_norms(shape, weights, row, lambda score: real_part("log", score)))(rows)
    expected = jax.vmap(lambda tree: jnp.linalg.norm(ravel_pytree(tree)[0]))(gradients)
    np.testing.assert_allclose(jnp.sqrt(jnp.sum(norms**2, axis=1)), expected, rtol=1e-5)


@pytest.mark.parametrize("follow", ["still", "noisy"])
@pytest.mark.parametrize("log_bounds", [(-9.0, -9.0, -9.0), (9.0, -9.0, 0.0), (0.0, 0.0, 0.0), (9.0, 9.0, 9.0)])
def test_no_row_adds_more_than_one_whatever_the_bounds_are(follow, log_bounds):
    """Three groups and what is told are one vector of norm one, so that one Gaussian accounts for all of them."""
    critic = grouped(follow=follow)
    loud = {name: 30 * leaf for name, leaf in WEIGHTS.items()}
    params = {**critic.start(loud), "log_bounds": jnp.asarray(log_bounds, jnp.float32)}
    found = jax.vmap(lambda row: ravel_pytree(critic.vector(params, row, real=True))[0])(ROWS)
    norms = np.linalg.norm(np.asarray(found, np.float64), axis=1)
    assert norms.max() <= 1 + 1e-5
    if max(log_bounds) < 0:
        assert norms.max() > 0.95, "a row that is clipped in every group comes to the bound"
        assert norms.max() * np.sqrt(3) > 1.5, "the mutant: groups that are not accounted for together"
    with jax.enable_x64(True):
        one = lambda row: critic.clip.grid_sum([row[None]], jnp.ones(1, bool))[0]
        assert np.sum(np.asarray(jax.vmap(one)(1e6 * found), np.float64) ** 2, axis=1).max() <= float(GRID) ** 2


def test_groups_are_clipped_each_to_its_own_bound():
    critic = grouped()
    params = critic.start(WEIGHTS)
    for row in ROWS[:5]:
        gradient = gradient_of(WEIGHTS, row)
        norms, bounds = critic.norms(gradient), critic.bounds
        expected = gradient * jnp.minimum(1.0, bounds / norms)[critic.group_of]
        found = ravel_pytree(critic._unscaled(critic.vector(params, row, real=True)[0], params))[0]
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-9)


def test_the_gradient_of_the_loss_is_the_shaped_vector():
    critic = grouped(follow="noisy")
    params = critic.start(WEIGHTS)
    rows = cells(1)
    row = jax.tree.map(lambda column: column[0], rows)
    found = jax.grad(critic.loss())(params, row, KEY)
    vector, told = critic.vector(params, critic.scene.real(row, KEY), real=True)
    np.testing.assert_allclose(ravel_pytree(found["weights"])[0], vector, rtol=1e-6)
    np.testing.assert_allclose(found["told"], told, rtol=1e-6)
    assert not np.any(np.asarray(found["log_bounds"])), "bounds are public and learn from what is told alone"


def test_without_clipping_groups_are_the_plain_gradient():
    critic = grouped()
    params = {**critic.start(WEIGHTS), "log_bounds": jnp.full(critic.bounds.shape, 8.0, jnp.float32)}
    found = ravel_pytree(critic.row_mean(params, ROWS, real=False))[0]
    expected = jnp.mean(jax.vmap(lambda row: gradient_of(WEIGHTS, row, real=False))(ROWS), axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-7)


def test_bounds_follow_the_quantile_of_the_norms():
    """Told exactly, bounds come to where the wanted share of rows lies below: from far above and from far below."""
    for follow, start in (("noisy", 4.0), ("noisy", -4.0), ("public", 4.0)):
        critic = grouped(follow=follow, quantile=0.7, speed=0.2)
        params = {**critic.start(WEIGHTS), "log_bounds": jnp.log(critic.bounds) + start}
        tell = jax.jit(
            lambda params, critic=critic: jax.vmap(lambda row: critic.vector(params, row, real=True)[1])(ROWS)
        )
        for _ in range(150):
            params = critic.moved(params, WEIGHTS, {"told": jnp.mean(tell(params), axis=0)}, ROWS)
        norms = jax.vmap(lambda row, critic=critic: critic.norms(gradient_of(WEIGHTS, row)))(ROWS)
        below = np.mean(np.asarray(norms) <= np.exp(np.asarray(params["log_bounds"])), axis=0)
        assert np.all(np.abs(below - 0.7) < 0.1)


def test_still_bounds_stay():
    critic = grouped()
    params = critic.start(WEIGHTS)
    assert np.array_equal(critic.moved(params, WEIGHTS, None, ROWS)["log_bounds"], params["log_bounds"])
    assert isinstance(critic, GroupedCritic)


@pytest.mark.parametrize("kind", ["log", "wasserstein"])
def test_made_rows_are_clipped_as_a_loop_over_rows_would(kind):
    critic = WholeCritic(scene(), SHAPE, kind, 0.5)
    found = ravel_pytree(critic.row_mean(WEIGHTS, ROWS, real=False))[0]
    gradients = [np.asarray(gradient_of(WEIGHTS, row, kind, real=False), np.float64) for row in ROWS]
    clipped = [gradient * min(1, 0.5 / np.linalg.norm(gradient)) for gradient in gradients]
    assert any(np.linalg.norm(gradient) > 0.5 for gradient in gradients)
    np.testing.assert_allclose(found, np.mean(clipped, axis=0), rtol=1e-4, atol=1e-7)


def test_factors_of_the_real_loss_are_its_gradient():
    """The fast path against the slow one, row by row."""
    loss = WholeCritic(scene(), SHAPE, "log", 1.0).loss()
    rows, keys = cells(6), jax.random.split(KEY, 6)
    with jax.enable_x64(True):
        fast = row_gradients(loss, factors_of(loss, WEIGHTS, rows, keys))
    for place in range(6):
        row = jax.tree.map(lambda column, place=place: column[place], rows)
        numbers = loss.scene.real(row, keys[place])
        slow = jax.grad(lambda weights, numbers=numbers: real_part("log", SHAPE.score(weights, numbers)))(WEIGHTS)
        for name in WEIGHTS:
            np.testing.assert_allclose(fast[name][place], slow[name], rtol=1e-4, atol=1e-6)


def test_the_penalty_is_for_slopes_past_one():
    flat = {name: 0.01 * leaf for name, leaf in WEIGHTS.items()}
    steep = {name: 10 * leaf for name, leaf in WEIGHTS.items()}
    assert float(steepness(SHAPE, flat, ROWS, KEY)) == 0
    assert float(steepness(SHAPE, steep, ROWS, KEY)) > 1
