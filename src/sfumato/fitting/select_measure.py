"""Select and measure: which tables of columns are worth asking for, through the second door, and their counts, through
the first. Both look at rows as codes."""

from collections.abc import Sequence
from math import prod, sqrt

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.encoding.layout import Layout
from sfumato.fitting.codecs import Coded, PaidBins, buy_codec, even_codec
from sfumato.fitting.graphical import GraphicalModel, Measurement
from sfumato.fitting.junction_tree import Group
from sfumato.fitting.queried import Queried, conditional_tables
from sfumato.models.codes.coded import CodedModel
from sfumato.privacy import CountQuery, Curator, DistanceQuery

_LEAST_DEVIATION = 0.1
"""Counts are whole numbers, so less noise than this is as good as none; doors without protection have none."""


class CellNumbers(eqx.Module):
    """The number of a row's cell in the table of each of several groups of columns, the last column's code fastest.

    >>> CellNumbers.of([(0, 1), (1,)], (2, 3))({"codes": jnp.array([1, 2])}).tolist()
    [5, 2]
    """

    strides: Int[Array, "group column"]

    @classmethod
    def of(cls, groups: Sequence[Group], sizes: Sequence[int]) -> "CellNumbers":
        strides = np.zeros((len(groups), len(sizes)), np.int32)
        for place, group in enumerate(groups):
            for number, column in enumerate(group):
                strides[place, column] = prod(sizes[later] for later in group[number + 1 :])
        return cls(jnp.asarray(strides))

    @property
    def names(self) -> tuple[bytes, ...]:
        """The name of each group's table, by which the doors know it again: how it numbers its cells."""
        return tuple(row.tobytes() for row in np.asarray(self.strides))

    def only(self, places: Sequence[int], room: int) -> "CellNumbers":
        """The tables of the groups at these places, and others to fill the room."""
        kept = np.asarray(self.strides)[list(places)]
        return CellNumbers(jnp.asarray(np.pad(kept, ((0, room - len(kept)), (0, 0)))))

    def __call__(self, row: dict[str, Array]) -> Int[Array, " group"]:
        return jnp.sum(self.strides * row["codes"], axis=1, dtype=jnp.int32)


def seen_as_codes(curator: Curator, layout: Layout, bought: PaidBins | None, even_bins: int) -> tuple[Coded, Curator]:
    """A codec, bought or of even bins, and the doors to the rows seen as its codes.

    Cost: that of ``buy_codec``; even bins cost nothing.
    """
    coded = Coded(codec=even_codec(layout, even_bins)) if bought is None else buy_codec(curator, layout, bought)
    return coded, curator.through(coded.codec.row)


def coded_model(coded: Coded, model: GraphicalModel) -> CodedModel:
    """A graphical model of codes in the form in which it is released. What it says of single columns is surer than what
    the bins were made from, so it also settles how the values of a bin are spread."""
    return CodedModel(coded.measured(Queried(model).singles), conditional_tables(model))


def measure(
    view: Curator, groups: Sequence[Group], sizes: Sequence[int], *, noise_multiplier: float, purpose: str
) -> list[Measurement]:
    """Noisy counts of groups of columns, all in one sum.

    Cost: one Gaussian sum. Sensitivity: a row counts once in each group, so the square root of their number.
    """
    shapes = [tuple(sizes[column] for column in group) for group in groups]
    cells = tuple(prod(shape) for shape in shapes)
    query = CountQuery(function=CellNumbers.of(groups, sizes), sizes=cells, purpose=purpose)
    answer = view.noisy_sum_at(query, noise_multiplier=noise_multiplier)
    deviation = max(view.noise_at(sqrt(len(groups)), noise_multiplier), _LEAST_DEVIATION)
    tables = zip(groups, shapes, np.split(answer, np.cumsum(cells)[:-1]), strict=True)
    return [Measurement(columns=g, counts=table.reshape(shape), deviation=deviation) for g, shape, table in tables]


def choose(
    view: Curator,
    candidates: Sequence[Group],
    expected: Sequence[Float[np.ndarray, "..."]],
    sizes: Sequence[int],
    *,
    weights: Sequence[float],
    penalties: Sequence[float],
    epsilon: float,
    purpose: str,
) -> Group:
    """The group of columns whose counts are far from what is expected of them; weights matter in proportion.

    Cost: one choice at ``epsilon``.
    """
    most = max(weights)
    query = DistanceQuery(
        function=CellNumbers.of(candidates, sizes),
        expected=tuple(np.ravel(table) for table in expected),
        weights=tuple(weight / most for weight in weights),
        penalties=tuple(penalties),
        purpose=purpose,
    )
    return candidates[view.noisy_choice(query, epsilon=epsilon)]
