"""Step: one private gradient, from the draw of the batch to the noisy mean, as a function that compiles.

Micro-batches of padded rows are repeated as often as the draw needs, so a Poisson batch is never truncated.
Per-row gradients come from ``vmap`` of the gradient of one row, so that no layer can mix rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int32, Int64, PyTree

from sfumato.errors import ArgumentError
from sfumato.privacy.chacha import keystream
from sfumato.privacy.clipping import GRID, MOST_ROWS_AT_ONCE, FlatClip, Part
from sfumato.privacy.factored import (
    MOST_DRAWN,
    FineSum,
    chunk_rows,
    draws_of,
    factored_sum,
    factors_of,
    most_drawn,
    shaped_sum,
)
from sfumato.privacy.factors import FactoredLoss
from sfumato.privacy.noise import gaussian_integers
from sfumato.privacy.plan import SgdPlan
from sfumato.privacy.programs import Programs
from sfumato.privacy.randomness import Stream, nonce
from sfumato.privacy.sampling import PoissonSampling

Call: TypeAlias = int | Array
"""The number of a call of a door, which is part of every nonce."""


class PrivateRows(eqx.Module):
    """Private rows padded to whole micro-batches, with a mask of which are real."""

    columns: PyTree[Array]
    real: Bool[Array, " row"]
    micro: int = eqx.field(static=True)

    @classmethod
    def of(cls, rows: PyTree[np.ndarray]) -> "PrivateRows":
        """Rows from a tree of arrays that share their first axis; an empty table is one padded batch."""
        num_real = jax.tree.leaves(rows)[0].shape[0]
        micro = micro_batch()
        num_padded = max(1, -(-num_real // micro)) * micro

        def pad(column: np.ndarray) -> Array:
            padding = [(0, num_padded - num_real)] + [(0, 0)] * (column.ndim - 1)
            return jnp.asarray(np.pad(column, padding))

        return cls(jax.tree.map(pad, rows), jnp.arange(num_padded) < num_real, micro)

    def mapped(self, function: Callable[[Any], Any]) -> "PrivateRows":
        """The rows after a function of one row, padding included: what is padding stays so."""
        return PrivateRows(jax.jit(jax.vmap(function))(self.columns), self.real, self.micro)

    def __repr__(self) -> str:
        return "PrivateRows()"


def micro_batch() -> int:
    """Rows whose gradients are held at once: few on a CPU, where they must fit its cache; more on a GPU."""
    return 128 if jax.default_backend() == "cpu" else MOST_ROWS_AT_ONCE


def grid_total(
    rows: PrivateRows,
    function: Callable[[Any], Array],
    clip: FlatClip | None,
    num_entries: int,
    programs: Programs | None = None,
) -> Int64[Array, " entry"]:
    """The exact grid sum over all rows of a clipped vector, or without ``clip`` of scores cut to [-1, 1].

    The rows are an argument of the compiled function and never a constant in it, so that no copy of them can end
    up in a compilation cache. ``programs`` are those that were compiled before.
    """
    total, arrays = (Programs() if programs is None else programs).of(_grid_total, function, clip, num_entries)
    return total(arrays, rows, rows.real.shape[0] // rows.micro)


def _grid_total(fixed: Any, clip: FlatClip | None, num_entries: int) -> Callable[[Any, PrivateRows, Array], Array]:
    """The sum as a function of the arrays that the query function holds, the rows and the number of micro-batches."""

    def chunk(arrays: Any, rows: PrivateRows, start: Array) -> Array:
        take = lambda column: jax.lax.dynamic_slice_in_dim(column, start, rows.micro)
        vectors = jax.vmap(eqx.combine(arrays, fixed))(jax.tree.map(take, rows.columns))
        if vectors.shape != (rows.micro, num_entries):
            raise ArgumentError(f"Expected a query function that returns {num_entries} entries a row.")
        valid = take(rows.real)
        if clip is not None:
            return clip.grid_sum(vectors, valid).astype(jnp.int64)
        scores = jnp.where(valid[:, None] & jnp.isfinite(vectors), jnp.clip(vectors, -1, 1), 0)
        return jnp.sum((scores.astype(jnp.float32) * GRID).astype(jnp.int64), axis=0)

    def total(arrays: Any, rows: PrivateRows, num_chunks: Array) -> Array:
        add = lambda i, acc: acc + chunk(arrays, rows, i * rows.micro)
        return jax.lax.fori_loop(0, num_chunks, add, jnp.zeros(num_entries, jnp.int64))

    return total


class Drawn(eqx.Module):
    """What is random in one step: who takes part, a key for what is random in rows, and the noise."""

    order: Int32[Array, " row"]
    count: Int64[Array, ""]
    row_key: Array
    noise: Int64[Array, " entry"]


@dataclass(frozen=True, kw_only=True)
class NoisyStep:
    """One private gradient in two halves: what is random, and the mean gradient that it leads to.

    Privacy: the sum of clipped gradients of the drawn rows plus Gaussian noise on every coordinate, drawn once a step,
    also when no row was drawn. The first half depends on no parameter, so it can be done for several steps at once;
    each step still has its own nonces.
    """

    draw: Callable[[PrivateRows, Array, Call, Array], Drawn]
    mean: Callable[[Any, PrivateRows, Drawn], Any]

    def __call__(self, params: Any, rows: PrivateRows, key: Array, call: Call, step: Array) -> Any:
        """The noisy mean gradient of a step."""
        return self.mean(params, rows, self.draw(rows, key, call, step))


def steps_ahead() -> int:
    """For how many steps what is random is drawn at once; a loop is best run in multiples of it.

    More of them are less time and more memory: of a small batch it is most of what a step holds.
    """
    return 1 if jax.default_backend() == "cpu" else 8


def loop_options() -> dict[str, Any] | None:
    """How the compiler is told to make a loop of steps; None for its own ways.

    On a GPU a step is hundreds of short kernels. As graphs, loops included, they are launched by the GPU itself.
    """
    if jax.default_backend() != "gpu":
        return None
    kinds = ("FUSION", "CUBLAS", "CUBLASLT", "CUDNN", "CUSTOM_CALL", "DYNAMIC_SLICE_FUSION", "CONDITIONAL", "WHILE")
    return {"xla_gpu_enable_command_buffer": ",".join(kinds), "xla_gpu_graph_min_graph_size": 1}


def run_steps(
    gradient: NoisyStep | Callable[..., Any],
    update: Callable[..., Any],
    carry: Any,
    rows: PrivateRows,
    key: Array,
    call: Call,
    start: int | Array,
    stop: int | Array,
) -> Any:
    """Steps from ``start`` to ``stop``, to be compiled by its caller: gradient, then ``update``, in turn.

    On a GPU what is random is drawn for several steps at once: it is little work in many launches.
    """
    ahead = steps_ahead()

    def one(step: Array, carry: Any) -> Any:
        params, state = carry
        return update(gradient(params, rows, key, call, step), state, params)

    if ahead == 1 or not isinstance(gradient, NoisyStep):
        return jax.lax.fori_loop(start, stop, one, carry)

    def several(group: Array, carry: Any) -> Any:
        first = start + group * ahead
        drawn = jax.vmap(lambda step: gradient.draw(rows, key, call, step))(first + jnp.arange(ahead))

        def one_of(place: Array, carry: Any) -> Any:
            params, state = carry
            mine = jax.tree.map(lambda several: several[place], drawn)
            return update(gradient.mean(params, rows, mine), state, params)

        return jax.lax.fori_loop(0, jnp.minimum(ahead, stop - first), one_of, carry)

    return jax.lax.fori_loop(0, (stop - start + ahead - 1) // ahead, several, carry)


def gradient_step(
    loss: Callable[[Any, Any, Array], Float[Array, ""]],
    params: Any,
    plan: SgdPlan,
    deviation: float | Array,
    expected_batch: float,
) -> NoisyStep:
    """The private step of a loss of one row: per-row gradients by ``vmap``, so that no layer can mix rows.

    The noise has ``deviation`` grid units. To be compiled by its caller.
    """
    flat, unflatten = ravel_pytree(params)
    scale = plan.clip.bound / GRID / expected_batch

    def mean(params: Any, rows: PrivateRows, drawn: Drawn) -> Any:
        total = drawn_total(loss, params, plan, rows, drawn)
        return unflatten(((total + drawn.noise) * scale).astype(flat.dtype))

    return NoisyStep(draw=_drawing(plan, flat.size, deviation), mean=mean)


def factored_step(
    loss: FactoredLoss, params: Any, plan: SgdPlan, deviation: float | Array, expected_batch: float
) -> NoisyStep:
    """As ``gradient_step``, for a loss that gives factors: one backward pass and no gradient of a single row.

    Privacy: clipping and noise are on the weights of the loss; the way back from them to the parameters is
    post-processing.
    """
    if expected_batch > MOST_DRAWN // 2:
        raise ArgumentError(f"Expected a batch of at most {MOST_DRAWN // 2:,} rows.")
    shapes = jax.eval_shape(loss.weights, params)
    zeros = {name: jnp.zeros(shape.shape, jnp.float32) for name, shape in shapes.items()}
    flat, unflatten = ravel_pytree(zeros)
    scale = plan.clip.bound / GRID / expected_batch

    def mean(params: Any, rows: PrivateRows, drawn: Drawn) -> Any:
        weights, pull_back = jax.vjp(loss.weights, params)
        total = ravel_pytree(factored_total(loss, weights, plan, rows, drawn, expected_batch))[0]
        return pull_back(unflatten(((total + drawn.noise) * scale).astype(flat.dtype)))[0]

    return NoisyStep(draw=_drawing(plan, flat.size, deviation), mean=mean)


def _drawing(plan: SgdPlan, size: int, deviation: float | Array) -> Callable[[PrivateRows, Array, Call, Array], Drawn]:
    """The first half of a step, with noise for so many entries."""

    def draw(rows: PrivateRows, key: Array, call: Call, step: Array) -> Drawn:
        order, count, row_key = participants(plan, rows, key, call, step)
        noise = gaussian_integers(key, nonce(call, step, Stream.NOISE), size, deviation)
        return Drawn(order, count, row_key, jnp.asarray(noise))

    return draw


def factored_total(
    loss: FactoredLoss, weights: Any, plan: SgdPlan, rows: PrivateRows, drawn: Drawn, expected_batch: float
) -> dict[str, Int64[Array, "..."]]:
    """The sum of the clipped gradients of a step's rows in the weights, in grid units, before any noise."""
    chunk = chunk_rows(expected_batch, draws_of(loss)) if plan.clip.by_factors else micro_batch()
    covered = most_drawn(plan.sampling.rate if isinstance(plan.sampling, PoissonSampling) else None, expected_batch)
    order = jnp.pad(drawn.order, (0, chunk))  # so that the last chunk is a whole one
    nothing, unflatten = ravel_pytree({name: jnp.zeros(weight.shape, jnp.int64) for name, weight in weights.items()})

    def add(i: Array, acc: FineSum) -> FineSum:
        index = jax.lax.dynamic_slice_in_dim(order, i * chunk, chunk)
        valid = i * chunk + jnp.arange(chunk) < drawn.count
        batch = jax.tree.map(lambda column: column[index], rows.columns)
        keys = jax.vmap(lambda j: jax.random.fold_in(drawn.row_key, j))(index)
        factors = factors_of(loss, weights, batch, keys)
        if plan.clip.by_factors:
            found = factored_sum(loss, weights, plan.clip, factors, valid, covered)
        else:
            found = shaped_sum(loss, weights, plan.clip, factors, valid, _other(keys))
        return acc.plus({"all": ravel_pytree(found)[0]})

    # As one vector: what a loop carries is copied array by array.
    total = jax.lax.fori_loop(0, (drawn.count + chunk - 1) // chunk, add, FineSum.zero({"all": nothing})).on_grid()
    return unflatten(total["all"])


def _other(keys: Array) -> Array:
    """Keys of the rows for what is random in clipping, apart from those for what is random in the loss.

    The number is far from the small ones that a loss would split its key by.
    """
    return jax.vmap(lambda key: jax.random.fold_in(key, 0x5EED_C119))(keys)


def participants(
    plan: SgdPlan, rows: PrivateRows, key: Array, call: Call, step: Array
) -> tuple[Int32[Array, " row"], Int64[Array, ""], Array]:
    """The places of a step's rows, those drawn first; how many were drawn; and a key for what is random in rows."""
    num_rows = rows.real.shape[0]
    words = keystream(key, nonce(call, step, Stream.SAMPLING), num_rows * plan.sampling.words_per_row)
    taken = plan.sampling.draw(words, rows.real)
    every = jnp.arange(num_rows)
    # Each row that was drawn goes to a place of its own; places past the end are dropped.
    place = jnp.where(taken, jnp.cumsum(taken, dtype=jnp.int32) - 1, num_rows + every)
    order = jnp.zeros(num_rows, jnp.int32).at[place].set(every.astype(jnp.int32), mode="drop", unique_indices=True)
    row_key = jax.random.wrap_key_data(keystream(key, nonce(call, step, Stream.ROWS), 2))
    return order, jnp.sum(taken), row_key


def drawn_total(
    loss: Callable[[Any, Any, Array], Float[Array, ""]], params: Any, plan: SgdPlan, rows: PrivateRows, drawn: Drawn
) -> Int64[Array, " entry"]:
    """The exact sum of the clipped gradients of a step's rows, in grid units, before any noise."""
    micro, parts = rows.micro, parts_of(params)

    def add(i: Array, acc: Array) -> Array:
        index = jax.lax.dynamic_slice_in_dim(drawn.order, i * micro, micro)
        valid = i * micro + jnp.arange(micro) < drawn.count
        batch = jax.tree.map(lambda column: column[index], rows.columns)
        keys = jax.vmap(lambda j: jax.random.fold_in(drawn.row_key, j))(index)
        gradients = jax.tree.leaves(jax.vmap(jax.grad(loss), (None, 0, 0))(params, batch, keys))
        shaped = plan.clip.shaped(gradients, parts, _other(keys))
        return acc + ravel_pytree(plan.clip.grid_sum(shaped, valid))[0].astype(jnp.int64)

    size = sum(part.entries for part in parts)
    num_micro = (drawn.count + micro - 1) // micro
    return jax.lax.fori_loop(0, num_micro, add, jnp.zeros(size, jnp.int64))


def batch_total(
    loss: Callable[[Any, Any, Array], Float[Array, ""]] | FactoredLoss,
    params: Any,
    plan: SgdPlan,
    rows: PrivateRows,
    key: Array,
    call: Call,
    step: Array,
    expected_batch: float,
) -> Int64[Array, " entry"]:
    """The sum of a step by itself, with its own draw and without noise: what an audit measures."""
    drawn = Drawn(*participants(plan, rows, key, call, step), jnp.zeros(0, jnp.int64))
    if not isinstance(loss, FactoredLoss):
        return drawn_total(loss, params, plan, rows, drawn)
    return ravel_pytree(factored_total(loss, loss.weights(params), plan, rows, drawn, expected_batch))[0]


def parts_of(params: Any) -> list[Part]:
    """The arrays of a tree of parameters as parts of layers: those that stand together in it are one layer."""
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        found.append(Part(layer=jax.tree_util.keystr(path[:-1]), entries=leaf.size, fan=int(leaf.ndim > 1)))
    return found
