"""Unprotected: the doors without any protection, for the ceiling that a benchmark holds private fits against.

The doors have the names and forms of the curator's, so that a method runs through them unchanged. What comes out is
exact: no clipping, no noise. Every call is written into the ledger as not private, so no certificate of such a fit can
state an epsilon.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sfumato.privacy.chacha import keystream
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import exact_scores, exact_sum
from sfumato.privacy.curator import Curator, Loss, Params, State
from sfumato.privacy.factored import chunk_rows
from sfumato.privacy.factors import FactoredLoss
from sfumato.privacy.plan import SgdPlan
from sfumato.privacy.queries import CountQuery, DistanceQuery, ScoreQuery, SumQuery
from sfumato.privacy.randomness import Stream, nonce
from sfumato.privacy.step import Call, PrivateRows
from sfumato.privacy.teachers import TeacherPlan, Teaching

REASON = "fitted without privacy"

BatchLoss = Callable[[Any, Any, Array, Array], Float[Array, ""]]
"""The sum of the losses of the valid rows of a batch: (params, rows, keys, valid) -> number."""


class Unprotected(Curator):
    """A curator that protects nobody: exact sums, best choices, plain mini-batch gradients.

    Privacy: none. The ledger admits each call, and epsilon is infinite from the first one on.
    """

    def __repr__(self) -> str:
        return "Unprotected(rows are private)"

    def noise_at(self, bound: float, noise_multiplier: float) -> float:
        """None."""
        return 0.0

    def least_noise(self) -> float:
        """As of the whole budget; nothing is charged against it."""
        return self._ledger.budget.multiplier(1.0)

    def laplace_noise(self, bound: float, epsilon: float) -> float:
        """None."""
        return 0.0

    def laplace_epsilon(self, times: int, *, share: float | None = None) -> float:
        """As of the whole budget; nothing is charged against it."""
        return super().laplace_epsilon(times, share=1.0 if share is None else share)

    def reserve(self, purpose: str) -> Fraction:
        """As of the whole budget; nothing is charged against it."""
        return Fraction(self.least_noise()) ** -2 / 2

    def pledge_choices(self, purpose: str, *, share: float, times: int) -> float:
        """Nothing is charged; the epsilon is what it would be."""
        return self.choice_epsilon(share, times)

    def noisy_sum_at(self, query: SumQuery | CountQuery, *, noise_multiplier: float) -> np.ndarray:
        """The sum of the query's vector over all rows, as it is: neither clipped nor noisy."""
        self._ledger.admit(REASON, query.purpose)
        with jax.enable_x64(True):
            if isinstance(query, CountQuery):
                return np.asarray(exact_sum(self._counted, query, self._programs)) / GRID
            total, arrays = self._programs.of(_plain_total, query.function, query.num_entries)
            return np.asarray(total(arrays, self._rows, self._rows.real.shape[0] // self._rows.micro))

    def noisy_laplace_sum(self, query: SumQuery, *, epsilon: float) -> np.ndarray:
        """The same sum, as it is."""
        return self.noisy_sum_at(query, noise_multiplier=1.0)

    def noisy_levels(self, *, share: float, delta: float, purpose: str) -> tuple[Mapping[str, int], ...]:
        """Every text that occurs, with its count."""
        self._ledger.admit(REASON, purpose)
        return tuple(texts.counts() for texts in self._texts)

    def noisy_choice(self, query: ScoreQuery | DistanceQuery, *, epsilon: float) -> int:
        """The candidate of the largest score."""
        self._ledger.admit(REASON, query.purpose)
        with jax.enable_x64(True):
            return int(np.argmax(exact_scores(self._counted, query, self._programs)))

    def noisy_teachers(self, teaching: Teaching, states: Any, public: Any, *, plan: TeacherPlan, purpose: str) -> Any:
        """The same sums of clipped answers, with no noise on them."""
        self._ledger.admit(REASON, purpose)
        call = len(self._ledger.entries)
        with jax.enable_x64(True):
            held = (self._dealt(call, plan.parts), jnp.zeros((), jnp.float64))
            return self._teach(teaching, (states, public), held, plan=plan, call=call, purpose=purpose)

    def noisy_descent(
        self,
        loss: Loss | FactoredLoss,
        params: Params,
        state: State,
        *,
        plan: SgdPlan,
        update: Callable[[Params, State, Params], tuple[Params, State]],
        purpose: str,
    ) -> tuple[Params, State]:
        """Plain gradient descent: each step hands ``update`` the mean gradient of a random batch.

        A batch has as many rows as the plan expects, drawn without replacement.
        """
        num_real = int(self._rows.real.sum())
        batch = max(1, min(num_real, round(plan.sampling.normaliser_rate * self.size)))
        self._ledger.admit(REASON, purpose)
        call = len(self._ledger.entries)
        losses_of = factored_losses if isinstance(loss, FactoredLoss) else losses
        held, rest = eqx.partition(loss, eqx.is_array)
        build = lambda held: _gradient_step(losses_of(eqx.combine(held, rest)), batch)
        return self._loop(build, held, params, state, call=call, update=update, plan=plan, purpose=purpose)


def losses(loss: Loss) -> BatchLoss:
    """A batch's loss from the loss of one row."""

    def total(params: Any, batch: Any, keys: Array, valid: Array) -> Float[Array, ""]:
        values = jax.vmap(loss, (None, 0, 0))(params, batch, keys)
        return jnp.sum(jnp.where(valid, values, 0.0))

    return total


def factored_losses(loss: FactoredLoss) -> BatchLoss:
    """The same from a loss in factors: nothing is tapped, and every row has the part that is common to all."""

    def total(params: Any, batch: Any, keys: Array, valid: Array) -> Float[Array, ""]:
        weights = loss.weights(params)
        taps = {name: jnp.zeros(shape, jnp.float32) for name, shape in loss.taps().items()}
        values = jax.vmap(lambda row, key: loss.row(weights, row, key, taps)[0])(batch, keys)
        return jnp.sum(jnp.where(valid, values + loss.common(weights), 0.0))

    return total


def _gradient_step(batch_loss: BatchLoss, batch: int) -> Callable[..., Any]:
    """A function (params, rows, key, call, step) -> mean gradient, to be compiled by its caller."""
    chunk = min(batch, chunk_rows(batch))
    num_chunks = -(-batch // chunk)

    def mean(params: Any, rows: PrivateRows, key: Array, call: Call, step: Array) -> Any:
        places = jnp.pad(_places(rows.real, key, call, step, batch), (0, num_chunks * chunk - batch))
        taken = (jnp.arange(places.size) < batch) & rows.real[places]
        row_key = jax.random.wrap_key_data(keystream(key, nonce(call, step, Stream.ROWS), 2))

        def add(i: Array, acc: Any) -> Any:
            index = jax.lax.dynamic_slice_in_dim(places, i * chunk, chunk)
            valid = jax.lax.dynamic_slice_in_dim(taken, i * chunk, chunk)
            columns = jax.tree.map(lambda column: column[index], rows.columns)
            keys = jax.vmap(lambda j: jax.random.fold_in(row_key, j))(index)
            found = jax.grad(batch_loss)(params, columns, keys, valid)
            return jax.tree.map(lambda one, other: one + other.astype(one.dtype), acc, found)

        total = jax.lax.fori_loop(0, num_chunks, add, jax.tree.map(jnp.zeros_like, params))
        return jax.tree.map(lambda leaf: leaf / jnp.maximum(1, jnp.sum(taken)).astype(leaf.dtype), total)

    return mean


def _places(real: Bool[Array, " row"], key: Array, call: Call, step: Array, batch: int) -> Int[Array, " batch"]:
    """The places of so many rows, evenly drawn: those with the smallest tickets, padding last."""
    words = keystream(key, nonce(call, step, Stream.SAMPLING), real.shape[0])
    tickets = jnp.where(real, words >> 1, jnp.uint32(2**32 - 1))
    return jnp.argsort(tickets)[:batch]


def _plain_total(fixed: Any, num_entries: int) -> Callable[[Any, PrivateRows, Array], Float[Array, " entry"]]:
    """The sum over all rows in float64, a micro-batch at a time, as ``grid_total`` has it."""

    def total(arrays: Any, rows: PrivateRows, num_chunks: Array) -> Array:
        def add(i: Array, acc: Array) -> Array:
            take = lambda column: jax.lax.dynamic_slice_in_dim(column, i * rows.micro, rows.micro)
            vectors = jax.vmap(eqx.combine(arrays, fixed))(jax.tree.map(take, rows.columns)).astype(jnp.float64)
            return acc + jnp.sum(jnp.where(take(rows.real)[:, None], vectors, 0.0), axis=0)

        return jax.lax.fori_loop(0, num_chunks, add, jnp.zeros(num_entries, jnp.float64))

    return total
