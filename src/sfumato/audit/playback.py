"""Record-play: run a fit on D, freeze what came out of every door, replay it on a neighbour D'.

Whatever differs then was not paid for. The tape also keeps what each door was asked, and the exact sum before the
noise, so that the replay can check that the questions are equal and the sums no further apart than declared. It finds
defects of the glue (bounds, levels, sizes or starts read from the rows) and of sensitivities, exactly and without
statistics. It says nothing of the scale of the noise.

Reference: the idea is that of Re:cord-play (PETS 2026), written anew for these doors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from sfumato import pipeline
from sfumato.audit.neighbours import SCHEMAS, Neighbour, neighbours, text_table, trial_rows
from sfumato.errors import ArgumentError
from sfumato.privacy import Budget, Curator, Randomness, Relation
from sfumato.privacy.clipping import GRID
from sfumato.privacy.events import ExponentialChoice, GaussianSum
from sfumato.privacy.step import grid_total
from sfumato.progress import Progress, quiet
from sfumato.release.store import to_bytes
from sfumato.synthesizers import Synthesizer


class Violation(Exception):  # noqa: N818 - it is what an audit looks for, not an error of the audit
    """Something of a fit that depends on the rows and was not paid for."""


@dataclass
class Tape:
    """The calls of one fit, in order: what was asked, the exact sum, what came out.

    ``measure`` asks for the exact sums of gradients as well, which take seconds.
    """

    measure: bool = True
    calls: list[tuple[str, np.ndarray, Any]] = field(default_factory=list)
    place: int = 0

    def put(self, asked: str, exact: np.ndarray, answer: Any) -> None:
        """Write a call down."""
        self.calls.append((asked, exact, answer))

    def take(self, asked: str) -> tuple[np.ndarray, Any]:
        """The next call, which must have been the same question."""
        if self.place >= len(self.calls):
            raise Violation("a door was asked more often than on the first table")
        recorded, exact, answer = self.calls[self.place]
        if recorded != asked:
            raise Violation(f"a door was asked {asked!r} where it was asked {recorded!r} on the first table")
        self.place += 1
        return exact, answer

    def finish(self) -> None:
        """Rewind, once every call was taken."""
        if self.place < len(self.calls):
            raise Violation("a door was asked less often than on the first table")
        self.place = 0


class _Doors(Curator):
    """What recorder and player share: the words of a question, and exact sums, without compiling anything."""

    def __init__(self, rows: Any, *, tape: Tape, **given: Any) -> None:
        super().__init__(rows, **given)
        self._tape = tape
        self._loss: Any = None

    def noisy_descent(self, loss: Any, params: Any, state: Any, **given: Any) -> Any:
        self._loss = loss
        return super().noisy_descent(loss, params, state, **given)

    def _exact(self, query: Any) -> np.ndarray:
        entries = query.num_entries if hasattr(query, "num_entries") else query.num_candidates
        with jax.enable_x64(True), jax.disable_jit():
            return np.asarray(grid_total(self._rows, query.function, getattr(query, "clip", None), entries), np.float64)

    def _exact_step(self, params: Any, plan: Any) -> np.ndarray:
        """The sum of the clipped gradients of all rows at one and the same random key, before any noise.

        Without the draw of a batch, which a neighbour would change: what is measured is what one row can move.
        """
        gradient = lambda row: jax.grad(self._loss)(params, row, jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32)))
        with jax.enable_x64(True), jax.disable_jit():
            total = plan.clip.grid_sum(jax.vmap(gradient)(self._rows.columns), self._rows.real)
            return np.asarray(ravel_pytree(total)[0], np.float64)

    def _asked(self, kind: str, *parts: Any) -> str:
        return " | ".join([kind, *(repr(part) for part in (*parts, self._ledger.events))])

    def _asked_sum(self, query: Any, share: float) -> str:
        return self._asked("sum", query.purpose, query.num_entries, query.clip, share)

    def _asked_choice(self, query: Any, epsilon: float) -> str:
        return self._asked("choice", query.purpose, query.num_candidates, epsilon)

    def _asked_descent(self, given: Any) -> str:
        return self._asked("descent", given["plan"], given["purpose"], self.size)


class Recorder(_Doors):
    """A curator that writes down what its doors give out."""

    def noisy_sum(self, query: Any, *, share: float) -> np.ndarray:
        answer = super().noisy_sum(query, share=share)
        self._tape.put(self._asked_sum(query, share), self._exact(query), answer)
        return answer

    def noisy_choice(self, query: Any, *, epsilon: float) -> int:
        answer = super().noisy_choice(query, epsilon=epsilon)
        self._tape.put(self._asked_choice(query, epsilon), self._exact(query), answer)
        return answer

    def _loop(self, gradient: Any, params: Any, state: Any, **given: Any) -> Any:
        exact = self._exact_step(params, given["plan"]) if self._tape.measure else np.zeros(0)
        take = jax.jit(lambda params, rows, key, step: gradient(params, rows, key, given["call"], step))
        noisy = []
        for step in range(given["plan"].steps):
            noisy.append(take(params, self._rows, self._randomness.key, step))
            params, state = given["update"](noisy[-1], state, params)
        self._tape.put(self._asked_descent(given), exact, noisy)
        return params, state


class Player(_Doors):
    """A curator that gives out what a recorder wrote down, and never lets its own rows speak."""

    def __init__(self, rows: Any, *, neighbour: Neighbour, **given: Any) -> None:
        super().__init__(rows, **given)
        self._neighbour = neighbour

    def noisy_sum(self, query: Any, *, share: float) -> np.ndarray:
        self._charge(GaussianSum(noise_multiplier=self._ledger.budget.multiplier(share)), query.purpose)
        exact, answer = self._tape.take(self._asked_sum(query, share))
        self._compare(np.linalg.norm(self._exact(query) - exact), "a sum")
        return answer

    def noisy_choice(self, query: Any, *, epsilon: float) -> int:
        self._charge(ExponentialChoice(epsilon=epsilon), query.purpose)
        exact, answer = self._tape.take(self._asked_choice(query, epsilon))
        self._compare(np.max(np.abs(self._exact(query) - exact)), "a score")
        return answer

    def _loop(self, gradient: Any, params: Any, state: Any, **given: Any) -> Any:
        exact, noisy = self._tape.take(self._asked_descent(given))
        if exact.size and self._neighbour.aligned:
            # Later steps start from frozen parameters and would show nothing new.
            distance = np.linalg.norm(self._exact_step(params, given["plan"]) - exact)
            self._compare(distance, "the sum of a gradient step")
        for answer in noisy:
            params, state = given["update"](answer, state, params)
        return params, state

    def _compare(self, distance: Any, what: str) -> None:
        if distance > self._neighbour.steps * self._ledger.adjacency.sum_factor * GRID:
            raise Violation(f"{what} moved by more than its sensitivity")


@dataclass(frozen=True, kw_only=True)
class PlayResult:
    """How many pairs of neighbours were played, what differed, and which settings do not go with which table."""

    pairs: int = 0
    violations: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def __add__(self, other: "PlayResult") -> "PlayResult":
        return PlayResult(
            pairs=self.pairs + other.pairs,
            violations=self.violations + other.violations,
            skipped=self.skipped + other.skipped,
        )

    def to_dict(self) -> dict[str, object]:
        """JSON-safe fields."""
        return {"pairs": self.pairs, "violations": list(self.violations), "skipped": list(self.skipped)}


def play(
    method: Synthesizer,
    *,
    tables: Sequence[str] = tuple(SCHEMAS),
    changes: Sequence[Neighbour] | None = None,
    seed: int = 0,
    progress: Progress = quiet,
) -> PlayResult:
    """Record a fit of the method on each trial table, replay it on every neighbour, compare releases byte by byte.

    Guarantees: nothing is asserted away, so it works under ``python -O`` as well; a fit that fails on a neighbour only
    is a violation like any other.
    """
    changes = neighbours(method.relation) if changes is None else changes
    result = PlayResult()
    for number, table in enumerate(tables):
        progress("record-play", number, len(tables))
        usual = [change for change in changes if change.start is None]
        # Sums of gradients, and other starts, cost seconds each, and one table shows what there is to see.
        result += _play_table(method, table, usual, Tape(measure=number == 0), seed)
        for change in changes if number == 0 else ():
            if change.start is not None:
                result += _play_table(method, table, [change], Tape(measure=False), seed)
    progress("record-play", len(tables), len(tables))
    return result


def _play_table(method: Synthesizer, table: str, changes: Sequence[Neighbour], tape: Tape, seed: int) -> PlayResult:
    schema = SCHEMAS[table]
    # Under replace-one the number of rows is public, so it must be the declared one.
    usual = (schema.rows or 0) if method.relation is Relation.REPLACE_ONE else 41
    start = changes[0].start if changes else None
    rows = trial_rows(table, start or usual, seed)
    try:
        first = _release(partial(Recorder, tape=tape), rows, table, method)
    except ArgumentError as error:
        return PlayResult(skipped=(f"{table}: {error}",))
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
    """The same known key for both runs, posing as the system's: what differs must come from the rows."""
    return Randomness("os", bytes(range(32)))
