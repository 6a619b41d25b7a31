"""Junction tree: groups of columns that a graphical model holds joint tables of, and the tree that joins the groups.

Only public structure: which columns were measured together, and how many codes they have. The tree decides how large
the model is, so it can be asked for before anything is measured.

Reference: Lauritzen and Spiegelhalter 1988; Koller and Friedman 2009, chapters 9 and 10.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod

Group = tuple[int, ...]
"""Columns that belong together."""

_MEGABYTES_A_CELL = 8 / 2**20


@dataclass(frozen=True)
class JunctionTree:
    """Groups in an order in which every group comes after the one it hangs on; ``above`` is its place, None for a root.

    Inside a group the columns of fewest codes come first, since loops over long last axes are fast.
    Guarantees: the columns that a group shares with all groups before it are those it shares with the one above it.
    """

    sizes: tuple[int, ...]
    groups: tuple[Group, ...]
    above: tuple[int | None, ...]

    @cached_property
    def shared(self) -> tuple[Group, ...]:
        """The columns that each group shares with the one above it."""
        pairs = zip(self.groups, self.above, strict=True)
        return tuple(() if up is None else _both(group, self.groups[up]) for group, up in pairs)

    @property
    def num_cells(self) -> int:
        """The cells of the tables of all groups."""
        return _cells(self.sizes, self.groups)

    @property
    def megabytes(self) -> float:
        """The room that the tables take up at eight bytes a cell."""
        return self.num_cells * _MEGABYTES_A_CELL

    def home(self, columns: Group) -> int | None:
        """The place of the smallest group that holds all of these columns, if there is one."""
        fits = [place for place, group in enumerate(self.groups) if set(columns) <= set(group)]
        return min(fits, key=lambda place: prod(self.sizes[c] for c in self.groups[place])) if fits else None


def junction_tree(sizes: Sequence[int], measured: Iterable[Group]) -> JunctionTree:
    """The junction tree of columns that were measured in these groups; every column is in it.

    Columns are eliminated one by one, the one whose group is smallest first; this is a heuristic, like all that are
    quick.

    >>> junction_tree([2, 2, 2, 2], [(0, 1), (1, 2)]).groups
    ((0, 1), (1, 2), (3,))
    """
    groups = [tuple(sorted(group, key=lambda c: (sizes[c], c))) for group in _largest(_eliminate(sizes, measured))]
    order: list[int] = [0]
    above: list[int | None] = [None]
    shares = {(i, j): len(set(groups[i]) & set(groups[j])) for i in range(len(groups)) for j in range(len(groups))}
    while len(order) < len(groups):
        rest = [place for place in range(len(groups)) if place not in order]
        up, down = max(((i, j) for i in order for j in rest), key=lambda pair: (shares[pair], -pair[1], -pair[0]))
        above.append(order.index(up) if shares[up, down] else None)
        order.append(down)
    return JunctionTree(tuple(sizes), tuple(groups[place] for place in order), tuple(above))


def megabytes_with(sizes: Sequence[int], measured: Iterable[Group]) -> float:
    """The room that the junction tree of these groups would take up; faster than to build it.

    >>> megabytes_with([2, 2, 2], [(0, 1), (1, 2)]) == junction_tree([2, 2, 2], [(0, 1), (1, 2)]).megabytes
    True
    """
    return _cells(sizes, _largest(_eliminate(sizes, measured))) * _MEGABYTES_A_CELL


def _cells(sizes: Sequence[int], groups: Iterable[Group]) -> int:
    return sum(prod(sizes[column] for column in group) for group in groups)


def _eliminate(sizes: Sequence[int], measured: Iterable[Group]) -> list[Group]:
    """The groups that arise when columns are eliminated: each with the neighbours that it has left."""
    near: dict[int, set[int]] = {column: set() for column in range(len(sizes))}
    for group in measured:
        for a, b in combinations(group, 2):
            near[a].add(b)
            near[b].add(a)

    def cost(column: int) -> tuple[int, int]:
        return sizes[column] * prod(sizes[other] for other in near[column]), column

    costs = {column: cost(column) for column in near}
    found = []
    while near:
        column = min(costs, key=lambda each: costs[each])
        others = near.pop(column)
        costs.pop(column)
        found.append(tuple(sorted({column, *others})))
        for other in others:
            near[other] |= others - {other}
            near[other].discard(column)
        for other in others:
            costs[other] = cost(other)
    return found


def _largest(groups: list[Group]) -> list[Group]:
    """The groups that no other contains, in rising order."""
    sets = [set(group) for group in groups]
    kept = {group for group, mine in zip(groups, sets, strict=True) if not any(mine < other for other in sets)}
    return sorted(kept)


def _both(one: Group, other: Group) -> Group:
    return tuple(column for column in one if column in other)
