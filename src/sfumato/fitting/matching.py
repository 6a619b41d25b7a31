"""Matching: one noisy sum buys the mean embedding of the rows, and a generator is trained to have the same one.

The sum is the only thing asked of the rows. Training is post-processing: it may take any number of steps, and costs no
privacy. Where the table has a label, the embedding of a row stands in the place of its label, so that the sum holds a
mean embedding for each label, and with a constant entry also how often each label occurs.

Reference: Harder, Adamczewski, Park 2021, "DP-MERF: Differentially Private Mean Embeddings with Random Features for
Practical Privacy-Preserving Data Generation".
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.errors import ArgumentError
from sfumato.fitting.histogram import onto_simplex
from sfumato.fitting.likelihood import Optimiser
from sfumato.models.generators.blocks import RowBlocks
from sfumato.models.generators.generator import Generator
from sfumato.privacy import Curator, FlatClip, SumQuery
from sfumato.progress import Progress

_COUNTED = 0.3
"""The constant entry of a row's vector: its square is what counts of labels take of the norm."""

_POINTS = 8
"""Points of a row's cells whose embeddings are averaged, where a number stands for a cell."""

_PURPOSE = "matching the mean embedding"


class Embedding(Protocol):
    """A map of one row of blocks to a vector of norm at most one.

    ``of_chances`` says that the embedding of chances is the mean over what they throw, so that nothing need be thrown.
    """

    of_chances: ClassVar[bool]

    @property
    def size(self) -> int:
        """The numbers of an embedding."""
        ...

    def __call__(self, numbers: Float[Array, " number"]) -> Float[Array, " entry"]:
        """The embedding of one row of blocks."""
        ...


@dataclass(frozen=True, kw_only=True)
class Target:
    """What was bought: the share of each label, the mean embedding times that share, and the noise of a share."""

    shares: Float[np.ndarray, " class"]
    means: Float[np.ndarray, "class entry"]
    noise: float


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a generator is trained against a target: steps, rows a step, and the optimiser. None of it costs privacy."""

    steps: int = 2_000
    batch: int = 1_024
    optimiser: Optimiser = Optimiser(learning_rate=3e-3)

    def __post_init__(self) -> None:
        whole(1, steps=self.steps)
        whole(2, batch=self.batch)
        if not isinstance(self.optimiser, Optimiser):
            raise ArgumentError(f"Expected optimiser={self.optimiser!r} to be an Optimiser.")


Start = Callable[[RowBlocks, tuple[int, ...], Array], Embedding]
"""An embedding of rows of these blocks, which looks at some of the features, from a public key."""


def fit_matching(curator: Curator, generator: Generator, start: Start, training: Training, *, key: Array) -> Generator:
    """The generator after training towards the mean embedding of the rows.

    Cost: one Gaussian sum for all that is left of the budget.
    """
    first, second = jax.random.split(key)
    embedding = start(generator.blocks, columns_seen(generator), first)
    target = buy_target(curator, generator, embedding)
    return match(generator, embedding, target, training, key=second, progress=curator.progress)


class RowVector(eqx.Module):
    """The vector of a row: a constant and the embedding, in the place of the row's label.

    Guarantees: norm at most one. Proof: the embedding has norm at most one and is scaled so that its square and that
    of the constant add up to one; a mean over points of the row's cells has no larger norm; labels are one-hot.
    """

    generator: Generator
    embedding: Any
    places: Float[Array, "point feature"]

    def __call__(self, row: dict[str, Array]) -> Float[Array, " entry"]:
        seen = jax.vmap(self.generator.embed, (None, None, 0))(row["low"], row["width"], self.places)
        mean = jnp.mean(jax.vmap(self.embedding)(seen), axis=0)
        vector = jnp.concatenate([jnp.full(1, _COUNTED, mean.dtype), np.sqrt(1 - _COUNTED**2) * mean])
        if self.generator.shape.label is None:
            return vector
        return jnp.outer(self.generator.label_of(seen[0]), vector).reshape(-1)


def columns_seen(generator: Generator) -> tuple[int, ...]:
    """The features that an embedding looks at: all but the label and the flag that says that it is missing."""
    place = generator.shape.label
    left_out = () if place is None else (place, generator.blocks.blocks[place].flag)
    return tuple(place for place in range(generator.blocks.num_features) if place not in left_out)


def buy_target(curator: Curator, generator: Generator, embedding: Embedding) -> Target:
    """The mean embedding of the rows, for each label where the generator has one.

    Cost: one Gaussian sum for all that is left of the budget. Sensitivity: one, by ``RowVector``; longer vectors would
    be clipped.
    """
    classes, entries = max(1, generator.shape.classes), 1 + embedding.size
    cells = any(block.kind == "point" and block.size is not None for block in generator.blocks.blocks)
    places = _even_places(_POINTS if cells else 1, generator.blocks.num_features)
    query = SumQuery(
        function=RowVector(generator, embedding, places),
        num_entries=classes * entries,
        clip=FlatClip(bound=1.0),
        purpose="mean embedding of the rows",
    )
    multiplier = curator.least_noise()
    noise = curator.noise_at(1.0, multiplier)
    answer = curator.noisy_sum_at(query, noise_multiplier=multiplier).reshape(classes, entries)
    counts = answer[:, 0] / _COUNTED
    total = max(float(np.sum(counts)), noise * np.sqrt(classes) / _COUNTED, 1.0)
    means = answer[:, 1:] / (np.sqrt(1 - _COUNTED**2) * total)
    return Target(shares=onto_simplex(counts / total), means=means, noise=noise / total)


def match(
    generator: Generator, embedding: Embedding, target: Target, training: Training, *, key: Array, progress: Progress
) -> Generator:
    """The generator after training towards the target, averaged over the iterates. Post-processing: no cost.

    A step draws two independent batches, and descends on the inner product of how far either is from the target: its
    mean is the squared distance of the means themselves, without the part that a batch has by chance.
    """
    shares = np.maximum(target.shares, 1e-6)
    if generator.shape.label is not None:
        logits = jnp.asarray(np.log(shares), jnp.float32)
        generator = eqx.tree_at(lambda model: model.label_logits, generator, logits)
    loss = _Distance.of(embedding, target, shares, max(1, training.batch // 2))
    params, fixed = eqx.partition(generator, _trainable(generator))
    average = _train(params, fixed, loss, training, key, progress)
    return eqx.combine(average, fixed)


class _Distance(eqx.Module):
    """The inner product of how far two batches of rows are from the target, label by label."""

    embedding: Any
    means: Float[Array, "class entry"]
    shares: Float[Array, " class"]
    weights: Float[Array, " class"]
    half: int = eqx.field(static=True)

    @classmethod
    def of(cls, embedding: Embedding, target: Target, shares: np.ndarray, half: int) -> "_Distance":
        """Labels weigh by their shares, as far as they stand out of the noise."""
        weights = 1 / np.maximum(shares, np.maximum(10 * target.noise, 1e-3))
        as_array = lambda part: jnp.asarray(part, jnp.float32)
        return cls(embedding, as_array(target.means), as_array(shares), as_array(weights), half)

    def __call__(self, generator: Generator, key: Array) -> Float[Array, ""]:
        first, second = jax.random.split(key)
        apart = [self.batch_means(generator, each) - self.means for each in (first, second)]
        return jnp.sum(self.weights[:, None] * apart[0] * apart[1])

    def batch_means(self, generator: Generator, key: Array) -> Float[Array, "class entry"]:
        """The mean embedding of a batch of rows, times the share of their label. Rare labels are drawn more often."""
        first, second = jax.random.split(key)
        classes = self.shares.size
        chances = (self.shares / jnp.sum(self.shares) + 1 / classes) / 2
        labels = jax.random.categorical(first, jnp.log(chances), shape=(self.half,))
        make = generator.expected if self.embedding.of_chances else partial(generator.relaxed, straight=True)
        rows = jax.vmap(make)(jax.random.split(second, self.half), labels)
        found = jax.vmap(self.embedding)(rows)
        picked = jax.nn.one_hot(labels, classes) * (self.shares / chances / self.half)
        return picked.T @ found


def _trainable(generator: Generator) -> Any:
    """Which arrays training may move: the layers, and neither labels nor marginals, which were bought."""
    nothing = jax.tree.map(lambda _: False, generator)
    return eqx.tree_at(lambda model: model.layers, nothing, jax.tree.map(lambda _: True, generator.layers))


def _train(params: Any, fixed: Any, loss: _Distance, training: Training, key: Array, progress: Progress) -> Any:
    """The mean of the parameters over the last iterates of gradient descent; the loop is compiled whole."""
    moments = training.optimiser.transformation(training.steps).init(params)
    carry, tick = (params, moments, params), max(1, training.steps // 20)
    for start in range(0, training.steps, tick):
        progress(_PURPOSE, start, training.steps)
        ends = jnp.asarray(start), jnp.asarray(min(start + tick, training.steps))
        carry = jax.block_until_ready(_stretch(carry, fixed, loss, training, key, *ends))
    progress(_PURPOSE, training.steps, training.steps)
    return carry[2]


@eqx.filter_jit
def _stretch(
    carry: Any, fixed: Any, loss: _Distance, training: Training, key: Array, start: Array, stop: Array
) -> tuple[Any, Any, Any]:
    """Some steps in a row. One program for all fits of the same shapes and settings."""
    optimiser = training.optimiser.transformation(training.steps)

    def step(number: Array, carry: Any) -> Any:
        params, moments, average = carry
        value = lambda params: loss(eqx.combine(params, fixed), jax.random.fold_in(key, number))
        change, moments = optimiser.update(jax.grad(value)(params), moments, params)
        params = optax.apply_updates(params, change)
        past = jnp.minimum(training.optimiser.averaging, (1 + number) / (10 + number))
        return params, moments, jax.tree.map(lambda mean, new: past * mean + (1 - past) * new, average, params)

    found: tuple[Any, Any, Any] = jax.lax.fori_loop(start, stop, step, carry)
    return found


def _even_places(draws: int, num_features: int) -> Float[Array, "point feature"]:
    """Evenly spread points of the unit cube: a Kronecker sequence of the generalised golden ratio (Roberts 2018)."""
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (num_features + 1))
    steps = ratio ** -np.arange(1.0, num_features + 1)
    return jnp.asarray((0.5 + np.arange(draws)[:, None] * steps) % 1.0, jnp.float32)
