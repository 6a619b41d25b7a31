"""Conditional generator: one that is told a level of one of its columns first, and any column may be asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.errors import ArgumentError, ReleaseError
from sfumato.models.generators.blocks import RowBlocks, read_blocks
from sfumato.models.generators.description import generator_skeleton
from sfumato.models.generators.generator import Generator


def conditions(blocks: RowBlocks) -> list[int]:
    """The features that can be asked for: choices among levels that are never missing."""
    return [place for place in blocks.places("choice") if blocks.blocks[place].flag is None]


def condition_width(blocks: RowBlocks) -> int:
    """The numbers of a condition: a place for each level of each such feature."""
    return sum(blocks.blocks[place].width for place in conditions(blocks))


class ConditionalGenerator(eqx.Module):
    """A generator whose normal vector is followed by a condition: one level of one column, one-hot among all of them.

    ``log_shares`` are the log shares of levels inside their column; a column is picked evenly, a level by its share.
    Guarantees: no row lies outside the domain, whatever the parameters are.
    Reference: the conditional vector of Xu, Skoularidou, Cuesta-Infante, Veeramachaneni 2019 (CTGAN).
    """

    inner: Generator
    log_shares: Float[Array, " level"]

    @property
    def blocks(self) -> RowBlocks:
        """The blocks of a row."""
        return self.inner.blocks

    def draw_condition(self, key: Array) -> Float[Array, " level"]:
        """A level of one column, one-hot among the levels of all columns that can be asked for."""
        first, second = jax.random.split(key)
        columns, widths = conditions(self.blocks), [self.blocks.blocks[at].width for at in conditions(self.blocks)]
        column = jax.random.randint(first, (), 0, len(columns))
        mine = np.repeat(np.arange(len(columns)), widths) == column
        logits = jnp.where(mine, jnp.nan_to_num(self.log_shares), -1e30)
        return jax.nn.one_hot(jax.random.categorical(second, logits), sum(widths), dtype=jnp.float32)

    def outputs(self, key: Array, condition: Float[Array, " level"]) -> Float[Array, " number"]:
        """What the network makes of a fresh normal vector and a condition."""
        normal = jax.random.normal(key, (self.inner.shape.latent - condition.size,), jnp.float32)
        return self.inner.outputs(jnp.concatenate([normal, condition]))

    def asked(self, numbers: Float[Array, " number"]) -> Float[Array, " level"]:
        """The numbers of a row that stand for levels that can be asked for."""
        return jnp.concatenate([numbers[self.blocks.part(place)] for place in conditions(self.blocks)])

    def embed(
        self, low: Float[Array, " feature"], width: Float[Array, " feature"], share: Float[Array, " feature"]
    ) -> Float[Array, " number"]:
        """A row of a table as blocks."""
        return self.inner.embed(low, width, share)

    def draw(self, key: Array) -> Float[Array, " feature"]:
        """One row: the place of each level, and a number of [0, 1] for each point."""
        first, second, third = jax.random.split(key, 3)
        return self.inner.drawn(self.outputs(second, self.draw_condition(first)), third)

    def sample(self, key: Array) -> Float[Array, " feature"]:
        """One row of real features."""
        return self.inner.features(self.draw(key))

    def draw_rows(self, key: Array, num_rows: int, at_once: int) -> Float[np.ndarray, "row feature"]:
        """So many rows as ``draw`` gives them; the program is compiled for ``at_once`` rows."""
        return np.asarray(_draw_many(self, jax.random.split(key, at_once)))[:num_rows]

    def points(self, drawn: Any, levels: tuple[int | None, ...]) -> Float[np.ndarray, "row feature"]:
        """Points of the unit cube of many rows that were drawn, in the middle of each level."""
        return self.blocks.points(drawn)

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild the model."""
        return {**self.inner.describe(), "kind": "conditional_generator"}


def conditional_skeleton(fields: Mapping[str, Any], tensor_sizes: Sequence[int]) -> ConditionalGenerator:
    """The model with shapes in place of arrays. No description can make more be allocated than the file holds."""
    sizes = list(tensor_sizes)
    try:
        width = condition_width(read_blocks(fields.get("blocks"), most=sum(sizes)))
        sizes.remove(width)
    except (ArgumentError, ValueError):
        raise ReleaseError("The model description claims other numbers than the file holds.") from None
    inner = generator_skeleton(fields, sizes)
    if not 0 < width < inner.shape.latent or inner.shape.label is not None:
        raise ReleaseError("The model description claims other numbers than the file holds.")
    found: ConditionalGenerator = eqx.filter_eval_shape(_with_even_shares, inner)
    return found


def _with_even_shares(inner: Generator) -> ConditionalGenerator:
    return ConditionalGenerator(inner, jnp.zeros(condition_width(inner.blocks), jnp.float32))


@eqx.filter_jit
def _draw_many(model: ConditionalGenerator, keys: Array) -> Float[Array, "row feature"]:
    return jax.vmap(model.draw)(keys)
