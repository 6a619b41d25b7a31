"""Description: the skeleton of a generator, from what its file says, as far as the file bears it out."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from sfumato.errors import ArgumentError, ReleaseError
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.generators.blocks import read_blocks
from sfumato.models.generators.generator import Generator, GeneratorShape

_MOST = 10**6


def generator_skeleton(fields: Mapping[str, Any], tensor_sizes: Sequence[int]) -> Generator:
    """The generator with shapes in place of arrays. No description can make more be allocated than the file holds."""
    shape = _shape(fields, tensor_sizes)
    found: Generator = eqx.filter_eval_shape(lambda: _start(shape))
    return found


def _shape(fields: Mapping[str, Any], tensor_sizes: Sequence[int]) -> GeneratorShape:
    sizes = {name: _count(fields, name, least=1) for name in ("latent", "width", "depth")}
    bins = _count(fields, "bins", least=0)
    label = None if fields.get("label") is None else _count(fields, "label", least=0)
    try:
        # The last layer has a weight for each number of the blocks, so the file bounds them; depth, the tensors do.
        blocks = read_blocks(fields.get("blocks"), most=sum(tensor_sizes))
        if sizes["depth"] > len(tensor_sizes) or blocks.num_features != fields.get("num_features"):
            raise ArgumentError("its sizes do not fit together.")
        if bins and not blocks.places("point"):
            raise ArgumentError("its sizes do not fit together.")
        shape = GeneratorShape(blocks, **sizes, label=label, bins=bins)
    except ArgumentError as error:
        raise ReleaseError(f"The model description is damaged: {error}") from None
    if sorted(array_sizes(shape)) != sorted(tensor_sizes):
        raise ReleaseError("The model description claims other numbers than the file holds.")
    return shape


def array_sizes(shape: GeneratorShape) -> list[int]:
    """How many numbers each array of a generator of this shape holds."""
    found = [size for into, out in shape.layers for size in (into * out, out)]
    points = len(shape.blocks.places("point"))
    if shape.label is not None:
        found.append(shape.classes)
    if shape.bins:
        found += [points * (shape.bins + 1)] * 2 + [points * shape.bins]
    return found


def _start(shape: GeneratorShape) -> Generator:
    # Only shapes are asked for, so no number is ever drawn with this key.
    key = jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32))
    marginals = MarginalMap.identity(shape.blocks.num_features, shape.bins) if shape.bins else None
    return Generator.start(shape, key=key, marginals=marginals)


def _count(fields: Mapping[str, Any], name: str, *, least: int) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ReleaseError(f"The model description is damaged: {name} must be a whole number up to {_MOST:,}.")
    return value
