"""Aim: in rounds, the pair of columns that the model so far describes worst is chosen, measured and learnt."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from sfumato.checks import between, instance, positive, whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.beliefs import Table
from sfumato.fitting.codecs import PaidBins
from sfumato.fitting.graphical import GraphicalModel, Measurement, estimate
from sfumato.fitting.junction_tree import Group
from sfumato.fitting.queried import Queried
from sfumato.fitting.rounds import label_pairs, worst_table
from sfumato.fitting.select_measure import coded_model, measure, seen_as_codes
from sfumato.models.codes.coded import CodedModel
from sfumato.privacy import Curator, Relation
from sfumato.privacy.concentrated import epsilon_of, multiplier_of

_CHOICES = Fraction(1, 10)
"""The part of each round that pays for the choice; the rest pays for the counts."""

_ALONE = Fraction(1, 10)
"""The part of what a label's counts cost that pays for the label alone, whose shares all predictions hang on."""

_STEPS = 40
"""Steps of an estimate between rounds, which goes on from the one before; the last one takes as many as it needs."""


@dataclass(frozen=True, kw_only=True)
class Aim:
    """AIM: choose the worst described table of the workload, measure it, fit a graphical model, and again.

    The workload is all pairs of columns; candidates are pairs and single columns. A candidate's score is how far its
    counts are from the model's, less what noise alone would add, weighted by how much of the workload it touches. Where
    a measurement told no more than its noise, the next ones get half the noise. Candidates are left out that would make
    the model larger than ``megabytes``, in proportion to the budget that is spent. ``label`` names a column that is to
    be predicted: ``labelled`` of what the rounds would get then measures its pairs with all others ahead of them.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    Cost: one total of zero-concentrated privacy, fixed in advance, from which all sums and choices are paid in exact
    fractions; before it, what the bins of columns cost where they are bought (``codec``; None takes ``even_bins`` over
    public bounds). ``rounds`` is the number of rounds a column that the first noise is planned for.
    ``singles`` is the part of the total that pays for single columns ahead of the rounds; None pays for each of them as
    for the counts of a round, as published.
    Reference: McKenna, Mullins, Sheldon, Miklau 2022, "AIM: An Adaptive and Iterative Mechanism for Differentially
    Private Synthetic Data".

    >>> Aim(even_bins=10).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "aim"
    title: ClassVar[str] = "AIM: pairs chosen and measured in rounds"
    reference: ClassVar[str] = "McKenna, Mullins, Sheldon, Miklau 2022 (VLDB)"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    rounds: int = 16
    singles: float | None = None
    megabytes: float = 80.0
    codec: PaidBins | None = None
    even_bins: int = 32
    label: str | None = None
    labelled: float = 0.5

    def __post_init__(self) -> None:
        whole(1, rounds=self.rounds)
        if self.singles is not None:
            between(0.01, 0.9, singles=self.singles)
        positive(megabytes=self.megabytes)
        whole(2, even_bins=self.even_bins)
        if self.codec is not None:
            instance(PaidBins, codec=self.codec)
        if self.label is not None:
            instance(str, label=self.label)
        between(0.01, 0.9, labelled=self.labelled)

    @property
    def relation(self) -> Relation:
        return Relation.ADD_OR_REMOVE_ONE

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Few rounds and many, even and bought bins, a model that must stay small."""
        tiny = cls(even_bins=6, rounds=1)
        return (tiny, replace(tiny, rounds=4, megabytes=0.001, codec=PaidBins(rounds=2, bins=8, codes=4)))

    def fit(self, curator: Curator, layout: Layout) -> CodedModel:
        label = layout.label(self.label)
        coded, view = seen_as_codes(curator, layout, self.codec, self.even_bins)
        sizes, columns = coded.codec.sizes, [(column,) for column in range(len(coded.codec.sizes))]
        total = view.reserve("counts of columns, and of tables chosen in rounds")
        paid = total / (self.rounds * len(sizes))
        cost = len(sizes) * paid * (1 - _CHOICES) if self.singles is None else total * Fraction(self.singles)
        noise, left = multiplier_of(cost), total - cost
        measured = measure(view, columns, sizes, noise_multiplier=noise, purpose="counts of each column")
        if label is not None and len(sizes) > 1:
            cost = left * Fraction(self.labelled)
            left -= cost
            measured += _with_label(view, label, sizes, cost)
        model = estimate(sizes, measured)
        while left > 0:
            paid = left if left < 2 * paid else paid
            left -= paid
            room = self.megabytes * float((total - left) / total)
            noise, epsilon = multiplier_of(paid * (1 - _CHOICES)), epsilon_of(paid * _CHOICES)
            found, by_chance = worst_table(view, model, noise_multiplier=noise, epsilon=epsilon, room=room)
            measured.append(found)
            before, model = model, estimate(sizes, measured, start=model, most_steps=_STEPS if left > 0 else 1_000)
            if _moved(before, model, found.columns) <= by_chance:
                paid *= 4  # which halves the noise
        return coded_model(coded, model)


def _with_label(view: Curator, label: int, sizes: Sequence[int], cost: Fraction) -> list[Measurement]:
    """The counts of a label, for a tenth of the cost, and of its pairs with all other columns, for the rest."""
    alone, joint = multiplier_of(cost * _ALONE), multiplier_of(cost * (1 - _ALONE))
    found = measure(view, [(label,)], sizes, noise_multiplier=alone, purpose="counts of the label")
    return found + label_pairs(view, label, sizes, noise_multiplier=joint)


def _moved(before: GraphicalModel, after: GraphicalModel, columns: Group) -> float:
    """By how many rows a table of the model has moved."""
    old, new = (_table(model, columns) for model in (before, after))
    return float(np.abs(after.total * (new - old)).sum())


def _table(model: GraphicalModel, columns: Group) -> Table:
    queried = Queried(model)
    return queried.singles[columns[0]] if len(columns) == 1 else queried.pair(*columns)
