"""Spline flow: blocks of (conditional spline, linear flow, reversal), the density of DP-HFlow.

Blocks are scanned, so that what is compiled does not grow with their number.
Reference: Lee, Kim, Jeong, Ro 2022 ("Differentially Private Normalizing Flows for Synthetic Tabular Data Generation").
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.models.cells import log_uniform_ratio, log_wide_density, wide_point
from sfumato.models.flows.conditioner import Conditioner, ConditionerShape, outputs, solve_by_feature
from sfumato.models.flows.copula import Copula
from sfumato.models.flows.dequantiser import Dequantiser, DequantiserShape, logistic_noise
from sfumato.models.flows.linear import LowRank, Plu
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.share_cells import ShareCells
from sfumato.models.flows.spline import SplineMap

Weights = Mapping[str, Array]

_UNIFORM, _WIDE, _LEARNED, _COPULA = 0, 1, 2, 3  # the ways in which a point of a row's cells is found


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

    ``marginals`` and, where there is one, ``copula`` are fixed maps in front, which are not trained. A ``dequantiser``,
    where there is one, says where in their cells discrete values are likely to lie; it is no part of the density,
    but finds the masses of cells.
    """

    exact: ClassVar[bool] = False

    marginals: MarginalMap
    conditioner: Conditioner
    linear: LowRank | Plu
    shape: SplineFlowShape = eqx.field(static=True)
    dequantiser: Dequantiser | None = None
    copula: Copula | None = None

    @classmethod
    def start(cls, shape: SplineFlowShape, *, key: Array, dequantiser: DequantiserShape | None = None) -> "SplineFlow":
        """The flow before training: every block is the identity, or a permutation, and a reversal."""
        whole(1, num_features=shape.num_features, blocks=shape.blocks, bins=shape.bins, rank=shape.rank)
        first, second = jax.random.split(key)

        def linear(k: Array) -> LowRank | Plu:
            if shape.linear == "plu":
                return Plu.start(shape.num_features)
            return LowRank.start(shape.num_features, shape.rank, key=k)

        stacked = eqx.filter_vmap(linear)(jax.random.split(second, shape.blocks))
        identity = MarginalMap.identity(shape.num_features)
        learned = None if dequantiser is None else Dequantiser.start(dequantiser, key=jax.random.fold_in(key, 2))
        return cls(identity, Conditioner.start(shape.conditioner, key=first), stacked, shape, learned)

    def behind(self, marginals: MarginalMap, copula: Copula | None = None) -> "SplineFlow":
        """The same flow behind other fixed maps."""
        return SplineFlow(marginals, self.conditioner, self.linear, self.shape, self.dequantiser, copula)

    def trainable(self) -> "SplineFlow":
        """The parameters: the flow with None in place of its fixed maps."""
        none = jax.tree.map(lambda _: None, (self.marginals, self.copula))
        return self.behind(*none)

    def weights(self) -> dict[str, Array]:
        """What acts on a row, by name; the linear parts have one entry for each block."""
        found = self.conditioner.weights() | eqx.filter_vmap(lambda part: part.weights())(self.linear)
        return found if self.dequantiser is None else found | self.dequantiser.weights()

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
        standard, log_det = self.marginals.forward(features)
        return self._standard_log_prob(standard) + log_det

    def _standard_log_prob(self, standard: Float[Array, " d"]) -> Float[Array, ""]:
        """The log density behind the marginals."""
        taps = {name: jnp.zeros(size, standard.dtype) for name, size in self.taps().items()}
        x, log_det = self._independent(standard)
        value, _ = self.row_log_prob(self.weights(), x, taps)
        return value + log_det + self.log_det()

    def _independent(self, standard: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """The features behind the copula, and the log-determinant of the way there."""
        if self.copula is None:
            return standard, jnp.zeros((), standard.dtype)
        return self.copula.whiten(standard), self.copula.log_det()

    def taps(self) -> dict[str, tuple[int, int]]:
        """The shape [block, unit] of what each layer gives out, by the name of the layer."""
        shape, inner = self.shape, self.shape.conditioner
        found = {"first": inner.hidden, "last": shape.num_features * inner.num_outputs}
        found |= {f"middle{layer}": inner.hidden for layer in range(shape.depth - 1)}
        found |= self._linear_type().taps(shape.num_features, shape.rank)
        own = {name: (shape.blocks, size) for name, size in found.items()}
        return own if self.dequantiser is None else own | self.dequantiser.taps()

    def row_log_prob(
        self, weights: Weights, x: Float[Array, " d"], taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The log density of one row behind the fixed maps, without ``log_det``, and what went into each layer."""
        shape = self.shape
        shared = {name: value for name, value in weights.items() if name not in self._blocked()}
        own = {name: weights[name] for name in self._blocked()}
        learned = () if self.dequantiser is None else self.dequantiser.taps()
        taps = {name: tap for name, tap in taps.items() if name not in learned}

        def block(carry: tuple[Array, Array], given: Any) -> tuple[tuple[Array, Array], dict[str, Array]]:
            x, total = carry
            mine, tap = given
            raw, notes = outputs(shared, mine["first_bias"], x, tap)
            y, log_slope = jax.vmap(shape.spline.forward)(x, raw.reshape(shape.num_features, -1))
            z, linear_notes = self._linear_type().apply(mine, y, tap)
            return (z[::-1], total + jnp.sum(log_slope)), notes | linear_notes

        start = (x, jnp.zeros((), x.dtype))
        (base, total), notes = jax.lax.scan(block, start, (own, taps), unroll=_unrolled(shape.blocks))
        return jnp.sum(norm.logpdf(base)) + total, notes

    def draw_in_cells(
        self, weights: Weights, cells: ShareCells, uniform: Float[Array, " d"], taps: Mapping[str, Array]
    ) -> tuple[Float[Array, " d"], Float[Array, ""], dict[str, Array]]:
        """Shares of a row's cells from uniform noise, log q of them, and what went into each layer.

        Without a dequantiser the shares are the noise.
        """
        if self.dequantiser is None:
            return uniform, jnp.zeros((), uniform.dtype), {}
        places = np.asarray(self.dequantiser.shape.discrete)
        noise = logistic_noise(uniform[places])
        inside, log_q, notes = self.dequantiser.draw(weights, cells.centre[places], noise, taps)
        return uniform.at[places].set(inside), log_q, notes

    def row_bound(
        self,
        weights: Weights,
        low: Float[Array, " d"],
        width: Float[Array, " d"],
        uniform: Float[Array, " d"],
        taps: Mapping[str, Array],
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """log p - log q at a point of a row's cells, without ``log_det``, and what went into each layer.

        Its mean over uniform noise is at most the log of the mean density on the unit cube over the cells. Points are
        drawn behind the marginals: there nothing jumps inside a cell, so that the gradient can be taken through them.
        """
        cells = ShareCells.behind(self.marginals, low, width)
        share, log_q, notes = self.draw_in_cells(weights, cells, uniform, taps)
        standard = cells.point(share)
        x, log_det = self._independent(standard)
        value, more = self.row_log_prob(weights, x, taps)
        fixed = log_det + log_uniform_ratio(standard) + jnp.sum(cells.log_ratio)
        return value + fixed - log_q, notes | more

    def point_in_cells(
        self, low: Float[Array, " d"], width: Float[Array, " d"], uniform: Float[Array, " d"], *, conditional: bool
    ) -> Float[Array, " d"]:
        """The features behind the fixed maps of a point of a row's cells, from uniform noise.

        If ``conditional`` it lies where the copula, if there is one, expects it given the other cells. Else it is
        uniform in the cells as far as the marginals go.
        """
        cells = ShareCells.behind(self.marginals, low, width)
        if self.copula is not None and conditional:
            return self.copula.draw(cells, uniform)
        return self._independent(cells.point(uniform))[0]

    def log_mean_density(
        self, low: Float[Array, " d"], width: Float[Array, " d"], points: Float[Array, "draw d"]
    ) -> Float[Array, ""]:
        """The log of the mean density on the unit cube over the cells of a row, by importance sampling.

        ``points`` are evenly spread in the unit cube. A quarter of them is sent to the open ends of cells (see
        ``models.cells.weighted_point``); with a copula or a dequantiser, half of them to where it says. All are
        weighted by the mixture, so that no weight can grow large (Veach and Guibas 1995, the balance heuristic).
        """
        best = _UNIFORM if self.copula is None else _COPULA
        best = best if self.dequantiser is None else _LEARNED
        way = np.resize(np.asarray((best, _UNIFORM, best, _WIDE)), points.shape[0])
        shares = np.bincount(way, minlength=4).astype(np.float32) / np.float32(points.shape[0])
        cells = ShareCells.behind(self.marginals, low, width)
        found = [
            jax.vmap(lambda point, kind=kind: self._proposed(cells, point, kind))(points[np.flatnonzero(way == kind)])
            for kind in sorted(set(way.tolist()))
        ]
        standard, proposals = (jnp.concatenate(parts) for parts in zip(*found, strict=True))
        densities = jax.vmap(self._standard_log_prob)(standard) + jax.vmap(log_uniform_ratio)(standard)
        weighted = densities - logsumexp(proposals, axis=1, b=jnp.asarray(shares))
        return logsumexp(weighted) - math.log(points.shape[0]) + jnp.sum(cells.log_ratio)

    def _proposed(
        self, cells: ShareCells, uniform: Float[Array, " d"], way: int
    ) -> tuple[Float[Array, " d"], Float[Array, " way"]]:
        """A point behind the marginals, found in one of the ways, and the log density of every way at it.

        Densities are those of shares of cells, where uniform points have the density one.
        """
        nothing = jnp.zeros((), uniform.dtype)
        weights, share, by_copula, log_q = self.weights(), uniform, nothing, nothing
        if way == _LEARNED and self.dequantiser is not None:
            share, log_q, _ = self.draw_in_cells(weights, cells, uniform, self.dequantiser.no_taps())
        standard = wide_point(cells.low, cells.width, share) if way == _WIDE else cells.point(share)
        if self.dequantiser is not None:
            if way == _WIDE:
                inside = (ndtr(standard) - cells.low) / jnp.maximum(cells.width, 1e-30)
                share = jnp.where(cells.open_ended, inside, share)
            if way != _LEARNED:
                places = np.asarray(self.dequantiser.shape.discrete)
                log_q = self.dequantiser.log_q(weights, cells.centre[places], share[places])
        elif self.copula is not None:
            if way == _COPULA:
                standard = self.copula.colour(self.copula.draw(cells, uniform))
            by_copula = self.copula.log_proposal(cells, standard)
        wide = log_wide_density(cells.low, cells.width, standard)
        return standard, jnp.stack([nothing, wide, log_q, by_copula])

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
        return self.marginals.inverse(x if self.copula is None else self.copula.colour(x))

    def describe(self) -> dict[str, Any]:
        names = ("num_features", "blocks", "width", "depth", "embedding", "bins", "rank", "linear")
        sizes = {name: getattr(self.shape, name) for name in names}
        found = {"kind": "spline_flow", **sizes, "bins_of_marginals": self.marginals.edges.shape[1] - 1}
        found |= {} if self.copula is None else {"copula": True}
        return found if self.dequantiser is None else found | {"dequantiser": self.dequantiser.shape.describe()}

    def _linear_type(self) -> type[LowRank] | type[Plu]:
        return Plu if self.shape.linear == "plu" else LowRank

    def _blocked(self) -> tuple[str, ...]:
        return ("first_bias", *self._linear_type().names)


def _unrolled(blocks: int) -> int:
    """How many blocks are compiled one after the other.

    On a GPU the loop takes longer than what it repeats: few blocks are unrolled there. Elsewhere none is, which keeps
    the time of compiling short.
    """
    return 1 if jax.default_backend() == "cpu" else min(blocks, 4)
