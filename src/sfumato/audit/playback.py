"""Record-play: run a fit on D, freeze what came out of every door, replay it on a neighbour D'.

Whatever differs then was not paid for. The tape also keeps what each door was asked, and the exact sum before the
noise, so that the replay can check that the questions are equal and the sums no further apart than declared. Sums are
those of the compiled programs that fits run. It finds defects of the glue (bounds, levels, sizes or starts read from
the rows) and of sensitivities, exactly and without statistics.

Limits: it says nothing of the scale of the noise, nor of the draw of batches. Both tables are fitted in one process, so
code is trusted to keep no state between fits: a statistic of the rows in a cache that outlives a fit is filled by
whichever table came first and read by all others, in any order of playing, and so shows no difference.

Reference: the idea is that of Re:cord-play (PETS 2026), written anew for these doors.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sfumato import pipeline
from sfumato.audit.loudness import LOUD, Loud, Louder
from sfumato.audit.neighbours import SCHEMAS, Neighbour, Row, neighbours, text_table, trial_rows
from sfumato.audit.play_result import PlayResult
from sfumato.audit.tape import Exact, Tape, Violation, agreed
from sfumato.errors import ArgumentError
from sfumato.privacy import Budget, Curator, PoissonSampling, Randomness, Relation, step
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import Counted
from sfumato.privacy.events import ExponentialChoice, Exposure, GaussianSum, LaplaceSum
from sfumato.privacy.factors import FactoredLoss
from sfumato.privacy.programs import Programs
from sfumato.privacy.queries import CountQuery, DistanceQuery, ScoreQuery
from sfumato.privacy.step import PrivateRows
from sfumato.privacy.teachers import SENSITIVITY, answers, step_total, warmed
from sfumato.progress import Progress, quiet
from sfumato.release.store import to_bytes
from sfumato.synthesizers import Synthesizer


class _Doors(Curator):
    """What recorder and player share: the words of a question, and exact sums by compiled programs of the doors."""

    def __init__(self, rows: Any, *, tape: Tape, **given: Any) -> None:
        super().__init__(rows, **given)
        self._tape = tape
        self._programs = tape.programs
        self._loss: Any = None

    def noisy_descent(self, loss: Any, params: Any, state: Any, **given: Any) -> Any:
        self._loss = loss
        return super().noisy_descent(loss, params, state, **given)

    def _exact(self, query: Any, first: Exact | None = None) -> Exact:
        """The exact sum of a query; on replay its function must be that of the ``first`` table."""
        total = lambda function, rows: _total(self._counted_of(rows), replace(query, function=function), self._programs)
        exact = self._measured(total, query.function, self._rows, first=first)
        if not exact.total.size or not isinstance(query, CountQuery | DistanceQuery):
            return exact
        counts = exact.total.astype(np.int64)
        scores = counts * GRID if isinstance(query, CountQuery) else query.scores(counts)
        return replace(exact, total=np.array(scores, np.float64))

    def _counted_of(self, rows: PrivateRows) -> Counted:
        """These rows with what the doors have counted of them; rows that are only traced have no counts."""
        return self._counted if rows is self._rows else Counted(rows)

    def _exact_step(self, params: Any, plan: Any, first: Exact | None = None) -> Exact:
        """The sum of a step's clipped gradients, before any noise, if all rows take part.

        All of them do, since a neighbour may change which rows are drawn, while what is measured is what a row moves.
        """
        everyone, expected = replace(plan, sampling=PoissonSampling(rate=1.0)), float(self.size)

        def total(loss: Any, *given: Any) -> Any:
            program, arrays = self._programs.of(_step_total, loss, everyone, expected)
            return program(arrays, *given)

        return self._measured(total, self._loss, params, self._rows, self._randomness.key, first=first)

    def _exact_answers(self, teaching: Any, carry: Any, dealt: Any, plan: Any, first: Exact | None = None) -> Exact:
        """The sum of the clipped answers of all parts in the first step, before any noise."""

        def total(teaching: Any, *given: Any) -> Any:
            program, arrays = self._programs.of(_answers_total, teaching, plan)
            return program(arrays, *given)

        return self._measured(total, teaching, carry, self._rows, dealt, self._randomness.key, first=first)

    def _taught(self, teaching: Any, public: Any, plan: Any) -> Any:
        """What is public after answers that are frozen: any will do."""
        for at in range(plan.steps):
            public = teaching.update(_made_up(jnp.zeros(plan.num_entries, jnp.float32), at), public)
        return public

    def _moved_on(self, answers: Any, params: Any, state: Any, update: Any) -> Any:
        """Parameters and state after frozen answers, by one program: compiled step by step it would be a hundred."""
        program, arrays = self._programs.of(_updated, update)
        for answer in answers:
            params, state = program(arrays, answer, state, params)
        return params, state

    def _measured(self, total: Any, function: Any, *given: Any, first: Exact | None) -> Exact:
        if not self._tape.measure:
            return Exact(np.zeros(0))
        with jax.enable_x64(True):
            if first is not None:
                lowered = lambda function: jax.jit(partial(total, function)).lower(*given)
                function = agreed(function, first.function, lowered)
            return Exact(np.asarray(total(function, *given), np.float64), function)

    def _asked(self, kind: str, *parts: Any) -> str:
        return " | ".join([kind, *(repr(part) for part in (*parts, self._ledger.events))])

    def _asked_sum(self, query: Any, noise_multiplier: float) -> str:
        return self._asked("sum", query.purpose, query.num_entries, query.clip, noise_multiplier)

    def _asked_laplace(self, query: Any, epsilon: float) -> str:
        return self._asked("laplace", query.purpose, query.num_entries, query.clip, epsilon)

    def _asked_choice(self, query: Any, epsilon: float) -> str:
        public: tuple[Any, ...] = ()
        if isinstance(query, DistanceQuery):
            public = ([table.tolist() for table in query.expected], query.weights, query.penalties)
        return self._asked("choice", query.purpose, query.num_candidates, epsilon, *public)

    def _asked_levels(self, given: Any) -> str:
        return self._asked("levels", len(self._texts), given["share"], given["delta"], given["purpose"])

    def _exact_texts(self) -> tuple[dict[str, int], ...]:
        return tuple(texts.counts() for texts in self._texts if self._tape.measure)

    def _asked_descent(self, given: Any) -> str:
        return self._asked("descent", given["plan"], given["purpose"], self.size)


def _total(held: Counted, query: Any, programs: Programs) -> Any:
    """The counts or the sum that a query asks for, of rows that come to their bound."""
    if isinstance(query, CountQuery | DistanceQuery):
        return held.of(query.function, query.sizes)
    loud, clip = Loud(query.function, jnp.asarray(LOUD, jnp.float32)), getattr(query, "clip", None)
    entries = query.num_candidates if isinstance(query, ScoreQuery) else query.num_entries
    return step.grid_total(held.rows, loud, clip, entries, programs)


def _step_total(fixed: Any, plan: Any, expected: float) -> Any:
    """The sum of a step as a function of the arrays that the loss holds, parameters, rows and key."""

    def total(arrays: Any, params: Any, rows: PrivateRows, key: Any) -> Any:
        loss = eqx.combine(arrays, fixed)
        loud: Any = Louder(loss) if isinstance(loss, FactoredLoss) else lambda *given: LOUD * loss(*given)
        return step.batch_total(loud, params, plan, rows, key, 0, jnp.asarray(0), expected)

    return total


def _updated(fixed: Any) -> Any:
    """What follows an answer, as a function of the arrays that it holds."""
    return lambda arrays, *given: eqx.combine(arrays, fixed)(*given)


def _answers_total(fixed: Any, plan: Any) -> Any:
    """States and answers of all parts after one step, and the sum of loud answers, of states, rows and parts."""

    def total(arrays: Any, carry: Any, rows: PrivateRows, dealt: Any, key: Array) -> Any:
        teaching = eqx.combine(arrays, fixed)
        loud = replace(teaching, answer=lambda *given: LOUD * teaching.answer(*given))
        first, (states, public) = jax.random.wrap_key_data(key[:2]), carry
        states = warmed(teaching, plan, states, public, rows, dealt, lambda step: jax.random.fold_in(first, step))
        given = (plan, states, public, rows, dealt, first)
        # States too: an answer may be a vote, which hardly ever turns.
        alone = [
            part.reshape(plan.parts, -1).astype(jnp.float64) for part in jax.tree.leaves(answers(teaching, *given))
        ]
        return jnp.concatenate([jnp.hstack(alone).reshape(-1), step_total(loud, *given)[1].astype(jnp.float64)])

    return total


def _alike(query: Any) -> Any:
    """The query with the form of the measured one, so that both are sums of one program."""
    if isinstance(query, CountQuery | DistanceQuery):
        return query
    return replace(query, function=Loud(query.function, jnp.ones((), jnp.float32)))


class Recorder(_Doors):
    """A curator that writes down what its doors give out."""

    def noisy_sum_at(self, query: Any, *, noise_multiplier: float) -> np.ndarray:
        answer = super().noisy_sum_at(_alike(query), noise_multiplier=noise_multiplier)
        self._tape.put(self._asked_sum(query, noise_multiplier), self._exact(query), answer)
        return answer

    def noisy_laplace_sum(self, query: Any, *, epsilon: float) -> np.ndarray:
        answer = super().noisy_laplace_sum(_alike(query), epsilon=epsilon)
        self._tape.put(self._asked_laplace(query, epsilon), self._exact(query), answer)
        return answer

    def noisy_choice(self, query: Any, *, epsilon: float) -> int:
        answer = super().noisy_choice(_alike(query), epsilon=epsilon)
        self._tape.put(self._asked_choice(query, epsilon), self._exact(query), answer)
        return answer

    def noisy_levels(self, **given: Any) -> Any:
        answer = super().noisy_levels(**given)
        self._tape.put(self._asked_levels(given), self._exact_texts(), answer)
        return answer

    def _loop(self, build: Any, held: Any, params: Any, state: Any, **given: Any) -> Any:
        exact = self._exact_step(params, given["plan"])
        # Answers are frozen, so any will do, and compiling the step takes longer than all the rest.
        noisy = [_made_up(params, at) for at in range(given["plan"].steps)]
        self._tape.put(self._asked_descent(given), exact, noisy)
        return self._moved_on(noisy, params, state, given["update"])

    def _teach(self, teaching: Any, carry: Any, held: Any, *, plan: Any, call: int, purpose: str) -> Any:
        exact = self._exact_answers(teaching, carry, held[0], plan)
        self._tape.put(self._asked("teachers", plan, purpose), exact, None)
        return self._taught(teaching, carry[1], plan)


def _made_up(params: Any, at: int) -> Any:
    random = np.random.default_rng(at)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), params)


class Player(_Doors):
    """A curator that gives out what a recorder wrote down, and never lets its own rows speak."""

    def __init__(self, rows: Any, *, neighbour: Neighbour, **given: Any) -> None:
        super().__init__(rows, **given)
        self._neighbour = neighbour

    def noisy_sum_at(self, query: Any, *, noise_multiplier: float) -> np.ndarray:
        self._charge(GaussianSum(noise_multiplier=noise_multiplier), query.purpose)
        exact, answer = self._tape.take(self._asked_sum(query, noise_multiplier))
        # The norm of whole grid steps may be a root, which a float rounds; a step has 2**20 grid steps.
        self._compare(np.linalg.norm(self._moved(query, exact)) / query.grid_norm * (1 - 1e-12), "a sum")
        return answer

    def noisy_laplace_sum(self, query: Any, *, epsilon: float) -> np.ndarray:
        self._charge(LaplaceSum(epsilon=epsilon), query.purpose)
        exact, answer = self._tape.take(self._asked_laplace(query, epsilon))
        # Laplace noise covers the sum of absolute values, and a row's is a whole number of grid steps.
        self._compare(np.sum(np.abs(self._moved(query, exact))), "a sum")
        return answer

    def noisy_choice(self, query: Any, *, epsilon: float) -> int:
        self._charge(ExponentialChoice(epsilon=epsilon), query.purpose)
        exact, answer = self._tape.take(self._asked_choice(query, epsilon))
        self._compare(np.max(np.abs(self._moved(query, exact)), initial=0.0), "a score")
        return answer

    def noisy_levels(self, **given: Any) -> Any:
        self._charge(Exposure(delta=given["delta"]), given["purpose"])
        self._charge(GaussianSum(noise_multiplier=self.noise_multiplier(given["share"])), given["purpose"])
        before, answer = self._tape.take(self._asked_levels(given))
        for old, new in zip(before, self._exact_texts(), strict=True):
            moved = np.linalg.norm([old.get(text, 0) - new.get(text, 0) for text in old | new])
            self._compare(GRID * moved, "the count of a text")
        return answer

    def _loop(self, build: Any, held: Any, params: Any, state: Any, **given: Any) -> Any:
        exact, noisy = self._tape.take(self._asked_descent(given))
        if self._neighbour.aligned:
            # Later steps start from frozen parameters and would show nothing new.
            mine = self._exact_step(params, given["plan"], exact)
            self._compare(np.linalg.norm(mine.total - exact.total), "the sum of a gradient step")
        return self._moved_on(noisy, params, state, given["update"])

    def _moved(self, query: Any, first: Exact) -> np.ndarray:
        return np.asarray(self._exact(query, first).total - first.total)

    def _teach(self, teaching: Any, carry: Any, held: Any, *, plan: Any, call: int, purpose: str) -> Any:
        exact, _ = self._tape.take(self._asked("teachers", plan, purpose))
        if self._neighbour.aligned and exact.total.size:
            self._compare_answers(self._exact_answers(teaching, carry, held[0], plan, exact).total, exact.total, plan)
        return self._taught(teaching, carry[1], plan)

    def _compare_answers(self, mine: np.ndarray, first: np.ndarray, plan: Any) -> None:
        """A unit lies in one part, however many rows it has: it may turn that answer round, and moves no other."""
        split = mine.size - plan.num_entries
        same = (mine == first) | (np.isnan(mine) & np.isnan(first))
        moved = np.sum(~same[:split].reshape(plan.parts, -1).all(axis=1))
        distance = np.linalg.norm(mine[split:] - first[split:])
        if moved > self._neighbour.steps or distance > self._neighbour.steps * SENSITIVITY * GRID:
            raise Violation("the answers of parts moved by more than their sensitivity")

    def _compare(self, distance: Any, what: str) -> None:
        if distance > self._neighbour.steps * self._ledger.adjacency.sum_factor * GRID:
            raise Violation(f"{what} moved by more than its sensitivity")


def play(
    method: Synthesizer,
    *,
    tables: Sequence[str] = tuple(SCHEMAS),
    changes: Sequence[Neighbour] | None = None,
    seed: int = 0,
    turns: int = 2,
    progress: Progress = quiet,
) -> PlayResult:
    """Record a fit of the method on each trial table, replay it on every neighbour, compare releases byte by byte.

    Each table is made up in so many ``turns``, from ``seed`` and from the next ones; sums are measured on the first.

    Guarantees: nothing is asserted away, so it works under ``python -O`` as well; a fit that fails on a neighbour only
    is a violation like any other, and so is a method of which no pair could be played.
    """
    changes = neighbours(method.relation) if changes is None else changes
    usual = [change for change in changes if change.start is None]
    result, programs = PlayResult(), Programs()
    for number, table in enumerate(tables):
        progress("record-play", number, len(tables))
        for turn in range(turns):
            result += _play_table(method, table, usual, Tape(turn == 0, programs), seed + turn)
        # Other starts need a recording each, and one table shows what there is to see.
        for change in changes if number == 0 else ():
            if change.start is not None:
                result += _play_table(method, table, [change], Tape(False, programs), seed)
    progress("record-play", len(tables), len(tables))
    return result if result.pairs else result + PlayResult(violations=("no pair could be played",))


def _play_table(method: Synthesizer, table: str, changes: Sequence[Neighbour], tape: Tape, seed: int) -> PlayResult:
    if not changes:
        return PlayResult()
    schema = SCHEMAS[table]
    # Under replace-one the number of rows is public, so it must be the declared one.
    usual = (schema.rows or 41) if method.relation is Relation.REPLACE_ONE else 41
    rows = trial_rows(table, changes[0].start or usual, seed)
    try:
        first = _release(partial(Recorder, tape=tape), rows, table, method)
    except ArgumentError as error:
        return _refused(method, table, changes, rows, str(error))
    violations = []
    for change in changes:
        tape.place = 0
        try:
            doors = partial(Player, tape=tape, neighbour=change)
            second = _release(doors, change.change(rows), table, method)
            tape.finish()
            if second != first:
                raise Violation("the release changed though the output of every door was frozen")
        except Violation as violation:
            violations.append(f"{table}, {change.name}: {violation}")
        except Exception as error:
            violations.append(f"{table}, {change.name}: the fit failed on the neighbour only ({type(error).__name__})")
    return PlayResult(pairs=len(changes), violations=tuple(violations))


def _refused(method: Synthesizer, table: str, changes: Sequence[Neighbour], rows: list[Row], words: str) -> PlayResult:
    """A setting may not go with a table, but then with no neighbour either: a refusal must not tell of the rows."""
    violations = []
    for change in changes:
        try:
            _release(partial(Recorder, tape=Tape(measure=False)), change.change(rows), table, method)
            violations.append(f"{table}, {change.name}: the fit failed on the first table only")
        except Exception as error:
            if str(error) != words:
                violations.append(f"{table}, {change.name}: the fit was refused for another reason")
    return PlayResult(skipped=len(changes), violations=tuple(violations), refusals=(f"{table}: {words}",))


def _release(doors: Any, rows: Any, table: str, method: Synthesizer) -> bytes:
    # Any budget would do; these take the accountant the least time: much noise for privacy loss distributions, little
    # for batches of fixed size.
    epsilon = 2.0 if method.relation is Relation.REPLACE_ONE else 0.1
    schema, budget = SCHEMAS[table], Budget(epsilon=epsilon, delta=1e-5)
    randomness = frozen_randomness()
    return to_bytes(
        pipeline.fit_through(
            doors, text_table(rows, schema), schema, method=method, budget=budget, randomness=randomness
        )
    )


def frozen_randomness() -> Randomness:
    """The same known key for both runs: what differs must come from the rows."""
    return Randomness.known(bytes(range(32)))
