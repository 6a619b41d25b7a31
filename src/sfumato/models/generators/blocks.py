"""Blocks: a row as a network sees and makes it, where each feature has a block of numbers by its kind.

A *point* is one number of [0, 1]. A *choice* among levels in no order is a one-hot block. A few values in order are the
*bits* of their place. Rows of a table are embedded here, and outputs of a generator come out in the same form, relaxed
while it is trained and hard when rows are drawn. The block of a missing value is neutral: halves, or even shares.

Reference: data types as in Boob et al. 2018, section 3.4; relaxed levels, Jang, Gu, Poole 2017.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int

from sfumato.encoding.layout import Feature, Layout
from sfumato.errors import ArgumentError

Kind = Literal["point", "bits", "choice"]

MOST_BITS_VALUES = 15
"""Up to how many values in order are written as bits; numbers of more values are points, rounded to their grid."""

MOST_LEVELS = 1_024
"""Up to how many levels in no order have a block; what has more is a point."""

SURE = 1e4
"""The log odds of what is certain: no Gumbel noise of 32 bits comes near."""


@dataclass(frozen=True)
class Block:
    """What a feature is to a network: its kind, its number of values, and which feature says that it is missing."""

    kind: Kind
    size: int | None
    flag: int | None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or (self.kind != "point" and (self.size is None or self.size < 2)):
            raise ArgumentError("Expected a point, or bits or a choice among at least two values.")

    @property
    def width(self) -> int:
        """The numbers of the block.

        >>> Block("bits", 5, None).width, Block("choice", 5, None).width, Block("point", None, None).width
        (3, 5, 1)
        """
        if self.kind == "point":
            return 1
        return (int(self.size or 2) - 1).bit_length() if self.kind == "bits" else int(self.size or 2)

    @property
    def neutral(self) -> float:
        """What stands in each number of the block where the value is missing."""
        return 1 / self.width if self.kind == "choice" else 0.5


@dataclass(frozen=True)
class RowBlocks:
    """The blocks of all features of a row, one after another. All functions are of one row.

    >>> blocks = RowBlocks((Block("choice", 3, None), Block("bits", 2, None)))
    >>> blocks.embed(jnp.array([1 / 3, 0.5]), jnp.array([1 / 3, 0.5]), jnp.full(2, 0.5)).tolist()
    [0.0, 1.0, 0.0, 1.0]
    """

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        for place, block in enumerate(self.blocks):
            if block.flag is not None and not (0 <= block.flag < place and self.blocks[block.flag].width == 1):
                raise ArgumentError("Expected the flag of a feature to be a bit before it.")
        if not self.blocks:
            raise ArgumentError("Expected at least one feature.")

    @property
    def num_features(self) -> int:
        """How many features a row has."""
        return len(self.blocks)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each block begins, and where the last one ends."""
        return (0, *np.cumsum([block.width for block in self.blocks]).tolist())

    @property
    def width(self) -> int:
        """The numbers of a whole row."""
        return self.starts[-1]

    def part(self, place: int) -> slice:
        """Where the block of a feature lies."""
        return slice(self.starts[place], self.starts[place + 1])

    def places(self, kind: Kind) -> list[int]:
        """The features of a kind."""
        return [place for place, block in enumerate(self.blocks) if block.kind == kind]

    def embed(
        self, low: Float[Array, " feature"], width: Float[Array, " feature"], share: Float[Array, " feature"]
    ) -> Float[Array, " number"]:
        """The blocks of a row's cells; points are taken at a share of their cell.

        Guarantees: all numbers lie in [0, 1], and those of a choice add up to one, whatever the cells are.
        """
        low, width = (jnp.clip(jnp.nan_to_num(part, nan=0.5), 0.0, 1.0) for part in (low, width))
        cells = zip(self.blocks, low, width, share, strict=True)
        return self._joined([_cell_block(*cell) for cell in cells], list((width >= 1).astype(low.dtype)))

    def relaxed(
        self, raw: Float[Array, " number"], key: Array, temperature: float, *, straight: bool = False
    ) -> Float[Array, " number"]:
        """The blocks of a row from outputs of a network, with a gradient through every one.

        Levels and bits are drawn and relaxed: the colder, the nearer they are to hard ones. If ``straight``, the
        hard ones come out and the gradient is that of the relaxed ones (Bengio, Leonard, Courville 2013).
        """
        noise = _gumbel_like(key, raw)
        parts = [
            _relaxed_block(block, raw[self.part(place)], noise[:, self.part(place)], temperature, straight=straight)
            for place, block in enumerate(self.blocks)
        ]
        return self._joined(parts, [parts[block.flag or 0][0] for block in self.blocks])

    def expected(self, raw: Float[Array, " number"]) -> Float[Array, " number"]:
        """The blocks of a row from outputs of a network, with the chances of bits and levels in the place of draws."""
        parts = [_chances(block, raw[self.part(place)]) for place, block in enumerate(self.blocks)]
        return self._joined(parts, [parts[block.flag or 0][0] for block in self.blocks])

    def value_shares(self, numbers: Float[Array, " number"], place: int) -> Float[Array, " value"]:
        """The chance of each value of a feature of bits or levels, where bits are thrown independently.

        Of a row of hard blocks that is its value, one-hot. Shares are at least 0 and add up to one.
        """
        block, part = self.blocks[place], numbers[self.part(place)]
        if block.kind == "choice":
            return part
        shares = jnp.ones(1, numbers.dtype)
        for bit in part[::-1]:
            shares = jnp.stack([(1 - bit) * shares, bit * shares], axis=1).reshape(-1)
        size = int(block.size or 2)
        return shares[:size].at[-1].add(jnp.sum(shares[size:]))

    def draw(self, raw: Float[Array, " number"], key: Array) -> Float[Array, " feature"]:
        """The value of each feature from outputs of a network: the place of a level, or a number of [0, 1].

        Guarantees: places lie below the number of values, whatever the outputs are; bits past it are the last value.
        """
        noise, found = _gumbel_like(key, raw), []
        for place, block in enumerate(self.blocks):
            part = self.part(place)
            found.append(_drawn_value(block, jnp.nan_to_num(raw[part]), noise[:, part]))
        return jnp.stack(found)

    def points(self, drawn: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row feature"]:
        """Points of the unit cube of many rows that were drawn: the middle of each level."""
        sizes = np.array([1.0 if block.kind == "point" else float(block.size or 1) for block in self.blocks])
        level = np.array([block.kind != "point" for block in self.blocks])
        inside = np.clip(np.nan_to_num(np.asarray(drawn, np.float64), nan=0.5), 0.0, np.where(level, sizes - 1, 1.0))
        return np.where(level, (np.floor(inside) + 0.5) / sizes, inside)

    def certain(self, place: int, value: Int[Array, ""]) -> Float[Array, " number"]:
        """Outputs that give a choice among levels this value; past its levels it is left open."""
        block = self.blocks[place]
        return SURE * jax.nn.one_hot(value, block.width, dtype=jnp.float32)

    def describe(self) -> list[list[Any]]:
        """The blocks in words and numbers that JSON has."""
        return [[block.kind, block.size, block.flag] for block in self.blocks]

    def _joined(self, parts: list[Array], missing: list[Array]) -> Float[Array, " number"]:
        """All blocks, neutral as far as a value is missing; what has no flag is never missing."""
        joined = zip(self.blocks, parts, missing, strict=True)
        return jnp.concatenate(
            [part if block.flag is None else (1 - gone) * part + gone * block.neutral for block, part, gone in joined]
        )


def blocks_of(layout: Layout, label: int | None = None) -> RowBlocks:
    """The blocks of a table's features; that of a ``label`` is a choice even where its levels are few or in order.

    >>> from sfumato.schema import Integer, Schema
    >>> from sfumato.encoding.layout import layout_of
    >>> columns = {"age": Integer(lower=0, upper=120), "visits": Integer(lower=0, upper=9, nullable=True)}
    >>> [block.kind for block in blocks_of(layout_of(Schema(columns=columns))).blocks]
    ['point', 'bits', 'bits']
    """
    blocks: list[Block] = []
    for place, feature in enumerate(layout.features):
        flagged = place > 0 and _says_missing(layout.features[place - 1], feature)
        kind = "choice" if place == label else _kind(feature)
        blocks.append(Block(kind, feature.size, place - 1 if flagged else None))
    return RowBlocks(tuple(blocks))


def read_blocks(described: Any, most: int) -> RowBlocks:
    """The blocks that a description speaks of, of at most so many numbers; an ``ArgumentError`` where it is none."""
    if not isinstance(described, list) or not 0 < len(described) <= most:
        raise ArgumentError("its blocks must be a list.")
    blocks, numbers = [], 0
    for entry in described:
        if not isinstance(entry, list) or len(entry) != 3 or not all(_is_count(part) for part in entry[1:]):
            raise ArgumentError("a block must have a kind, a size and a flag.")
        if entry[0] not in get_args(Kind):
            raise ArgumentError("a block must be of a kind that there is.")
        if entry[0] in _MOST_VALUES and not 2 <= (entry[1] or 0) <= _MOST_VALUES[entry[0]]:
            raise ArgumentError("a block must have a size that its kind can have.")
        blocks.append(Block(*entry))
        numbers += blocks[-1].width
        if numbers > most:
            raise ArgumentError("its blocks are larger than the file.")
    return RowBlocks(tuple(blocks))


_MOST_VALUES = {"bits": MOST_BITS_VALUES, "choice": MOST_LEVELS}


def _is_count(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value <= 2**53)


def _says_missing(flag: Feature, feature: Feature) -> bool:
    return flag.role == "missing" and feature.role == "value" and flag.column == feature.column


def _kind(feature: Feature) -> Kind:
    if feature.size is None or feature.size < 2:
        return "point"
    if feature.nominal and feature.size > 2:
        return "choice" if feature.size <= MOST_LEVELS else "point"
    return "bits" if feature.size <= MOST_BITS_VALUES else "point"


def _powers(block: Block) -> Int[Array, " bit"]:
    return 2 ** jnp.arange(block.width)


def _cell_block(block: Block, low: Array, width: Array, share: Array) -> Float[Array, " number"]:
    if block.kind == "point":
        return jnp.clip(low + share * width, 0.0, 1.0)[None]
    size = int(block.size or 2)
    level = jnp.clip(jnp.floor((low + width / 2) * size).astype(jnp.int32), 0, size - 1)
    if block.kind == "choice":
        return jax.nn.one_hot(level, size, dtype=low.dtype)
    return (level // _powers(block) % 2).astype(low.dtype)


def _gumbel_like(key: Array, raw: Float[Array, " number"]) -> Float[Array, "2 number"]:
    """Two Gumbel numbers for each output: their difference is logistic, which is what a bit needs."""
    return jax.random.gumbel(key, (2, *raw.shape), raw.dtype)


def _relaxed_block(
    block: Block, raw: Array, noise: Float[Array, "2 number"], temperature: float, *, straight: bool
) -> Float[Array, " number"]:
    if block.kind == "point":
        return _chances(block, raw)
    if block.kind == "choice":
        soft = jax.nn.softmax((raw + noise[0]) / temperature)
        hard = jax.nn.one_hot(jnp.argmax(raw + noise[0]), raw.size, dtype=raw.dtype)
    else:
        soft = jax.nn.sigmoid((raw + noise[0] - noise[1]) / temperature)
        hard = (raw + noise[0] - noise[1] > 0).astype(raw.dtype)
    return soft + jax.lax.stop_gradient(hard - soft) if straight else soft


def _chances(block: Block, raw: Array) -> Float[Array, " number"]:
    if block.kind == "point":
        return ndtr(raw)
    return jax.nn.softmax(raw) if block.kind == "choice" else jax.nn.sigmoid(raw)


def _drawn_value(block: Block, raw: Array, noise: Float[Array, "2 number"]) -> Float[Array, ""]:
    if block.kind == "point":
        return ndtr(raw[0])
    if block.kind == "choice":
        return jnp.argmax(raw + noise[0]).astype(raw.dtype)
    bits = raw + noise[0] - noise[1] > 0
    return jnp.minimum(jnp.sum(bits * _powers(block)), int(block.size or 2) - 1).astype(raw.dtype)
