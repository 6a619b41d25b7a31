"""Registry of model kinds: rebuilds the skeleton of a model from its description, without running its file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from sfumato.errors import ArgumentError, ReleaseError
from sfumato.models.codes.description import coded_skeleton
from sfumato.models.flows.copula import Copula
from sfumato.models.flows.dequantiser import DequantiserShape
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.models.generators.conditional import conditional_skeleton
from sfumato.models.generators.description import generator_skeleton
from sfumato.models.mixture import GaussianMixture, mixture_skeleton
from sfumato.models.union import union_skeleton


def _maf(fields: Mapping[str, Any], tensor_sizes: Sequence[int]) -> Any:
    sizes = {name: _size(fields, name) for name in ("num_features", "blocks", "width", "depth")}
    act_norm = fields.get("act_norm")
    if not isinstance(act_norm, bool):
        raise ReleaseError("The model description is damaged: act_norm must be true or false.")
    # The masks are made while rebuilding, so the sizes must be borne out by the file before that.
    hidden = max(sizes["width"], sizes["num_features"] - 1)
    claimed = sizes["blocks"] * hidden * (sizes["num_features"] + (sizes["depth"] - 1) * hidden)
    num_tensors = 2 + sizes["blocks"] * (2 * (sizes["depth"] + 1) + 2 * act_norm)
    components = _size(fields, "base_components") if "base_components" in fields else 0
    if components:
        claimed, num_tensors = claimed + components * sizes["num_features"] ** 2, num_tensors + 3
    if claimed > sum(tensor_sizes) or num_tensors != len(tensor_sizes):
        raise ReleaseError("The model description claims other numbers than the file holds.")
    shape = MafShape(**sizes, act_norm=act_norm)

    def start() -> MaskedAutoregressiveFlow:
        flow = MaskedAutoregressiveFlow.start(shape, key=_any_key())
        return flow.over(GaussianMixture.standard(shape.num_features, components)) if components else flow

    return eqx.filter_eval_shape(start)


def _mixture(fields: Mapping[str, Any], tensor_sizes: Sequence[int]) -> Any:
    return mixture_skeleton({name: _size(fields, name) for name in ("num_features", "components")}, tensor_sizes)


def _spline_flow(fields: Mapping[str, Any], tensor_sizes: Sequence[int]) -> Any:
    names = ("num_features", "blocks", "width", "depth", "embedding", "bins", "rank")
    sizes = {name: _size(fields, name) for name in names}
    linear, edges = fields.get("linear"), _size(fields, "bins_of_marginals") + 1
    if linear not in ("low-rank", "plu"):
        raise ReleaseError("The model description is damaged: linear must be 'low-rank' or 'plu'.")
    # The masks are made while rebuilding, so the sizes must be borne out by the file before that.
    hidden = max(sizes["width"], sizes["num_features"] - 1)
    seen = sizes["num_features"] + sizes["embedding"] + (sizes["depth"] - 1) * hidden
    claimed = hidden * (seen + sizes["num_features"] * (3 * sizes["bins"] - 1))
    num_tensors = 3 + 6 + 2 * (sizes["depth"] - 1) + 4
    dequantiser = _dequantiser(fields["dequantiser"], sizes["num_features"]) if "dequantiser" in fields else None
    copula = fields.get("copula", False)
    if not isinstance(copula, bool):
        raise ReleaseError("The model description is damaged: copula must be true or false.")
    if copula:
        claimed, num_tensors = claimed + sizes["num_features"] ** 2, num_tensors + 1
    if dequantiser is not None:
        layers = dequantiser.layers().values()
        claimed, num_tensors = claimed + sum(out * into for out, into in layers), num_tensors + 2 * len(layers)
    if claimed + 2 * edges * sizes["num_features"] > sum(tensor_sizes) or num_tensors != len(tensor_sizes):
        raise ReleaseError("The model description claims other numbers than the file holds.")
    shape = SplineFlowShape(**sizes, linear=linear)

    def start() -> SplineFlow:
        flow = SplineFlow.start(shape, key=_any_key(), dequantiser=dequantiser)
        marginals = MarginalMap.identity(shape.num_features, edges - 1)
        joint = Copula.independent(shape.num_features) if copula else None
        return flow.behind(marginals, joint)

    return eqx.filter_eval_shape(start)


def _dequantiser(fields: Any, num_features: int) -> DequantiserShape:
    places = fields.get("discrete") if isinstance(fields, dict) else None
    if not isinstance(places, list) or not all(type(place) is int and place < num_features for place in places):
        raise ReleaseError("The model description is damaged: discrete must list features.")
    sizes = {name: _size(fields, name) for name in ("width", "summary", "components", "couplings")}
    try:
        return DequantiserShape(tuple(places), **sizes)
    except ArgumentError as error:
        raise ReleaseError(f"The model description is damaged: {error}") from None


def _any_key() -> Array:
    # Only shapes are asked for, so no number is ever drawn with it.
    return jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32))


_KINDS: dict[str, Callable[[Mapping[str, Any], Sequence[int]], Any]] = {
    "masked_autoregressive_flow": _maf,
    "spline_flow": _spline_flow,
    "coded": coded_skeleton,
    "gaussian_mixture": _mixture,
    "conditional_generator": conditional_skeleton,
    "generator": generator_skeleton,
    "union": lambda fields, tensor_sizes: union_skeleton(fields, tensor_sizes, skeleton),
}


def skeleton(description: Mapping[str, Any], tensor_sizes: Sequence[int]) -> Any:
    """The model that a description speaks of, with shapes in place of arrays.

    ``tensor_sizes`` is how many numbers each tensor of the file really holds: no description can make more than
    that be allocated.
    """
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ReleaseError(f"Unknown kind of model {kind!r}; a newer sfumato may be needed to read this release.")
    return _KINDS[kind](description, tensor_sizes)


def _size(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**6:
        raise ReleaseError(f"The model description is damaged: {name} must be a whole number from 1 to 1,000,000.")
    return value
