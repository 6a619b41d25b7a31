"""Together: many rows of codes at once, each drawn as the model says, with shares that hardly vary by chance.

Rows that are drawn one by one scatter: of 1,000 rows, a code of probability 0.1 has 100 give or take 9. Here the rows
that have the same codes in the columns that a column hangs on share out the unit interval among them: one uniform
number is drawn for all of them, and each row takes another of as many equal steps, in random order. So the count of a
code in such a group is its chance times the rows of the group, up to one or so.

Guarantees: each row by itself has the law of the model, as exactly as uniform numbers of 32 bits tell it. Given the
columns before, a row's step is even among the steps of its group and independent of everything else in the row, and an
even step plus an even offset is uniform. Rows are exchangeable and not independent. All of it is post-processing of a
released model.
Reference: systematic sampling; Madow and Madow 1944, "On the theory of systematic sampling".
"""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sfumato.models.codes.joint import CodeDistribution


@runtime_checkable
class Stepwise(CodeDistribution, Protocol):
    """A distribution over codes that is drawn column by column. Written for one row."""

    @property
    def order(self) -> tuple[int, ...]:
        """The columns in the order in which they are drawn."""
        ...

    def near(self, column: int) -> tuple[int, ...]:
        """Earlier columns that a column hangs on most: rows that agree in them are drawn evenly."""
        ...

    def begin(self) -> Any:
        """What is known of a row before its first column."""
        ...

    def chances(self, place: int, codes: Int[Array, " column"], known: Any) -> Float[Array, " code"]:
        """The probabilities of the codes of one place of the order."""
        ...

    def after(self, place: int, code: Int[Array, ""], known: Any) -> Any:
        """What is known of a row once the code of that place is drawn."""
        ...


def draw_row(joint: Stepwise, uniform: Float[Array, " column"]) -> Int[Array, " column"]:
    """One row of codes, from a uniform number for each place of the order."""
    codes, known = jnp.zeros(len(joint.sizes), jnp.int32), joint.begin()
    for place, column in enumerate(joint.order):
        code = pick(joint.chances(place, codes, known), uniform[place])
        codes, known = codes.at[column].set(code), joint.after(place, code, known)
    return codes


def draw_rows(joint: CodeDistribution, key: Array, num_rows: int, count: Int[Array, ""]) -> Int[Array, "row column"]:
    """So many rows of codes, of which the first ``count`` are evenly spread together."""
    if not isinstance(joint, Stepwise):
        return jax.vmap(joint.sample)(jax.random.split(key, num_rows))
    many = lambda leaf: jnp.broadcast_to(leaf, (num_rows, *leaf.shape))
    codes = jnp.zeros((num_rows, len(joint.sizes)), jnp.int32)
    known = jax.tree.map(many, joint.begin())
    for place, column in enumerate(joint.order):
        uniform = evenly(jax.random.fold_in(key, place), numbered(codes, joint.near(column), joint.sizes), count)
        chances = jax.vmap(lambda codes, known, place=place: joint.chances(place, codes, known))(codes, known)
        code = jax.vmap(pick)(chances, uniform)
        codes = codes.at[:, column].set(code)
        known = jax.vmap(lambda code, known, place=place: joint.after(place, code, known))(code, known)
    return codes


def numbered(codes: Int[Array, "row column"], columns: tuple[int, ...], sizes: tuple[int, ...]) -> Int[Array, " row"]:
    """One number for the codes of some columns, the same for rows that agree in them."""
    found = jnp.zeros(codes.shape[0], jnp.int32)
    for column in columns:
        found = found * sizes[column] + codes[:, column]
    return found


def evenly(key: Array, group: Int[Array, " row"], count: Int[Array, ""]) -> Float[Array, " row"]:
    """A uniform number for each row; those of a group's first ``count`` rows are equal steps apart.

    >>> found = evenly(jax.random.key(0), jnp.zeros(4, jnp.int32), jnp.asarray(4))
    >>> jnp.floor(4 * jnp.sort(found)).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    rows = jnp.arange(group.size, dtype=jnp.int32)
    first, second = jax.random.split(key)
    # Rows past the count keep to themselves, so that those before it are spread as if they were alone.
    group = jnp.where(rows < count, group, jnp.iinfo(jnp.int32).max)
    mixed = jax.random.bits(first, group.shape)
    by_group, _, order = jax.lax.sort((group, mixed, rows), num_keys=2)
    borders = by_group[1:] != by_group[:-1]
    start = jax.lax.cummax(jnp.where(jnp.concatenate([jnp.ones(1, bool), borders]), rows, 0))
    past = jnp.where(jnp.concatenate([borders, jnp.ones(1, bool)]), rows + 1, group.size)
    stop = jax.lax.cummin(past, reverse=True)
    offset = jax.random.uniform(second, group.shape, jnp.float32)[start]
    uniform = (rows - start + offset) / (stop - start)
    return jnp.zeros(group.shape, jnp.float32).at[order].set(jnp.minimum(uniform, 1 - 2.0**-24))


def pick(chances: Float[Array, " code"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """The code that a uniform number falls on, where codes take up space by their chances."""
    below = jnp.cumsum(chances)
    # Past the last chance that is not zero nothing may be picked, whatever was lost in rounding.
    return jnp.sum(uniform * below[-1] >= below[:-1], dtype=jnp.int32)
