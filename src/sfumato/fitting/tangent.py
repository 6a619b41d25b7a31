"""Tangent embedding: a row as the gradient of a fixed random network in its parameters, scaled to norm one.

Inner products of such gradients are the empirical neural tangent kernel: mean embeddings under it tell tables apart
that a network of this kind could tell apart with small steps.
Reference: Jacot, Gabriel, Hongler 2018; Yang, Adamczewski, Sutherland, Li, Park 2023 (DP-NTK).
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.models.generators.blocks import RowBlocks
from sfumato.models.starts import normal

_LEAST = 1e-6


class TangentEmbedding(eqx.Module):
    """The gradient of a network of one hidden layer, divided by its norm. Its parameters are public and never move.

    Guarantees: norm at most one, whatever the row: a vector over the larger of its norm and a small number.
    """

    of_chances: ClassVar[bool] = False

    weights: Float[Array, "hidden number"]
    offsets: Float[Array, " hidden"]
    last: Float[Array, " hidden"]
    blocks: RowBlocks = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def start(cls, blocks: RowBlocks, columns: tuple[int, ...], *, width: int, key: Array) -> "TangentEmbedding":
        """A network of so many hidden units at a random start, which looks at these columns."""
        inputs = sum(blocks.blocks[place].width for place in columns)
        keys = jax.random.split(key, 3)
        scaled = normal(keys[0], width, inputs) * np.sqrt(2 / len(columns))
        return cls(scaled, 0.5 * normal(keys[1], width), normal(keys[2], width) / np.sqrt(width), blocks, columns)

    @property
    def size(self) -> int:
        """The numbers of an embedding: one for each parameter."""
        return int(self.weights.size + self.offsets.size + self.last.size)

    def __call__(self, numbers: Float[Array, " number"]) -> Float[Array, " entry"]:
        """The embedding of one row of blocks."""
        seen = jnp.concatenate([self._centred(numbers, place) for place in self.columns])

        def output(parameters: tuple[Array, Array, Array]) -> Float[Array, ""]:
            weights, offsets, last = parameters
            return last @ jax.nn.gelu(weights @ seen + offsets)

        gradient = jax.grad(output)((self.weights, self.offsets, self.last))
        flat = jnp.concatenate([part.reshape(-1) for part in gradient])
        return flat / jnp.sqrt(jnp.sum(flat**2) + _LEAST**2)

    def _centred(self, numbers: Float[Array, " number"], place: int) -> Float[Array, " number"]:
        block, part = self.blocks.blocks[place], numbers[self.blocks.part(place)]
        return part if block.kind == "choice" else 2 * part - 1
