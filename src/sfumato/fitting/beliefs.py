"""Beliefs: the tables of the groups of a junction tree, from potentials, by passing messages up and down the tree.

What is summed, in which order and along which axes, depends on the tree alone and is laid out once.

Reference: Jensen, Lauritzen, Olesen 1990 (the Hugin scheme); Koller and Friedman 2009, section 10.3.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log, prod

import numpy as np
from jaxtyping import Float

from sfumato.fitting.junction_tree import Group, JunctionTree

Table = Float[np.ndarray, "..."]


@dataclass(frozen=True)
class Beliefs:
    """The tables of a distribution: of the groups of its tree and of those asked for; and its log constant."""

    tables: tuple[Table, ...]
    asked: tuple[Table, ...]
    log_constant: float


class Passing:
    """The way from potentials of some groups of columns to the tables of a tree that holds them."""

    def __init__(self, tree: JunctionTree, groups: Sequence[Group]) -> None:
        self._tree = tree
        homes = [tree.home(group) for group in groups]
        below: list[list[int]] = [[] for _ in tree.groups]
        for place, up in enumerate(tree.above):
            if up is not None:
                below[up].append(place)
        num = range(len(tree.groups))
        mine = [[number for number, home in enumerate(homes) if home == place] for place in num]
        self._products = [
            _Product.of(
                tree.groups[place],
                tree.sizes,
                [(("potential", number), groups[number]) for number in mine[place]]
                + [(("message", child), tree.shared[child]) for child in below[place]],
            )
            for place in num
        ]
        self._upward = [Sums.of(tree.groups[place], tree.sizes, [tree.shared[place]]) for place in num]
        self._downward = [
            Sums.of(
                tree.groups[place],
                tree.sizes,
                [groups[number] for number in mine[place]] + [tree.shared[child] for child in below[place]],
            )
            for place in num
        ]
        self._mine, self._below = mine, below

    def __call__(self, potentials: Sequence[Table]) -> Beliefs:
        """The tables of the distribution whose log shares are sums of potentials, up to a constant."""
        tree, log_constant = self._tree, 0.0
        factors: dict[tuple[str, int], Table] = {}
        for number, potential in enumerate(potentials):
            top = float(potential.max())
            factors["potential", number] = np.exp(potential - top)
            log_constant += top
        tables: list[Table] = [np.empty(0)] * len(tree.groups)
        messages: dict[int, Table] = {}
        for place in reversed(range(len(tree.groups))):
            tables[place] = self._products[place](factors)
            if tree.above[place] is None:
                whole = max(float(tables[place].sum()), 1e-300)
                tables[place] /= whole
                log_constant += log(whole)
            else:
                (message,) = self._upward[place](tables[place])
                top = max(float(message.max()), 1e-300)  # a factor of zeros is kept out of the log
                messages[place] = message
                factors["message", place] = message / top
                log_constant += log(top)
        asked: list[Table] = [np.empty(0)] * len(potentials)
        for place in range(len(tree.groups)):
            found = self._downward[place](tables[place])
            for number, table in zip(self._mine[place], found, strict=False):
                asked[number] = table
            for child, target in zip(self._below[place], found[len(self._mine[place]) :], strict=True):
                had = messages[child]
                ratio = np.divide(target, had, out=np.zeros_like(target), where=had > 0)
                tables[child] *= spread(ratio, tree.shared[child], tree.groups[child])
        return Beliefs(tuple(tables), tuple(asked), log_constant)


@dataclass(frozen=True)
class _Product:
    """A product of tables over columns of a group, axis by axis, so that most of the work is on small tables.

    For each axis: the tables that end with it, each with the order and the lengths of its axes.
    """

    axes: tuple[tuple[tuple[tuple[str, int], tuple[int, ...], tuple[int, ...]], ...], ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, group: Group, sizes: Sequence[int], factors: Sequence[tuple[tuple[str, int], Group]]) -> "_Product":
        axes = []
        for last, column in enumerate(group):
            seen = group[: last + 1]
            ending = [(name, cols) for name, cols in factors if column in cols and set(cols) <= set(seen)]
            ending.sort(key=lambda factor: prod(sizes[c] for c in factor[1]))
            shape = lambda cols, seen=seen: tuple(sizes[c] if c in cols else 1 for c in seen)
            axes.append(tuple((name, _order(cols, seen), shape(cols)) for name, cols in ending))
        return cls(tuple(axes), tuple(sizes[column] for column in group))

    def __call__(self, factors: dict[tuple[str, int], Table]) -> Table:
        made: Table = np.ones(())
        for ending, length in zip(self.axes, self.lengths, strict=True):
            inner: Table | None = None
            for name, order, shape in ending:
                wide = factors[name].transpose(order).reshape(shape)
                inner = wide if inner is None else inner * wide
            made = made[..., None] * (np.ones(length) if inner is None else inner)
        return made if made.base is None else made.copy()


@dataclass(frozen=True)
class Sums:
    """Sums of a group's table onto several smaller groups of columns, by way of each other where that is less work."""

    steps: tuple[tuple[int, int], ...]
    targets: tuple[tuple[int, tuple[int, ...]], ...]

    @classmethod
    def of(cls, group: Group, sizes: Sequence[int], targets: Iterable[Group]) -> "Sums":
        known, steps, found = [group], [], {}
        targets = list(targets)
        for target in sorted(targets, key=lambda columns: -prod(sizes[c] for c in columns)):
            fits = [number for number, columns in enumerate(known) if set(target) <= set(columns)]
            at = min(fits, key=lambda number: prod(sizes[c] for c in known[number]))
            while set(known[at]) != set(target):
                # Long axes first: what is left to sum is then soon small.
                axis = max(
                    (axis for axis, column in enumerate(known[at]) if column not in target),
                    key=lambda axis: sizes[known[at][axis]],
                )
                steps.append((at, axis))
                known.append(known[at][:axis] + known[at][axis + 1 :])
                at = len(known) - 1
            found[target] = (at, tuple(known[at].index(column) for column in target))
        return cls(tuple(steps), tuple(found[target] for target in targets))

    def __call__(self, table: Table) -> list[Table]:
        known = [table]
        for at, axis in self.steps:
            known.append(np.add.reduce(known[at], axis=axis))
        return [known[at].transpose(order) for at, order in self.targets]


def onto(table: Table, group: Group, columns: Group) -> Table:
    """The sums of a group's table over all columns but these, with their axes in this order."""
    sizes = dict(zip(group, table.shape, strict=True))
    return Sums.of(group, [sizes.get(c, 1) for c in range(max(group, default=0) + 1)], [columns])(table)[0]


def spread(table: Table, columns: Group, group: Group) -> Table:
    """A table with an axis for each column of a group, of length one where it has none."""
    lengths = dict(zip(columns, table.shape, strict=True))
    return table.transpose(_order(columns, group)).reshape([lengths.get(column, 1) for column in group])


def _order(columns: Group, group: Group) -> tuple[int, ...]:
    """The order of a table's axes in which its columns stand in a group."""
    return tuple(columns.index(column) for column in group if column in columns)
