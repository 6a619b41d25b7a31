"""Conditioner: one masked network for all blocks of a flow, told which block it serves.

Sharing the network divides the number of parameters, and with it the noise of private training, by the number of
blocks; the embedding of the block index keeps the blocks apart.
Reference: Lee, Kim, Jeong, Ro 2022 (conditional spline flow); Germain et al. 2015 (masks).
"""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.models.flows.made import masks_of
from sfumato.models.starts import normal
from sfumato.models.taps import made_once, tapped

Weights = Mapping[str, Array]


class ConditionerShape(eqx.Module):
    """The sizes of a shared conditioner."""

    num_features: int = eqx.field(static=True)
    num_outputs: int = eqx.field(static=True)
    blocks: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    embedding: int = eqx.field(static=True)

    @property
    def degrees(self) -> int:
        """Groups of hidden units: one for each feature but the last."""
        return max(1, self.num_features - 1)

    @property
    def units(self) -> int:
        """Hidden units of one degree."""
        return -(-self.width // self.degrees)

    @property
    def hidden(self) -> int:
        """Hidden units of a layer."""
        return self.units * self.degrees

    def masks(self) -> list[np.ndarray]:
        """The masks of all layers."""
        return masks_of(self.num_features, self.num_outputs, self.units, self.depth)


class Conditioner(eqx.Module):
    """Parameters of the shared network: a first layer, residual layers, and a last one that starts at zero."""

    first: Float[Array, "hidden d"]
    first_bias: Float[Array, " hidden"]
    embedding: Float[Array, "block e"]
    context: Float[Array, "hidden e"]
    middle: tuple[Float[Array, "hidden hidden"], ...]
    middle_bias: tuple[Float[Array, " hidden"], ...]
    last: Float[Array, "out hidden"]
    last_bias: Float[Array, " out"]
    shape: ConditionerShape = eqx.field(static=True)

    @classmethod
    def start(cls, shape: ConditionerShape, *, key: Array) -> "Conditioner":
        """Random hidden layers; all outputs are zero."""
        whole(1, width=shape.width, depth=shape.depth, embedding=shape.embedding)
        keys = jax.random.split(key, shape.depth + 2)
        masks = shape.masks()

        def matrix(k: Array, mask: np.ndarray) -> Array:
            fan = np.sqrt(np.maximum(1, mask.sum(1, keepdims=True)))
            return (normal(k, *mask.shape) / fan).astype(jnp.float32)

        zeros = lambda *size: jnp.zeros(size, jnp.float32)
        return cls(
            first=matrix(keys[0], masks[0]),
            first_bias=zeros(shape.hidden),
            embedding=normal(keys[1], shape.blocks, shape.embedding),
            context=matrix(keys[2], np.ones((shape.hidden, shape.embedding))),
            middle=tuple(matrix(k, mask) for k, mask in zip(keys[3:], masks[1:-1], strict=False)),
            middle_bias=tuple(zeros(shape.hidden) for _ in masks[1:-1]),
            last=zeros(*masks[-1].shape),
            last_bias=zeros(masks[-1].shape[0]),
            shape=shape,
        )

    def weights(self) -> dict[str, Array]:
        """What acts on a row: masked matrices, and a bias of the first layer for each block."""
        masks = self.shape.masks()
        found = {
            "first": self.first * masks[0],
            "first_bias": self.embedding @ self.context.T + self.first_bias,
            "last": self.last * masks[-1],
            "last_bias": self.last_bias,
        }
        for layer, (matrix, bias) in enumerate(zip(self.middle, self.middle_bias, strict=True)):
            found[f"middle{layer}"] = matrix * masks[1 + layer]
            found[f"middle{layer}_bias"] = bias
        return found


def outputs(
    weights: Weights, first_bias: Array, x: Float[Array, " d"], taps: Mapping[str, Array]
) -> tuple[Float[Array, " out"], dict[str, Array]]:
    """The outputs for one row in one block, and what went into each layer.

    ``first_bias`` is that of the block; ``taps``, all zero, are added to what each layer gives out.
    """
    notes = {"first": x}
    h = jnp.tanh(tapped(weights["first"] @ x + first_bias, taps["first"]))
    layer = 0
    while f"middle{layer}" in weights:
        name = f"middle{layer}"
        notes[name] = h
        h = h + jnp.tanh(tapped(weights[name] @ h + weights[f"{name}_bias"], taps[name]))
        layer += 1
    notes["last"] = h
    return made_once(tapped(weights["last"] @ h + weights["last_bias"], taps["last"])), notes


def solve_by_feature(
    weights: Weights,
    first_bias: Array,
    shape: ConditionerShape,
    value_of: Callable[[Array, Array], Array],
    y: Float[Array, " d"],
) -> Float[Array, " d"]:
    """Solve x feature by feature, x_i = value_of(outputs_i, y_i), at the cost of one pass in all."""
    depth, units = shape.depth, shape.units
    last = weights["last"].reshape(shape.num_features, shape.num_outputs, -1)
    last_bias = weights["last_bias"].reshape(shape.num_features, shape.num_outputs)

    def solve(state: tuple[list[Array], Array], i: Array) -> tuple[tuple[list[Array], Array], Array]:
        sums, final = state
        x_i = value_of(last[i] @ final + last_bias[i], y[i])
        sums = [sums[0] + weights["first"][:, i] * x_i, *sums[1:]]
        # Units of degree i + 1 stand at i * units and are final now. After the last feature there is no such group,
        # and the slice repeats the group before, whose values nobody reads any more.
        take = lambda values: jax.lax.dynamic_slice_in_dim(values, i * units, units)
        h = jnp.tanh(take(sums[0]))
        for layer in range(depth - 1):
            columns = jax.lax.dynamic_slice_in_dim(weights[f"middle{layer}"], i * units, units, axis=1)
            sums[1 + layer] = sums[1 + layer] + columns @ h
            h = h + jnp.tanh(take(sums[1 + layer]))
        return (sums, jax.lax.dynamic_update_slice_in_dim(final, h, i * units, axis=0)), x_i

    sums = [first_bias, *(weights[f"middle{layer}_bias"] for layer in range(depth - 1))]
    _, x = jax.lax.scan(solve, (sums, jnp.zeros(shape.hidden, y.dtype)), jnp.arange(shape.num_features))
    return x
