"""Rounds: among all tables of one or two columns the one that a model describes worst is chosen, and then measured.

AIM goes on so until the budget is spent (``synthesizers/aim.py``); a warm start does it a few times.
Reference: McKenna, Mullins, Sheldon, Miklau 2022, "AIM: An Adaptive and Iterative Mechanism for Differentially Private
Synthetic Data".
"""

from collections.abc import Sequence
from math import pi, sqrt

from sfumato.fitting.graphical import GraphicalModel, Measurement
from sfumato.fitting.junction_tree import Group, megabytes_with
from sfumato.fitting.queried import Queried
from sfumato.fitting.select_measure import choose, measure
from sfumato.privacy import Curator


def worst_table(
    view: Curator, model: GraphicalModel, *, noise_multiplier: float, epsilon: float, room: float
) -> tuple[Measurement, float]:
    """The table that is chosen, measured, and by how many rows in all its counts are off by chance alone.

    The workload is all pairs of columns. A candidate's score is how far its counts are from the model's, less what
    noise alone would add, weighted by how much of the workload it touches. ``room`` is the size in megabytes past which
    no candidate may bring the model.
    Cost: one choice at ``epsilon``, and one Gaussian sum.
    """
    sizes, queried = model.tree.sizes, Queried(model)
    known = {(column,): table for column, table in enumerate(queried.singles)} | queried.pairs()
    candidates = _allowed(list(known), model, room)
    off = sqrt(2 / pi) * view.noise_at(1.0, noise_multiplier)
    chosen = choose(
        view,
        candidates,
        [model.total * known[group] for group in candidates],
        sizes,
        weights=[_weight(group, len(sizes)) for group in candidates],
        penalties=[off * known[group].size for group in candidates],
        epsilon=epsilon,
        purpose="choice of a table",
    )
    (found,) = measure(view, [chosen], sizes, noise_multiplier=noise_multiplier, purpose="counts of a chosen table")
    return found, off * found.counts.size


def label_pairs(view: Curator, label: int, sizes: Sequence[int], *, noise_multiplier: float) -> list[Measurement]:
    """The counts of a label with each other column. Cost: one Gaussian sum."""
    pairs = [(min(label, other), max(label, other)) for other in range(len(sizes)) if other != label]
    purpose = "counts of the label with each column"
    return measure(view, pairs, sizes, noise_multiplier=noise_multiplier, purpose=purpose)


def _allowed(candidates: Sequence[Group], model: GraphicalModel, room: float) -> list[Group]:
    """The candidates that leave the model small enough; those that it holds already cost no room."""
    tree, measured = model.tree, list(model.potentials)
    return [
        group
        for group in candidates
        if tree.home(group) is not None or megabytes_with(tree.sizes, [*measured, group]) <= room
    ]


def _weight(group: Group, num_columns: int) -> float:
    """How many columns a group has in common with all pairs of columns together."""
    return float(len(group) * max(1, num_columns - 1))
