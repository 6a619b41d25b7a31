"""Flow: a base density pulled through a bijection; and the masked autoregressive flow as a recipe."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.models.flows.autoregressive import AffineMap, Autoregressive
from sfumato.models.flows.bijection import ActNorm, Affine, Bijection, Chain, Reverse
from sfumato.models.flows.made import Made
from sfumato.models.mixture import GaussianMixture


class MafShape(eqx.Module):
    """The sizes of a masked autoregressive flow: all that is needed to rebuild it around its arrays."""

    num_features: int = eqx.field(static=True)
    blocks: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    act_norm: bool = eqx.field(static=True)


class MaskedAutoregressiveFlow(eqx.Module):
    """Blocks of (masked affine autoregression, reversal, optional activation normalisation), Gaussian base.

    ``scaling`` is a fixed shift and scale in front, which is not trained. ``base`` is a mixture in place of the
    standard normal, which is not trained either.
    Reference: Papamakarios, Pavlakou, Murray 2017; Waites and Cummings 2021 (DP-NF), section 4.1.
    """

    scaling: Affine
    blocks: Chain
    shape: MafShape = eqx.field(static=True)
    base: GaussianMixture | None = None

    @classmethod
    def start(cls, shape: MafShape, *, key: Array) -> "MaskedAutoregressiveFlow":
        """The flow before training: random hidden layers, and as a map only the reversals."""
        whole(1, num_features=shape.num_features, blocks=shape.blocks)
        parts: list[Bijection] = []
        for block_key in jax.random.split(key, shape.blocks):
            made = Made.start(shape.num_features, 2, width=shape.width, depth=shape.depth, key=block_key)
            parts += [Autoregressive(made, AffineMap()), Reverse()]
            if shape.act_norm:
                parts.append(ActNorm.identity(shape.num_features))
        unit = Affine(jnp.zeros(shape.num_features, jnp.float32), jnp.ones(shape.num_features, jnp.float32))
        return cls(unit, Chain(tuple(parts)), shape)

    def rescaled(self, location: np.ndarray, scale: np.ndarray) -> "MaskedAutoregressiveFlow":
        """The same flow behind a fixed shift and scale of each feature."""
        scaling = Affine(jnp.asarray(location, jnp.float32), jnp.asarray(scale, jnp.float32))
        return MaskedAutoregressiveFlow(scaling, self.blocks, self.shape, self.base)

    def over(self, base: GaussianMixture) -> "MaskedAutoregressiveFlow":
        """The same flow over a mixture in place of its base."""
        return MaskedAutoregressiveFlow(self.scaling, self.blocks, self.shape, base)

    def to_base(self) -> Chain:
        """All of the way from features to where the base lives."""
        return Chain((self.scaling, *self.blocks.parts))

    def log_prob(self, features: Float[Array, " d"]) -> Float[Array, ""]:
        standard, log_det = self.scaling.forward(features)
        base, block_log_det = self.blocks.forward(standard)
        log_base = jnp.sum(norm.logpdf(base)) if self.base is None else self.base.log_prob(base)
        return log_base + log_det + block_log_det

    def sample(self, key: Array) -> Float[Array, " d"]:
        if self.base is None:
            base = jax.random.normal(key, (self.shape.num_features,), jnp.float32)
        else:
            base = self.base.sample(key)
        return self.scaling.inverse(self.blocks.inverse(base))

    def describe(self) -> dict[str, Any]:
        shape = self.shape
        return {
            "kind": "masked_autoregressive_flow",
            "num_features": shape.num_features,
            "blocks": shape.blocks,
            "width": shape.width,
            "depth": shape.depth,
            "act_norm": shape.act_norm,
            **({} if self.base is None else {"base_components": self.base.components}),
        }
