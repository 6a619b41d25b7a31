"""Critics: how the gradient of a critic is bounded, on its way through the door and on made rows alike.

``WholeCritic`` clips the gradient of a row as a whole, without ever making it (``privacy/factored.py``).
``GroupedCritic`` (``grouped_critic.py``) gives each group of parameters a bound of its own, which may follow the norms.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.fitting.critic_loss import Kind, RealLoss, Scene, clipped_mean, made_part, real_part
from sfumato.models.generators.critic import CriticShape, Weights
from sfumato.privacy import FlatClip


@dataclass(frozen=True, kw_only=True)
class CriticSize:
    """The size of a critic: hidden units, hidden layers; whether it sees rows of each label apart (``CriticShape``)."""

    width: int = 64
    depth: int = 1
    apart: bool = True

    def __post_init__(self) -> None:
        whole(1, width=self.width, depth=self.depth)


def critic_shape(scene: Scene, size: CriticSize) -> CriticShape:
    """The shape of a critic of what a scene shows; where rows have a label of few levels, it is seen apart."""
    return CriticShape(scene.inputs, size.width, size.depth, scene.label if size.apart else None)


class CriticRule(Protocol):
    """What a game asks of a critic. ``params`` are what the door moves: weights, and what else the rule keeps."""

    @property
    def scene(self) -> Scene: ...

    @property
    def shape(self) -> CriticShape: ...

    @property
    def clip(self) -> FlatClip:
        """What bounds a row at the door."""
        ...

    def loss(self) -> Any:
        """The loss of one private row, for the door."""
        ...

    def start(self, weights: Weights) -> Any:
        """The parameters that the door moves, from weights."""
        ...

    def weights(self, params: Any) -> Weights:
        """The weights among the parameters."""
        ...

    def real_mean(self, gradient: Any, params: Any) -> Weights:
        """The mean gradient on real rows, from what came out of the door."""
        ...

    def row_mean(self, params: Any, rows: Float[Array, "row number"], *, real: bool) -> Weights:
        """The mean gradient over public rows, each bounded as at the door: as of real rows, or as of made ones."""
        ...

    def moved(self, params: Any, weights: Weights, gradient: Any, rows: Float[Array, "row number"]) -> Any:
        """The parameters with new weights; bounds may follow what came out of the door, or the public rows."""
        ...


class WholeCritic(eqx.Module):
    """Clips the whole gradient of a row at ``bound``: one backward pass, and no gradient of a single row.

    Guarantees: the door's; sensitivity ``bound``.
    """

    scene: Scene
    shape: CriticShape = eqx.field(static=True)
    kind: Kind = eqx.field(static=True)
    bound: float = eqx.field(static=True)

    @property
    def clip(self) -> FlatClip:
        return FlatClip(bound=self.bound)

    def loss(self) -> RealLoss:
        return RealLoss(self.scene, self.shape, self.kind)

    def start(self, weights: Weights) -> Weights:
        return weights

    def weights(self, params: Weights) -> Weights:
        return params

    def real_mean(self, gradient: Weights, params: Weights) -> Weights:
        return gradient

    def row_mean(self, params: Weights, rows: Float[Array, "row number"], *, real: bool) -> Weights:
        part = part_of(self.kind, real=real)
        return clipped_mean(self.shape, params, rows, part, self.bound)

    def moved(self, params: Weights, weights: Weights, gradient: Any, rows: Float[Array, "row number"]) -> Weights:
        return weights


def part_of(kind: Kind, *, real: bool) -> Any:
    """The part of a critic's loss on real rows, or on made ones, as a function of a score."""
    return lambda score: (real_part if real else made_part)(kind, score)


def steepness(shape: CriticShape, weights: Weights, rows: Float[Array, "row number"], key: Array) -> Float[Array, ""]:
    """How far slopes of the score between made rows pass one: the penalty of Wasserstein critics, on made rows alone.

    Reference: Gulrajani et al. 2017; one-sided as in Petzka, Fischer, Lukovnikov 2018.
    """
    first, second = jax.random.split(key)
    share = jax.random.uniform(first, (rows.shape[0], 1), rows.dtype)
    mixed = share * rows + (1 - share) * rows[jax.random.permutation(second, rows.shape[0])]
    slopes = jax.vmap(jax.grad(lambda row: shape.score(weights, row)))(mixed)
    sizes = jnp.sqrt(jnp.sum(slopes**2, axis=1) + 1e-12)
    return jnp.mean(jnp.maximum(sizes - 1, 0.0) ** 2)
