"""Transformer loss: the negative log-likelihood of a row of codes, with the rules of its layers for fast clipping."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from sfumato.models.codes.attention import block_parts
from sfumato.models.codes.transformer import Transformer, TransformerShape
from sfumato.privacy.factors import EmbeddingRule, MatrixRule, Rule, VectorRule, Weights


class TransformerLoss(eqx.Module):
    """The loss of one row: minus the log probability of its codes. Nothing in it is random.

    Every layer of a block serves all places, so a row's gradient has cross terms between places. The vectors of codes
    are looked up and never multiplied out.
    """

    skeleton: Transformer

    @property
    def rules(self) -> Mapping[str, Rule]:
        return transformer_rules(self.skeleton.shape)

    def weights(self, params: Any) -> Weights:
        return self._model(params).weights()

    def taps(self) -> dict[str, tuple[int, int, int]]:
        return {name: (1, *size) for name, size in self.skeleton.shape.taps().items()}

    def row(
        self, weights: Weights, row: Any, key: Array, taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        value, notes = self.skeleton.row_log_prob(weights, row["codes"], {name: tap[0] for name, tap in taps.items()})
        return -value, {name: note[None] for name, note in notes.items()}

    @property
    def common_names(self) -> tuple[str, ...]:
        return ()

    def common(self, weights: Weights) -> Float[Array, ""]:
        return jnp.zeros((), jnp.float32)

    def plain(self, params: Any, row: Any, key: Array) -> Float[Array, ""]:
        """The same loss without factors."""
        return -self._model(params).log_prob(row["codes"])

    def _model(self, params: Any) -> Transformer:
        return eqx.combine(params, self.skeleton)


def transformer_rules(shape: TransformerShape) -> dict[str, Rule]:
    """The rules of every weight: shared by the places in the blocks, one for each place at both ends."""
    rules: dict[str, Rule] = {
        "embedding": EmbeddingRule(source="read", target="read", sizes=shape.read),
        "position": VectorRule(target="read", blocked=True),
        "before_head": VectorRule(source="before_head", target="before_head"),
        "before_head_bias": VectorRule(target="before_head"),
        "head": MatrixRule(source="head", target="head", blocked=True),
        "head_bias": VectorRule(target="head", blocked=True),
    }
    for name, size in block_parts(shape.width).items():
        for layer in range(shape.layers):
            rules[f"{name}{layer}"] = _rule_of(name, f"{name.removesuffix('_bias')}{layer}", len(size))
    return rules


def _rule_of(name: str, layer: str, axes: int) -> Rule:
    if axes == 2:
        return MatrixRule(source=layer, target=layer)
    return VectorRule(target=layer) if name.endswith("_bias") else VectorRule(source=layer, target=layer)
