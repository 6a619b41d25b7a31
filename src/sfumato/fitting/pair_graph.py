"""Pair graph: the pairs of columns that tell most of each other, all that a table affords, as one graphical model.

For tables too small for gradients. Which pairs is told by the dependence of all pairs (``fitting.dependence``): those
of the best tree, and others that stand out of the noise as long as the model stays small. All are measured in one sum.
"""

from dataclasses import dataclass

from sfumato.checks import between, whole
from sfumato.errors import ArgumentError
from sfumato.fitting.codecs import Coded
from sfumato.fitting.dependence import Dependence, buy_dependence
from sfumato.fitting.graphical import Measurement, estimate
from sfumato.fitting.junction_tree import Group, junction_tree
from sfumato.fitting.queried import conditional_tables
from sfumato.fitting.select_measure import measure
from sfumato.fitting.warm_start import best_tree
from sfumato.models.codes.tables import ConditionalTables
from sfumato.privacy import Curator


@dataclass(frozen=True, kw_only=True)
class PairGraph:
    """The share of the budget that chooses pairs, how many there may be for each column, and most cells in all."""

    dependence: float = 0.15
    pairs_a_column: float = 3.0
    cells: int = 300_000

    def __post_init__(self) -> None:
        between(1e-6, 0.9, dependence=self.dependence)
        between(1, 1e3, pairs_a_column=self.pairs_a_column)
        whole(1, cells=self.cells)


def buy_graph(view: Curator, coded: Coded, settings: PairGraph, *, ordered: list[bool]) -> ConditionalTables:
    """The graphical model of chosen pairs of columns, of rows seen as codes.

    Cost: one Gaussian sum at ``dependence`` of the budget, and one at all that is left of it.
    """
    if coded.noise is None:
        raise ArgumentError("Expected a codec whose shares were measured.")
    sizes, rows = coded.codec.sizes, float(view.size)
    known = [
        Measurement(columns=(column,), counts=share * rows, deviation=max(1.0, coded.noise * rows))
        for column, share in enumerate(coded.shares)
    ]
    groups: list[Group] = [(0,)]
    if len(sizes) > 1:
        found = buy_dependence(view, coded.shares, share=settings.dependence, ordered=ordered)
        groups = chosen_pairs(found, sizes, settings)
    noise = view.least_noise()
    measured = measure(view, groups, sizes, noise_multiplier=noise, purpose="counts of chosen pairs of columns")
    return conditional_tables(estimate(sizes, [*known, *measured]))


def chosen_pairs(found: Dependence, sizes: tuple[int, ...], settings: PairGraph) -> list[Group]:
    """The pairs of the best tree, then others by what they tell, while they stand out and the model is small."""
    information = found.information()
    pairs: list[Group] = [(min(edge), max(edge)) for edge in best_tree(information, len(sizes))]
    most = round(settings.pairs_a_column * len(sizes))
    for pair in sorted(information, key=lambda pair: -information[pair]):
        if len(pairs) >= most or information[pair] < found.doubt(pair):
            break
        if pair not in pairs and junction_tree(sizes, [*pairs, pair]).num_cells <= settings.cells:
            pairs.append(pair)
    return pairs
