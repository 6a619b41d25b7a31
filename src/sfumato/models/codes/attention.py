"""Attention: a block of a transformer, in which each place looks at places before it and then thinks by itself.

A block says what went into each of its layers, and adds a tap to what comes out of each, which is what fast clipping
asks for (``fitting.transformer_loss``).

Reference: Vaswani et al. 2017; Ba, Kiros, Hinton 2016 (layer normalisation); Radford et al. 2019 (it comes first).
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

_SMALL = 1e-5

Weights = Mapping[str, Array]
Found = TypeVar("Found")


def block_parts(width: int) -> dict[str, tuple[int, ...]]:
    """The arrays of a block; those of two axes are matrices, [output, input]. Each layer has a bias."""
    matrices = {"look": (3 * width, width), "mix": (width, width), "up": (4 * width, width), "down": (width, 4 * width)}
    gains = {"before_look": (width,), "before_up": (width,)}
    layers = matrices | gains
    return layers | {f"{name}_bias": size[:1] for name, size in layers.items()}


def block(
    weights: Weights,
    x: Float[Array, "place width"],
    attend: Callable[[Float[Array, "place three_widths"]], tuple[Float[Array, "place width"], Found]],
    taps: Weights,
) -> tuple[Float[Array, "place width"], Found, dict[str, Array]]:
    """What comes out of a block, what ``attend`` gave along, and what went into each layer.

    ``attend`` makes the weighted means of values from queries, keys and values. Taps may be left out.
    """
    first = normalised(x)
    seeing = gained(weights, "before_look", first, taps)
    mixed, along = attend(linear(weights, "look", seeing, taps))
    x = x + linear(weights, "mix", mixed, taps)
    second = normalised(x)
    thinking = gained(weights, "before_up", second, taps)
    active = jax.nn.gelu(linear(weights, "up", thinking, taps), approximate=True)
    notes = {"look": seeing, "mix": mixed, "up": thinking, "down": active, "before_look": first, "before_up": second}
    return x + linear(weights, "down", active, taps), along, notes


def linear(weights: Weights, name: str, x: Float[Array, "place input"], taps: Weights) -> Float[Array, "place output"]:
    """A linear layer of every place."""
    return x @ weights[name].T + weights[f"{name}_bias"] + taps.get(name, 0.0)


def gained(weights: Weights, name: str, x: Float[Array, "place unit"], taps: Weights) -> Float[Array, "place unit"]:
    """Gain and bias of what was normalised."""
    return x * weights[name] + weights[f"{name}_bias"] + taps.get(name, 0.0)


def normalised(values: Float[Array, "*place unit"]) -> Float[Array, "*place unit"]:
    """The units of each place with mean zero and variance one.

    >>> normalised(jnp.array([1.0, 3.0])).round(3).tolist()
    [-1.0, 1.0]
    """
    centred = values - jnp.mean(values, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + _SMALL)


def by_head(looked: Float[Array, "place three_widths"], heads: int) -> tuple[Array, Array, Array]:
    """Queries, keys and values, [place, head, unit] each."""
    parts = looked.reshape(looked.shape[0], 3, heads, -1)
    return parts[:, 0], parts[:, 1], parts[:, 2]


def attended(
    queries: Float[Array, "place head unit"],
    keys: Float[Array, "other head unit"],
    values: Float[Array, "other head unit"],
    seen: Bool[Array, "place other"],
) -> Float[Array, "place width"]:
    """For each place a mean of the values it has ``seen``, weighted by how well their keys match its query.

    >>> one = jnp.ones((1, 1, 1))
    >>> attended(one, jnp.zeros((2, 1, 1)), jnp.array([[[1.0]], [[3.0]]]), jnp.ones((1, 2), bool)).tolist()
    [[2.0]]
    """
    scores = jnp.einsum("qhd,khd->hqk", queries, keys) * queries.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("hqk,khd->qhd", weights, values).reshape(queries.shape[0], -1)


Kept: TypeAlias = tuple[Float[Array, "head unit place"], Float[Array, "head place unit"]]
"""The keys and values of places that were passed, as products of them are fastest."""


def nothing_kept(heads: int, units: int, places: int) -> Kept:
    """Room for the keys and values of so many places."""
    return jnp.zeros((heads, units, places), jnp.float32), jnp.zeros((heads, places, units), jnp.float32)


def attended_at(
    looked: Float[Array, "1 three_widths"], kept: Kept, at: Int[Array, ""]
) -> tuple[Float[Array, "1 width"], Kept]:
    """What one place takes from itself and from those before it, and what is kept with its own key and value."""
    query, key, value = (part[0] for part in by_head(looked, kept[0].shape[0]))
    keys, values = kept[0].at[:, :, at].set(key), kept[1].at[:, at].set(value)
    scores = jnp.einsum("hd,hdk->hk", query, keys) * query.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(jnp.arange(keys.shape[2]) <= at, scores, -jnp.inf), axis=-1)
    return jnp.einsum("hk,hkd->hd", weights, values).reshape(1, -1), (keys, values)
