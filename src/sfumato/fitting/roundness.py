"""Roundness: how often values of each column are multiples of 5, 10, 50 and so on, bought through the noisy sum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.encoding.layout import Feature, Layout
from sfumato.models.codes.codec import Codec
from sfumato.models.codes.roundness import GRAINS, MOST_LEVELS, MOST_VALUE, Roundness
from sfumato.privacy import CountQuery, Curator

_CLEAR = 3.0
"""By how many deviations of its noise the count of a grain must differ from what chance gives, to be believed."""

_LEAST = 1e-3
"""The least weight of a value, so that none is impossible."""


def may_be_round(feature: Feature, bins: int) -> bool:
    """Whether values may be rounder than chance and share bins, as far as the schema alone tells.

    Numbers whose bounds are learnt always may: how many values they have is an answer, and no charge may depend on it.
    """
    return feature.first is not None and (feature.learnt or (feature.size or 0) > bins)


@dataclass(frozen=True, kw_only=True)
class Grains:
    """Noisy counts of how round the values of some columns are, as they were bought, with their noise.

    ``held`` is what the bins of every column hold by the histograms. What weights explain the counts depends on it, and
    codes may be measured better later on.
    """

    plain: Roundness
    counts: Mapping[int, Float[np.ndarray, " grain"]]
    noise: float
    held: tuple[Float[np.ndarray, " bin"], ...]

    def weighed(self, codec: Codec, shares: Sequence[Float[np.ndarray, " code"]] | None = None) -> Codec:
        """The codec with the weights that explain the counts; ``shares`` of codes, where known, correct what bins hold.

        Post-processing of what was bought.
        """
        weights = np.ones((len(self.held), len(GRAINS)), np.float32)
        in_bins = _in_bins(codec, self.plain)
        for column, counted in self.counts.items():
            held = self.held[column]
            mine = in_bins[: len(held), column]
            if shares is not None:
                code_of = np.asarray(codec.code_of[column])[: len(held)].astype(int)
                held = _moved(held, code_of, shares[column])
            wide = mine.sum(1) > 1
            if wide.any():
                weights[column] = weights_of(counted, self.noise, held[wide], mine[wide])
        if np.all(weights == 1):
            return eqx.tree_at(lambda each: each.roundness, codec, None, is_leaf=lambda part: part is None)
        found = eqx.tree_at(lambda each: each.weights, self.plain, jnp.asarray(weights))
        return eqx.tree_at(lambda each: each.roundness, codec, found, is_leaf=lambda part: part is None)


def _moved(
    held: Float[np.ndarray, " bin"], code_of: Int[np.ndarray, " bin"], shares: Float[np.ndarray, " code"]
) -> Float[np.ndarray, " bin"]:
    """What bins hold when each code holds its share and the bins of a code share it out as before."""
    before = np.bincount(code_of, held, minlength=len(shares))
    return np.asarray(held * (shares / np.maximum(before, 1e-300))[code_of])


def buy_roundness(
    curator: Curator, layout: Layout, codec: Codec, held: Sequence[np.ndarray], asked: Sequence[bool], share: float
) -> Grains:
    """How round the values inside the bins of a codec are.

    ``held`` is what the bins of each column hold, and ``asked`` whether to ask for a column.

    Cost: one Gaussian sum of counts, ``share`` of the budget. Sensitivity: a row counts once in the table of each
    column that is asked for, so the square root of their number.
    """
    columns = [column for column, wanted in enumerate(asked) if wanted]
    plain = _without_weights(layout, codec, asked)
    count = _Counter(codec, plain, tuple(columns))
    query = CountQuery(function=count, sizes=(len(GRAINS) + 1,) * len(columns), purpose="how round numbers are")
    answer = curator.noisy_sum(query, share=share).reshape(len(columns), -1)
    counts = {column: row[:-1] for row, column in zip(answer, columns, strict=True)}
    return Grains(plain=plain, counts=counts, noise=curator.noise_of(query.clip.bound, share), held=tuple(held))


def weights_of(counts: np.ndarray, noise: float, shares: np.ndarray, in_bins: np.ndarray) -> np.ndarray:
    """The weight of a value of each grain that explains noisy counts, where ``in_bins`` counts the values of a bin by
    grain and ``shares`` is what bins hold; all ones where the noise leaves it open, or no bin that
    holds anything can have them.

    The law is: a bin's value has a chance in proportion to its weight. Weights are moved until the law gives the
    counts of the grains, as in iterative proportional fitting (Deming and Stephan 1940).

    >>> in_bins = np.array([[80, 10, 10]])
    >>> weights_of(np.array([0.0, 0.0, 1_000.0]), 1.0, np.ones(1), in_bins).round(1).tolist()
    [0.0, 0.0, 10.0]
    >>> weights_of(np.array([801.0, 99.0, 100.0]), 5.0, np.ones(1), in_bins).tolist()
    [1.0, 1.0, 1.0]
    >>> weights_of(np.array([0.0, 0.0, 1_000.0]), 1.0, np.zeros(1), in_bins).tolist()
    [1.0, 1.0, 1.0]
    """
    even = np.ones(in_bins.shape[1])
    total, shares = max(float(np.sum(counts)), 1.0), shares / max(float(np.sum(shares)), 1e-300)
    law = lambda weights: shares @ (in_bins * weights / np.maximum((in_bins * weights).sum(1, keepdims=True), 1e-300))
    chance = law(even)
    clear = np.abs(counts - total * chance) > _CLEAR * noise
    # Noise may count more than the bins that can have it hold. The others' weights would shrink to nothing.
    reach = shares @ (in_bins > 0)
    wanted = np.clip(np.where(clear, counts / total, chance), 0.0, reach)
    if not clear.any() or not wanted.any() or total < _CLEAR * noise * np.sqrt(len(counts)):
        return even
    wanted /= wanted.sum()
    weights = even
    for _ in range(50):
        found = law(weights)
        moved = weights * np.where(found > 0, wanted / np.maximum(found, 1e-300), 1.0)
        mean = float(shares @ ((in_bins * moved).sum(1) / np.maximum(in_bins.sum(1), 1)))
        weights = np.maximum(moved / mean, _LEAST)
    return np.asarray(weights)


class _Counter(eqx.Module):
    """The grain of a row's value in each column that is asked for; past the last one where its bin holds one value."""

    codec: Codec
    plain: Roundness
    columns: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, row: dict[str, Array]) -> Int[Array, " table"]:
        low, width = row["low"], row["width"]
        values = jnp.sum(self.plain.counts(self.codec.ends(self.codec.bins_of(low, width)[:, None])), axis=1)
        told = (values > 1) & ~self.codec.missing(low)
        grains = self.plain.grains(self.codec.of_values(low))
        return jnp.where(told, grains, len(GRAINS))[jnp.asarray(self.columns)]


def _without_weights(layout: Layout, codec: Codec, asked: Sequence[bool]) -> Roundness:
    features = [None if place is None else layout.features[place] for place in codec.values]
    firsts, levels = [], []
    for feature, wanted in zip(features, asked, strict=True):
        first, size = (0, 0) if feature is None or not wanted else (feature.first or 0, feature.size or 0)
        fits = size <= MOST_LEVELS and abs(first) <= MOST_VALUE
        firsts.append(first if fits else 0)
        levels.append(size if fits else 0)
    return Roundness(jnp.ones((len(features), len(GRAINS)), jnp.float32), tuple(firsts), tuple(levels))


def _in_bins(codec: Codec, plain: Roundness) -> Int[np.ndarray, "bin column grain"]:
    """How many values of each grain the bins have, all columns side by side."""
    bins = jnp.arange(codec.inner.shape[1])
    places = jnp.broadcast_to(bins[:, None, None], (len(bins), len(codec.sizes), 1))
    return np.asarray(_values_in(codec, plain, places))


@eqx.filter_jit
def _values_in(codec: Codec, plain: Roundness, places: Array) -> Int[Array, "bin column grain"]:
    return jax.vmap(lambda place: plain.counts(codec.ends(place)))(places)
