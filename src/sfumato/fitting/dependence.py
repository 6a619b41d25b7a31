"""Dependence: how much each pair of columns tells of each other, for all pairs at once, bought through one noisy sum.

Each column is made coarse, a few groups of codes of about equal mass. The counts of all pairs of groups are one vector
of a norm that is known exactly: a row falls into one cell of each pair. What is left after noise says which pairs are
worth measuring finely, and roughly how.
"""

from dataclasses import dataclass
from itertools import combinations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.fitting.select_measure import measure
from sfumato.privacy import Curator

GROUPS = 5
"""Of codes a column, at most. More see finer dependence under more noise."""


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """The group of each column's codes, and for each pair of columns the shares of pairs of groups with their noise."""

    groups: tuple[Int[np.ndarray, " code"], ...]
    pairs: dict[tuple[int, int], Float[np.ndarray, "group other"]]
    noise: float

    def information(self) -> dict[tuple[int, int], float]:
        """About how many nats each pair of columns shares, less what noise alone would show; never below zero.

        Half of Pearson's chi-square by row, which mutual information comes down to where dependence is weak.
        """
        found = {}
        for pair, table in self.pairs.items():
            expected = np.outer(table.sum(1), table.sum(0))
            squares = (table - expected) ** 2 - self.noise**2
            found[pair] = max(0.0, float(np.sum(squares / np.maximum(expected, max(self.noise, 1e-9))) / 2))
        return found


def buy_dependence(view: Curator, shares: tuple[np.ndarray, ...], *, share: float, ordered: list[bool]) -> Dependence:
    """The dependence of all pairs of columns, of rows seen as codes with these shares.

    Cost: one Gaussian sum, ``share`` of the budget. Sensitivity: the norm of one row, the root of the number of pairs.
    """
    groups = tuple(coarse(part, in_order=in_order) for part, in_order in zip(shares, ordered, strict=True))
    sizes = [int(part.max()) + 1 for part in groups]
    pairs = list(combinations(range(len(shares)), 2))
    multiplier = view.noise_multiplier(share)
    purpose = "dependence of all pairs of columns"
    measured = measure(view.through(_Grouped.of(groups)), pairs, sizes, noise_multiplier=multiplier, purpose=purpose)
    tables = {pair: found.counts / view.size for pair, found in zip(pairs, measured, strict=True)}
    return Dependence(groups=groups, pairs=tables, noise=measured[0].deviation / view.size)


def coarse(shares: np.ndarray, *, in_order: bool) -> Int[np.ndarray, " code"]:
    """The group of each code: neighbours of about equal mass, or the largest codes alone and the rest together.

    >>> coarse(np.array([0.1, 0.1, 0.3, 0.1, 0.2, 0.2]), in_order=True).tolist()
    [0, 0, 1, 2, 3, 4]
    """
    if len(shares) <= GROUPS:
        return np.arange(len(shares))
    if in_order:
        middle = np.cumsum(shares) - shares / 2
        found = np.minimum((middle * GROUPS).astype(int), GROUPS - 1)
        return np.unique(found, return_inverse=True)[1]
    rank = np.argsort(np.argsort(-shares, kind="stable"), kind="stable")
    return np.minimum(rank, GROUPS - 1)


class _Grouped(eqx.Module):
    """The groups of a row's codes, in the form of codes."""

    groups: Int[Array, "column code"]

    @classmethod
    def of(cls, groups: tuple[np.ndarray, ...]) -> "_Grouped":
        most = max(len(part) for part in groups)
        return cls(jnp.asarray([np.pad(part, (0, most - len(part))) for part in groups], jnp.int32))

    def __call__(self, row: dict[str, Array]) -> dict[str, Array]:
        return {"codes": jnp.take_along_axis(self.groups, row["codes"][:, None], axis=1)[:, 0]}
