"""Fourier embeddings: a row as cosines and sines of random waves over its columns, of norm at most one.

The mean embedding of a table determines its distribution as finely as there are waves, and is a bounded sum. A number
is an angle; a level has a random angle of its own. What a generator makes has chances in the place of levels, and its
embedding is the mean over levels that are thrown by them, so that nothing need be drawn to compare both.

Reference: Rahimi and Recht 2007 (random Fourier features); Harder, Adamczewski, Park 2021 (mean embeddings, DP-MERF).
"""

from itertools import combinations
from math import comb
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.models.generators.blocks import RowBlocks
from sfumato.models.starts import normal

_LEVEL_WIDTH = 0.5
"""The kernel width of levels, which lie sqrt(2) apart: two levels are then nearly as unlike as can be."""

_MOST_SUBSETS = 2_000_000

FEWEST, MOST = 2_000, 8_000
"""Numbers of an embedding for which no size is set: at least, and at most."""


class WaveEmbedding(eqx.Module):
    """Waves over few columns at a time: all sets of one column, of two, and so on, with as many waves each.

    It is the random Fourier map of a sum of Gaussian kernels, one for each set of columns.
    Guarantees: norm at most one, whatever the row. Proof: the part of a column in a wave is e^{i angle}, or a mean of
    such numbers with weights that add up to one, so it is at most 1 in absolute value; a wave is a product of such
    parts; with N waves each is divided by sqrt(N), and the squares of its cosine and its sine add up to at most 1 / N.
    """

    of_chances: ClassVar[bool] = True

    angles: tuple[Float[Array, "value wave"], ...]
    subsets: Int[Array, "subset order"]
    blocks: RowBlocks = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)

    @property
    def size(self) -> int:
        """The numbers of an embedding."""
        return 2 * self.subsets.shape[0] * self.angles[0].shape[1]

    def __call__(self, numbers: Float[Array, " number"]) -> Float[Array, " entry"]:
        """The embedding of one row of blocks."""
        real, imaginary = jax.tree.map(lambda *parts: jnp.stack(parts), *self._parts(numbers))
        waves = real[self.subsets[:, 0]], imaginary[self.subsets[:, 0]]
        for place in range(1, self.subsets.shape[1]):
            other = real[self.subsets[:, place]], imaginary[self.subsets[:, place]]
            waves = waves[0] * other[0] - waves[1] * other[1], waves[0] * other[1] + waves[1] * other[0]
        return jnp.stack(waves).reshape(-1) / np.sqrt(self.size / 2)

    def _parts(self, numbers: Float[Array, " number"]) -> list[tuple[Array, Array]]:
        """The real and imaginary part of each column in each of its waves; after the last column ones, for none."""
        found = []
        for place, angles in zip(self.columns, self.angles, strict=True):
            if self.blocks.blocks[place].kind == "point":
                turned = numbers[self.blocks.starts[place]] * angles[0]
                found.append((jnp.cos(turned), jnp.sin(turned)))
            else:
                shares = self.blocks.value_shares(numbers, place)
                found.append((shares @ jnp.cos(angles), shares @ jnp.sin(angles)))
        return [*found, (jnp.ones_like(found[0][0]), jnp.zeros_like(found[0][0]))]


class MixedEmbedding(eqx.Module):
    """Waves over all numbers together, and every level by itself: the embedding that DP-MERF was published with.

    Guarantees: norm at most one, whatever the row. Proof: N waves divided by sqrt(N) have norm one; the shares of a
    column add up to one, so their squares add up to at most one, and each of the K columns is divided by sqrt(K). Where
    there are both, either part is divided by sqrt(2).
    """

    of_chances: ClassVar[bool] = True

    frequencies: Float[Array, "wave point"]
    blocks: RowBlocks = eqx.field(static=True)
    points: tuple[int, ...] = eqx.field(static=True)
    levels: tuple[int, ...] = eqx.field(static=True)

    @property
    def size(self) -> int:
        """The numbers of an embedding."""
        of_levels = sum(int(self.blocks.blocks[place].size or 0) for place in self.levels)
        return of_levels + (2 * self.frequencies.shape[0] if self.points else 0)

    def __call__(self, numbers: Float[Array, " number"]) -> Float[Array, " entry"]:
        """The embedding of one row of blocks."""
        parts = []
        if self.points:
            at = self.frequencies @ numbers[np.array([self.blocks.starts[place] for place in self.points])]
            parts.append(jnp.concatenate([jnp.cos(at), jnp.sin(at)]) / np.sqrt(at.size))
        if self.levels:
            shares = [self.blocks.value_shares(numbers, place) for place in self.levels]
            parts.append(jnp.concatenate(shares) / np.sqrt(len(shares)))
        return jnp.concatenate(parts) / np.sqrt(len(parts))


def wave_embedding(
    blocks: RowBlocks, columns: tuple[int, ...], *, features: int | None, width: float, order: int, key: Array
) -> WaveEmbedding:
    """Waves over sets of up to ``order`` of the columns, about ``features`` numbers in all; public and random.

    None is four waves a set, within bounds. ``width`` is the kernel width of points in [0, 1]. Where there are more
    sets than waves, some are drawn.
    """
    first, second = jax.random.split(key)
    sets = sum(comb(len(columns), size) for size in range(1, order + 1))
    features = min(max(8 * sets, FEWEST), MOST) if features is None else features
    subsets = _subsets(len(columns), min(order, len(columns)), max(1, features // 2), first)
    waves = max(1, features // (2 * len(subsets)))
    angles = []
    for place, each in zip(columns, jax.random.split(second, len(columns)), strict=True):
        block = blocks.blocks[place]
        scale, values = (width, 1) if block.kind == "point" else (_LEVEL_WIDTH, int(block.size or 2))
        angles.append(normal(each, values, waves) / scale)
    return WaveEmbedding(tuple(angles), jnp.asarray(subsets), blocks, columns)


def mixed_embedding(
    blocks: RowBlocks, columns: tuple[int, ...], *, features: int | None, width: float, key: Array
) -> MixedEmbedding:
    """The published embedding with about ``features`` numbers for the points together; public and random."""
    features = FEWEST if features is None else features
    points = tuple(place for place in columns if blocks.blocks[place].kind == "point")
    levels = tuple(place for place in columns if place not in points)
    shape = (max(1, features // 2), len(points))
    return MixedEmbedding(normal(key, *shape) / width, blocks, points, levels)


def _subsets(num: int, order: int, most: int, key: Array) -> np.ndarray:
    """Sets of up to ``order`` of so many columns, smaller ones first; of those that are too many some, drawn evenly.

    A set of fewer columns is filled up with the number past the last one.
    """
    found: list[tuple[int, ...]] = []
    for size, each in enumerate(jax.random.split(key, order), 1):
        room = most - len(found)
        if room <= 0:
            break
        if comb(num, size) <= _MOST_SUBSETS:
            some: list[tuple[int, ...]] = list(combinations(range(num), size))
            if len(some) > room:
                kept = np.asarray(jax.random.permutation(each, len(some))[:room])
                some = [some[place] for place in np.sort(kept)]
        else:
            draws = np.argsort(np.asarray(jax.random.uniform(each, (room, num))), axis=1)[:, :size]
            some = sorted({tuple(sorted(row)) for row in draws.tolist()})
        found += [(*one, *[num] * (order - size)) for one in some]
    return np.array(found, np.int32)
