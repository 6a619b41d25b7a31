"""Fine clipping: by layer, by unit, and of randomly sparsified gradients, as DP-HFlow proposes.

Each shapes a row's vector first and hands it to flat clipping at the whole bound, so that the sensitivity rests on
``FlatClip`` alone: a defect here could waste signal and never privacy. The shape is a function of the row and of its
own key, never of the batch, so a row still moves the sum by one bounded vector. By itself each shape keeps below the
bound already, since the squares of the bounds of all layers add up to its square.

Reference: Lee, Kim, Jeong, Ro 2022, "Fine-grained Gradient Clipping"; McMahan et al. 2018 (clipping by layers).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sfumato.checks import between
from sfumato.privacy.clipping import FlatClip, Part

Vectors = list[Float[Array, "row ..."]]


@dataclass(frozen=True, kw_only=True)
class LayerClip(FlatClip):
    """Clips every layer to a bound of its own: C * sqrt(entries of the layer / entries of all).

    Guarantees: as ``FlatClip``. The squares of the layers' bounds add up to that of the whole. Splitting between
    networks first and between their layers then, both in proportion to parameters, gives the same bounds.
    """

    def bounds(self, parts: Sequence[Part]) -> dict[str, float]:
        total = sum(part.entries for part in parts)
        sizes: dict[str, int] = {}
        for part in parts:
            sizes[part.layer] = sizes.get(part.layer, 0) + part.entries
        return {layer: self.bound * sqrt(size / total) for layer, size in sizes.items()}

    def group(self, part: Part) -> str:
        return part.layer

    def shaped(self, vectors: Vectors, parts: Sequence[Part], keys: Array) -> Vectors:
        found = list(vectors)
        for layer, bound in self.bounds(parts).items():
            places = [place for place, part in enumerate(parts) if part.layer == layer]
            norm = jnp.sqrt(sum(jnp.sum(jnp.square(_flat(found[place])), axis=1) for place in places))
            factor = jnp.minimum(1.0, bound / jnp.where(norm == 0, 1.0, norm))
            for place in places:
                found[place] = found[place] * _along(factor, found[place])
        return found


@dataclass(frozen=True, kw_only=True)
class UnitClip(LayerClip):
    """Clips every unit of a layer to a bound that grows with its own gradient: C_i = C * sqrt(|G_i|_1 / sum |G_j|_1).

    Guarantees: as ``FlatClip``. The bounds of units depend on the row, but only on this row, and their
    squares add up to that of the layer. Needs the gradient of each row, for a micro-batch at a time: the absolute
    values of a sum over blocks are not to be had from its factors.
    """

    by_factors: ClassVar[bool] = False

    def shaped(self, vectors: Vectors, parts: Sequence[Part], keys: Array) -> Vectors:
        found = list(vectors)
        for layer, bound in self.bounds(parts).items():
            places = [place for place, part in enumerate(parts) if part.layer == layer]
            sizes = {place: _over_units(jnp.abs(found[place]), parts[place].fan) for place in places}
            whole = sum(jnp.sum(_flat(size), axis=1) for size in sizes.values())
            for place in places:
                vector, fan = found[place], parts[place].fan
                share = sizes[place] / _along(jnp.where(whole == 0, 1.0, whole), sizes[place])
                norm = jnp.sqrt(_over_units(jnp.square(vector), fan))
                factor = jnp.minimum(1.0, bound * jnp.sqrt(share) / jnp.where(norm == 0, 1.0, norm))
                found[place] = vector * factor.reshape(factor.shape + (1,) * fan)
        return found


@dataclass(frozen=True, kw_only=True)
class SparseClip(LayerClip):
    """Clips layers after small entries were randomly set to zero: a share ``sparsity`` of each is at stake.

    With tau the k-th largest size of an entry, k = (1 - sparsity) * entries, and one uniform gamma for each row and
    layer: entries above tau stay, those from gamma * tau up become tau with their sign, the rest become zero. The
    mean over gamma is the gradient itself.

    Guarantees: as ``FlatClip``. gamma is drawn from the row's own key and depends on nothing else, and the result is
    clipped for every gamma.
    Reference: Ye et al. 2020 (the operator).
    """

    by_factors: ClassVar[bool] = False
    sparsity: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        between(0, 1, sparsity=self.sparsity)

    def shaped(self, vectors: Vectors, parts: Sequence[Part], keys: Array) -> Vectors:
        sparse, layers = list(vectors), list(self.bounds(parts))
        bits = jax.vmap(lambda key: jax.random.bits(key, (len(layers),), jnp.uint32))(keys)
        gammas = bits.astype(jnp.float32) * 2.0**-32
        for number, layer in enumerate(layers):
            places = [place for place, part in enumerate(parts) if part.layer == layer]
            tau = self._threshold([vectors[place] for place in places], sum(parts[place].entries for place in places))
            for place in places:
                sparse[place] = sparsified(vectors[place], tau, gammas[:, number])
        return super().shaped(sparse, parts, keys)

    def _threshold(self, vectors: Vectors, entries: int) -> Float[Array, " row"]:
        kept = max(1, round(entries * (1 - self.sparsity)))
        sizes = jnp.sort(jnp.concatenate([jnp.abs(_flat(vector)) for vector in vectors], axis=1), axis=1)
        return sizes[:, -kept]


def sparsified(
    vector: Float[Array, "row ..."], tau: Float[Array, " row"], gamma: Float[Array, " row"]
) -> Float[Array, "row ..."]:
    """The operator of ``SparseClip``. What is not a number stays as it is, for the clipping to find.

    >>> import jax.numpy as jnp
    >>> sparsified(jnp.array([[3.0, -1.5, 0.5]]), jnp.array([2.0]), jnp.array([0.5])).tolist()
    [[3.0, -2.0, 0.0]]
    """
    tau, least = _along(tau, vector), _along(tau * gamma, vector)
    size = jnp.abs(vector)
    small = jnp.where(size >= least, jnp.sign(vector) * tau, 0.0)
    return jnp.where((size > tau) | ~jnp.isfinite(vector), vector, small)


def _flat(vector: Array) -> Array:
    return vector.reshape(vector.shape[0], -1)


def _along(values: Float[Array, " row"], vector: Array) -> Array:
    """Numbers of rows in a shape that multiplies all that belongs to a row."""
    return values.reshape((-1,) + (1,) * (vector.ndim - 1))


def _over_units(values: Array, fan: int) -> Array:
    return jnp.sum(values, axis=-1) if fan else values
