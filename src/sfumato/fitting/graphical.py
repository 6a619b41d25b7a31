"""Graphical: from noisy tables of counts to one joint distribution over codes that agrees with them.

It is the distribution of largest entropy whose tables lie near the measured ones: the further its potentials are from
zero, the further they may stay behind, by so many standard deviations of the noise for each unit. So noise is not
followed where following it would take strong claims, which an estimate by squared error alone does until it is stopped.
The potentials minimise a smooth convex function, whose slope takes one passing of messages in the junction tree. All of
it is post-processing of what the doors gave out.

The work is NumPy on purpose: the tree changes in every round of a method that chooses what to measure, and compiling a
program for each tree takes longer than running it.

Reference: McKenna, Sheldon, Miklau 2019, "Graphical-model based estimation and inference for differential privacy";
Dudik, Phillips, Schapire 2007, "Maximum entropy density estimation with generalized regularization".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from sfumato.fitting.beliefs import Passing, Table
from sfumato.fitting.junction_tree import Group, JunctionTree, junction_tree

_LEEWAY = 0.2
"""Standard deviations of noise that a table may stay behind for each unit of a potential. From a tenth to one, tables
are about equally near the truth; the less leeway, the more of what rare codes have to do with others is kept, and the
more steps it takes. Chosen on splits inside the training rows of Car, Loan and Bank."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Noisy counts of the codes of a group of columns, an axis each, and the standard deviation of their noise."""

    columns: Group
    counts: Table
    deviation: float


@dataclass(frozen=True, kw_only=True)
class GraphicalModel:
    """A distribution over codes as joint shares of the groups of a junction tree, with the size of the table.

    ``potentials`` are what it was made from, by measured group: where the next estimate starts.
    """

    tree: JunctionTree
    shares: tuple[Table, ...] = field(repr=False)
    total: float
    potentials: Mapping[Group, Table] = field(repr=False)


def total_of(measurements: Sequence[Measurement]) -> float:
    """The number of rows that the measurements tell together: the mean of their sums, weighted by their noise."""
    weights = np.array([1 / (each.deviation**2 * each.counts.size) for each in measurements])
    sums = np.array([float(each.counts.sum()) for each in measurements])
    return max(1.0, float(weights @ sums / np.sum(weights)))


def estimate(
    sizes: Sequence[int],
    measurements: Sequence[Measurement],
    *,
    start: GraphicalModel | None = None,
    most_steps: int = 1_000,
) -> GraphicalModel:
    """The graphical model of what was measured; ``start`` is an earlier one to go on from.

    >>> even = Measurement(columns=(0,), counts=np.array([30.0, 10.0]), deviation=1e-3)
    >>> estimate([2], [even]).shares[0].round(3).tolist()
    [0.75, 0.25]
    """
    groups = list(dict.fromkeys(each.columns for each in measurements))
    total = total_of(measurements)
    aims = [_Aim.of([each for each in measurements if each.columns == group], total) for group in groups]
    tree = junction_tree(sizes, groups)
    passing = Passing(tree, groups)
    target, leeway = _flat([aim.shares for aim in aims]), _flat([aim.leeway for aim in aims])

    known = {} if start is None else start.potentials
    begin = _flat([known.get(group, np.zeros_like(aim.shares)) for group, aim in zip(groups, aims, strict=True)])
    stretch = _stretch(np.maximum(_flat(passing(_shaped(begin, aims)).asked), target), leeway)

    def objective(scaled: Float[np.ndarray, " cell"]) -> tuple[float, Float[np.ndarray, " cell"]]:
        flat = stretch * scaled
        beliefs = passing(_shaped(flat, aims))
        pulled = leeway * flat
        value = beliefs.log_constant - flat @ target + flat @ pulled / 2
        return float(value), stretch * (_flat(beliefs.asked) - target + pulled)

    options = {"maxiter": most_steps, "maxfun": 2 * most_steps, "maxcor": 20, "ftol": 1e-8, "gtol": 1e-9}
    found = minimize(objective, begin / stretch, jac=True, method="L-BFGS-B", options=options)
    potentials = _shaped(stretch * found.x, aims)
    return GraphicalModel(
        tree=tree,
        shares=passing(potentials).tables,
        total=total,
        potentials=dict(zip(groups, potentials, strict=True)),
    )


@dataclass(frozen=True)
class _Aim:
    """All that was measured of one group of columns, as one table of shares, and its leeway for a unit of potential."""

    shares: Table
    leeway: Table

    @classmethod
    def of(cls, measurements: Sequence[Measurement], total: float) -> "_Aim":
        weights = np.array([each.deviation**-2 for each in measurements])
        mean = np.tensordot(weights / np.sum(weights), np.stack([each.counts for each in measurements]), 1)
        deviation = float(np.sum(weights) ** -0.5)
        return cls(mean / total, np.full(mean.shape, _LEEWAY * deviation / total))


def _stretch(shares: Float[np.ndarray, " cell"], leeway: Float[np.ndarray, " cell"]) -> Float[np.ndarray, " cell"]:
    """The unit of each potential in which the function bends about alike: its curvature is a share plus the leeway.

    Shares differ by thousands, and in units of their own a descent takes several times as many steps.
    """
    return np.asarray(1 / np.sqrt(shares + leeway))


def _flat(tables: Sequence[Table]) -> Float[np.ndarray, " cell"]:
    return np.concatenate([table.ravel() for table in tables])


def _shaped(flat: Float[np.ndarray, " cell"], aims: Sequence[_Aim]) -> list[Table]:
    ends = np.cumsum([aim.shares.size for aim in aims])
    return [part.reshape(aim.shares.shape) for part, aim in zip(np.split(flat, ends[:-1]), aims, strict=True)]
