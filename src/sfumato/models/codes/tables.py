"""Tables: each column's codes given those of its parents. Every graphical model is released in this form.

A decomposable model, written along a perfect elimination order, is a product of conditional probabilities in which the
parents of a column are its earlier neighbours. So independent columns, trees and junction trees are all the same thing
here, and drawing rows and scoring them is looking up tables.

Reference: Lauritzen 1996, "Graphical Models", section 4.4; Koller and Friedman 2009, section 4.5.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.errors import ArgumentError
from sfumato.models.codes.together import draw_row, numbered

_LEAST = 1e-12


class ConditionalTables(eqx.Module):
    """The probability of each column's codes given the codes of its parents.

    ``order`` says in which order columns are drawn, ``parents`` by column which columns, all earlier in the order, its
    table is indexed by. A table has a row for each combination of the parents' codes, the last parent's changing
    fastest, and a column for each code; rows add up to one.

    >>> coin = ConditionalTables.independent([np.array([0.25, 0.75]), np.array([1.0])])
    >>> round(float(jnp.exp(coin.log_prob(jnp.array([1, 0])))), 3)
    0.75
    """

    tables: tuple[Float[Array, "_ _"], ...]
    order: tuple[int, ...] = eqx.field(static=True)
    parents: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __check_init__(self) -> None:
        seen: set[int] = set()
        if sorted(self.order) != list(range(len(self.tables))) or len(self.parents) != len(self.tables):
            raise ArgumentError("Expected an order of all columns, and parents for each.")
        for column in self.order:
            if not seen.issuperset(self.parents[column]):
                raise ArgumentError("Expected the parents of a column to come before it in the order.")
            seen.add(column)

    @classmethod
    def independent(cls, shares: list[np.ndarray]) -> "ConditionalTables":
        """Columns that know nothing of each other."""
        tables = tuple(jnp.asarray(share[None, :], jnp.float32) for share in shares)
        return cls(tables, tuple(range(len(tables))), ((),) * len(tables))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each column."""
        return tuple(table.shape[1] for table in self.tables)

    def log_conditional(self, column: int, codes: Int[Array, " column"]) -> Float[Array, " code"]:
        """The log probabilities of one column's codes, given those of its parents in a row."""
        place = jnp.zeros((), jnp.int32)
        for parent in self.parents[column]:
            place = place * self.sizes[parent] + codes[parent]
        return jnp.log(jnp.maximum(self.tables[column][place], _LEAST))

    def log_prob(self, codes: Int[Array, " column"]) -> Float[Array, ""]:
        """The log probability of a row of codes."""
        logs = [self.log_conditional(column, codes)[codes[column]] for column in self.order]
        return jnp.sum(jnp.stack(logs))

    def sample(self, key: Array) -> Int[Array, " column"]:
        """One row of codes."""
        return draw_row(self, jax.random.uniform(key, (len(self.tables),)))

    def near(self, column: int) -> tuple[int, ...]:
        """The columns that a column's table is indexed by."""
        return self.parents[column]

    def begin(self) -> tuple[()]:
        """Nothing is carried along: codes are all that a table needs."""
        return ()

    def chances(self, place: int, codes: Int[Array, " column"], known: tuple[()]) -> Float[Array, " code"]:
        """The probabilities of the codes of one place of the order."""
        return jnp.exp(self.log_conditional(self.order[place], codes))

    def draw_column(
        self, column: int, codes: Int[np.ndarray, "row column"], uniform: Float[np.ndarray, " row"]
    ) -> Int[np.ndarray, " row"]:
        """The codes of one column in many rows, from a uniform number each: those that ``chances`` say, in NumPy."""
        rows = numbered(codes, self.parents[column], self.sizes)
        below = np.cumsum(np.maximum(np.asarray(self.tables[column])[rows], _LEAST), axis=1, dtype=np.float64)
        return np.sum((uniform * below[:, -1])[:, None] >= below[:, :-1], axis=1)

    def after(self, place: int, code: Int[Array, ""], known: tuple[()]) -> tuple[()]:
        """Nothing is carried along."""
        return known

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the tables, to rebuild the model."""
        return {
            "kind": "conditional_tables",
            "sizes": list(self.sizes),
            "order": list(self.order),
            "parents": [list(parents) for parents in self.parents],
        }
