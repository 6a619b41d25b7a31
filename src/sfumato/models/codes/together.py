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

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
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


@runtime_checkable
class Columnwise(Stepwise, Protocol):
    """One whose columns can be drawn in NumPy, in many rows at once: then nothing need be compiled."""

    def draw_column(
        self, column: int, codes: Int[np.ndarray, "row column"], uniform: Float[np.ndarray, " row"]
    ) -> Int[np.ndarray, " row"]:
        """The codes of a column, given those of the columns before it and a uniform number for each row."""
        ...


def draw_row(joint: Stepwise, uniform: Float[Array, " column"]) -> Int[Array, " column"]:
    """One row of codes, from a uniform number for each place of the order."""
    codes, known = jnp.zeros(len(joint.sizes), jnp.int32), joint.begin()
    for place, column in enumerate(joint.order):
        code = pick(joint.chances(place, codes, known), uniform[place])
        codes, known = codes.at[column].set(code), joint.after(place, code, known)
    return codes


def draw_rows(joint: CodeDistribution, key: Array, num_rows: int, at_once: int) -> Int[np.ndarray, "row column"]:
    """So many rows of codes, evenly spread together; programs are compiled for ``at_once`` rows, which is no fewer.

    What rows agree in is sorted in NumPy: a sort takes long to compile, and there is one for each column.
    """
    if not isinstance(joint, Stepwise):
        return np.asarray(_one_by_one(joint, key, at_once))[:num_rows]
    random, found = generator(key), np.zeros((num_rows, len(joint.sizes)), np.int32)
    together = lambda column: evenly(random, numbered(found, joint.near(column), joint.sizes))
    if isinstance(joint, Columnwise):
        for column in joint.order:
            found[:, column] = joint.draw_column(column, found, together(column))
        return found
    codes, known = jnp.zeros((at_once, len(joint.sizes)), jnp.int32), _begin(joint, at_once)
    for place, column in enumerate(joint.order):
        uniform = together(column)
        padded = jnp.asarray(np.pad(uniform, (0, at_once - num_rows)), jnp.float32)
        codes, known = _draw_place(joint, place, codes, known, padded)
        found[:, column] = np.asarray(codes[:num_rows, column])
    return found


@eqx.filter_jit
def _one_by_one(joint: CodeDistribution, key: Array, num_rows: int) -> Int[Array, "row column"]:
    return jax.vmap(joint.sample)(jax.random.split(key, num_rows))


def _begin(joint: Stepwise, num_rows: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_rows, *leaf.shape)), joint.begin())


@eqx.filter_jit
def _draw_place(
    joint: Stepwise, place: int, codes: Int[Array, "row column"], known: Any, uniform: Float[Array, " row"]
) -> tuple[Int[Array, "row column"], Any]:
    """The codes of one place in all rows, from a uniform number each."""

    def row(codes: Array, known: Any, uniform: Array) -> tuple[Array, Any]:
        code = pick(joint.chances(place, codes, known), uniform)
        return codes.at[joint.order[place]].set(code), joint.after(place, code, known)

    return jax.vmap(row)(codes, known, uniform)


def generator(key: Array) -> np.random.Generator:
    """A generator of NumPy from a key; what is drawn from a release is no secret."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())


def numbered(
    codes: Int[np.ndarray, "row column"], columns: tuple[int, ...], sizes: tuple[int, ...]
) -> Int[np.ndarray, " row"]:
    """One number for the codes of some columns, the same for rows that agree in them."""
    found = np.zeros(len(codes), np.int64)
    for column in columns:
        found = found * sizes[column] + codes[:, column]
    return found


def evenly(random: np.random.Generator, group: Int[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """A uniform number for each row; those of the rows of a group are equal steps apart.

    >>> found = evenly(np.random.default_rng(0), np.zeros(4, int))
    >>> np.floor(4 * np.sort(found)).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    rows, mixed = np.arange(len(group)), random.permutation(len(group))
    order = mixed[np.argsort(group[mixed], kind="stable")]
    by_group = group[order]
    starts = np.flatnonzero(np.concatenate([[True], by_group[1:] != by_group[:-1]])) if len(group) else rows
    counts = np.diff(np.append(starts, len(group)))
    uniform = np.empty(len(group))
    uniform[order] = (rows - np.repeat(starts, counts) + np.repeat(random.random(len(counts)), counts)) / np.repeat(
        counts, counts
    )
    return np.minimum(uniform, 1 - 2.0**-24)  # 32 bits must not round it up to one


def pick(chances: Float[Array, " code"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """The code that a uniform number falls on, where codes take up space by their chances."""
    below = jnp.cumsum(chances)
    # Past the last chance that is not zero nothing may be picked, whatever was lost in rounding.
    return jnp.sum(uniform * below[-1] >= below[:-1], dtype=jnp.int32)
