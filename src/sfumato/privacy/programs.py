"""Programs: the compiled sums of one fit, so that a question that is asked in rounds is compiled once.

They belong to one curator and its views, and go with it: nothing that was compiled for one fit is met by another.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax


@dataclass(frozen=True)
class _Same:
    """Equal to itself alone, whatever the thing says of equality; it is kept, so that no other takes its address."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


class Programs:
    """Compiled functions of (arrays, rest): one for each fixed part of a function of a row.

    Guarantees: two functions share a program only if they are one object, or trees of one structure (Equinox modules
    of one class) with equal fixed parts; their arrays are arguments of the program. Rows are arguments as well, so no
    program holds a copy of them. What a function closes over must not change between two questions.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, Callable[..., Any]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def of(
        self, build: Callable[..., Callable[..., Any]], function: Callable[..., Any], *given: Hashable
    ) -> tuple[Callable[..., Any], Any]:
        """The compiled form of ``build(fixed, *given)``, a function of (arrays, ...), and the arrays of ``function``.

        ``eqx.combine(arrays, fixed)`` is the function again.
        """
        arrays, fixed = eqx.partition(function, eqx.is_array)
        # As text too: in Python 1, 1.0 and True are equal, and so are 0.0 and -0.0, where programs differ.
        key = (build, fixed_part(fixed), given, repr(given))
        if key not in self._found:
            self._found[key] = jax.jit(build(fixed, *given))
        return self._found[key], arrays


def fixed_part(tree: Any) -> Hashable:
    """What is fixed in a function of a row, in a form that can be compared: its structure and what is no array.

    >>> fixed_part((1, "a")) == fixed_part((1, "a")), fixed_part((1,)) == fixed_part((1.0,))
    (True, False)
    >>> fixed_part(lambda row: row) == fixed_part(lambda row: row)
    False
    """
    leaves, structure = jax.tree.flatten(tree)
    return structure, repr(structure), tuple(_leaf(leaf) for leaf in leaves)


def _leaf(leaf: Any) -> Hashable:
    if type(leaf) in (bool, int, float, complex, str, bytes):
        return type(leaf), repr(leaf)
    return _Same(leaf)
