"""Warm start: a few tables of columns are chosen and measured, and training goes on from the graphical model of them.

Noisy gradients learn slowly what counts of two columns say directly. So part of the budget buys single columns and, in
rounds, the pairs of columns that the model so far describes worst; what all of these tell together (``graphical.py``)
is the base that training starts from. Castellon et al. 2023 ask for such a hybrid of marginals and deep models. How
many rounds there are and what each costs is settled before the first answer, by public facts alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sfumato.checks import between, positive, whole
from sfumato.errors import ArgumentError
from sfumato.fitting.beliefs import Table
from sfumato.fitting.graphical import GraphicalModel, Measurement, estimate
from sfumato.fitting.junction_tree import Group
from sfumato.fitting.queried import Queried, conditional_tables
from sfumato.fitting.rounds import label_pairs, worst_table
from sfumato.fitting.select_measure import measure
from sfumato.models.codes.tables import ConditionalTables
from sfumato.privacy import Curator

_CHOICES = 0.1
"""The part of a round that pays for its choice."""

_STEPS = 40
"""Steps of an estimate between rounds; the last one takes as many as it needs."""


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """How much of the budget goes to single columns and to chosen tables, and how many of these there are a column.

    Where a label is named, ``labelled`` of what the tables get measures its pairs with all other columns instead.
    ``megabytes`` is how large the graphical model may become.
    """

    singles: float = 0.03
    tables: float = 0.3
    rounds: int = 1
    labelled: float = 0.4
    megabytes: float = 8.0

    def __post_init__(self) -> None:
        between(1e-6, 0.9, singles=self.singles, tables=self.tables)
        between(0.01, 0.9, labelled=self.labelled)
        whole(1, rounds=self.rounds)
        positive(megabytes=self.megabytes)
        if self.spent > 0.95:
            raise ArgumentError("A warm start may spend 95 % of the budget at most.")

    @property
    def spent(self) -> float:
        """The share of the budget that it takes."""
        return self.singles + self.tables


@dataclass(frozen=True, kw_only=True)
class Start:
    """A graphical model to go on from, and by how much noise may have moved the share of a code, for each column."""

    model: GraphicalModel
    doubts: tuple[float, ...]

    @cached_property
    def tables(self) -> ConditionalTables:
        """The model as conditional tables."""
        return conditional_tables(self.model)

    @cached_property
    def shares(self) -> tuple[Table, ...]:
        """The shares of each column's codes."""
        return Queried(self.model).singles


def buy_start(view: Curator, sizes: Sequence[int], settings: WarmStart, *, label: int | None = None) -> Start:
    """The graphical model of single columns and of chosen tables, of rows seen as codes.

    Cost: a Gaussian sum at ``singles`` of the budget; ``tables`` of it for a choice and a Gaussian sum in each round,
    and with a label for one more sum ahead of them. The only column of a table is measured once, by both shares.
    """
    columns: list[Group] = [(column,) for column in range(len(sizes))]
    noise = view.noise_multiplier(settings.singles if len(sizes) > 1 else settings.spent)
    measured = measure(view, columns, sizes, noise_multiplier=noise, purpose="counts of each column")
    if len(sizes) > 1:
        measured, model = _with_tables(view, sizes, settings, measured, label)
    else:
        model = estimate(sizes, measured)
    return Start(model=model, doubts=tuple(_doubt(measured, column, model.total) for column in range(len(sizes))))


def _with_tables(
    view: Curator, sizes: Sequence[int], settings: WarmStart, measured: list[Measurement], label: int | None
) -> tuple[list[Measurement], GraphicalModel]:
    """What was measured with chosen tables added, and the model of it all."""
    rounds, share = settings.rounds * len(sizes), settings.tables
    if label is not None:
        noise = view.noise_multiplier(share * settings.labelled)
        measured = measured + label_pairs(view, label, sizes, noise_multiplier=noise)
        rounds, share = max(1, round(rounds * (1 - settings.labelled))), share * (1 - settings.labelled)
    epsilon = view.choice_epsilon(share * _CHOICES, rounds)
    noise = view.noise_multiplier(share * (1 - _CHOICES) / rounds)
    model = estimate(sizes, measured)
    for number in range(1, rounds + 1):
        room = settings.megabytes * number / rounds
        found, _ = worst_table(view, model, noise_multiplier=noise, epsilon=epsilon, room=room)
        measured = [*measured, found]
        model = estimate(sizes, measured, start=model, most_steps=_STEPS if number < rounds else 1_000)
    return measured, model


def _doubt(measured: Sequence[Measurement], column: int, total: float) -> float:
    """The standard deviation of the noise on the share of a code, by all tables that the column was measured in."""
    size = lambda each: each.counts.size / each.counts.shape[each.columns.index(column)]
    precision = sum(1 / (each.deviation**2 * size(each)) for each in measured if column in each.columns)
    return float(precision**-0.5 / total)
