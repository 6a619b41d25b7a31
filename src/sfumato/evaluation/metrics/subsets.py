"""Subsets of columns: all of them, or a fixed choice that depends on the names and a seed, never on a row."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np


def choose_subsets(names: Sequence[str], size: int, most: int, seed: int) -> tuple[tuple[str, ...], ...]:
    """All subsets of so many names where there are at most ``most``; otherwise ``most`` different ones, drawn evenly.

    Names keep their order within a subset, and subsets come in the order of their names.

    >>> choose_subsets(("a", "b", "c"), size=2, most=9, seed=0)
    (('a', 'b'), ('a', 'c'), ('b', 'c'))
    >>> len(choose_subsets([f"x{i}" for i in range(1000)], size=3, most=64, seed=0))
    64
    """
    if math.comb(len(names), size) <= most:
        return tuple(combinations(names, size))
    random = np.random.default_rng(seed)
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < most:
        chosen.add(tuple(sorted(random.choice(len(names), size, replace=False).tolist())))
    return tuple(tuple(names[place] for place in places) for places in sorted(chosen))
