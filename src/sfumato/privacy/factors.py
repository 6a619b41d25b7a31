"""Factors: the gradient of a row without the gradient of a row.

For a layer y = W x + b the gradient of a loss in W is the outer product of what came back to y and what went in as x.
One backward pass gives both for every row of a batch. Norms of rows and the clipped sum follow from these factors
alone, so that no gradient of a single row is ever in memory. A weight that is used several times for one row (a
network shared by all blocks of a flow, several draws of the noise in a row) has a gradient that is a sum of
outer products, and its norm has cross terms.

Privacy does not rest on what a model says here: whatever factors it hands over, the norm is taken of the very
vector that is summed.

Reference: Goodfellow 2015 (norms from factors); Lee and Kifer 2021 (fast clipping); Bu et al. 2023 (book-keeping).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from sfumato.privacy.clipping import Part
from sfumato.privacy.products import by_group, contracted, gram, grouped, matmul, of_pairs, wide

Weights: TypeAlias = dict[str, Array]
"""The numbers that act on rows, by name: what is clipped and noised."""

ADDED = 96
"""Rows that are added up as floats at most, however many there are; such sums are added as whole numbers."""

SLABS = 2
"""Parts of a masked matrix whose sums are made by themselves on a CPU, where what is masked then need not be made."""

LEAST = 2.0**-50
"""The least size of a factor that counts: smaller ones are zero, so that no product of two is too small for 32 bits."""

MANY = 7
"""From so many uses of a matrix on, all pairs of them are multiplied at once: twice the work, in two products."""


@dataclass(frozen=True, kw_only=True)
class Stairs:
    """A mask by degrees: output group g sees the input groups up to g.

    With ``strict`` it sees those before g only, and with ``upper`` those after g only. Units of one group stand
    together and all groups of a side are equally large.
    """

    inputs: int
    outputs: int
    strict: bool = False
    upper: bool = False

    def mask(self, num_outputs: int, num_inputs: int) -> np.ndarray:
        """The same as a matrix of zeros and ones."""
        into = np.repeat(np.arange(self.inputs), num_inputs // self.inputs)
        out = np.repeat(np.arange(self.outputs), num_outputs // self.outputs)
        if self.upper:
            return (out[:, None] < into[None, :]).astype(np.float64)
        return (out[:, None] >= into[None, :] + self.strict).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class MatrixRule:
    """A weight matrix: note ``source`` goes in, tap ``target`` comes back. ``stairs`` says what is masked.

    A ``blocked`` weight has one matrix for each block; otherwise one matrix serves all of them. Where clipping is by
    layers, the weights of one target are a layer.
    """

    source: str
    target: str
    blocked: bool = False
    stairs: Stairs | None = None

    def part(self, weight: Array) -> Part:
        """Where this weight stands among the layers, and how many of its entries the mask leaves."""
        live = weight.size if self.stairs is None else int(self.stairs.mask(*weight.shape[-2:]).sum())
        blocks = weight.shape[0] if self.blocked and self.stairs is not None else 1
        return Part(layer=self.target, entries=live * blocks, fan=1)

    def squares(
        self, notes: Mapping[str, Array], backs: Mapping[str, Array], common: Array | None, *, bias: bool = False
    ) -> tuple[Array, Array]:
        """The squared norm of each row's gradient, and the sum of the norms of its products.

        Neither is too small: where they are made in 32 bits, what rounding may take is added (``_margin``). The second
        is what the norm would be if the products of a row's uses did not cancel. ``common`` is a part of the gradient
        that is the same for every row. With ``bias`` both are those of the matrix and of a bias of the same layer
        together: one more input, which is always one and which no mask hides.
        """
        into, back = self._uses(notes[self.source]), self._uses(backs[self.target])
        uses, one = into.shape[2], float(bias)
        squares, most = jnp.zeros((), jnp.float64), jnp.zeros((), jnp.float64)
        if uses >= MANY and self.stairs is None:
            return self._with(common, into, back, *of_pairs((gram(into) + one) * gram(back)))
        # Every use against the one so many places on: half way round, each pair was met once (or twice, at half).
        for apart in range(uses // 2 + 1):
            other = lambda values, apart=apart: jnp.roll(values, -apart, axis=2)
            found = self._product(into, other(into), back, other(back), one)
            if apart == 0:
                margin = self._margin(into, back)
                alone = (1 + margin) * jnp.sum(jnp.sqrt(found), axis=2)
                most, squares = jnp.max(alone, axis=1), margin * jnp.sum(alone**2, axis=1)
            squares = squares + (1 if apart in (0, uses / 2) else 2) * jnp.sum(found, axis=(1, 2))
        return self._with(common, into, back, squares, most)

    def _with(self, common: Array | None, into: Array, back: Array, squares: Array, most: Array) -> tuple[Array, Array]:
        """Squared norms and sums of norms with a part that is common to all rows, where there is one."""
        if common is None:
            return squares, most
        fixed = wide(common) if self.blocked else wide(common)[None]
        along = jnp.einsum("nbuo,boi,nbui->n", wide(back), fixed, wide(into))
        size = jnp.sum(fixed**2)
        return squares + 2 * along + size, most + jnp.sqrt(size)

    def total(
        self, factor: Float64[Array, " row"], notes: Mapping[str, Array], backs: Mapping[str, Array], added: int = ADDED
    ) -> Float64[Array, "group ..."]:
        """The sum of factor times gradient over each group of rows, without what is common to all rows."""
        into, back = self._uses(notes[self.source]), self._uses(backs[self.target])
        return self._masked(self._sums(factor, into, back, added))

    def total_with_bias(
        self, factor: Float64[Array, " row"], notes: Mapping[str, Array], backs: Mapping[str, Array], added: int = ADDED
    ) -> tuple[Float64[Array, "group ..."], Float64[Array, "group ..."]]:
        """The same, and that of a bias of the same layer: one more input, which comes first and is always one."""
        into, back = self._uses(notes[self.source]), self._uses(backs[self.target])
        more = jnp.pad(into, ((0, 0),) * 3 + ((1, 0),), constant_values=1)
        whole = self._sums(factor, more, back, added, extra=1)
        bias = whole[..., 0]
        return self._masked(whole[..., 1:]), bias if self.blocked else bias[:, 0]

    def _sums(self, factor: Array, into: Array, back: Array, added: int, extra: int = 0) -> Float64[Array, "group ..."]:
        """Sums of outer products before the mask; all outputs see the ``extra`` inputs that come first."""
        # The factor goes to the side that has fewer entries in the largest layers.
        weighted = grouped(wide(into) * factor[:, None, None, None], added)
        other = grouped(wide(back), added)
        slabs = self._slabs(into.shape[-1] - extra, back.shape[-1])
        found = [contracted(weighted[..., : extra + seen], other[..., first:last]) for first, last, seen in slabs]
        missing = [into.shape[-1] - part.shape[-1] for part in found]
        whole = [jnp.pad(part, ((0, 0),) * 3 + ((0, rest),)) for part, rest in zip(found, missing, strict=True)]
        return jnp.concatenate(whole, axis=2) if len(whole) > 1 else whole[0]

    def _slabs(self, inputs: int, outputs: int) -> list[tuple[int, int, int]]:
        """Outputs from, to, and how many inputs the last of them sees: together all that the mask leaves, and more."""
        stairs = self.stairs
        if stairs is None or stairs.upper or stairs.outputs < 2 * SLABS or jax.default_backend() != "cpu":
            return [(0, outputs, inputs)]
        ends = np.linspace(0, stairs.outputs, SLABS + 1).astype(int)
        seen = [max(1, min(stairs.inputs, int(end) - stairs.strict)) for end in ends[1:]]
        size, unit = outputs // stairs.outputs, inputs // stairs.inputs
        return [(int(a) * size, int(b) * size, n * unit) for a, b, n in zip(ends, ends[1:], seen, strict=False)]

    def gradients(self, notes: Mapping[str, Array], backs: Mapping[str, Array]) -> Float[Array, "row ..."]:
        """The gradient of each row by itself, for clipping that must see every entry of it."""
        into, back = self._uses(notes[self.source]), self._uses(backs[self.target])
        return self._masked(jnp.einsum("nbuo,nbui->nboi", back, into))

    def _masked(self, found: Float[Array, "some block output input"]) -> Array:
        found = self.live(found)
        return found if self.blocked else found[:, 0]

    def live(self, found: Float[Array, "... output input"]) -> Array:
        """What the mask leaves of a gradient."""
        return found if self.stairs is None else found * self.stairs.mask(*found.shape[-2:]).astype(found.dtype)

    def agrees(self, weight: tuple[int, ...], note: tuple[int, ...], tap: tuple[int, int, int]) -> bool:
        """Whether the shapes of a weight, of what goes in and of what comes out, [draw, block, unit], fit together."""
        size = (tap[2], note[2]) if len(note) == 3 else ()
        return note[:2] == tap[:2] and weight == ((tap[1], *size) if self.blocked else size)

    def _uses(self, values: Array) -> Array:
        """Values of shape [row, draw, block, unit] as [row, matrix, use, unit]."""
        if self.blocked:
            return jnp.swapaxes(values, 1, 2)
        return values.reshape(values.shape[0], 1, -1, values.shape[-1])

    def _product(self, x: Array, also_x: Array, y: Array, also_y: Array, one: float) -> Array:
        """The inner product of two masked outer products, with ``one`` more input that all outputs see."""
        if self.stairs is None:
            return (jnp.sum(wide(x) * wide(also_x), axis=-1) + one) * jnp.sum(wide(y) * wide(also_y), axis=-1)
        # In 32 bits up to the sums of groups, which is half of the work (``_margin``).
        inputs, outputs = by_group(x * also_x, self.stairs.inputs), by_group(y * also_y, self.stairs.outputs)
        seen = wide(matmul(inputs, self._seen()))
        return jnp.sum((seen + one) * wide(outputs), axis=-1)

    def _margin(self, into: Array, back: Array) -> float:
        """By how much of the product of two norms the inner product of two outer products may be off.

        A sum of n products in 32 bits, in any order, is off by at most n roundings of the sum of their sizes, and the
        latter is at most the product of the two norms (Cauchy and Schwarz). No product of two factors underflows, as
        they are zero or at least ``LEAST``, and what a fused sum may lose is far below a rounding. Where a product
        overflows, the norm is no number and the row does not count.
        """
        if self.stairs is None:
            return 0.0
        group = into.shape[-1] // self.stairs.inputs + back.shape[-1] // self.stairs.outputs
        return 1.01 * 2.0**-24 * (group + self.stairs.inputs + 4)

    def _seen(self) -> np.ndarray:
        stairs = self.stairs
        assert stairs is not None
        return stairs.mask(stairs.outputs, stairs.inputs).T.astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class VectorRule:
    """A bias; or with a ``source`` a factor of each entry, y = w * x, whose gradient is x times what came back."""

    target: str
    source: str | None = None
    blocked: bool = False

    def part(self, weight: Array) -> Part:
        """Where this weight stands among the layers; each entry is a unit of its own."""
        return Part(layer=self.target, entries=weight.size, fan=0)

    def squares(
        self, notes: Mapping[str, Array], backs: Mapping[str, Array], common: Array | None
    ) -> tuple[Array, Array]:
        """The squared norm of each row's gradient, and what the norm would be if its uses did not cancel."""
        gradients, sizes = self._of_rows(notes, backs), self._of_rows(notes, backs, jnp.abs)
        if common is not None:
            gradients = gradients + (wide(common) if self.blocked else wide(common)[None])
        found, reach = jnp.sum(gradients**2, axis=(1, 2)), jnp.sqrt(jnp.sum(sizes**2, axis=(1, 2)))
        return found, reach if common is None else reach + jnp.sqrt(jnp.sum(wide(common) ** 2))

    def total(
        self, factor: Float64[Array, " row"], notes: Mapping[str, Array], backs: Mapping[str, Array], added: int = ADDED
    ) -> Float64[Array, "group ..."]:
        """The sum of factor times gradient over each group of rows."""
        found = jnp.sum(grouped(self._of_rows(notes, backs) * factor[:, None, None], added), axis=1)
        return found if self.blocked else found[:, 0]

    def gradients(self, notes: Mapping[str, Array], backs: Mapping[str, Array]) -> Float[Array, "row ..."]:
        """The gradient of each row by itself."""
        found = self._of_rows(notes, backs).astype(jnp.float32)
        return found if self.blocked else found[:, 0]

    def live(self, found: Array) -> Array:
        """All of a gradient: nothing is masked."""
        return found

    def agrees(self, weight: tuple[int, ...], note: tuple[int, ...] | None, tap: tuple[int, int, int]) -> bool:
        """Whether the shapes of a weight, of what goes in and of what comes out, [draw, block, unit], fit together."""
        return (note is None or note == tap) and weight == (tap[1:] if self.blocked else tap[2:])

    def _of_rows(
        self, notes: Mapping[str, Array], backs: Mapping[str, Array], part: Callable[[Array], Array] = lambda x: x
    ) -> Float64[Array, "row block entry"]:
        back = wide(backs[self.target])
        if self.source is not None:
            back = back * wide(notes[self.source])
        return jnp.sum(part(back), axis=1) if self.blocked else jnp.sum(part(back), axis=(1, 2))[:, None]


@dataclass(frozen=True, kw_only=True)
class EmbeddingRule:
    """A table of vectors in which every block looks up one: note ``source`` says which, tap ``target`` comes back.

    ``sizes`` are the vectors of each block, which has them to itself: they lie in the weight one after the other. So a
    row uses no entry twice, and its gradient is what came back, vector by vector. A number that is no whole one, or
    past the vectors of its block, looks up none and adds nothing. There is one draw.
    """

    source: str
    target: str
    sizes: tuple[int, ...]

    def part(self, weight: Array) -> Part:
        """Where this weight stands among the layers; each vector is a unit of its own."""
        return Part(layer=self.target, entries=weight.size, fan=1)

    def squares(
        self, notes: Mapping[str, Array], backs: Mapping[str, Array], common: Array | None
    ) -> tuple[Array, Array]:
        """The squared norm of each row's gradient, and the norm itself: nothing can cancel in it."""
        place, back = self._places(notes), self._found(notes, backs)
        squares = jnp.sum(back**2, axis=(1, 2))
        if common is None:
            return squares, jnp.sqrt(squares)
        fixed = wide(common)
        along, size = jnp.sum(back * fixed.at[place].get(mode="clip"), axis=(1, 2)), jnp.sum(fixed**2)
        return squares + 2 * along + size, jnp.sqrt(squares) + jnp.sqrt(size)

    def total(
        self, factor: Float64[Array, " row"], notes: Mapping[str, Array], backs: Mapping[str, Array], added: int = ADDED
    ) -> Float64[Array, "group ..."]:
        """The sum of factor times gradient over each group of rows: at most so many numbers an entry."""
        place, back = self._places(notes), self._found(notes, backs) * factor[:, None, None]
        return jax.vmap(self._scattered)(grouped(place, added), grouped(back, added))

    def gradients(self, notes: Mapping[str, Array], backs: Mapping[str, Array]) -> Float[Array, "row ..."]:
        """The gradient of each row by itself."""
        return jax.vmap(self._scattered)(self._places(notes), self._found(notes, backs)).astype(jnp.float32)

    def live(self, found: Array) -> Array:
        """All of a gradient: nothing is masked."""
        return found

    def agrees(self, weight: tuple[int, ...], note: tuple[int, ...] | None, tap: tuple[int, int, int]) -> bool:
        """Whether the shapes of a weight, of what goes in and of what comes out, [draw, block, unit], fit together."""
        blocks = len(self.sizes)
        return note == (1, blocks, 1) and tap[:2] == (1, blocks) and weight == (max(1, sum(self.sizes)), tap[2])

    def _known(self, notes: Mapping[str, Array]) -> Array:
        """Which blocks of each row look up a vector that is theirs."""
        number = notes[self.source][:, 0, :, 0]
        return (number >= 0) & (number < jnp.asarray(self.sizes)) & (number == jnp.floor(number))

    def _places(self, notes: Mapping[str, Array]) -> Array:
        """Where the vectors of each row lie; past the end for those that there are not."""
        first, end = np.cumsum(self.sizes) - self.sizes, max(1, sum(self.sizes))
        number = jnp.where(self._known(notes), notes[self.source][:, 0, :, 0], 0.0).astype(jnp.int32)
        return jnp.where(self._known(notes), jnp.asarray(first, jnp.int32) + number, end)

    def _found(self, notes: Mapping[str, Array], backs: Mapping[str, Array]) -> Float64[Array, "row block unit"]:
        """What came back to the vectors of each row; zero where there is none."""
        return jnp.where(self._known(notes)[:, :, None], wide(backs[self.target][:, 0]), 0.0)

    def _scattered(self, place: Array, back: Float64[Array, "... unit"]) -> Float64[Array, "vector unit"]:
        empty = jnp.zeros((max(1, sum(self.sizes)), back.shape[-1]), back.dtype)
        return empty.at[place].add(back, mode="drop")


Rule: TypeAlias = MatrixRule | VectorRule | EmbeddingRule


@runtime_checkable
class FactoredLoss(Protocol):
    """A loss of one row that can be differentiated by factors.

    ``weights`` are what acts on rows, as a public function of the parameters: masks, positive scales, shrunk factors.
    Clipping and noise happen on them, and the noisy sum is pulled back to the parameters afterwards, which is
    post-processing. ``row`` gives the loss of one row and what went into each layer; what a layer gives out has the tap
    of its name added. ``common`` is the part of the loss that no row enters, a function of the weights called
    ``common_names``: it is part of every row's loss, and of the gradient that is clipped.
    Taps and notes have the shape [draw, block, unit].
    """

    @property
    def rules(self) -> Mapping[str, Rule]: ...

    def weights(self, params: Any) -> Weights: ...

    def taps(self) -> dict[str, tuple[int, int, int]]: ...

    def row(
        self, weights: Weights, row: Any, key: Array, taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]: ...

    @property
    def common_names(self) -> tuple[str, ...]: ...

    def common(self, weights: Weights) -> Float[Array, ""]: ...
