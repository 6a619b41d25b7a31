"""Columns of unknown domain: the text of each cell, and the place of each number on a grid that covers all numbers.

Both are rules of one cell, as all reading is. The grid is public: zero, and for either sign the numbers from one power
of two to the next (an octave), each cut into 2, 4, ... 32 equal parts. Numbers past its ends count as the last ones,
those too small for it as zero.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.encoding.parsing import Floats, Ints, absent, decoded, parse_floats
from sfumato.encoding.texts import texts_of
from sfumato.schema import LearntCategorical, LearntContinuous, LearntInteger

DEPTH = 5
"""How often an octave is halved."""

_BLANKS = r"^\s+|\s+$"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """So many octaves of either sign, the first from one to two, of numbers times ``scale``; whole ones if ``stepped``.

    >>> Grid(octaves=39, scale=1.0, stepped=True).sizes
    (79, 156, 312, 624, 1248, 2496)
    """

    octaves: int
    scale: float
    stepped: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many places there are: octaves and zero, halves of octaves, quarters and so on."""
        return (2 * self.octaves + 1, *(2 * self.octaves << depth for depth in range(1, DEPTH + 1)))

    def places(self, numbers: Floats) -> npt.NDArray[np.int32]:
        """The places of numbers, one for each depth, in the order of the numbers; -1 where there is none.

        >>> Grid(octaves=39, scale=1.0, stepped=True).places(np.array([0.0, 1.0, -1.0, 3.0, np.nan]))[:, :2].tolist()
        [[39, -1], [40, 78], [38, 77], [41, 81], [-1, -1]]
        """
        missing, top = np.isnan(numbers), 2.0**self.octaves
        sizes = np.minimum(np.abs(np.where(missing, 0.0, numbers)), top / self.scale) * self.scale
        sizes = np.minimum(np.rint(sizes) if self.stepped else sizes, np.nextafter(top, 0))
        mantissa, exponent = np.frexp(sizes)  # sizes = mantissa * 2^exponent, the mantissa from 1/2 to 1
        small, negative = missing | (sizes < 1), numbers < 0
        found = np.full((len(numbers), DEPTH + 1), -1, np.int32)
        for depth in range(DEPTH + 1):
            outwards = ((exponent - 1) << depth) + ((mantissa * 2 - 1) * 2**depth).astype(np.int64)
            middle = self.octaves << depth
            above = middle + outwards + (depth == 0)
            found[:, depth] = np.where(small, -1, np.where(negative, middle - 1 - outwards, above))
        found[small & ~missing, 0] = self.octaves
        return found

    def ends(self, place: int) -> tuple[float, float]:
        """The least and greatest number, times ``scale``, of a place among the finest parts.

        >>> Grid(octaves=4, scale=1.0, stepped=False).ends(128), Grid(octaves=39, scale=1.0, stepped=True).ends(39 * 32)
        ((1.0, 1.03125), (1.0, 1.0))
        """
        middle = self.octaves << DEPTH
        outwards = place - middle if place >= middle else middle - 1 - place
        octave, part = outwards >> DEPTH, outwards & (2**DEPTH - 1)
        low, high = (2.0**octave * (1 + at / 2**DEPTH) for at in (part, part + 1))
        if self.stepped:
            low, high = np.ceil(low), np.ceil(high) - 1  # of [low, high) the whole numbers
        return (float(low), float(high)) if place >= middle else (-float(high), -float(low))


def grid_of(column: LearntInteger | LearntContinuous) -> Grid:
    """The public grid of a column: to 2^39 steps where it has steps, else from 2^-40 to 2^64."""
    if isinstance(column, LearntContinuous) and column.decimals is None:
        return Grid(octaves=104, scale=2.0**40, stepped=False)
    decimals = getattr(column, "decimals", None) or 0
    return Grid(octaves=39, scale=10.0**decimals, stepped=True)


def read_numbers(values: Any, column: LearntInteger | LearntContinuous) -> npt.NDArray[np.int32]:
    """The places of the numbers of a column on its grid.

    >>> read_numbers(pa.chunked_array([["0", "x"]]), LearntInteger())[:, 0].tolist()
    [39, -1]
    """
    return grid_of(column).places(parse_floats(values))


def read_texts(values: Any, column: LearntCategorical) -> tuple[Ints, tuple[str, ...]]:
    """For each cell the place of its text without blanks around it, -1 where it holds nothing, and the texts.

    Where `other` is a whole number, only cells that are one have a text.

    >>> places, texts = read_texts(pa.chunked_array([["b", " a ", "NA", "b"]]), LearntCategorical())
    >>> places.tolist(), texts
    ([0, 1, -1, 0], ('b', 'a'))
    """
    values = decoded(values)
    if isinstance(column.other, int):
        numbers = parse_floats(values)
        whole = np.isfinite(numbers) & (np.abs(numbers) <= 2**53) & (np.rint(numbers) == numbers)
        texts: Any = pa.array(np.where(whole, numbers, 0).astype(np.int64), mask=~whole).cast(pa.large_string())
    else:
        found = texts_of(values)
        if found is None:
            return np.full(len(values), -1, np.int64), ()
        trimmed = pc.replace_substring_regex(found, pattern=_BLANKS, replacement="")
        texts = pc.if_else(pa.array(absent(values)), pa.scalar(None, pa.large_string()), trimmed)
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    coded = texts.dictionary_encode()
    places = np.asarray(coded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return places, tuple(coded.dictionary.to_pylist())
