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
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sfumato import pipeline
from sfumato.audit.neighbours import SCHEMAS, Neighbour, Row, neighbours, text_table, trial_rows
from sfumato.audit.play_result import PlayResult
from sfumato.errors import ArgumentError
from sfumato.privacy import Budget, Curator, PoissonSampling, Randomness, Relation, step
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import cell_counts
from sfumato.privacy.events import ExponentialChoice, Exposure, GaussianSum, LaplaceSum
from sfumato.privacy.factors import FactoredLoss
from sfumato.privacy.queries import CountQuery, DistanceQuery
from sfumato.privacy.teachers import SENSITIVITY, step_total
from sfumato.progress import Progress, quiet
from sfumato.release.store import to_bytes
from sfumato.synthesizers import Synthesizer

_LOUD = 1e6
"""What vectors are multiplied with before they are clipped for a measurement, so that each row comes to its bound.

Rows that stay below their bound would hide a defect that lets them pass it.
"""


class Violation(Exception):  # noqa: N818 - it is what an audit looks for, not an error of the audit
    """Something of a fit that depends on the rows and was not paid for."""


@dataclass
class Tape:
    """The calls of one fit, in order: what was asked, the exact sum, what came out.

    ``measure`` asks for the exact sums, whose compilation takes seconds; ``programs`` are the compiled sums by their
    text.
    """

    measure: bool = True
    calls: list[tuple[str, Any, Any]] = field(default_factory=list)
    programs: dict[str, Any] = field(default_factory=dict)
    place: int = 0

    def put(self, asked: str, exact: Any, answer: Any) -> None:
        """Write a call down."""
        self.calls.append((asked, exact, answer))

    def take(self, asked: str) -> tuple[Any, Any]:
        """The next call, which must have been the same question."""
        if self.place >= len(self.calls):
            raise Violation("a door was asked more often than on the first table")
        recorded, exact, answer = self.calls[self.place]
        if recorded != asked:
            raise Violation(f"a door was asked {asked!r} where it was asked {recorded!r} on the first table")
        self.place += 1
        return exact, answer

    def program(self, lowered: Any, *, recording: bool) -> Any:
        """The compiled form of a sum. A program's text holds every constant, so equal texts are equal functions."""
        text = lowered.as_text()
        if text not in self.programs:
            if not recording:
                raise Violation("a door was asked for the sum of another function than on the first table")
            self.programs[text] = lowered.compile()
        return self.programs[text]

    def finish(self) -> None:
        """Rewind, once every call was taken."""
        if self.place < len(self.calls):
            raise Violation("a door was asked less often than on the first table")
        self.place = 0


class _Doors(Curator):
    """What recorder and player share: the words of a question, and exact sums by the doors' own compiled programs."""

    _recording: ClassVar[bool]

    def __init__(self, rows: Any, *, tape: Tape, **given: Any) -> None:
        super().__init__(rows, **given)
        self._tape = tape
        self._loss: Any = None

    def noisy_descent(self, loss: Any, params: Any, state: Any, **given: Any) -> Any:
        self._loss = loss
        return super().noisy_descent(loss, params, state, **given)

    def _exact(self, query: Any) -> np.ndarray:
        if isinstance(query, CountQuery | DistanceQuery):
            counts = self._measured(lambda rows: cell_counts(rows, query.function, query.sizes), self._rows)
            if not counts.size or isinstance(query, CountQuery):
                return counts * GRID
            return np.array(query.scores(counts), np.float64)
        entries = query.num_entries if hasattr(query, "num_entries") else query.num_candidates
        loud = lambda row: _LOUD * query.function(row)
        return self._measured(
            lambda rows: step.grid_total(rows, loud, getattr(query, "clip", None), entries), self._rows
        )

    def _exact_step(self, params: Any, plan: Any) -> np.ndarray:
        """The sum of a step's clipped gradients, before any noise, if all rows take part.

        All of them do, since a neighbour may change which rows are drawn, while what is measured is what a row moves.
        """
        loud: Any = lambda params, row, key: _LOUD * self._loss(params, row, key)
        if isinstance(self._loss, FactoredLoss):
            loud = _Louder(self._loss)
        everyone, expected = replace(plan, sampling=PoissonSampling(rate=1.0)), float(self.size)
        total = lambda params, rows, key: step.batch_total(loud, params, everyone, rows, key, 0, 0, expected)  # type: ignore[arg-type]
        return self._measured(total, params, self._rows, self._randomness.key)

    def _exact_answers(self, teaching: Any, carry: Any, dealt: Any, plan: Any) -> np.ndarray:
        """The sum of the clipped answers of all parts in the first step, before any noise."""
        loud = replace(teaching, answer=lambda *given: _LOUD * teaching.answer(*given))
        total = lambda carry, rows, dealt: step_total(loud, plan, carry[0], carry[1], rows, dealt, self.start_key())[1]
        return self._measured(total, carry, self._rows, dealt)

    def _taught(self, teaching: Any, public: Any, plan: Any) -> Any:
        """What is public after answers that are frozen: any will do."""
        for at in range(plan.steps):
            public = teaching.update(_made_up(jnp.zeros(plan.num_entries, jnp.float32), at), public)
        return public

    def _measured(self, total: Any, *given: Any) -> np.ndarray:
        if not self._tape.measure:
            return np.zeros(0)
        with jax.enable_x64(True):
            program = self._tape.program(jax.jit(total).lower(*given), recording=self._recording)
            return np.asarray(program(*given), np.float64)

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


@dataclass(frozen=True)
class _Louder:
    """A loss in factors, multiplied so that each row comes to its bound."""

    loss: FactoredLoss

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loss, name)

    def row(self, weights: Any, row: Any, key: Any, taps: Any) -> Any:
        value, notes = self.loss.row(weights, row, key, taps)
        return _LOUD * value, notes

    def common(self, weights: Any) -> Any:
        return _LOUD * self.loss.common(weights)


class Recorder(_Doors):
    """A curator that writes down what its doors give out."""

    _recording = True

    def noisy_sum_at(self, query: Any, *, noise_multiplier: float) -> np.ndarray:
        answer = super().noisy_sum_at(query, noise_multiplier=noise_multiplier)
        self._tape.put(self._asked_sum(query, noise_multiplier), self._exact(query), answer)
        return answer

    def noisy_laplace_sum(self, query: Any, *, epsilon: float) -> np.ndarray:
        answer = super().noisy_laplace_sum(query, epsilon=epsilon)
        self._tape.put(self._asked_laplace(query, epsilon), self._exact(query), answer)
        return answer

    def noisy_choice(self, query: Any, *, epsilon: float) -> int:
        answer = super().noisy_choice(query, epsilon=epsilon)
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
        for answer in noisy:
            params, state = given["update"](answer, state, params)
        self._tape.put(self._asked_descent(given), exact, noisy)
        return params, state

    def _teach(self, teaching: Any, carry: Any, held: Any, *, plan: Any, call: int, purpose: str) -> Any:
        exact = self._exact_answers(teaching, carry, held[0], plan)
        self._tape.put(self._asked("teachers", plan, purpose), exact, None)
        return self._taught(teaching, carry[1], plan)


def _made_up(params: Any, at: int) -> Any:
    random = np.random.default_rng(at)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), params)


class Player(_Doors):
    """A curator that gives out what a recorder wrote down, and never lets its own rows speak."""

    _recording = False

    def __init__(self, rows: Any, *, neighbour: Neighbour, **given: Any) -> None:
        super().__init__(rows, **given)
        self._neighbour = neighbour

    def noisy_sum_at(self, query: Any, *, noise_multiplier: float) -> np.ndarray:
        self._charge(GaussianSum(noise_multiplier=noise_multiplier), query.purpose)
        exact, answer = self._tape.take(self._asked_sum(query, noise_multiplier))
        # The norm of whole grid steps may be a root, which a float rounds; a step has 2**20 grid steps.
        self._compare(np.linalg.norm(self._exact(query) - exact) / query.grid_norm * (1 - 1e-12), "a sum")
        return answer

    def noisy_laplace_sum(self, query: Any, *, epsilon: float) -> np.ndarray:
        self._charge(LaplaceSum(epsilon=epsilon), query.purpose)
        exact, answer = self._tape.take(self._asked_laplace(query, epsilon))
        # Laplace noise covers the sum of absolute values, and a row's is a whole number of grid steps.
        self._compare(np.sum(np.abs(self._exact(query) - exact)), "a sum")
        return answer

    def noisy_choice(self, query: Any, *, epsilon: float) -> int:
        self._charge(ExponentialChoice(epsilon=epsilon), query.purpose)
        exact, answer = self._tape.take(self._asked_choice(query, epsilon))
        self._compare(np.max(np.abs(self._exact(query) - exact), initial=0.0), "a score")
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
            distance = np.linalg.norm(self._exact_step(params, given["plan"]) - exact)
            self._compare(distance, "the sum of a gradient step")
        for answer in noisy:
            params, state = given["update"](answer, state, params)
        return params, state

    def _teach(self, teaching: Any, carry: Any, held: Any, *, plan: Any, call: int, purpose: str) -> Any:
        exact, _ = self._tape.take(self._asked("teachers", plan, purpose))
        if self._neighbour.aligned:
            # A unit lies in one part, whose answer it may turn round, however many rows it has.
            distance = np.linalg.norm(self._exact_answers(teaching, carry, held[0], plan) - exact)
            self._compare(distance / SENSITIVITY, "the sum of answers of parts")
        return self._taught(teaching, carry[1], plan)

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
    result = PlayResult()
    for number, table in enumerate(tables):
        progress("record-play", number, len(tables))
        for turn in range(turns):
            result += _play_table(method, table, usual, Tape(measure=turn == 0), seed + turn)
        # Other starts need a recording each, and one table shows what there is to see.
        for change in changes if number == 0 else ():
            if change.start is not None:
                result += _play_table(method, table, [change], Tape(measure=False), seed)
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
    # Any budget would do; that of much noise is the one that takes the accountant the least time.
    schema, budget = SCHEMAS[table], Budget(epsilon=0.1, delta=1e-5)
    randomness = frozen_randomness()
    return to_bytes(
        pipeline.fit_through(
            doors, text_table(rows, schema), schema, method=method, budget=budget, randomness=randomness
        )
    )


def frozen_randomness() -> Randomness:
    """The same known key for both runs: what differs must come from the rows."""
    return Randomness.known(bytes(range(32)))
