"""Codes loss: the loss of a model of codes, by factors where fast clipping admits it, else row by row.

Which of them is a matter of sizes that are known when training begins: about 180,000 weights at 15 columns where no
size is declared, and millions where one is (``privacy.factored.slack_of``). Both are clipped and noised alike. Row by
row the gradients of a micro-batch are held in memory: four bytes for each weight and row.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import jax
from jaxtyping import Array, Float

from sfumato.errors import ArgumentError
from sfumato.models.codes.chain import Chain
from sfumato.models.codes.transformer import Transformer
from sfumato.privacy import Curator, SgdPlan
from sfumato.privacy.factored import MOST_DRAWN, most_drawn, slack_of
from sfumato.privacy.factors import FactoredLoss

PlainLoss: TypeAlias = Callable[[Any, Any, Array], Float[Array, ""]]


class CodesLoss(FactoredLoss, Protocol):
    """A loss by factors that can also be had without them."""

    def plain(self, params: Any, row: Any, key: Array) -> Float[Array, ""]:
        """The same loss of one row."""
        ...


def drawn_at_most(plan: SgdPlan, curator: Curator) -> int:
    """How many rows a batch may have, as far as public facts tell: a size that is not declared is bought later."""
    rate, declared = plan.sampling.normaliser_rate, curator.declared_size
    return MOST_DRAWN if declared is None else most_drawn(rate, rate * declared)


def fast_or_plain(loss: CodesLoss, model: Chain | Transformer, drawn: int) -> FactoredLoss | PlainLoss:
    """The loss of a model for batches of at most so many rows: by factors, or as it is."""
    shapes = jax.eval_shape(lambda model: model.weights(), model)
    try:
        slack_of(sum(weight.size for weight in shapes.values()), len(model.sizes), drawn)
    except ArgumentError:
        return loss.plain
    return loss
