"""MADE: a masked network whose outputs for feature i depend on the features before i only.

Hidden units come in groups, one group a degree: a unit of degree i sees the features up to i. With the groups in
order, the network can be run one feature at a time at the cost of one full pass over all features, which is what
makes sampling from an autoregressive flow fast.

Reference: Germain, Gregor, Murray, Larochelle 2015.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.models.starts import normal


class Made(eqx.Module):
    """A masked autoregressive network from d features to ``num_outputs`` numbers a feature.

    ``width`` is rounded up to a whole number of units a degree. The last layer starts at zero, so that a flow
    starts as the identity.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    num_features: int = eqx.field(static=True)
    num_outputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)

    @classmethod
    def start(cls, num_features: int, num_outputs: int, *, width: int, depth: int, key: Array) -> "Made":
        """A network with random hidden layers and a last layer of zeros."""
        whole(1, num_features=num_features, num_outputs=num_outputs, width=width, depth=depth)
        units = -(-width // max(1, num_features - 1))
        hidden = units * max(1, num_features - 1)
        sizes = [num_features] + [hidden] * depth + [num_features * num_outputs]
        keys = jax.random.split(key, depth)
        masks = masks_of(num_features, num_outputs, units, depth)
        weights = [
            normal(k, *mask.shape) / np.sqrt(np.maximum(1, mask.sum(1, keepdims=True)))
            for k, mask in zip(keys, masks[:-1], strict=True)
        ]
        weights = [weight.astype(jnp.float32) for weight in weights]
        weights.append(jnp.zeros(masks[-1].shape, jnp.float32))
        biases = tuple(jnp.zeros(size, jnp.float32) for size in sizes[1:])
        return cls(tuple(weights), biases, num_features, num_outputs, units)

    @property
    def depth(self) -> int:
        """How many hidden layers there are."""
        return len(self.weights) - 1

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, "d output"]:
        for weight, bias in zip(self._masked()[:-1], self.biases[:-1], strict=True):
            x = jnp.tanh(weight @ x + bias)
        out = self._masked()[-1] @ x + self.biases[-1]
        return out.reshape(self.num_features, self.num_outputs)

    def _masked(self) -> list[Float[Array, "_ _"]]:
        masks = masks_of(self.num_features, self.num_outputs, self.units, self.depth)
        return [weight * mask for weight, mask in zip(self.weights, masks, strict=True)]

    def run_by_feature(self, value_of: Callable[[Array, Array], Array], y: Float[Array, " d"]) -> Float[Array, " d"]:
        """Solve x feature by feature, x_i = value_of(outputs_i, y_i), in one pass over the weights in all.

        The sums that enter each hidden layer are kept; when feature i is known, it and the units of degree i
        (now final) are added to them, and nothing is computed twice.
        """
        masked = self._masked()
        last = masked[-1].reshape(self.num_features, self.num_outputs, -1)
        last_bias = self.biases[-1].reshape(self.num_features, self.num_outputs)

        def solve(sums: list[Array], i: Array) -> tuple[list[Array], Array]:
            x_i = value_of(last[i] @ jnp.tanh(sums[-1]) + last_bias[i], y[i])
            sums = [sums[0] + masked[0][:, i] * x_i, *sums[1:]]
            for layer in range(1, self.depth):
                # Units of degree i + 1 stand at i * units; after the last feature there is no such group, and
                # the slice then repeats the group before, whose sums nobody reads any more.
                group = jnp.tanh(jax.lax.dynamic_slice_in_dim(sums[layer - 1], i * self.units, self.units))
                columns = jax.lax.dynamic_slice_in_dim(masked[layer], i * self.units, self.units, axis=1)
                sums[layer] = sums[layer] + columns @ group
            return sums, x_i

        start = [jnp.asarray(bias) for bias in self.biases[:-1]]
        _, x = jax.lax.scan(solve, start, jnp.arange(self.num_features))
        return x


def masks_of(num_features: int, num_outputs: int, units: int, depth: int) -> list[np.ndarray]:
    """The 0/1 masks of every layer, from degrees: a unit sees what is of its degree or below."""
    inputs = np.arange(1, num_features + 1)
    hidden = np.repeat(np.arange(1, max(2, num_features)), units)
    first = hidden[:, None] >= inputs[None, :]
    if num_features == 1:
        first = np.zeros_like(first)  # a single feature has nothing before it
    # A single hidden layer has none between, and a wide one would pay for it with its square in memory.
    between = [hidden[:, None] >= hidden[None, :]] * (depth - 1) if depth > 1 else []
    last = np.repeat(inputs, num_outputs)[:, None] > hidden[None, :]
    return [mask.astype(np.float32) for mask in [first, *between, last]]
