"""Grouped critic: every group of parameters has a clipping bound of its own, which may follow the gradients' norms.

What the paper prints clips the gradient of the batch and adds noise of sigma times each group's bound; neither gives
the privacy that it is accounted for. Here the gradient of each *row* is clipped, group by group, to the bounds c_j. The
groups are then scaled by 1 / (c_j * sqrt(groups)), so that the whole vector of a row has a norm of one at most: one
Gaussian sum of sensitivity one, however many groups there are and whatever their bounds. That is the same as noise of
sigma * c_j on each group with all groups accounted for together: they compose to sigma / sqrt(groups). After the noise
the scale is taken back, which is post-processing. So the bounds may be any public numbers, even ones that change from
step to step: sensitivity never depends on them, since ``FlatClip`` at one bounds what leaves the row.

A bound follows the norms from public rows for free, or through the door: the row's vector gets one more coordinate a
group, which says whether its norm in that group lies below the bound, in the part ``told`` of the whole norm. Their
noisy sum tells which share of rows lies below, and the bound moves towards the quantile that is wanted.

Reference: Boob et al. 2018, section 3.1 and Algorithms 3 and 4; Zhang, Ji, Wang 2018; Andrew, Thakkar, McMahan,
Ramaswamy 2021 (the bound by a private quantile).
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from sfumato.checks import between, positive, whole
from sfumato.errors import ArgumentError
from sfumato.fitting.critic_loss import Kind, Scene
from sfumato.fitting.critics import part_of
from sfumato.fitting.parameter_groups import weight_clusters
from sfumato.models.generators.critic import CriticShape, Weights
from sfumato.privacy import FlatClip


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """How many groups of parameters there are, and how the bound of each moves.

    ``follow`` is "still" (bounds stay at the quantile of public rows), "public" (they follow that quantile) or "noisy"
    (they follow the private rows' quantile, told through the door by ``told`` of the norm of a row's vector).
    ``quantile`` is the share of rows whose gradient is to stay whole; ``speed`` how fast a bound moves.
    """

    groups: int = 4
    follow: Literal["still", "public", "noisy"] = "still"
    quantile: float = 0.5
    speed: float = 0.05
    told: float = 0.1

    def __post_init__(self) -> None:
        whole(1, groups=self.groups)
        between(1, 1_000, groups=self.groups)
        between(0.01, 0.99, quantile=self.quantile, told=self.told)
        positive(speed=self.speed)
        if self.follow not in ("still", "public", "noisy"):
            raise ArgumentError(f"Expected follow={self.follow!r} to be 'still', 'public' or 'noisy'.")


class GroupedLoss(eqx.Module):
    """A loss whose gradient is a row's shaped vector: groups clipped and scaled, and what the row tells of its norms.

    It is linear in the parameters with the shaped vector as its slope, so that its gradient is that vector.
    """

    critic: "GroupedCritic"

    def __call__(self, params: dict[str, Any], row: Any, key: Array) -> Float[Array, ""]:
        vector, told = self.critic.vector(params, self.critic.scene.real(row, key), real=True)
        flat = ravel_pytree(params["weights"])[0]
        return jnp.sum(jax.lax.stop_gradient(vector) * flat) + jnp.sum(jax.lax.stop_gradient(told) * params["told"])


class GroupedCritic(eqx.Module):
    """A critic whose parameters are clipped in groups. Parameters of the door: weights, log bounds, and what is told.

    Guarantees: a row's vector has a norm of one at most for any bounds: each of l groups one of 1 / sqrt(l), times
    sqrt(1 - told**2), and what is told one of ``told``. ``FlatClip`` makes sure of it.
    """

    scene: Scene
    group_of: Int[Array, " parameter"]
    bounds: Float[Array, " group"]
    shape: CriticShape = eqx.field(static=True)
    kind: Kind = eqx.field(static=True)
    grouping: Grouping = eqx.field(static=True)

    @property
    def clip(self) -> FlatClip:
        return FlatClip(bound=1.0)

    @property
    def _told(self) -> float:
        return self.grouping.told if self.grouping.follow == "noisy" else 0.0

    def loss(self) -> GroupedLoss:
        return GroupedLoss(self)

    def start(self, weights: Weights) -> dict[str, Any]:
        logs = jnp.log(self.bounds)
        return {"weights": weights, "log_bounds": logs, "told": jnp.zeros_like(logs)}

    def weights(self, params: dict[str, Any]) -> Weights:
        return params["weights"]

    def vector(
        self, params: dict[str, Any], numbers: Float[Array, " number"], *, real: bool
    ) -> tuple[Float[Array, " parameter"], Float[Array, " group"]]:
        """The shaped vector of one row, and what it tells of its norms: half up or half down for each group."""
        part, bounds = part_of(self.kind, real=real), jnp.exp(params["log_bounds"])
        gradient = ravel_pytree(jax.grad(lambda weights: part(self.shape.score(weights, numbers)))(params["weights"]))[
            0
        ]
        norms = self.norms(gradient)
        factor = jnp.minimum(1.0, bounds / jnp.maximum(norms, 1e-30)) / bounds * self._scale
        below = jnp.where(norms <= bounds, 1.0, -1.0) * (self._told / sqrt(bounds.size))
        return gradient * factor[self.group_of], below

    def norms(self, gradient: Float[Array, " parameter"]) -> Float[Array, " group"]:
        """The norm of a gradient in each group."""
        return jnp.sqrt(jnp.zeros(self.bounds.shape, gradient.dtype).at[self.group_of].add(gradient**2))

    @property
    def _scale(self) -> float:
        return sqrt((1 - self._told**2) / self.bounds.size)

    def _unscaled(self, vector: Float[Array, " parameter"], params: dict[str, Any]) -> Weights:
        unflatten = ravel_pytree(params["weights"])[1]
        found = vector * (jnp.exp(params["log_bounds"]) / self._scale)[self.group_of]
        return unflatten(found.astype(jnp.float32))

    def real_mean(self, gradient: dict[str, Any], params: dict[str, Any]) -> Weights:
        return self._unscaled(ravel_pytree(gradient["weights"])[0], params)

    def row_mean(self, params: dict[str, Any], rows: Float[Array, "row number"], *, real: bool) -> Weights:
        vectors = jax.vmap(lambda row: self.vector(params, row, real=real)[0])(rows)
        return self._unscaled(jnp.mean(vectors, axis=0), params)

    def moved(self, params: dict[str, Any], weights: Weights, gradient: Any, rows: Array) -> dict[str, Any]:
        logs, grouping = params["log_bounds"], self.grouping
        if grouping.follow == "public":
            logs = logs + grouping.speed * (jnp.log(self._quantiles(params, rows)) - logs)
        if grouping.follow == "noisy" and gradient is not None:
            below = 0.5 + 0.5 * gradient["told"] * (sqrt(self.bounds.size) / self._told)
            logs = logs - grouping.speed * (jnp.clip(below, 0.0, 1.0) - grouping.quantile)
        logs = jnp.clip(logs, jnp.log(1e-6), jnp.log(1e6)).astype(params["log_bounds"].dtype)
        return {"weights": weights, "log_bounds": logs, "told": params["told"]}

    def _quantiles(self, params: dict[str, Any], rows: Float[Array, "row number"]) -> Float[Array, " group"]:
        gradients = _gradients(self.shape, self.kind, params["weights"], rows)
        return jnp.maximum(jnp.quantile(jax.vmap(self.norms)(gradients), self.grouping.quantile, axis=0), 1e-6)


def grouped_critic(
    scene: Scene, shape: CriticShape, kind: Kind, grouping: Grouping, *, rows: Float[Array, "row number"], key: Array
) -> GroupedCritic:
    """A critic in groups that public rows imply: sizes of their mean gradient by entry, bounds by their norms.

    The critic that they are taken at is a random one from ``key``, not the one that will play.
    """
    weights = shape.start(key)
    gradients = _gradients(shape, kind, weights, rows)
    group_of = weight_clusters(np.asarray(jnp.mean(gradients, axis=0)), grouping.groups)
    num = int(group_of.max()) + 1
    start = GroupedCritic(scene, jnp.asarray(group_of), jnp.ones(num, jnp.float32), shape, kind, grouping)
    bounds = start._quantiles(start.start(weights), rows)
    return eqx.tree_at(lambda critic: critic.bounds, start, bounds.astype(jnp.float32))


def _gradients(shape: CriticShape, kind: Kind, weights: Weights, rows: Float[Array, "row number"]) -> Array:
    part = part_of(kind, real=True)
    one = lambda row: ravel_pytree(jax.grad(lambda weights: part(shape.score(weights, row)))(weights))[0]
    return jax.vmap(one)(rows)
