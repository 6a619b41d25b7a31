"""Union: several generators of one shape as one model, which draws equally many rows from each."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.errors import ArgumentError
from sfumato.models.generators.generator import Generator


class GeneratorUnion(eqx.Module):
    """Generators of one shape, their arrays stacked along a leading axis. A row comes from any of them alike.

    Guarantees: no row lies outside the domain, whatever the parameters are.
    Reference: the union of chosen models as one release, Boob et al. 2018, section 4.
    """

    members: Generator

    @classmethod
    def of(cls, members: Sequence[Generator]) -> "GeneratorUnion":
        """The union of these generators, which must all have one shape."""
        whole(1, members=len(members))
        if len({jax.tree.structure(member) for member in members}) > 1:
            raise ArgumentError("Expected generators of one shape.")
        return cls(jax.tree.map(lambda *parts: jnp.stack(parts), *members))

    @property
    def num_members(self) -> int:
        """How many generators there are."""
        return int(self.members.layers[0].weight.shape[0])

    def member(self, place: Any) -> Generator:
        """One of the generators."""
        return jax.tree.map(lambda part: part[place], self.members)

    def sample(self, key: Array) -> Float[Array, " feature"]:
        """One row of real features, from a generator that is picked evenly."""
        which, inside = jax.random.split(key)
        return self.member(jax.random.randint(which, (), 0, self.num_members)).sample(inside)

    def draw_rows(self, key: Array, num_rows: int, at_once: int) -> Float[np.ndarray, "row feature"]:
        """So many rows, equally many from each generator up to one, in an order that does not tell from which."""
        first, second, third = jax.random.split(key, 3)
        turn = int(jax.random.randint(second, (), 0, self.num_members))  # who has one row more is drawn, too
        counts = np.bincount((np.arange(num_rows) + turn) % self.num_members, minlength=self.num_members)
        keys = jax.random.split(first, self.num_members)
        rows = [self.member(place).draw_rows(keys[place], int(counts[place]), at_once) for place in range(len(counts))]
        order = np.asarray(jax.random.permutation(third, num_rows))
        return np.concatenate(rows)[order]

    def points(self, drawn: Any, levels: tuple[int | None, ...]) -> Float[np.ndarray, "row feature"]:
        """Points of the unit cube of many rows that were drawn, in the middle of each level."""
        return self.members.blocks.points(drawn)

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild the model."""
        return {**self.members.describe(), "kind": "generator_union", "members": self.num_members}
