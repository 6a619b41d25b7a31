"""Generator: a network from a normal vector, and a label where there is one, to a row. It has no likelihood."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, Int

from sfumato.checks import whole
from sfumato.errors import ArgumentError
from sfumato.models.cells import EDGE
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.share_cells import ShareCells
from sfumato.models.generators.blocks import SURE, RowBlocks


@dataclass(frozen=True)
class GeneratorShape:
    """The sizes of a generator: its blocks, its normal vector, its hidden layers, and which feature is its label.

    ``label`` is the place of a choice, or None; a label that can be missing has one class more for that.
    ``bins`` is how many bins the marginals have that points are seen through; 0 for none.
    """

    blocks: RowBlocks
    latent: int
    width: int
    depth: int
    label: int | None = None
    bins: int = 0

    def __post_init__(self) -> None:
        whole(1, latent=self.latent, width=self.width, depth=self.depth)
        whole(0, bins=self.bins)
        if self.label is not None:
            whole(0, label=self.label)
            if self.label >= self.blocks.num_features or self.blocks.blocks[self.label].kind != "choice":
                raise ArgumentError("Expected a label that is a choice among levels.")

    @property
    def classes(self) -> int:
        """How many labels there are; 0 without a label.

        >>> from sfumato.models.generators.blocks import Block
        >>> blocks = RowBlocks((Block("bits", 2, None), Block("choice", 3, 0)))
        >>> GeneratorShape(blocks, latent=2, width=4, depth=1, label=1).classes
        4
        """
        if self.label is None:
            return 0
        block = self.blocks.blocks[self.label]
        return block.width + (block.flag is not None)

    @property
    def layers(self) -> list[tuple[int, int]]:
        """What goes in and what comes out of each layer."""
        sizes = [self.latent + self.classes, *[self.width] * self.depth, self.blocks.width]
        return list(pairwise(sizes))


class Generator(eqx.Module):
    """A network whose outputs are the blocks of a row (``blocks.py``), hard when rows are drawn.

    ``label_logits`` are the log shares of the labels that rows are made for. Behind ``marginals``, one line for each
    feature that is a point, points are shares of the rows and not of the domain: what the network makes goes back
    through the measured distribution functions.
    Guarantees: no row lies outside the domain, whatever the parameters are.

    >>> from sfumato.models.generators.blocks import Block
    >>> shape = GeneratorShape(RowBlocks((Block("choice", 3, None),)), latent=2, width=4, depth=1)
    >>> Generator.start(shape, key=jax.random.key(0)).describe()["kind"]
    'generator'
    """

    layers: tuple[eqx.nn.Linear, ...]
    label_logits: Float[Array, " class"] | None
    marginals: MarginalMap | None
    shape: GeneratorShape = eqx.field(static=True)

    @classmethod
    def start(cls, shape: GeneratorShape, *, key: Array, marginals: MarginalMap | None = None) -> "Generator":
        """The network at a random start, with labels of equal shares; ``marginals`` has a line for every feature."""
        layers = _linear_layers(tuple(shape.layers), key)
        logits = None if shape.label is None else jnp.zeros(shape.classes, jnp.float32)
        points = tuple(shape.blocks.places("point"))
        kept = _lines_of(marginals, points) if marginals is not None and points else None
        if (shape.bins or None) != (None if kept is None else kept.starts.shape[1]):
            raise ArgumentError("Expected as many bins as the marginals of the points have, or none of either.")
        return cls(layers, logits, kept, shape)

    @property
    def blocks(self) -> RowBlocks:
        """The blocks of a row."""
        return self.shape.blocks

    def outputs(self, latent: Float[Array, " latent"], label: Int[Array, ""] | None = None) -> Float[Array, " number"]:
        """What the network makes of a normal vector, with certain outputs for the label."""
        hidden = latent
        if self.shape.label is not None:
            hidden = jnp.concatenate([latent, jax.nn.one_hot(label, self.shape.classes, dtype=latent.dtype)])
        for layer in self.layers[:-1]:
            hidden = jax.nn.leaky_relu(layer(hidden), 0.1)
        return self._labelled(self.layers[-1](hidden), label)

    def relaxed(
        self, key: Array, label: Int[Array, ""] | None = None, *, temperature: float = 0.5, straight: bool = False
    ) -> Float[Array, " number"]:
        """One row as blocks with a gradient, of a given label or of one that is drawn."""
        first, second, third = jax.random.split(key, 3)
        chosen = self.draw_label(first) if label is None else label
        outputs = self.outputs(jax.random.normal(second, (self.shape.latent,), jnp.float32), chosen)
        return self.blocks.relaxed(outputs, third, temperature, straight=straight)

    def expected(self, key: Array, label: Int[Array, ""] | None = None) -> Float[Array, " number"]:
        """One row as blocks, with the chances of its bits and levels given the normal vector, which alone is drawn."""
        first, second = jax.random.split(key)
        chosen = self.draw_label(first) if label is None else label
        return self.blocks.expected(self.outputs(jax.random.normal(second, (self.shape.latent,), jnp.float32), chosen))

    def embed(
        self, low: Float[Array, " feature"], width: Float[Array, " feature"], share: Float[Array, " feature"]
    ) -> Float[Array, " number"]:
        """A row of a table as blocks, from its cells; points at a share of their cell, behind the marginals."""
        if self.marginals is None:
            return self.blocks.embed(low, width, share)
        points = np.array(self.blocks.places("point"))
        cells = ShareCells.behind(self.marginals, low[points], width[points])
        there = width[points] < 1
        moved = low.at[points].set(jnp.where(there, cells.low, low[points]))
        return self.blocks.embed(moved, width.at[points].set(jnp.where(there, cells.width, 1.0)), share)

    def label_of(self, numbers: Float[Array, " number"]) -> Float[Array, " class"]:
        """The label of a row of blocks, one-hot; where it is missing, the last class."""
        if self.shape.label is None:
            raise ArgumentError("A generator without a label has no labels.")
        flag, here = self.blocks.blocks[self.shape.label].flag, numbers[self.blocks.part(self.shape.label)]
        if flag is None:
            return here
        missing = numbers[self.blocks.part(flag)]
        return jnp.concatenate([(1 - missing) * here, missing])

    def draw_label(self, key: Array) -> Int[Array, ""] | None:
        """A label by its share; None without labels."""
        if self.label_logits is None:
            return None
        return jax.random.categorical(key, jnp.nan_to_num(self.label_logits))

    def draw(self, key: Array) -> Float[Array, " feature"]:
        """One row: the place of each level, and a number of [0, 1] for each point."""
        first, second, third = jax.random.split(key, 3)
        latent = jax.random.normal(second, (self.shape.latent,), jnp.float32)
        return self.drawn(self.outputs(latent, self.draw_label(first)), third)

    def drawn(self, outputs: Float[Array, " number"], key: Array) -> Float[Array, " feature"]:
        """The row that outputs of the network stand for, points back through the marginals."""
        drawn = self.blocks.draw(outputs, key)
        if self.marginals is None:
            return drawn
        points = np.array(self.blocks.places("point"))
        scores = ndtri(jnp.clip(jnp.nan_to_num(drawn[points], nan=0.5), EDGE, 1 - EDGE))
        return drawn.at[points].set(ndtr(self.marginals.inverse(scores)))

    def sample(self, key: Array) -> Float[Array, " feature"]:
        """One row of real features."""
        return self.features(self.draw(key))

    def features(self, drawn: Float[Array, " feature"]) -> Float[Array, " feature"]:
        """Real features of a row that was drawn: the middle of each level."""
        drawn = jnp.nan_to_num(drawn, nan=0.5)
        sizes = jnp.asarray([1 if block.kind == "point" else block.size for block in self.blocks.blocks], jnp.float32)
        level = np.array([block.kind != "point" for block in self.blocks.blocks])
        return ndtri(jnp.clip(jnp.where(level, (drawn + 0.5) / sizes, drawn), EDGE, 1 - EDGE))

    def draw_rows(self, key: Array, num_rows: int, at_once: int) -> Float[np.ndarray, "row feature"]:
        """So many rows as ``draw`` gives them; the program is compiled for ``at_once`` rows."""
        return np.asarray(_draw_many(self, jax.random.split(key, at_once)))[:num_rows]

    def points(self, drawn: Any, levels: tuple[int | None, ...]) -> Float[np.ndarray, "row feature"]:
        """Points of the unit cube of many rows that were drawn, in the middle of each level."""
        return self.blocks.points(drawn)

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild the model."""
        shape = self.shape
        sizes = {"latent": shape.latent, "width": shape.width, "depth": shape.depth, "bins": shape.bins}
        features = {"num_features": self.blocks.num_features, "blocks": self.blocks.describe(), "label": shape.label}
        return {"kind": "generator", **features, **sizes}

    def _labelled(self, outputs: Float[Array, " number"], label: Int[Array, ""] | None) -> Float[Array, " number"]:
        place = self.shape.label
        if place is None or label is None:
            return outputs
        outputs = outputs.at[self.blocks.part(place)].set(self.blocks.certain(place, label))
        flag = self.blocks.blocks[place].flag
        if flag is None:
            return outputs
        return outputs.at[self.blocks.part(flag)].set(jnp.where(label == self.shape.classes - 1, SURE, -SURE))


@eqx.filter_jit
def _draw_many(model: Generator, keys: Array) -> Float[Array, "row feature"]:
    return jax.vmap(model.draw)(keys)


# Of one program each: at the start of a fit, compiling op by op takes longer than all of it runs.
@eqx.filter_jit
def _linear_layers(sizes: tuple[tuple[int, int], ...], key: Array) -> tuple[eqx.nn.Linear, ...]:
    keys = jax.random.split(key, len(sizes))
    return tuple(eqx.nn.Linear(*size, key=each) for size, each in zip(sizes, keys, strict=True))


@eqx.filter_jit
def _lines_of(marginals: MarginalMap, places: tuple[int, ...]) -> MarginalMap:
    """The lines of some features."""
    return jax.tree.map(lambda line: line[np.array(places)], marginals)
