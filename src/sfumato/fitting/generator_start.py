"""Generator start: a generator that knows each column by itself before any game is played.

One-way marginals are bought first. Points are seen and made behind them, and the outputs for levels start at their log
shares, so that the gradients that follow need only teach how columns depend on each other. All after the sums is
post-processing.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sfumato.checks import whole
from sfumato.encoding.layout import Layout
from sfumato.errors import ArgumentError
from sfumato.fitting.marginals import MarginalShare, buy_marginals
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.generators.blocks import Block, RowBlocks, blocks_of
from sfumato.models.generators.generator import Generator, GeneratorShape
from sfumato.privacy import Curator


@dataclass(frozen=True, kw_only=True)
class GeneratorSize:
    """The size of a generator: its normal vector, hidden units, hidden layers."""

    latent: int = 32
    width: int = 128
    depth: int = 2

    def __post_init__(self) -> None:
        whole(1, latent=self.latent, width=self.width, depth=self.depth)

    def shape(self, blocks: RowBlocks, label: int | None = None, bins: int = 0) -> GeneratorShape:
        """The shape of a generator of these blocks."""
        return GeneratorShape(blocks, self.latent, self.width, self.depth, label, bins)


def label_place(layout: Layout, label: str | None) -> int | None:
    """The feature of a column that is named as label; it must be one of few values.

    Reads the schema alone: what levels were learnt of a column may not be looked at here but for their number.
    """
    if label is None:
        return None
    for place, feature in enumerate(layout.features):
        if feature.column == label and feature.role == "value":
            if feature.size is None or not 2 <= feature.size <= 1_024:
                break
            return place
    raise ArgumentError(f"The label {label!r} must be a column of this table with 2 to 1,024 values.")


def start_generator(
    curator: Curator,
    layout: Layout,
    size: GeneratorSize,
    marginals: MarginalShare | None,
    *,
    label: str | None,
    key: Array,
) -> Generator:
    """A generator before the game. Cost: that of the marginals, if there are any to buy."""
    place = label_place(layout, label)
    blocks = blocks_of(layout, place)
    if marginals is None:
        return Generator.start(size.shape(blocks, place), key=key)
    bought = buy_marginals(curator, layout, marginals)
    bins = bought.starts.shape[1] if blocks.places("point") else 0
    generator = Generator.start(size.shape(blocks, place, bins), key=key, marginals=bought)
    return with_shares(generator, bought, key=jax.random.fold_in(key, 1))


def with_shares(generator: Generator, marginals: MarginalMap, *, key: Array) -> Generator:
    """The generator with outputs that follow one-way shares: labels, levels and bits by theirs, points evenly."""
    shares = [level_shares(marginals, place, block) for place, block in enumerate(generator.blocks.blocks)]
    generator = _calibrated(generator, key)
    bias = np.array(generator.layers[-1].bias)
    for place, (block, share) in enumerate(zip(generator.blocks.blocks, shares, strict=True)):
        if share is not None:
            bias[generator.blocks.part(place)] = _log_odds(block, share)
    generator = eqx.tree_at(lambda made: made.layers[-1].bias, generator, jnp.asarray(bias, jnp.float32))
    if generator.shape.label is None:
        return generator
    logits = _label_logits(generator, shares)
    return eqx.tree_at(lambda made: made.label_logits, generator, jnp.asarray(logits, jnp.float32))


def level_shares(marginals: MarginalMap, place: int, block: Block) -> np.ndarray | None:
    """The share of each level of a feature; None for points."""
    if block.kind == "point":
        return None
    size = int(block.size or 2)
    edges, below = np.asarray(marginals.edges[place], float), np.asarray(marginals.shares[place], float)
    found = np.maximum(np.diff(np.interp(np.arange(size + 1) / size, edges, below)), 1e-4 / size)
    return np.asarray(found / found.sum())


def _log_odds(block: Block, shares: np.ndarray) -> np.ndarray:
    if block.kind == "choice":
        return np.log(shares)
    bits = (np.arange(shares.size)[:, None] >> np.arange(block.width)) % 2
    ones = np.clip(shares @ bits, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(ones / (1 - ones)))


def _label_logits(generator: Generator, shares: list[np.ndarray | None]) -> np.ndarray:
    place = generator.shape.label or 0
    present, flag = shares[place], generator.blocks.blocks[place].flag
    assert present is not None
    if flag is None:
        return np.log(present)
    missing = shares[flag]
    assert missing is not None
    return np.log(np.append(present * missing[0], missing[1]))


@eqx.filter_jit
def _calibrated(generator: Generator, key: Array) -> Generator:
    """Outputs of mean zero and deviation one over normal vectors: points are then spread evenly over [0, 1]."""
    latents = jax.random.normal(key, (1_024, generator.shape.latent), jnp.float32)
    label = None if generator.shape.label is None else jnp.zeros((), jnp.int32)
    plain = eqx.tree_at(lambda made: made.layers[-1].bias, generator, jnp.zeros(generator.blocks.width, jnp.float32))
    outputs = jax.vmap(lambda latent: plain.outputs(latent, label))(latents)
    mean, deviation = jnp.mean(outputs, axis=0), jnp.maximum(jnp.std(outputs, axis=0), 1e-3)
    points = np.zeros(generator.blocks.width, bool)
    for place in generator.blocks.places("point"):
        points[generator.blocks.part(place)] = True
    # Levels start at their shares for every normal vector; what they depend on is still to be learnt.
    scale = jnp.where(points, 1 / deviation, 0.3)
    last = generator.layers[-1]
    found = (last.weight * scale[:, None], jnp.where(points, -mean / deviation, 0.0).astype(jnp.float32))
    return eqx.tree_at(lambda made: (made.layers[-1].weight, made.layers[-1].bias), generator, found)
