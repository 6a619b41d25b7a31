"""Step: one private gradient, from the draw of the batch to the noisy mean, as a function that compiles.

Micro-batches of padded rows are repeated as often as the draw needs, so a Poisson batch is never truncated.
Per-row gradients come from ``vmap`` of the gradient of one row, so that no layer can mix rows.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int64, PyTree

from sfumato.errors import ArgumentError
from sfumato.privacy.chacha import keystream
from sfumato.privacy.clipping import GRID, MOST_ROWS_AT_ONCE, FlatClip
from sfumato.privacy.factored import chunk_rows, factored_sum, to_grid
from sfumato.privacy.factors import FactoredLoss
from sfumato.privacy.noise import gaussian_integers
from sfumato.privacy.plan import SgdPlan
from sfumato.privacy.randomness import Stream, nonce


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
        whole = math.lcm(micro, chunk_rows())
        num_padded = max(1, -(-num_real // whole)) * whole

        def pad(column: np.ndarray) -> Array:
            padding = [(0, num_padded - num_real)] + [(0, 0)] * (column.ndim - 1)
            return jnp.asarray(np.pad(column, padding))

        return cls(jax.tree.map(pad, rows), jnp.arange(num_padded) < num_real, micro)

    def __repr__(self) -> str:
        return "PrivateRows()"


def micro_batch() -> int:
    """Rows whose gradients are held at once: few on a CPU, where they must fit its cache; more on a GPU."""
    return 128 if jax.default_backend() == "cpu" else MOST_ROWS_AT_ONCE


def grid_total(
    rows: PrivateRows, function: Callable[[Any], Array], clip: FlatClip | None, num_entries: int
) -> Int64[Array, " entry"]:
    """The exact grid sum over all rows of a clipped vector, or without ``clip`` of scores cut to [-1, 1].

    The rows are an argument of the compiled function and never a constant in it, so that no copy of them can end
    up in a compilation cache.
    """

    def chunk(rows: PrivateRows, start: Array) -> Array:
        take = lambda column: jax.lax.dynamic_slice_in_dim(column, start, rows.micro)
        vectors = jax.vmap(function)(jax.tree.map(take, rows.columns))
        if vectors.shape != (rows.micro, num_entries):
            raise ArgumentError(f"Expected a query function that returns {num_entries} entries a row.")
        valid = take(rows.real)
        if clip is not None:
            return clip.grid_sum(vectors, valid).astype(jnp.int64)
        scores = jnp.where(valid[:, None] & jnp.isfinite(vectors), jnp.clip(vectors, -1, 1), 0)
        return jnp.sum((scores.astype(jnp.float32) * GRID).astype(jnp.int64), axis=0)

    @jax.jit
    def total(rows: PrivateRows, num_chunks: Array) -> Array:
        add = lambda i, acc: acc + chunk(rows, i * rows.micro)
        return jax.lax.fori_loop(0, num_chunks, add, jnp.zeros(num_entries, jnp.int64))

    return total(rows, rows.real.shape[0] // rows.micro)


def gradient_step(
    loss: Callable[[Any, Any, Array], Float[Array, ""]],
    params: Any,
    plan: SgdPlan,
    deviation: float,
    expected_batch: float,
) -> Callable[..., Any]:
    """A function (params, rows, key, call, step) -> noisy mean gradient, to be compiled by its caller.

    Privacy: the sum of clipped gradients of the drawn rows plus Gaussian noise of ``deviation`` grid units on
    every coordinate, drawn once a step, also when no row was drawn.
    """
    flat, unflatten = ravel_pytree(params)
    scale = plan.clip.bound / GRID / expected_batch

    def noisy_mean(params: Any, rows: PrivateRows, key: Array, call: int, step: Array) -> Any:
        total = batch_total(loss, params, plan, rows, key, call, step)
        noise = gaussian_integers(key, nonce(call, step, Stream.NOISE), flat.size, deviation)
        return unflatten(((total + noise) * scale).astype(flat.dtype))

    return noisy_mean


def factored_step(
    loss: FactoredLoss, params: Any, plan: SgdPlan, deviation: float, expected_batch: float
) -> Callable[..., Any]:
    """As ``gradient_step``, for a loss that gives factors: one backward pass and no gradient of a single row.

    Privacy: clipping and noise are on the weights of the loss; the way back from them to the parameters is
    post-processing.
    """
    shapes = jax.eval_shape(loss.weights, params)
    zeros = {name: jnp.zeros(shape.shape, jnp.float32) for name, shape in shapes.items()}
    flat, unflatten = ravel_pytree(zeros)
    scale = plan.clip.bound / GRID / expected_batch

    def noisy_mean(params: Any, rows: PrivateRows, key: Array, call: int, step: Array) -> Any:
        weights, pull_back = jax.vjp(loss.weights, params)
        total = ravel_pytree(factored_total(loss, weights, plan, rows, key, call, step))[0]
        noise = gaussian_integers(key, nonce(call, step, Stream.NOISE), flat.size, deviation)
        mean = unflatten(((total + noise) * scale).astype(flat.dtype))
        return pull_back(mean)[0]

    return noisy_mean


def factored_total(
    loss: FactoredLoss, weights: Any, plan: SgdPlan, rows: PrivateRows, key: Array, call: int, step: Array
) -> dict[str, Int64[Array, "..."]]:
    """The sum of the clipped gradients of a step's rows in the weights, in grid units, before any noise."""
    order, count, row_key = _drawn(plan, rows, key, call, step)
    chunk = chunk_rows()

    def add(i: Array, acc: dict[str, Array]) -> dict[str, Array]:
        index = jax.lax.dynamic_slice_in_dim(order, i * chunk, chunk)
        valid = i * chunk + jnp.arange(chunk) < count
        batch = jax.tree.map(lambda column: column[index], rows.columns)
        keys = jax.vmap(lambda j: jax.random.fold_in(row_key, j))(index)
        found = factored_sum(loss, weights, plan.clip, batch, keys, valid)
        return {name: acc[name] + found[name] for name in acc}

    start = {name: jnp.zeros(value.shape, jnp.int64) for name, value in weights.items()}
    return to_grid(jax.lax.fori_loop(0, (count + chunk - 1) // chunk, add, start))


def _drawn(plan: SgdPlan, rows: PrivateRows, key: Array, call: int, step: Array) -> tuple[Array, Array, Array]:
    """The places of a step's rows, those drawn first; how many were drawn; and a key for what is random in rows."""
    num_rows = rows.real.shape[0]
    words = keystream(key, nonce(call, step, Stream.SAMPLING), num_rows * plan.sampling.words_per_row)
    taken = plan.sampling.draw(words, rows.real)
    order = jnp.nonzero(taken, size=num_rows, fill_value=0)[0]
    row_key = jax.random.wrap_key_data(keystream(key, nonce(call, step, Stream.ROWS), 2))
    return order, jnp.sum(taken), row_key


def batch_total(
    loss: Callable[[Any, Any, Array], Float[Array, ""]],
    params: Any,
    plan: SgdPlan,
    rows: PrivateRows,
    key: Array,
    call: int,
    step: Array,
) -> Int64[Array, " entry"]:
    """The exact sum of the clipped gradients of a step's rows, in grid units, before any noise."""
    micro = rows.micro
    order, count, row_key = _drawn(plan, rows, key, call, step)

    def add(i: Array, acc: Array) -> Array:
        index = jax.lax.dynamic_slice_in_dim(order, i * micro, micro)
        valid = i * micro + jnp.arange(micro) < count
        batch = jax.tree.map(lambda column: column[index], rows.columns)
        keys = jax.vmap(lambda j: jax.random.fold_in(row_key, j))(index)
        gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(params, batch, keys)
        return acc + ravel_pytree(plan.clip.grid_sum(gradients, valid))[0].astype(jnp.int64)

    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    num_micro = (count + micro - 1) // micro
    return jax.lax.fori_loop(0, num_micro, add, jnp.zeros(size, jnp.int64))
