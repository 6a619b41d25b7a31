"""Transformer: each column's codes given those of all earlier columns, by a decoder-only transformer.

A row is a sentence of as many words as there are columns, and every column has words of its own. Place p of the
sentence reads the code of the column before it and says how likely each code of its own column is. Only those logits
are ever computed. Layers are few and not scanned: that compiles in seconds, and their gradients take less time.

Reference: Castellon, Gopal, Bloniarz, Rosenberg 2023 ("DP-TBART"); Radford et al. 2019 (the form of a block).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.checks import between, whole
from sfumato.errors import ArgumentError
from sfumato.models.codes.attention import (
    Kept,
    Weights,
    attended,
    attended_at,
    block,
    block_parts,
    by_head,
    gained,
    normalised,
    nothing_kept,
)
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.codes.together import pick
from sfumato.models.starts import normal

MOST_LAYERS = 24
"""Layers are compiled one by one, and a small file must not keep its reader busy."""

_LEAST = 1e-12  # a probability of the base below this counts as this, so that no row is impossible


@dataclass(frozen=True, kw_only=True)
class TransformerShape:
    """The sizes of a transformer: codes of each column, the order of columns, layers, width and heads.

    >>> TransformerShape(sizes=(2, 7), order=(1, 0), layers=2, width=8, heads=2).placed
    (7, 2)
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    layers: int
    width: int
    heads: int

    def __post_init__(self) -> None:
        whole(1, layers=self.layers, width=self.width, heads=self.heads)
        between(1, MOST_LAYERS, layers=self.layers)
        if not self.sizes or min(self.sizes) < 1 or sorted(self.order) != list(range(len(self.sizes))):
            raise ArgumentError("Expected columns of at least one code each, and an order of all columns.")
        if self.width % self.heads:
            raise ArgumentError(f"Expected width={self.width} to be a multiple of heads={self.heads}.")

    @property
    def placed(self) -> tuple[int, ...]:
        """The number of codes that each place can say."""
        return tuple(self.sizes[column] for column in self.order)

    @property
    def read(self) -> tuple[int, ...]:
        """The number of codes that each place can read: none at the start."""
        return (0, *self.placed[:-1])

    @property
    def largest(self) -> int:
        """The codes of the largest column."""
        return max(self.sizes)

    def taps(self) -> dict[str, tuple[int, int]]:
        """The shape [place, unit] of what each layer gives out, by the name of the layer."""
        places = len(self.sizes)
        found = {"read": (places, self.width), "before_head": (places, self.width), "head": (places, self.largest)}
        for name, size in block_parts(self.width).items():
            if not name.endswith("_bias"):
                found |= {f"{name}{layer}": (places, size[0]) for layer in range(self.layers)}
        return found


class Transformer(eqx.Module):
    """A distribution over the codes of one row. Parameters are stacked by layer, and codes of all places one by one.

    ``base``, where there is one, is not trained: its log probabilities are added to the logits, so that a model whose
    head is zero, as it is at the start, is the base. The vector of the first place is the start of every row.

    >>> shape = TransformerShape(sizes=(2, 4), order=(0, 1), layers=1, width=8, heads=2)
    >>> model = Transformer.start(shape, key=jax.random.key(0))
    >>> round(float(jnp.exp(model.log_prob(jnp.array([1, 3])))), 4)
    0.125
    """

    embedding: Float[Array, "read width"]
    position: Float[Array, "place width"]
    layers: dict[str, Float[Array, "layer ..."]]
    before_head: Float[Array, " width"]
    before_head_bias: Float[Array, " width"]
    head: Float[Array, "said width"]
    head_bias: Float[Array, " said"]
    shape: TransformerShape = eqx.field(static=True)
    base: ConditionalTables | None = None

    def __check_init__(self) -> None:
        if self.base is None:
            return
        place = {column: place for place, column in enumerate(self.shape.order)}
        for column, parents in enumerate(self.base.parents):
            if any(place[parent] >= place[column] for parent in parents):
                raise ArgumentError("Expected the parents of a column in the base to come before it in the order.")

    @classmethod
    def start(cls, shape: TransformerShape, *, key: Array, base: ConditionalTables | None = None) -> "Transformer":
        """The model before training: the base, or without one all codes alike."""
        if base is not None and base.sizes != shape.sizes:
            raise ArgumentError("Expected a base of the same columns and codes.")
        first, second, third = jax.random.split(key, 3)
        wide, places = shape.width, len(shape.sizes)
        layers = {name: _start_of(name, size, shape.layers, first) for name, size in block_parts(wide).items()}
        return cls(
            0.5 * normal(second, max(1, sum(shape.read)), wide),
            0.5 * normal(third, places, wide),
            layers,
            jnp.ones(wide, jnp.float32),
            jnp.zeros(wide, jnp.float32),
            jnp.zeros((sum(shape.sizes), wide), jnp.float32),
            jnp.zeros(sum(shape.sizes), jnp.float32),
            shape,
            base,
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each column."""
        return self.shape.sizes

    def trainable(self) -> "Transformer":
        """The parameters: the model with None in place of the base."""
        return eqx.tree_at(lambda model: model.base, self, None, is_leaf=lambda part: part is None)

    def weights(self) -> dict[str, Array]:
        """What acts on a row, by name: each layer by itself, and the head padded to the largest column."""
        found = {f"{name}{n}": part[n] for name, part in self.layers.items() for n in range(self.shape.layers)}
        found |= {"embedding": self.embedding, "position": self.position}
        found |= {"before_head": self.before_head, "before_head_bias": self.before_head_bias}
        return found | {"head": self._padded(self.head), "head_bias": self._padded(self.head_bias)}

    def log_prob(self, codes: Int[Array, " column"]) -> Float[Array, ""]:
        """The log probability of a row of codes, in nats; minus infinity for codes that there are not."""
        taps = {name: jnp.zeros(size, jnp.float32) for name, size in self.shape.taps().items()}
        return self.row_log_prob(self.weights(), codes, taps)[0]

    def row_log_prob(
        self, weights: Weights, codes: Int[Array, " column"], taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The same with given weights, and what went into each layer; ``taps`` are added to what comes out of it."""
        shape, places = self.shape, jnp.arange(len(self.sizes))
        said = codes[np.asarray(shape.order)]
        read = jnp.roll(said, 1)
        x = weights["position"] + jax.vmap(lambda at, code: self._read(weights, at, code))(places, read) + taps["read"]
        seen = jnp.tri(len(self.sizes), dtype=bool)
        attend = lambda looked: (attended(*by_head(looked, shape.heads), seen), None)
        notes = {"read": read.astype(jnp.float32)[:, None]}
        for n in range(shape.layers):
            x, _, more = block(self._layer(weights, n), x, attend, self._layer(taps, n))
            notes |= {f"{name}{n}": note for name, note in more.items()}
        last = normalised(x)
        x = gained(weights, "before_head", last, taps)
        logits = jnp.einsum("pcw,pw->pc", weights["head"], x) + weights["head_bias"] + taps["head"]
        logits = jax.vmap(self._log_chances, (0, 0, None))(places, logits, codes)
        notes |= {"before_head": last, "head": x}
        chosen = jnp.take_along_axis(logits, said[:, None], axis=1, mode="clip")
        known = jnp.all((said >= 0) & (said < np.asarray(shape.placed)))
        return jnp.where(known, jnp.sum(chosen), -jnp.inf), notes

    def sample(self, key: Array) -> Int[Array, " column"]:
        """One row of codes: one place after the other, with the keys and values of earlier places kept."""
        shape, weights, places = self.shape, self.weights(), len(self.sizes)
        uniform = jax.random.uniform(key, (places,), jnp.float32)

        def place(carry: Any, given: Any) -> tuple[Any, None]:
            kept, codes, code = carry
            at, position, head, bias, uniform = given
            x, kept = self._advance(weights, kept, (position + self._read(weights, at, code))[None], at)
            logits = head @ gained(weights, "before_head", normalised(x), {})[0] + bias
            code = pick(jnp.exp(self._log_chances(at, logits, codes)), uniform)
            return (kept, codes.at[jnp.asarray(shape.order)[at]].set(code), code), None

        empty = nothing_kept(shape.heads, shape.width // shape.heads, places)
        start = ((empty,) * shape.layers, jnp.zeros(places, jnp.int32), jnp.zeros((), jnp.int32))
        turns = (np.arange(places), weights["position"], weights["head"], weights["head_bias"], uniform)
        (_, codes, _), _ = jax.lax.scan(place, start, turns)
        return codes

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild the model."""
        sizes = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self.shape).items()}
        found = {"kind": "transformer", **sizes}
        return found if self.base is None else found | {"base": self.base.describe()}

    def _advance(
        self, weights: Weights, kept: tuple[Kept, ...], x: Float[Array, "1 width"], at: Int[Array, ""]
    ) -> tuple[Float[Array, "1 width"], tuple[Kept, ...]]:
        """What comes out of the layers at one place, and the keys and values with its own among them."""
        found = []
        for n, before in enumerate(kept):
            attend = lambda looked, before=before: attended_at(looked, before, at)
            x, after, _ = block(self._layer(weights, n), x, attend, {})
            found.append(after)
        return x, tuple(found)

    def _layer(self, parts: Weights, number: int) -> dict[str, Array]:
        """Those weights or taps that belong to one layer, by their names in a block."""
        names = {name: f"{name}{number}" for name in block_parts(self.shape.width)}
        return {name: parts[full] for name, full in names.items() if full in parts}

    def _read(self, weights: Weights, at: Array, code: Int[Array, ""]) -> Float[Array, " width"]:
        """The vector of a code that a place reads; zero for a code that its column has not."""
        size = jnp.asarray(self.shape.read)[at]
        first = jnp.asarray(np.cumsum(self.shape.read) - self.shape.read)[at]
        found = weights["embedding"].at[first + code].get(mode="clip")
        return jnp.where((code >= 0) & (code < size), found, 0.0)

    def _log_chances(
        self, at: Array, logits: Float[Array, " code"], codes: Int[Array, " column"]
    ) -> Float[Array, " code"]:
        """The log probabilities of what a place can say, from its logits and from the codes of earlier columns."""
        size = jnp.asarray(self.shape.placed)[at]
        every = jnp.arange(self.shape.largest)
        if self.base is not None:
            # All tables lie one after the other, so that the same lookup serves every place.
            cells = jnp.concatenate([self.base.tables[column].ravel() for column in self.shape.order])
            first, strides = (jnp.asarray(part)[at] for part in self._lookup(self.base))
            found = first + jnp.sum(strides * codes) * size + jnp.minimum(every, size - 1)
            logits = logits + jnp.log(jnp.maximum(cells.at[found].get(mode="clip"), _LEAST))
        return jax.nn.log_softmax(jnp.where(every < size, logits, -jnp.inf))

    def _lookup(self, base: ConditionalTables) -> tuple[np.ndarray, np.ndarray]:
        """For each place where its table begins, and by how many rows of it each column's code moves on."""
        first, strides = 0, np.zeros((2, len(self.sizes), len(self.sizes)), np.int32)
        for place, column in enumerate(self.shape.order):
            strides[0, place], step = first, 1
            first += base.tables[column].size
            for parent in reversed(base.parents[column]):
                strides[1, place, parent], step = step, step * self.sizes[parent]
        return strides[0, :, 0], strides[1]

    def _padded(self, said: Float[Array, "said ..."]) -> Float[Array, "place code ..."]:
        """What belongs to the codes of all places, one row for each place; zero past the codes it has."""
        placed = np.asarray(self.shape.placed)
        every = np.arange(self.shape.largest)
        index = (np.cumsum(placed) - placed)[:, None] + np.minimum(every, placed[:, None] - 1)
        live = (every < placed[:, None]).reshape(*index.shape, *[1] * (said.ndim - 1))
        return jnp.where(live, said[index], 0.0)


def _start_of(name: str, size: tuple[int, ...], layers: int, key: Array) -> Float[Array, "layer ..."]:
    """An array of a block before training, for all layers."""
    if len(size) == 1:
        return jnp.full((layers, *size), 0.0 if name.endswith("_bias") else 1.0, jnp.float32)
    # What is added to the stream is small, so that the stream does not grow with the layers.
    variance = 1 / (size[1] * (2 * layers if name in ("mix", "down") else 1))
    mine = jax.random.fold_in(key, list(block_parts(1)).index(name))
    return normal(mine, layers, *size) * variance**0.5
