"""Tape: what the doors of one fit were asked and gave out, for a replay of the fit on a neighbouring table."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sfumato.privacy.programs import Programs, fixed_part


class Violation(Exception):  # noqa: N818 - it is what an audit looks for, not an error of the audit
    """Something of a fit that depends on the rows and was not paid for."""


@dataclass(frozen=True)
class Exact:
    """A sum before its noise, and the function of a row that it is a sum of."""

    total: np.ndarray
    function: Any = None


@dataclass
class Tape:
    """The calls of one fit, in order: what was asked, the exact sum, what came out.

    ``measure`` asks for the exact sums, whose compilation takes seconds; ``programs`` are those of record and replay.
    """

    measure: bool = True
    programs: Programs = field(default_factory=Programs)
    calls: list[tuple[str, Any, Any]] = field(default_factory=list)
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

    def finish(self) -> None:
        """Rewind, once every call was taken."""
        if self.place < len(self.calls):
            raise Violation("a door was asked less often than on the first table")
        self.place = 0


def agreed(function: Any, first: Any, program: Callable[[Any], Any]) -> Any:
    """The function of the first table, if that of the second is equal to it; ``program`` lowers the sum of one.

    Trees with equal fixed parts and equal arrays are equal. Closures are compared by the text of their programs, which
    holds every constant; tracing both takes a second where a loss is large. One and the same object is not looked
    into: what it reads from elsewhere must not change.
    """
    if identity(function) == identity(first) or program(function).as_text() == program(first).as_text():
        return first
    raise Violation("a door was asked for the sum of another function than on the first table")


def identity(function: Any) -> Hashable:
    """All of a function of a row that can be compared: its structure, what is fixed in it, and its arrays."""
    arrays, fixed = eqx.partition(function, eqx.is_array)
    return fixed_part(fixed), jax.tree.structure(arrays), tuple(_bits(array) for array in jax.tree.leaves(arrays))


def _bits(array: Any) -> Hashable:
    plain = jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array
    return str(array.dtype), array.shape, np.asarray(plain).tobytes()
