"""Description: the skeleton of a model of codes, from what its file says, as far as the file bears it out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from sfumato.errors import ArgumentError, ReleaseError
from sfumato.models.codes.chain import Chain, ChainShape
from sfumato.models.codes.codec import Codec
from sfumato.models.codes.coded import CodedModel
from sfumato.models.codes.joint import CodeDistribution
from sfumato.models.codes.roundness import GRAINS, MOST_LEVELS, MOST_VALUE, Roundness
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.codes.transformer import Transformer, TransformerShape

_MOST = 10**6


def coded_skeleton(fields: Mapping[str, Any], tensor_sizes: Sequence[int]) -> CodedModel:
    """The model with shapes in place of arrays. No description can make more be allocated than the file holds."""
    most = sum(tensor_sizes)
    try:
        codec = _codec(_object(fields, "codec"), most)
        joint = _joint(_object(fields, "joint"), most)
    except ArgumentError as error:
        raise ReleaseError(f"The model description is damaged: {error}") from None
    if tuple(codec.sizes) != tuple(joint.sizes) or codec.num_features != fields.get("num_features"):
        raise ReleaseError("The model description is damaged: its codec and its joint do not fit together.")
    return CodedModel(codec, joint)


def _codec(fields: Mapping[str, Any], most: int) -> Codec:
    sizes, bins = _sizes(fields), _whole_number(fields, "bins")
    values, flags = (_places(fields, name, len(sizes)) for name in ("values", "flags"))
    used = [place for place in (*values, *flags) if place is not None]
    if sorted(used) != list(range(len(used))):
        raise ReleaseError("The model description is damaged: each feature must belong to one column.")
    if 3 * bins * len(sizes) > most:
        raise ReleaseError("The model description claims other numbers than the file holds.")
    lines = lambda width: jnp.zeros((len(sizes), width), jnp.float32)
    round_ones = lambda: _roundness(fields, len(sizes))
    arrays = lambda: (lines(bins + 1), lines(bins), lines(bins))
    found: Codec = eqx.filter_eval_shape(lambda: Codec(*arrays(), values, flags, sizes, round_ones()))
    return found


def _roundness(fields: Mapping[str, Any], num_columns: int) -> Roundness | None:
    if "roundness" not in fields:
        return None
    told = _object(fields, "roundness")
    firsts = _whole_numbers(told, "firsts", least=-MOST_VALUE, most=MOST_VALUE)
    levels = _whole_numbers(told, "levels", least=0, most=MOST_LEVELS)
    if not len(firsts) == len(levels) == num_columns:
        raise ReleaseError("The model description is damaged: roundness must have an entry for each column.")
    return Roundness(jnp.zeros((num_columns, len(GRAINS)), jnp.float32), firsts, levels)


def _joint(fields: Mapping[str, Any], most: int) -> CodeDistribution:
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ReleaseError(f"Unknown kind of model {kind!r}; a newer sfumato may be needed to read this release.")
    return _KINDS[kind](fields, most)


def _tables(fields: Mapping[str, Any], most: int) -> ConditionalTables:
    sizes, order = _sizes(fields), _whole_numbers(fields, "order", least=0)
    parents = fields.get("parents")
    if not isinstance(parents, list) or len(parents) != len(sizes):
        raise ReleaseError("The model description is damaged: parents must list columns for each column.")
    above = tuple(_whole_numbers({"parents": each}, "parents", least=0, most=len(sizes) - 1) for each in parents)
    shapes = [(_product(sizes, each, most), size) for each, size in zip(above, sizes, strict=True)]
    if sum(rows * columns for rows, columns in shapes) > most:
        raise ReleaseError("The model description claims other numbers than the file holds.")
    zeros = lambda: tuple(jnp.zeros(shape, jnp.float32) for shape in shapes)
    found: ConditionalTables = eqx.filter_eval_shape(lambda: ConditionalTables(zeros(), order, above))
    return found


def _product(sizes: tuple[int, ...], parents: tuple[int, ...], most: int) -> int:
    """The rows of a table with these parents; counting ends where it passes what the file holds."""
    if len(set(parents)) != len(parents):
        raise ReleaseError("The model description is damaged: a column can be a parent once only.")
    rows = 1
    for parent in parents:
        rows *= sizes[parent]
        if rows > most:
            break
    return rows


def _chain(fields: Mapping[str, Any], most: int) -> Chain:
    base = _tables(_object(fields, "base"), most) if "base" in fields else None
    shared = fields.get("shared")
    if not isinstance(shared, bool):
        raise ReleaseError("The model description is damaged: shared must be true or false.")
    sizes, order = _sizes(fields), _whole_numbers(fields, "order", least=0)
    shape = ChainShape(sizes, order, _whole_number(fields, "width"), shared)
    if 2 * shape.width * shape.most * (1 if shared else shape.places) + shape.width**2 > most:
        raise ReleaseError("The model description claims other numbers than the file holds.")
    chain: Chain = eqx.filter_eval_shape(lambda: Chain.start(shape, key=_any_key()))
    return _on_base(chain, base)


def _transformer(fields: Mapping[str, Any], most: int) -> Transformer:
    base = _tables(_object(fields, "base"), most) if "base" in fields else None
    sizes, order = _sizes(fields), _whole_numbers(fields, "order", least=0)
    numbers = {name: _whole_number(fields, name) for name in ("layers", "width", "heads")}
    shape = TransformerShape(sizes=sizes, order=order, **numbers)
    if 12 * shape.layers * shape.width**2 + shape.width * sum(sizes) > most:
        raise ReleaseError("The model description claims other numbers than the file holds.")
    model: Transformer = eqx.filter_eval_shape(lambda: Transformer.start(shape, key=_any_key()))
    return _on_base(model, base)


Based = TypeVar("Based", Chain, Transformer)


def _on_base(model: Based, base: ConditionalTables | None) -> Based:
    """The model with its base, whose columns must have the same codes and come in an order that both can follow."""
    if base is None:
        return model
    place = {column: place for place, column in enumerate(model.shape.order)}
    follows = base.sizes == model.shape.sizes and all(
        place[above] < place[column] for column, each in enumerate(base.parents) for above in each
    )
    if not follows:
        raise ReleaseError("The model description is damaged: a model and its base must have the same columns.")
    found: Based = eqx.tree_at(lambda model: model.base, model, base, is_leaf=lambda part: part is None)
    return found


_KINDS: dict[str, Callable[[Mapping[str, Any], int], CodeDistribution]] = {
    "conditional_tables": _tables,
    "chain": _chain,
    "transformer": _transformer,
}


def _any_key() -> Array:
    # Only shapes are asked for, so no number is ever drawn with it.
    return jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32))


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = fields.get(name)
    if not isinstance(found, dict):
        raise ReleaseError(f"The model description is damaged: {name} must be an object.")
    return found


def _sizes(fields: Mapping[str, Any]) -> tuple[int, ...]:
    """The codes of each column, of which there is at least one."""
    found = _whole_numbers(fields, "sizes", least=1)
    if not found:
        raise ReleaseError("The model description is damaged: there must be at least one column.")
    return found


def _whole_number(fields: Mapping[str, Any], name: str) -> int:
    return _whole_numbers({name: [fields.get(name)]}, name, least=1)[0]


def _whole_numbers(fields: Mapping[str, Any], name: str, *, least: int, most: int = _MOST) -> tuple[int, ...]:
    found = fields.get(name)
    if not isinstance(found, list) or not all(type(each) is int and least <= each <= most for each in found):
        raise ReleaseError(f"The model description is damaged: {name} must be whole numbers from {least} to {most:,}.")
    return tuple(found)


def _places(fields: Mapping[str, Any], name: str, num_columns: int) -> tuple[int | None, ...]:
    found = fields.get(name)
    if not isinstance(found, list) or len(found) != num_columns:
        raise ReleaseError(f"The model description is damaged: {name} must have an entry for each column.")
    if not all(each is None or (type(each) is int and 0 <= each <= _MOST) for each in found):
        raise ReleaseError(f"The model description is damaged: {name} must be features or null.")
    return tuple(found)
