"""Curator: holds the rows and the doors. Whatever comes out was bounded, charged and noised, in that order.

The rows never leave: the class has no length, no view and no text form of them. A synthesizer gets a curator
and nothing else, so what its code does with the answers is post-processing and cannot break the promise. The functions
of one row that it hands in (losses, queries) do run on the rows: they are trusted to be functions of their row.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from fractions import Fraction
from functools import partial
from math import sqrt
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from sfumato.checks import whole
from sfumato.errors import ArgumentError
from sfumato.privacy.absolute_clipping import AbsoluteClip
from sfumato.privacy.adjacency import Relation
from sfumato.privacy.chacha import keystream
from sfumato.privacy.choice import draw, exponential_weights
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import Counted, exact_scores, exact_sum
from sfumato.privacy.events import ExponentialChoice, Exposure, GaussianSum, LaplaceSum
from sfumato.privacy.factors import FactoredLoss
from sfumato.privacy.laplace import laplace_integers, laplace_scale
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.levels import Texts, least_threshold, texts_above
from sfumato.privacy.noise import check_deviation, gaussian_integers
from sfumato.privacy.plan import SgdPlan
from sfumato.privacy.programs import Programs
from sfumato.privacy.queries import CountQuery, DistanceQuery, ScoreQuery, SumQuery, count_query
from sfumato.privacy.randomness import Randomness, Stream, nonce
from sfumato.privacy.sampling import FixedSizeSampling
from sfumato.privacy.step import (
    NoisyStep,
    PrivateRows,
    factored_step,
    gradient_step,
    loop_options,
    run_steps,
    steps_ahead,
)
from sfumato.privacy.teachers import SENSITIVITY, Dealt, TeacherPlan, Teaching, compiled_teachers, deal, first_rows
from sfumato.progress import Progress, quiet

Params = TypeVar("Params")
State = TypeVar("State")
Loss: TypeAlias = Callable[[Any, Any, Array], Float[Array, ""]]


class Curator:
    """The two doors to private rows, and the ledger that both charge before they draw noise.

    ``noisy_sum`` and ``noisy_descent`` are the first door (a bounded sum), ``noisy_choice`` is the second.
    ``noisy_levels`` is the first with a threshold, for columns of texts that nobody has listed, and
    ``noisy_laplace_sum`` the first with Laplace noise.
    """

    def __init__(
        self,
        rows: PyTree[np.ndarray],
        *,
        ledger: Ledger,
        randomness: Randomness,
        public_size: int | None = None,
        texts: Sequence[Texts] = (),
        progress: Progress = quiet,
    ) -> None:
        randomness.claim()
        self._public: PyTree[Array] | None = None
        self._units: np.ndarray | None = None
        self._rows = PrivateRows.of(rows)
        self._counted = Counted(self._rows)
        self._programs = Programs()  # shared with every view of these rows
        self._texts = tuple(texts)
        self._ledger = ledger
        self._randomness = randomness
        self._declared = self._size = public_size
        self._progress = progress

    def __repr__(self) -> str:
        return "Curator(rows are private)"

    @property
    def declared_size(self) -> int | None:
        """The size that the schema declares, if it does: the only size that a plan may be made from.

        Rates and noise must be fixed before anything is measured, since composition is proven for parameters that do
        not depend on earlier answers; a measured size may scale what comes out, or say how much to ask at fixed noise.
        """
        return self._declared

    @property
    def size(self) -> int:
        """The public order of magnitude of the table: declared, or measured once through the noisy sum.

        Cost when not declared: one Gaussian sum at 1 % of the budget.
        """
        if self._size is None:
            noisy_count = self.noisy_sum(count_query(), share=0.01)
            self._size = max(1, round(float(noisy_count[0])))
        return self._size

    @property
    def public_rows(self) -> PyTree[Array] | None:
        """Rows of a table that was declared public, in the form of the private ones; None where there is none.

        Privacy: none of them is protected, and the certificate says so. Whatever is done with them is free.
        """
        return self._public

    @property
    def progress(self) -> Progress:
        """Where work after a door tells how far it is: with public numbers only."""
        return self._progress

    def noise_of(self, bound: float, share: float) -> float:
        """The standard deviation of the noise that a sum would have, at this clipping bound and share: public, no cost.

        A method may choose by it how much to ask.
        """
        return self.noise_at(bound, self.noise_multiplier(share))

    def noise_at(self, bound: float, noise_multiplier: float) -> float:
        """The same at a noise multiplier."""
        return noise_multiplier * self._ledger.adjacency.sum_factor * bound

    def noise_multiplier(self, share: float) -> float:
        """The noise multiplier of a sum that gets this share of the budget: public, no cost."""
        return self._ledger.budget.multiplier(share)

    def choice_epsilon(self, share: float, times: int) -> float:
        """The epsilon of each of so many choices that get this share of the budget together: public, no cost."""
        return 2 / (self.noise_multiplier(share) * sqrt(times))

    def least_noise(self) -> float:
        """The noise multiplier of a sum that takes all that is left of the budget: public, no cost."""
        event = self._ledger.calibrate(lambda multiplier: GaussianSum(noise_multiplier=multiplier))
        return event.noise_multiplier  # type: ignore[union-attr]

    def laplace_noise(self, bound: float, epsilon: float) -> float:
        """The standard deviation of Laplace noise on each entry of a sum at this bound: public, no cost."""
        return sqrt(2) * self._ledger.adjacency.sum_factor * bound / epsilon

    def laplace_epsilon(self, times: int, *, share: float | None = None) -> float:
        """The epsilon of each of so many Laplace sums, with a share of the budget together or all that is left of it.

        All that is left is found by the accountant. A share is one of mu squared, as of Gaussian sums: so many sums
        have the rho of one Gaussian sum at that share, and the accountant says what is left then. Public, no cost.
        """
        whole(1, times=times)
        if share is not None:
            return 1 / (self.noise_multiplier(share) * sqrt(times))
        return self._ledger.calibrate_laplace(times).epsilon

    def reserve(self, purpose: str) -> Fraction:
        """Charge all that is left of the budget as one total rho, and pay for later sums and choices from it.

        Noise that depends on earlier answers is sound only behind this (``concentrated.py``); what would pass the total
        is refused. Cost: one ``Concentrated`` event.
        """
        return self._ledger.reserve(purpose)

    def pledge_choices(self, purpose: str, *, share: float, times: int) -> float:
        """Charge so many later choices with this share of the budget, before a descent takes all that is left.

        Returns the epsilon of each, at which they must be asked for under this purpose. Cost: as many
        ``ExponentialChoice`` events, now.
        """
        epsilon = self.choice_epsilon(share, times)
        self._ledger.pledge(ExponentialChoice(epsilon=epsilon), purpose, times)
        return epsilon

    def noisy_sum(self, query: SumQuery | CountQuery, *, share: float) -> np.ndarray:
        """First door: the sum over all rows of a clipped vector, or their counts, with Gaussian noise.

        Cost: one ``GaussianSum`` event worth ``share`` of the budget, charged before the noise is drawn.
        Sensitivity: the clipping bound times the number of rows that neighbours differ in (twice the bound
        under replace-one).
        """
        return self.noisy_sum_at(query, noise_multiplier=self.noise_multiplier(share))

    def noisy_sum_at(self, query: SumQuery | CountQuery, *, noise_multiplier: float) -> np.ndarray:
        """First door, at a given noise in place of a share of the budget.

        The noise must be fixed before the first answer, be the ``least_noise``, or be paid from a ``reserve``.
        """
        deviation = noise_multiplier * self._ledger.adjacency.sum_factor * GRID * query.grid_norm
        check_deviation(deviation)
        call = self._charge(GaussianSum(noise_multiplier=noise_multiplier), query.purpose)
        with jax.enable_x64(True):
            total = exact_sum(self._counted, query, self._programs)
            noise = gaussian_integers(self._randomness.key, nonce(call, 0, Stream.NOISE), query.num_draws, deviation)
        return (total + np.asarray(noise)[: query.num_entries]) * (query.grid_unit / GRID)

    def noisy_laplace_sum(self, query: SumQuery, *, epsilon: float) -> np.ndarray:
        """First door, with Laplace noise: the sum over all rows of a vector that is clipped by absolute values.

        Cost: one ``LaplaceSum`` event at ``epsilon``, charged before the noise is drawn. ``epsilon`` must be fixed
        before the first answer, or be paid from a ``reserve``.
        Sensitivity: in the sum of absolute values, the clipping bound times the number of rows that neighbours differ
        in (twice the bound under replace-one).
        """
        if not isinstance(query.clip, AbsoluteClip):
            raise ArgumentError("Laplace noise covers sums that are clipped by absolute values: use AbsoluteClip.")
        call = self._charge(LaplaceSum(epsilon=epsilon), query.purpose)
        scale = laplace_scale(epsilon, self._ledger.adjacency.sum_factor * GRID)
        with jax.enable_x64(True):
            total = exact_sum(self._counted, query, self._programs).tolist()
        noise = laplace_integers(self._randomness.key, call, query.num_entries, scale)
        unit = query.grid_unit / GRID
        return np.array([(entry + drawn) * unit for entry, drawn in zip(total, noise, strict=True)])

    def noisy_levels(self, *, share: float, delta: float, purpose: str) -> tuple[Mapping[str, int], ...]:
        """First door, over texts that nobody has listed: for each column of texts those that many rows have.

        A text comes out with its noisy count where that reaches a threshold, sorted by text (``levels.py`` has the
        proof). Cost: one ``GaussianSum`` event worth ``share`` of the budget and one ``Exposure`` at ``delta``, for all
        columns together; both are charged before the noise is drawn.
        """
        adjacency, num = self._ledger.adjacency, len(self._texts)
        whole(1, columns=num)
        multiplier = self.noise_multiplier(share)
        deviation = multiplier * adjacency.sum_factor * sqrt(num)
        check_deviation(deviation)
        threshold = least_threshold(deviation, adjacency.max_rows, delta / num)
        self._charge(Exposure(delta=delta), purpose)
        call = self._charge(GaussianSum(noise_multiplier=multiplier), purpose)
        nonces = [nonce(call, place, Stream.NOISE) for place in range(num)]
        drawn = zip(self._texts, nonces, strict=True)
        return tuple(texts_above(texts, threshold, deviation, self._randomness.key, each) for texts, each in drawn)

    def noisy_choice(self, query: ScoreQuery | DistanceQuery, *, epsilon: float) -> int:
        """Second door: the index of one candidate, by the exponential mechanism on summed scores, or on distances.

        Cost: one ``ExponentialChoice`` event at ``epsilon``, charged before it is drawn. ``epsilon``, like noise, is
        fixed before the first answer, or paid from a ``reserve`` or a pledge; candidates may follow from answers.
        """
        call = self._charge(ExponentialChoice(epsilon=epsilon), query.purpose)
        with jax.enable_x64(True):
            scores = exact_scores(self._counted, query, self._programs)
        sensitivity = self._ledger.adjacency.sum_factor * GRID
        weights = exponential_weights(scores, sensitivity, epsilon)
        return draw(weights, lambda attempt: self._bits(call, attempt))

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
        """First door, many times: noisy clipped gradient sums, each handed to ``update`` as a mean.

        ``loss(params, row, key)`` is the loss of one row; ``update(gradient, state, params)`` is the optimiser,
        which is post-processing. The whole loop is compiled: sampling, gradients, noise and optimiser.

        Cost: the event of the plan with the least noise that the rest of the budget covers, charged whole
        before the first step. The mean divides by the public expected batch, never by the drawn one.
        """
        self._check_size(plan)
        expected = plan.sampling.normaliser_rate * self.size
        adjacency = self._ledger.adjacency
        event = self._ledger.calibrate(lambda multiplier: plan.event(multiplier, adjacency))
        call = self._charge(event, purpose)
        deviation = plan.noise_deviation(event.noise_multiplier)  # type: ignore[union-attr]
        step_of = factored_step if isinstance(loss, FactoredLoss) else gradient_step
        arrays, rest = eqx.partition(loss, eqx.is_array)

        def build(held: Any) -> NoisyStep:
            arrays, deviation = held
            return step_of(eqx.combine(arrays, rest), params, plan, deviation, expected)

        with jax.enable_x64(True):
            held = (arrays, jnp.asarray(deviation, jnp.float64))
            return self._loop(build, held, params, state, call=call, update=update, plan=plan, purpose=purpose)

    def noisy_teachers(self, teaching: Teaching, states: Any, public: Any, *, plan: TeacherPlan, purpose: str) -> Any:
        """First door, over parts: noisy sums of bounded answers of models that learn from a part of the rows each.

        ``states`` are those of all parts at the start, stacked; they never come back, and what is ``public`` after the
        last step does. Sensitivity: twice the bound of an answer (``teachers.py`` has the proof). Cost: one
        ``GaussianSum`` for all steps together, with the least noise that the rest covers, before the first step.
        """
        if self._ledger.adjacency.relation is not Relation.ADD_OR_REMOVE_ONE:
            raise ArgumentError("Parts protect under add-or-remove-one: replacing a unit would change two of them.")
        event = self._ledger.calibrate(lambda multiplier: GaussianSum(noise_multiplier=multiplier))
        deviation = event.noise_multiplier * sqrt(plan.steps) * SENSITIVITY * GRID  # type: ignore[union-attr]
        check_deviation(deviation)
        call = self._charge(event, purpose)
        with jax.enable_x64(True):
            held = (self._dealt(call, plan.parts), jnp.asarray(deviation, jnp.float64))
            return self._teach(teaching, (states, public), held, plan=plan, call=call, purpose=purpose)

    def _teach(self, teaching: Teaching, carry: Any, held: Any, *, plan: TeacherPlan, call: int, purpose: str) -> Any:
        arrays, fixed = eqx.partition(teaching, eqx.is_array)
        run, held = compiled_teachers(fixed, plan), (arrays, *held)
        tick = max(1, plan.steps // 50)
        for start in range(0, plan.steps, tick):
            self._progress(purpose, start, plan.steps)
            stop = min(start + tick, plan.steps)
            carry = jax.block_until_ready(run(carry, held, self._rows, self._randomness.key, call, start, stop))
        self._progress(purpose, plan.steps, plan.steps)
        return carry[1]

    def _dealt(self, call: int, num_parts: int) -> Dealt:
        num = int(self._rows.real.sum())
        if self._units is None and self._ledger.adjacency.max_rows > 1:
            raise ArgumentError("Rows of one unit must go to one part: units must be told with the rows.")
        parts = deal(first_rows(self._units, num), self._randomness.key, call, num_parts)
        return Dealt.of(parts, num_parts, self._rows.real.shape[0])

    def through(self, function: Callable[[Any], Any]) -> "Curator":
        """The same doors to the same rows, each seen through a function of one row: codes instead of cells.

        Privacy: no cost and no answer. Rows that differ in one unit still do when each was mapped by itself; ledger and
        randomness are the same, so that what the view is asked is charged to the same budget.
        """
        view = self._over(self._rows.mapped(function))
        if self._public is not None:
            view._public = jax.vmap(function)(self._public)
        return view

    def holding(
        self, rows: PyTree[np.ndarray], public: PyTree[np.ndarray] | None = None, units: np.ndarray | None = None
    ) -> "Curator":
        """The same doors, ledger and randomness over other rows of the same units: what was read anew of the table.

        ``public`` are rows of another table that nobody need protect, ``units`` tell whose each row is. Privacy: no
        cost and no answer. Only who holds the table can give rows; they must be capped as the first were.
        """
        view = self._over(PrivateRows.of(rows))
        view._texts, view._units = (), units
        view._public = None if public is None else jax.tree.map(jnp.asarray, public)
        return view

    def _over(self, rows: PrivateRows) -> "Curator":
        view = copy(self)
        view._rows, view._counted = rows, Counted(rows)  # what was counted of other rows is of no use here
        return view

    def _loop(
        self,
        build: Callable[[Any], Callable[..., Any]],
        held: Any,
        params: Any,
        state: Any,
        *,
        call: int,
        update: Callable[..., Any],
        plan: SgdPlan,
        purpose: str,
    ) -> Any:
        """``build(held)`` is the gradient of a step. What it and the update hold and the number of the call are
        arguments of the compiled loop, so that the next fit of the same kind finds it in a compilation cache."""
        arrays, rest = eqx.partition(update, eqx.is_array)

        @partial(jax.jit, compiler_options=loop_options())
        def stretch(carry: Any, held: Any, arrays: Any, rows: PrivateRows, key: Array, *steps: Array) -> Any:
            return run_steps(build(held), eqx.combine(arrays, rest), carry, rows, key, *steps)

        carry, key = (params, state), self._randomness.key
        ahead = steps_ahead()
        tick = ahead * max(1, plan.steps // (50 * ahead))
        for start in range(0, plan.steps, tick):
            stop = min(start + tick, plan.steps)
            self._progress(purpose, start, plan.steps)
            carry = jax.block_until_ready(stretch(carry, held, arrays, self._rows, key, call, start, stop))
        self._progress(purpose, plan.steps, plan.steps)
        return carry

    def start_key(self) -> Array:
        """A JAX key for what is no secret: the start of the parameters, the order of anything public."""
        return jax.random.wrap_key_data(keystream(self._randomness.key, nonce(0, 0, Stream.START), 2))

    def _charge(self, event: Any, purpose: str) -> int:
        """Charge, and return the number of this call: part of every nonce, so no two calls share noise."""
        self._ledger.charge(event, purpose)
        return len(self._ledger.entries)

    def _check_size(self, plan: SgdPlan) -> None:
        # Under replace-one neighbours have equally many rows, so this comparison discloses nothing.
        if isinstance(plan.sampling, FixedSizeSampling) and plan.sampling.rows != int(self._rows.real.sum()):
            raise ArgumentError(
                "Sampling without replacement takes the number of rows as public: "
                "declare the exact number of rows in the schema, or use Poisson sampling."
            )

    def _bits(self, call: int, attempt: int) -> int:
        words = np.asarray(keystream(self._randomness.key, nonce(call, attempt, Stream.NOISE), 16))
        return int.from_bytes(words.astype("<u4").tobytes(), "little")
