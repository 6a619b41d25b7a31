"""Union: several models of one shape as one model, each of which makes equally many rows.

It is the mixture of its members with equal weights. So its density is the mean of theirs: exact where theirs are.
Reference: the union of chosen models as one release, Boob et al. 2018, section 4.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.errors import ArgumentError, ReleaseError
from sfumato.models.model import CellModel, DensityModel, LevelModel

MOST_MEMBERS = 100


class ModelUnion(eqx.Module):
    """Models of one shape, their arrays stacked along a leading axis. A row comes from any of them alike.

    Guarantees: no row lies outside the domain where no member's does.
    """

    members: Any

    @property
    def num_members(self) -> int:
        """How many models there are."""
        return int(jax.tree.leaves(eqx.filter(self.members, eqx.is_array))[0].shape[0])

    def member(self, place: int) -> Any:
        """One of the models."""
        arrays, rest = eqx.partition(self.members, eqx.is_array)
        return eqx.combine(jax.tree.map(lambda part: part[place], arrays), rest)

    def _of_each(self, function: Callable[[Any], Any]) -> Any:
        """What a function of a model gives for each, stacked.

        One after the other: products of all members at once never ended now and then on a CPU (XLA of JAX 0.10).
        """
        arrays, rest = eqx.partition(self.members, eqx.is_array)
        return jax.lax.map(lambda one: function(eqx.combine(one, rest)), arrays)

    def sample(self, key: Array) -> Float[Array, " feature"]:
        """One row of real features, from a model that is picked evenly."""
        which, inside = jax.random.split(key)
        # All make a row and one is kept: to pick a model for each of many rows would copy its arrays for each.
        rows = self._of_each(lambda model: model.sample(inside))
        return rows[jax.random.randint(which, (), 0, self.num_members)]

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild the model."""
        inner = self.member(0).describe()
        return {**inner, "kind": "union", "of": inner["kind"], "members": self.num_members}


class LevelUnion(ModelUnion):
    """A union of models that draw levels as such."""

    def draw_rows(self, key: Array, num_rows: int, at_once: int) -> tuple[np.ndarray, list[Any]]:
        """Of which model each row is, and what each draws: equally many up to one, in an order that tells nothing."""
        first, second, third = jax.random.split(key, 3)
        turn = int(jax.random.randint(second, (), 0, self.num_members))  # who has one row more is drawn, too
        which = np.asarray(jax.random.permutation(third, (np.arange(num_rows) + turn) % self.num_members))
        counts, keys = np.bincount(which, minlength=self.num_members), jax.random.split(first, self.num_members)
        drawn = [
            self.member(place).draw_rows(keys[place], int(count), at_once) if count else None
            for place, count in enumerate(counts)
        ]
        return which, drawn

    def points(self, drawn: Any, levels: tuple[int | None, ...]) -> Float[np.ndarray, "row feature"]:
        """Points of the unit cube of many rows that were drawn, each as its model places them."""
        which, parts = drawn
        found = np.empty((len(which), len(levels)))
        for place, part in enumerate(parts):
            if part is not None:
                found[which == place] = self.member(place).points(part, levels)
        return found


class DensityUnion(ModelUnion):
    """A union of densities: the mixture of them with equal weights."""

    def log_prob(self, features: Float[Array, " feature"]) -> Float[Array, ""]:
        """The log density of one row: the log of the mean of the members' densities."""
        return logsumexp(self._of_each(lambda model: model.log_prob(features))) - np.log(self.num_members)


class CellUnion(DensityUnion):
    """A union of densities that find the masses of cells in their own way."""

    @property
    def exact(self) -> bool:
        """Whether the members need no points for it."""
        return bool(self.members.exact)

    def log_mean_density(
        self, low: Float[Array, " feature"], width: Float[Array, " feature"], points: Float[Array, "draw feature"]
    ) -> Float[Array, ""]:
        """The log of the mean density on the unit cube over a row's cells: means of means are means."""
        found = self._of_each(lambda model: model.log_mean_density(low, width, points))
        return logsumexp(found) - np.log(self.num_members)


class CodedUnion(CellUnion, LevelUnion):
    """A union of densities over codes: masses of cells, and levels as such."""


def union_of(members: Sequence[Any]) -> ModelUnion:
    """The union of these models, which must all have one shape; it can do what each of them can."""
    whole(1, members=len(members))
    if len({jax.tree.structure(eqx.filter(member, eqx.is_array)) for member in members}) > 1:
        raise ArgumentError("Expected models of one shape.")
    arrays = [eqx.filter(member, eqx.is_array) for member in members]
    if len({tuple(leaf.shape for leaf in jax.tree.leaves(each)) for each in arrays}) > 1:
        raise ArgumentError("Expected models of one shape.")
    rest = eqx.filter(members[0], eqx.is_array, inverse=True)
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *arrays)
    return _kind_of(members[0])(eqx.combine(stacked, rest))


def union_skeleton(
    fields: Mapping[str, Any],
    tensor_sizes: Sequence[int],
    skeleton: Callable[[Mapping[str, Any], Sequence[int]], Any],
) -> ModelUnion:
    """The union with shapes in place of arrays, by the ``skeleton`` of a member; the file must bear it out."""
    members, kind = fields.get("members"), fields.get("of")
    if type(members) is not int or not 1 <= members <= MOST_MEMBERS or kind == "union":
        raise ReleaseError(f"The model description is damaged: a union must have 1 to {MOST_MEMBERS} members.")
    if any(size % members for size in tensor_sizes):
        raise ReleaseError("The model description claims other numbers than the file holds.")
    inner = {name: value for name, value in fields.items() if name not in ("of", "members")}
    one = skeleton({**inner, "kind": kind}, [size // members for size in tensor_sizes])
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)
    stack = lambda leaf: jax.ShapeDtypeStruct((members, *leaf.shape), leaf.dtype) if is_shape(leaf) else leaf
    return _kind_of(one)(jax.tree.map(stack, one))


def _kind_of(member: Any) -> type[ModelUnion]:
    if isinstance(member, CellModel):
        return CodedUnion if isinstance(member, LevelModel) else CellUnion
    if isinstance(member, LevelModel):
        return LevelUnion
    return DensityUnion if isinstance(member, DensityModel) else ModelUnion
