"""Flow loss: the negative log-likelihood of a spline flow, with the rules of its layers for fast clipping."""

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.privacy.factors import MatrixRule, Rule, Stairs, VectorRule, Weights


class FlowLoss(eqx.Module):
    """The loss of one row: minus its log density, averaged over ``draws`` points of its cells.

    Points are uniform in the cells or, if ``conditional``, follow the copula where the flow has one. If it has a
    dequantiser, that draws them. Then the loss is minus the mean of log p - log q, but for what no parameter enters:
    with ``common`` it is minus a lower bound of the log of the mean density over the row's cells.
    Averaging happens before clipping, so more draws cost time and no privacy. The determinants of the linear parts are
    the same for every row. They are clipped with the row all the same: added exactly while the rows are clipped, they
    outweigh them, and the scales run away.
    """

    skeleton: SplineFlow
    draws: int = eqx.field(static=True, default=1)
    conditional: bool = eqx.field(static=True, default=True)

    @property
    def shape(self) -> SplineFlowShape:
        """The sizes of the flow."""
        return self.skeleton.shape

    def flow(self, params: Any) -> SplineFlow:
        """The flow with these parameters."""
        return eqx.combine(params, self.skeleton)

    @property
    def rules(self) -> Mapping[str, Rule]:
        learned = self.skeleton.dequantiser
        found = conditioner_rules(self.shape) | linear_rules(self.shape)
        return found if learned is None else found | dequantiser_rules(learned.taps())

    def weights(self, params: Any) -> Weights:
        return self.flow(params).weights()

    def taps(self) -> dict[str, tuple[int, int, int]]:
        return {name: (self.draws, *size) for name, size in self.skeleton.taps().items()}

    def row(
        self, weights: Weights, row: Any, key: Array, taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        def at(uniform: Array, taps: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
            if self.skeleton.dequantiser is not None:
                return self.skeleton.row_bound(weights, row["low"], row["width"], uniform, taps)
            features = self.skeleton.point_in_cells(row["low"], row["width"], uniform, conditional=self.conditional)
            return self.skeleton.row_log_prob(weights, features, taps)

        values, notes = jax.vmap(at)(spread(key, self.draws, row["low"]), dict(taps))
        return -jnp.mean(values), notes

    @property
    def common_names(self) -> tuple[str, ...]:
        return self.skeleton.linear_names

    def common(self, weights: Weights) -> Float[Array, ""]:
        return -self.skeleton.log_det_of(weights)


def spread(key: Array, draws: int, like: Float[Array, " feature"]) -> Float[Array, "draw feature"]:
    """Points of the unit cube, each uniform, one in each of ``draws`` slices of every feature (a Latin hypercube).

    They see more of a cell than as many independent points, which matters where each takes a pass over the flow.
    Reference: McKay, Beckman, Conover 1979.
    """
    if draws == 1:
        return jax.random.uniform(key, (1, *like.shape), like.dtype)
    first, second = jax.random.split(key)
    tickets = jax.random.uniform(first, (draws, *like.shape), like.dtype)
    slices = jnp.argsort(tickets, axis=0).astype(like.dtype)
    return (slices + jax.random.uniform(second, (draws, *like.shape), like.dtype)) / draws


def conditioner_rules(shape: SplineFlowShape) -> dict[str, Rule]:
    """The rules of the shared network: staircases of degrees, and a first bias for each block."""
    features, degrees = shape.num_features, shape.conditioner.degrees
    first = Stairs(inputs=features, outputs=degrees, strict=features == 1)
    rules: dict[str, Rule] = {
        "first": MatrixRule(source="first", target="first", stairs=first),
        "first_bias": VectorRule(target="first", blocked=True),
        "last": MatrixRule(source="last", target="last", stairs=Stairs(inputs=degrees, outputs=features, strict=True)),
        "last_bias": VectorRule(target="last"),
    }
    for layer in range(shape.depth - 1):
        name = f"middle{layer}"
        rules[name] = MatrixRule(source=name, target=name, stairs=Stairs(inputs=degrees, outputs=degrees))
        rules[f"{name}_bias"] = VectorRule(target=name)
    return rules


def dequantiser_rules(layers: Iterable[str]) -> dict[str, Rule]:
    """The rules of a dequantiser: plain layers that a draw uses once."""
    rules: dict[str, Rule] = {}
    for name in layers:
        rules[name] = MatrixRule(source=name, target=name)
        rules[f"{name}_bias"] = VectorRule(target=name)
    return rules


def linear_rules(shape: SplineFlowShape) -> dict[str, Rule]:
    """Equations (3) and (4) of Lee, Kim, Jeong, Ro 2022, as factors."""
    shift = VectorRule(target="linear", blocked=True)
    if shape.linear == "plu":
        size = shape.num_features
        below = Stairs(inputs=size, outputs=size, strict=True)
        above = Stairs(inputs=size, outputs=size, upper=True)
        return {
            "lower": MatrixRule(source="linear", target="linear", blocked=True, stairs=below),
            "upper": MatrixRule(source="inner", target="inner", blocked=True, stairs=above),
            "scale": VectorRule(source="inner", target="inner", blocked=True),
            "shift": shift,
        }
    return {
        "scale": VectorRule(source="inner", target="linear", blocked=True),
        "left": MatrixRule(source="linear", target="linear", blocked=True),
        "right": MatrixRule(source="inner", target="inner", blocked=True),
        "shift": shift,
    }
