"""Spline flow: blocks of (conditional spline, linear flow, reversal), the density of DP-HFlow.

Blocks are scanned and not unrolled, so that what is compiled does not grow with their number.
Reference: Lee, Kim, Jeong, Ro 2022 ("Differentially Private Normalizing Flows for Synthetic Tabular Data Generation").
"""

from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.models.flows.conditioner import Conditioner, ConditionerShape, outputs, solve_by_feature
from sfumato.models.flows.linear import LowRank, Plu
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.spline import SplineMap

Weights = Mapping[str, Array]


class SplineFlowShape(eqx.Module):
    """The sizes of a spline flow: all that is needed to rebuild it around its arrays."""

    num_features: int = eqx.field(static=True)
    blocks: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    embedding: int = eqx.field(static=True)
    bins: int = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    linear: Literal["low-rank", "plu"] = eqx.field(static=True)

    @property
    def spline(self) -> SplineMap:
        """The map of one feature."""
        return SplineMap(bins=self.bins)

    @property
    def conditioner(self) -> ConditionerShape:
        """The sizes of the shared network."""
        return ConditionerShape(
            self.num_features,
            self.spline.num_parameters(),
            self.blocks,
            self.width,
            self.depth,
            self.embedding,
        )


class SplineFlow(eqx.Module):
    """A density on real features: a Gaussian base pulled through the blocks. The linear parts are stacked by block.

    ``marginals`` is a fixed map in front, which is not trained.
    """

    marginals: MarginalMap
    conditioner: Conditioner
    linear: LowRank | Plu
    shape: SplineFlowShape = eqx.field(static=True)

    @classmethod
    def start(cls, shape: SplineFlowShape, *, key: Array) -> "SplineFlow":
        """The flow before training: every block is the identity, or a permutation, and a reversal."""
        whole(1, num_features=shape.num_features, blocks=shape.blocks, bins=shape.bins, rank=shape.rank)
        first, second = jax.random.split(key)

        def linear(k: Array) -> LowRank | Plu:
            if shape.linear == "plu":
                return Plu.start(shape.num_features)
            return LowRank.start(shape.num_features, shape.rank, key=k)

        stacked = eqx.filter_vmap(linear)(jax.random.split(second, shape.blocks))
        identity = MarginalMap.identity(shape.num_features)
        return cls(identity, Conditioner.start(shape.conditioner, key=first), stacked, shape)

    def weights(self) -> dict[str, Array]:
        """What acts on a row, by name; the linear parts have one entry for each block."""
        return self.conditioner.weights() | eqx.filter_vmap(lambda part: part.weights())(self.linear)

    def log_det(self) -> Float[Array, ""]:
        """The part of the log density that no row enters: the determinants of the linear parts."""
        return self.log_det_of(self.weights())

    def log_det_of(self, weights: Weights) -> Float[Array, ""]:
        """The same, of given weights."""
        return jnp.sum(jax.vmap(self._linear_type().log_det_of)({name: weights[name] for name in self.linear_names}))

    @property
    def linear_names(self) -> tuple[str, ...]:
        """The names of the weights of the linear parts."""
        return self._linear_type().names

    def log_prob(self, features: Float[Array, " d"]) -> Float[Array, ""]:
        taps = {name: jnp.zeros(size, features.dtype) for name, size in self.taps().items()}
        standard, log_det = self.marginals.forward(features)
        value, _ = self.row_log_prob(self.weights(), standard, taps)
        return value + log_det + self.log_det()

    def taps(self) -> dict[str, tuple[int, int]]:
        """The shape [block, unit] of what each layer gives out, by the name of the layer."""
        shape, inner = self.shape, self.shape.conditioner
        found = {"first": inner.hidden, "last": shape.num_features * inner.num_outputs}
        found |= {f"middle{layer}": inner.hidden for layer in range(shape.depth - 1)}
        found |= self._linear_type().taps(shape.num_features, shape.rank)
        return {name: (shape.blocks, size) for name, size in found.items()}

    def row_log_prob(
        self, weights: Weights, x: Float[Array, " d"], taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The log density of one row behind the marginals, without ``log_det``, and what went into each layer."""
        shape = self.shape
        shared = {name: value for name, value in weights.items() if name not in self._blocked()}
        own = {name: weights[name] for name in self._blocked()}

        def block(carry: tuple[Array, Array], given: Any) -> tuple[tuple[Array, Array], dict[str, Array]]:
            x, total = carry
            mine, tap = given
            raw, notes = outputs(shared, mine["first_bias"], x, tap)
            y, log_slope = jax.vmap(shape.spline.forward)(x, raw.reshape(shape.num_features, -1))
            z, linear_notes = self._linear_type().apply(mine, y, tap)
            return (z[::-1], total + jnp.sum(log_slope)), notes | linear_notes

        start = (x, jnp.zeros((), x.dtype))
        (base, total), notes = jax.lax.scan(block, start, (own, dict(taps)))
        return jnp.sum(norm.logpdf(base)) + total, notes

    def sample(self, key: Array) -> Float[Array, " d"]:
        shape, weights = self.shape, self.weights()
        shared = {name: value for name, value in weights.items() if name not in self._blocked()}
        own = {name: weights[name] for name in self._blocked()}

        def block(z: Array, mine: dict[str, Array]) -> tuple[Array, None]:
            y = self._linear_type().unapply(mine, z[::-1])
            value_of = lambda raw, y_i: shape.spline.inverse(y_i, raw)
            return solve_by_feature(shared, mine["first_bias"], shape.conditioner, value_of, y), None

        base = jax.random.normal(key, (shape.num_features,), jnp.float32)
        x, _ = jax.lax.scan(block, base, own, reverse=True)
        return self.marginals.inverse(x)

    def describe(self) -> dict[str, Any]:
        names = ("num_features", "blocks", "width", "depth", "embedding", "bins", "rank", "linear")
        sizes = {name: getattr(self.shape, name) for name in names}
        return {"kind": "spline_flow", **sizes, "bins_of_marginals": self.marginals.edges.shape[1] - 1}

    def _linear_type(self) -> type[LowRank] | type[Plu]:
        return Plu if self.shape.linear == "plu" else LowRank

    def _blocked(self) -> tuple[str, ...]:
        return ("first_bias", *self._linear_type().names)
