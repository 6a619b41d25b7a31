"""Chain loss: the negative log-likelihood of a chain, with the rules of its layers for fast clipping."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from sfumato.models.codes.chain import Chain
from sfumato.privacy.factors import MatrixRule, Rule, VectorRule, Weights


class ChainLoss(eqx.Module):
    """The loss of one row: minus the log probability of its codes. The base of the chain stays as it is."""

    skeleton: Chain

    @property
    def rules(self) -> Mapping[str, Rule]:
        own = not self.skeleton.shape.shared
        return {
            "embedding": MatrixRule(source="code", target="embedding", blocked=own),
            "first": VectorRule(target="first", blocked=True),
            "second": MatrixRule(source="hidden", target="second"),
            "second_bias": VectorRule(target="second"),
            "head": MatrixRule(source="top", target="head", blocked=own),
            "head_bias": VectorRule(target="head", blocked=True),
        }

    def weights(self, params: Any) -> Weights:
        return eqx.combine(params, self.skeleton).weights()

    def taps(self) -> dict[str, tuple[int, int, int]]:
        return {name: (1, *size) for name, size in self.skeleton.taps().items()}

    def plain(self, params: Any, row: Any, key: Array) -> Float[Array, ""]:
        """The same loss without factors."""
        return -eqx.combine(params, self.skeleton).log_prob(row["codes"])

    def row(
        self, weights: Weights, row: Any, key: Array, taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        one = {name: tap[0] for name, tap in taps.items()}
        log_prob, notes = self.skeleton.row_log_prob(weights, row["codes"], one)
        return -log_prob, {name: note[None] for name, note in notes.items()}

    @property
    def common_names(self) -> tuple[str, ...]:
        return ()

    def common(self, weights: Weights) -> Float[Array, ""]:
        return jnp.zeros((), jnp.float32)
