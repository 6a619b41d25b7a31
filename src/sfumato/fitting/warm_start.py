"""Warm start: a tree of measured pairs of columns, from which private gradients go on.

One-way shares come with the codec. The dependence of all pairs is bought roughly, the tree that holds most of it
is measured finely, and the conditional tables of the tree are what a model of codes starts from: it need not be trained
to know them, since they are added to its log odds. All after the two sums is post-processing.

Reference: Chow and Liu 1968 (the best tree); McKenna, Miklau, Sheldon 2021 (measuring a tree); the shrinkage is
empirical Bayes as in Efron and Morris 1973; fitting to margins, Deming and Stephan 1940.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.checks import between
from sfumato.errors import ArgumentError
from sfumato.fitting.codecs import Coded
from sfumato.fitting.dependence import Dependence, buy_dependence
from sfumato.fitting.select_measure import measure
from sfumato.models.codes.tables import ConditionalTables
from sfumato.privacy import Curator

Edge = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """How much of the budget goes to the dependence of all pairs, and to the pairs of the tree."""

    dependence: float = 0.05
    pairs: float = 0.2

    def __post_init__(self) -> None:
        between(1e-6, 0.9, dependence=self.dependence, pairs=self.pairs)
        if self.dependence + self.pairs > 0.95:
            raise ArgumentError("A warm start may spend 95 % of the budget at most.")


def buy_tree(view: Curator, coded: Coded, settings: WarmStart, *, ordered: list[bool]) -> ConditionalTables:
    """The tree of pairs that tell most of each other, of rows seen as codes.

    Cost: two Gaussian sums, ``dependence`` and ``pairs`` of the budget. Sensitivity: one row counts once in each pair,
    so its norm is the root of the number of pairs.
    """
    if len(coded.shares) == 1:
        return ConditionalTables.independent(list(coded.shares))
    found = buy_dependence(view, coded.shares, share=settings.dependence, ordered=ordered)
    edges = best_tree(found.information(), len(coded.shares))
    multiplier = view.noise_multiplier(settings.pairs)
    measured = measure(
        view, edges, coded.codec.sizes, noise_multiplier=multiplier, purpose="pairs of a tree of columns"
    )
    joints = []
    for edge, found_pair in zip(edges, measured, strict=True):
        table, noise = found_pair.counts / view.size, found_pair.deviation / view.size
        joints.append(shrunk(table, prior(found, coded.shares, edge), noise, *(coded.shares[c] for c in edge)))
    return conditionals(edges, joints, coded.shares)


def best_tree(information: dict[Edge, float], num_columns: int) -> list[Edge]:
    """The edges (earlier column, later column) of the spanning tree that shares most, from the column that shares most.

    >>> best_tree({(0, 1): 0.1, (0, 2): 0.5, (1, 2): 0.3}, 3)
    [(2, 0), (2, 1)]
    """
    both = {**information, **{(b, a): value for (a, b), value in information.items()}}
    total = [sum(value for (a, _), value in both.items() if a == column) for column in range(num_columns)]
    joined, edges = {int(np.argmax(total))}, []
    while len(joined) < num_columns:
        edge = max((e for e in both if e[0] in joined and e[1] not in joined), key=lambda e: (both[e], -e[0], -e[1]))
        edges.append(edge)
        joined.add(edge[1])
    return edges


def prior(found: Dependence, shares: tuple[np.ndarray, ...], edge: Edge) -> Float[np.ndarray, "code other"]:
    """What to expect of a pair before it is measured: between groups what was bought, inside them independence."""
    a, b = edge
    rough = found.pairs[a, b] if a < b else found.pairs[b, a].T
    outer = np.outer(shares[a], shares[b])
    mass = lambda column: np.bincount(found.groups[column], shares[column])
    alone = np.outer(mass(a), mass(b))
    kept = shrunk(rough, alone, found.noise, mass(a), mass(b)) / np.maximum(alone, 1e-12)
    return np.asarray(outer * kept[np.ix_(found.groups[a], found.groups[b])])


def shrunk(
    table: np.ndarray, expected: np.ndarray, noise: float, rows: np.ndarray, columns: np.ndarray
) -> Float[np.ndarray, "code other"]:
    """A noisy table of shares drawn towards an expected one by as much as noise explains, with known margins.

    Cells are thought to depart from what is expected in proportion to it; how much, all cells together say.
    """
    apart = table - expected
    spread = max(0.0, float(np.sum(apart**2 - noise**2)) / float(np.sum(expected**2)))
    trust = spread * expected**2 / (spread * expected**2 + noise**2 + 1e-300)
    found = np.maximum(expected + trust * apart, 0.02 * expected) + 1e-12
    for _ in range(100):
        found = found * (rows / found.sum(1))[:, None]
        found = found * (columns / found.sum(0))[None, :]
    return np.asarray(found / found.sum())


def conditionals(edges: list[Edge], joints: list[np.ndarray], shares: tuple[np.ndarray, ...]) -> ConditionalTables:
    """The tree as tables: its root alone, every other column given the one that it hangs on."""
    root = edges[0][0]
    parents: list[tuple[int, ...]] = [()] * len(shares)
    tables: list[Array] = [jnp.asarray(share[None, :], jnp.float32) for share in shares]
    for (above, below), joint in zip(edges, joints, strict=True):
        parents[below] = (above,)
        tables[below] = jnp.asarray(joint / joint.sum(1, keepdims=True), jnp.float32)
    return ConditionalTables(tuple(tables), (root, *(below for _, below in edges)), tuple(parents))
