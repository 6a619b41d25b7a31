"""Mst: a tree of pairs of columns, chosen by how far each pair is from independent, then measured."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np

from sfumato.checks import between, instance, whole
from sfumato.encoding.layout import Layout
from sfumato.errors import ArgumentError
from sfumato.fitting.codecs import PaidBins
from sfumato.fitting.graphical import Measurement, estimate
from sfumato.fitting.junction_tree import Group
from sfumato.fitting.queried import Queried
from sfumato.fitting.select_measure import choose, coded_model, measure, seen_as_codes
from sfumato.models.codes.coded import CodedModel
from sfumato.privacy import Curator, Relation


@dataclass(frozen=True, kw_only=True)
class Mst:
    """MST: one-way counts, a tree of the pairs that independence describes worst, and the counts of those pairs.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    Cost: one Gaussian sum for the columns (``singles`` of the budget), a choice by the exponential mechanism for each
    edge of the tree (``tree`` of the budget in all), one Gaussian sum for its pairs (all the rest); before these, what
    the bins of columns cost where they are bought (``codec``; None takes ``even_bins`` over public bounds).
    Reference: McKenna, Miklau, Sheldon 2021, "Winning the NIST Contest: A scalable and general approach to
    differentially private synthetic data".

    >>> Mst(even_bins=10).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "mst"
    title: ClassVar[str] = "MST: a chosen tree of pairs from noisy counts"
    reference: ClassVar[str] = "McKenna, Miklau, Sheldon 2021 (Journal of Privacy and Confidentiality)"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    singles: float = 1 / 3
    tree: float = 1 / 3
    codec: PaidBins | None = None
    even_bins: int = 32

    def __post_init__(self) -> None:
        between(1e-6, 0.9, singles=self.singles, tree=self.tree)
        whole(2, even_bins=self.even_bins)
        spent = self.singles + self.tree
        if self.codec is not None:
            instance(PaidBins, codec=self.codec)
            spent += self.codec.share
        if spent > 0.95:
            raise ArgumentError("Codec, singles and tree together may spend 95 % of the budget at most.")

    @property
    def relation(self) -> Relation:
        return Relation.ADD_OR_REMOVE_ONE

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Even and bought bins, equal and unequal parts."""
        tiny = cls(even_bins=6)
        return (tiny, replace(tiny, codec=PaidBins(rounds=2, bins=8, codes=4), singles=0.2, tree=0.1))

    def fit(self, curator: Curator, layout: Layout) -> CodedModel:
        coded, view = seen_as_codes(curator, layout, self.codec, self.even_bins)
        sizes, columns = coded.codec.sizes, [(column,) for column in range(len(coded.codec.sizes))]
        if len(columns) == 1:
            noise = view.least_noise()
            measured = measure(view, columns, sizes, noise_multiplier=noise, purpose="counts of the column")
            return coded_model(coded, estimate(sizes, measured))
        noise = view.noise_multiplier(self.singles)
        measured = measure(view, columns, sizes, noise_multiplier=noise, purpose="counts of each column")
        edges = self._chosen(view, sizes, measured)
        noise = view.least_noise()
        measured += measure(view, edges, sizes, noise_multiplier=noise, purpose="counts of the pairs of a tree")
        return coded_model(coded, estimate(sizes, measured))

    def _chosen(self, view: Curator, sizes: Sequence[int], measured: list[Measurement]) -> list[Group]:
        """The edges of a spanning tree, one by one, each among all that join two parts."""
        alone = estimate(sizes, measured)
        shares = Queried(alone).singles
        part = list(range(len(sizes)))
        epsilon = view.choice_epsilon(self.tree, len(sizes) - 1)
        edges: list[Group] = []
        while len(edges) < len(sizes) - 1:
            candidates = [(a, b) for a, b in combinations(range(len(sizes)), 2) if part[a] != part[b]]
            edge: Group = candidates[0]
            if len(candidates) > 1:
                edge = choose(
                    view,
                    candidates,
                    [alone.total * np.outer(shares[a], shares[b]) for a, b in candidates],
                    sizes,
                    weights=[1.0] * len(candidates),
                    penalties=[0.0] * len(candidates),
                    epsilon=epsilon,
                    purpose="choice of an edge of the tree",
                )
            edges.append(edge)
            old, new = part[edge[1]], part[edge[0]]
            part = [new if each == old else each for each in part]
        return edges
