"""Queried: what can be asked of a graphical model: tables of any two columns, and the form in which it is released."""

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from math import prod

import jax.numpy as jnp
import numpy as np

from sfumato.fitting.beliefs import Table, onto
from sfumato.fitting.graphical import GraphicalModel
from sfumato.fitting.junction_tree import Group
from sfumato.models.codes.tables import ConditionalTables


def conditional_tables(model: GraphicalModel) -> ConditionalTables:
    """The model as conditional probabilities along its tree: the columns of a group that are new in it, one by one,
    given those that are known already."""
    tree = model.tree
    order: list[int] = []
    parents: list[Group] = [()] * len(tree.sizes)
    tables: list[Table] = [np.empty(0)] * len(tree.sizes)
    for group, shared, shares in zip(tree.groups, tree.shared, model.shares, strict=True):
        known = shared
        for column in (column for column in group if column not in shared):
            joint = onto(shares, group, (*known, column)).reshape(-1, tree.sizes[column])
            parents[column], tables[column] = known, _given(joint)
            order.append(column)
            known = (*known, column)
    as_arrays = tuple(jnp.asarray(table, jnp.float32) for table in tables)
    return ConditionalTables(as_arrays, tuple(order), tuple(parents))


def _given(joint: Table) -> Table:
    """Each row of a table as shares that add up to one; rows that hold nothing get the shares of all rows together."""
    mass = joint.sum(axis=1, keepdims=True)
    return np.where(mass > 1e-30, joint / np.maximum(mass, 1e-30), joint.sum(axis=0) / joint.sum())


class Queried:
    """The tables of single columns and of pairs of a model, also of pairs that lie in no common group.

    A pair that does is summed from its group. Otherwise the joint table of one column with what two groups share is
    carried from group to group, from its own to that of the other column.
    """

    def __init__(self, model: GraphicalModel) -> None:
        self._model, self._tree = model, model.tree
        self._kept: dict[tuple[int, Group], Table] = {}

    @cached_property
    def singles(self) -> tuple[Table, ...]:
        """The shares of each column."""
        columns = range(len(self._tree.sizes))
        return tuple(self._marginal(self._home(column), (column,)) for column in columns)

    def pairs(self) -> dict[Group, Table]:
        """The joint shares of all pairs of columns."""
        found: dict[Group, Table] = {}
        for column in range(len(self._tree.sizes)):
            found |= {(column, other): table for other, table in self._against(column).items()}
        return {pair: found[pair] for pair in combinations(range(len(self._tree.sizes)), 2)}

    def pair(self, column: int, other: int) -> Table:
        """The joint shares of a column and a later one."""
        return self._against(column)[other]

    def _against(self, column: int) -> dict[int, Table]:
        """The joint shares of a column with each later one."""
        groups = self._tree.groups
        found = {c: np.outer(self.singles[column], self.singles[c]) for c in range(column + 1, len(self.singles))}
        walk: list[tuple[int, int | None, Table]] = [(self._home(column), None, np.empty(0))]
        while walk:
            place, came, carried = walk.pop()
            own = column in groups[place]
            gate = () if came is None or own else self._gate(came, place)
            for other in groups[place]:
                if other > column and other not in gate:
                    found[other] = (
                        self._marginal(place, (column, other)) if own else self._carry(carried, gate, place, (other,))
                    )
            onward = [follower for follower in self._neighbours[place] if follower != came]
            walk += [(far, place, self._handed_on(column, carried, gate, place, far)) for far in onward]
        return found

    def _handed_on(self, column: int, carried: Table, gate: Group, place: int, follower: int) -> Table:
        """The shares of a column given what this group and the next one share; none where the next one has it, too."""
        shared = self._gate(place, follower)
        if column in shared:
            return np.empty(0)
        if column in self._tree.groups[place]:
            joint = self._marginal(place, (column, *shared))
        else:
            joint = self._carry(carried, gate, place, shared)
        mass = self._marginal(place, shared)
        return np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)

    def _carry(self, carried: Table, gate: Group, place: int, target: Group) -> Table:
        """From shares of a column given a gate to its joint shares with columns of the group behind the gate."""
        sizes = self._tree.sizes
        kept = tuple(column for column in gate if column in target)
        summed = tuple(column for column in gate if column not in target)
        new = tuple(column for column in target if column not in gate)
        cells = lambda columns: prod(sizes[column] for column in columns)
        behind = self._marginal(place, (*kept, *summed, *new)).reshape(cells(kept), cells(summed), cells(new))
        axes = [*(1 + gate.index(c) for c in kept), 0, *(1 + gate.index(c) for c in summed)]
        before = carried.transpose(axes).reshape(cells(kept), carried.shape[0], cells(summed))
        joint = np.moveaxis(before @ behind, 1, 0)
        made = joint.reshape([carried.shape[0], *(sizes[column] for column in (*kept, *new))])
        return made.transpose([0, *(1 + (*kept, *new).index(column) for column in target)])

    def _marginal(self, place: int, columns: Group) -> Table:
        key = (place, columns)
        if key not in self._kept:
            self._kept[key] = np.ascontiguousarray(onto(self._model.shares[place], self._tree.groups[place], columns))
        return self._kept[key]

    def _home(self, column: int) -> int:
        return self._tree.home((column,)) or 0

    def _gate(self, one: int, other: int) -> Group:
        return tuple(column for column in self._tree.groups[one] if column in self._tree.groups[other])

    @cached_property
    def _neighbours(self) -> Sequence[Sequence[int]]:
        near: list[list[int]] = [[] for _ in self._tree.groups]
        for place, up in enumerate(self._tree.above):
            if up is not None:
                near[place].append(up)
                near[up].append(place)
        return near
