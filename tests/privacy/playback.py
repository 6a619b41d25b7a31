"""Record-play: run a fit on D, freeze what came out of every door, replay it on a neighbour D'.

Whatever differs then was not paid for. The recorder also keeps what each door was asked, and the exact sum before the
noise, so that the replay can check that the questions are equal and the sums no further apart than declared.

Reference: the idea is that of Re:cord-play (PETS 2026), written anew for these doors.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from sfumato.privacy import Curator, Randomness
from sfumato.privacy.clipping import GRID
from sfumato.privacy.events import GaussianSum
from sfumato.privacy.step import grid_total


@dataclass
class Tape:
    """The calls of one fit, in order: what was asked, the exact sum, what came out."""

    calls: list[tuple[str, Any, Any]] = field(default_factory=list)
    place: int = 0
    measure: bool = True

    def take(self, asked: str) -> tuple[Any, Any]:
        assert self.place < len(self.calls), f"a door was asked more often than on the first table: {asked}"
        recorded, exact, answer = self.calls[self.place]
        assert recorded == asked, f"a door was asked {asked!r} where it was asked {recorded!r} on the first table"
        self.place += 1
        return exact, answer


class _Doors(Curator):
    tape: Tape

    def _exact_sum(self, query: Any) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(grid_total(self._rows, query.function, query.clip, query.num_entries), np.float64)

    def _asked(self, kind: str, *parts: Any) -> str:
        return " | ".join([kind, *(repr(part) for part in parts)])


class Recorder(_Doors):
    """A curator that writes down what its doors give out."""

    def noisy_sum(self, query: Any, *, share: float) -> np.ndarray:
        answer = super().noisy_sum(query, share=share)
        asked = self._asked("sum", query.purpose, query.num_entries, query.clip, share, self._ledger.events)
        self.tape.calls.append((asked, self._exact_sum(query), answer))
        return answer

    def _loop(self, gradient: Any, params: Any, state: Any, **given: Any) -> Any:
        take = jax.jit(lambda params, rows, key, step: gradient(params, rows, key, given["call"], step))
        noisy = []
        for step in range(given["plan"].steps):
            noisy.append(take(params, self._rows, self._randomness.key, step))
            params, state = given["update"](noisy[-1], state, params)
        asked = self._asked("descent", given["plan"], given["purpose"], self._ledger.events, self.size)
        self.tape.calls.append((asked, None, noisy))
        return params, state


class Player(_Doors):
    """A curator that gives out what a recorder wrote down, and never lets its own rows speak."""

    def noisy_sum(self, query: Any, *, share: float) -> np.ndarray:
        self._charge(GaussianSum(noise_multiplier=self._ledger.budget.multiplier(share)), query.purpose)
        asked = self._asked("sum", query.purpose, query.num_entries, query.clip, share, self._ledger.events)
        exact, answer = self.tape.take(asked)
        if self.tape.measure:
            distance = np.linalg.norm(self._exact_sum(query) - exact)
            assert distance <= GRID * self._ledger.adjacency.sum_factor, "a sum moved by more than its sensitivity"
        return answer

    def _loop(self, gradient: Any, params: Any, state: Any, **given: Any) -> Any:
        asked = self._asked("descent", given["plan"], given["purpose"], self._ledger.events, self.size)
        _, noisy = self.tape.take(asked)
        for answer in noisy:
            params, state = given["update"](answer, state, params)
        return params, state


def frozen_randomness() -> Randomness:
    """The same key for both runs, posing as the system's: what differs must come from the rows."""
    return Randomness("os", bytes(range(32)))
