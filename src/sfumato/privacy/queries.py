"""Queries: per-row vectors whose sum, or per-row scores whose arg-max, may be asked for through a door."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.privacy.clipping import FlatClip


@dataclass(frozen=True, kw_only=True)
class SumQuery:
    """The sum over all rows of a vector of one row, clipped to a norm.

    Guarantees: whatever ``function`` returns, one row moves the sum by at most the norm of ``clip``; a bound
    that is too small costs accuracy, never privacy.
    """

    function: Callable[[Any], Float[Array, " entry"]]
    num_entries: int
    clip: FlatClip
    purpose: str

    def __post_init__(self) -> None:
        whole(1, num_entries=self.num_entries)


@dataclass(frozen=True, kw_only=True)
class ScoreQuery:
    """Scores of public candidates, summed over the rows; each row's score is cut to [-1, 1].

    Guarantees: one row moves each candidate's score by at most one.
    """

    function: Callable[[Any], Float[Array, " candidate"]]
    num_candidates: int
    purpose: str

    def __post_init__(self) -> None:
        whole(1, num_candidates=self.num_candidates)


def count_query() -> SumQuery:
    """How many rows there are: a sum of ones."""
    return SumQuery(
        function=lambda _: jnp.ones(1, jnp.float32), num_entries=1, clip=FlatClip(bound=1.0), purpose="row count"
    )
