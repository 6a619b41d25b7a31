"""Taps: gradients are those of a sum, also where several taps share what a layer gives out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.models.taps import tapped

WEIGHT = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
POINTS = np.random.default_rng(1).normal(size=(5, 2)).astype(np.float32)


def gradients(join, points, in_axes):
    """Of the sum over five taps, in the weight, in what is shared or not, and in every tap."""

    def total(weight, points, taps):
        row = lambda point, tap, scale: scale * jnp.sum(jnp.tanh(join(weight @ point, tap)))
        return jnp.sum(jax.vmap(row, (in_axes, 0, 0))(points, taps, jnp.arange(1.0, 6.0)))

    return jax.grad(total, argnums=(0, 1, 2))(WEIGHT, points, jnp.zeros((5, 3)))


def by_value_alone(value, tap):
    """The mutant: gradients of taps are lost where they share a value."""
    return lost(value, tap)


@jax.custom_vjp
def lost(value, tap):
    return value


lost.defvjp(lambda value, tap: (value, None), lambda _, back: (back, back))


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_those_of_a_sum(shared):
    given = (POINTS[0], None) if shared else (POINTS, 0)
    for found, expected in zip(gradients(tapped, *given), gradients(jnp.add, *given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_mutant_loses_gradients_where_a_value_is_shared():
    expected = gradients(jnp.add, POINTS[0], None)[2]
    assert np.abs(gradients(by_value_alone, POINTS[0], None)[2] - expected).max() > 0.1
