"""Parameter groups: which parameters have gradients of like size, from public rows, so that each group has its bound.

Weight clustering (Algorithm 4 of the paper): every parameter starts as a group of its own, whose size is that of its
mean gradient. The two groups whose sizes have the ratio nearest to one are merged, sizes adding up as squares, until
so many are left. The nearest pair always stands side by side in the order of sizes, so a heap of neighbours finds it,
and the merged group is put back into the order: n parameters take about n log n steps, and not n squared for
each of n merges.

Only public rows are looked at: a public table, or rows that a generator made. Nothing is charged.

Reference: Boob et al. 2018, Algorithm 4; Zhang, Ji, Wang 2018.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import log, sqrt

import numpy as np
from jaxtyping import Float, Int

from sfumato.checks import whole

_BUCKET = 256
_Member = tuple[float, int]


def weight_clusters(sizes: Float[np.ndarray, " parameter"], num_groups: int) -> Int[np.ndarray, " parameter"]:
    """The group of each parameter, from 0 to at most ``num_groups`` - 1, in the order of the groups' sizes.

    Parameters whose gradient is zero or no number are one group from the start, with the smallest that are not.

    >>> weight_clusters(np.array([1.0, 100.0, 1.1, 90.0, 0.0]), 2).tolist()
    [0, 1, 0, 1, 0]
    """
    whole(1, num_groups=num_groups)
    found = np.abs(np.nan_to_num(np.asarray(sizes, np.float64), nan=0.0, posinf=0.0, neginf=0.0))
    live = np.flatnonzero(found > 0)
    parents = list(range(live.size))
    line = _merged([(float(found[place]), name) for name, place in enumerate(live)], parents, num_groups)
    ranks = {_root(parents, name): rank for rank, (_, name) in enumerate(line)}
    groups = np.zeros(found.size, np.int32)
    groups[live] = [ranks[_root(parents, name)] for name in range(live.size)]
    return groups


def _merged(members: list[_Member], parents: list[int], num_groups: int) -> list[_Member]:
    """The groups that are left, in order; ``parents`` says which group each was merged into."""
    line, sizes = _Line.of(sorted(members)), {name: size for size, name in members}
    ordered = line.all()
    heap = [_pair(one, two) for one, two in pairwise(ordered)]
    heapify(heap)
    left = len(members)
    while left > num_groups and heap:
        _, one, two = heappop(heap)
        if sizes.get(one[1]) != one[0] or sizes.get(two[1]) != two[0] or line.next(one) != two:
            continue  # either was merged since, or something came to stand between them
        for gone in (one, two):
            line.remove(gone)
            del sizes[gone[1]]
        new = (sqrt(one[0] ** 2 + two[0] ** 2), len(parents))
        parents += [new[1]]
        parents[one[1]] = parents[two[1]] = new[1]
        sizes[new[1]] = new[0]
        before, after = line.insert(new)
        gap_before, gap_after = line.around(one)
        for first, second in ((before, new), (new, after), (gap_before, gap_after)):
            if first is not None and second is not None:
                heappush(heap, _pair(first, second))
        left -= 1
    return line.all()


def _pair(one: _Member, two: _Member) -> tuple[float, _Member, _Member]:
    return log(two[0]) - log(one[0]), one, two


def _root(parents: list[int], name: int) -> int:
    while parents[name] != name:
        parents[name] = parents[parents[name]]
        name = parents[name]
    return name


@dataclass
class _Line:
    """Members in order, in buckets, so that one is put in or taken out without moving all others."""

    buckets: list[list[_Member]] = field(default_factory=list)

    @classmethod
    def of(cls, ordered: list[_Member]) -> "_Line":
        return cls([ordered[start : start + _BUCKET] for start in range(0, len(ordered), _BUCKET)])

    def all(self) -> list[_Member]:
        return [member for bucket in self.buckets for member in bucket]

    def around(self, member: _Member) -> tuple[_Member | None, _Member | None]:
        """The last before and the first from where the member stands, or would stand."""
        at, place = self._place(member)
        before = self.buckets[at][place - 1] if place else self.buckets[at - 1][-1] if at else None
        return before, self._at(at, place)

    def next(self, member: _Member) -> _Member | None:
        at, place = self._place(member)
        return self._at(at, place + 1)

    def insert(self, member: _Member) -> tuple[_Member | None, _Member | None]:
        """Put it in; its neighbours are returned."""
        if not self.buckets:
            self.buckets.append([member])
            return None, None
        before, after = self.around(member)
        at, place = self._place(member)
        self.buckets[at].insert(place, member)
        if len(self.buckets[at]) > 2 * _BUCKET:
            whole_bucket = self.buckets[at]
            self.buckets[at : at + 1] = [whole_bucket[:_BUCKET], whole_bucket[_BUCKET:]]
        return before, after

    def remove(self, member: _Member) -> None:
        at, place = self._place(member)
        del self.buckets[at][place]
        if not self.buckets[at]:
            del self.buckets[at]

    def _place(self, member: _Member) -> tuple[int, int]:
        """The bucket and the place in it; past all others, the end of the last bucket."""
        low, high = 0, len(self.buckets) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.buckets[middle][-1] < member else (low, middle)
        return low, bisect_left(self.buckets[low], member)

    def _at(self, at: int, place: int) -> _Member | None:
        if place < len(self.buckets[at]):
            return self.buckets[at][place]
        return self.buckets[at + 1][0] if at + 1 < len(self.buckets) else None
