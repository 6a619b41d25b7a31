"""Sampling: which rows take part in a step. Names are claims: each class is what the literature calls so."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, UInt32

from sfumato.checks import between, positive, whole
from sfumato.errors import ArgumentError
from sfumato.privacy.adjacency import Relation


@dataclass(frozen=True, kw_only=True)
class PoissonSampling:
    """Each row takes part in each step independently with probability ``rate``; batches are never truncated.

    Guarantees: the true rate is ``rate`` rounded down to a multiple of 2**-32, so never above the accounted one.
    Reference: Abadi et al. 2016; Zhu and Wang 2019.
    """

    relation: ClassVar[Relation] = Relation.ADD_OR_REMOVE_ONE
    words_per_row: ClassVar[int] = 1
    rate: float

    def __post_init__(self) -> None:
        positive(rate=self.rate)
        between(0, 1, rate=self.rate)

    def draw(self, words: UInt32[Array, " word"], real: Bool[Array, " row"]) -> Bool[Array, " row"]:
        """Who takes part: one 32-bit word of the secret stream a row; rows that are padding never do."""
        threshold = int(self.rate * 2**32)
        if threshold >= 2**32:
            return real
        return real & (words < jnp.uint32(threshold))

    @property
    def normaliser_rate(self) -> float:
        return self.rate


@dataclass(frozen=True, kw_only=True)
class FixedSizeSampling:
    """Exactly ``batch`` of ``rows`` rows, uniformly without replacement: the choice of the DP-NF paper.

    The number of rows must then be public, so neighbours replace one row (they never add or remove one), the
    sensitivity of a sum is twice the clipping bound, and the event is accounted by RDP. At equal noise this
    costs far more epsilon than Poisson sampling: it is here to reproduce the paper, and is not the default.
    Reference: Wang, Balle, Kasiviswanathan 2019; Lebeda et al. 2024 on how libraries get it wrong.
    """

    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    words_per_row: ClassVar[int] = 2
    batch: int
    rows: int

    def __post_init__(self) -> None:
        whole(1, batch=self.batch, rows=self.rows)
        if self.batch > self.rows:
            raise ArgumentError(f"Expected batch={self.batch} of at most rows={self.rows}.")

    def draw(self, words: UInt32[Array, " word"], real: Bool[Array, " row"]) -> Bool[Array, " row"]:
        """Who takes part: the rows with the smallest 64-bit tickets."""
        pairs = words.reshape(real.shape[0], 2).astype(jnp.uint64)
        # Padding rows get the largest ticket; a real row would need 63 equal bits to tie with them.
        tickets = jnp.where(real, ((pairs[:, 0] << 32) | pairs[:, 1]) >> 1, jnp.uint64(2**64 - 1))
        ranks = jnp.argsort(jnp.argsort(tickets))
        return real & (ranks < self.batch)

    @property
    def normaliser_rate(self) -> float:
        return self.batch / self.rows
