"""The features that a model of a schema sees: their names, their roles, their grids."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from sfumato.errors import ArgumentError
from sfumato.schema import Categorical, Continuous, Integer, Modelled, Schema


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One coordinate of the unit cube.

    `size` is the number of equal cells that its values fall into, None where values are points. The role
    `missing` is the flag of a nullable column: the lower half is present, the upper half is missing. The values of
    a `nominal` feature stand in no order that means anything. `marks` are cells that rows often pile up in, as far as
    the schema alone can tell: the bounds of numbers, and zero. `first` is the first value of numbers on a grid, in its
    steps: 450 for 4.50 where there are two decimals. The size and the marks of a `learnt` feature are answers
    of the fit itself: they may shape questions and models, but no charge may depend on them.
    """

    column: str
    role: Literal["value", "missing"]
    size: int | None
    nominal: bool = False
    marks: tuple[int, ...] = ()
    first: int | None = None
    learnt: bool = False


@dataclass(frozen=True, kw_only=True)
class Layout:
    """All features, in the order of the schema."""

    features: tuple[Feature, ...]

    @property
    def num_features(self) -> int:
        """Number of coordinates of the unit cube."""
        return len(self.features)

    def label(self, name: str | None) -> int | None:
        """The place, among the columns that have a feature, of one that is to be predicted; None where none is named.

        A name that is no such column raises an error, so ask before anything more is spent.
        """
        columns = list(dict.fromkeys(feature.column for feature in self.features))
        if name is not None and name not in columns:
            raise ArgumentError(f"The label {name!r} must be a column of this table that is modelled.")
        return None if name is None else columns.index(name)


def layout_of(schema: Schema, *, learnt: Collection[str] = ()) -> Layout:
    """Lay out the features of a schema: a flag where a column is nullable, a value where it can vary.

    ``learnt`` names the columns whose levels or bounds were bought.

    >>> from sfumato.schema import Integer
    >>> layout_of(Schema(columns={"age": Integer(lower=0, upper=120, nullable=True)})).num_features
    2
    """
    features = []
    for name, column in schema.modelled:
        if column.nullable:
            features.append(Feature(column=name, role="missing", size=2))
        if column.num_values != 1:
            size, first, bought = column.num_values, _first(column), name in learnt
            marks = () if size is None or first is None else _marks(size, first)
            # How many levels were bought is an answer, so that it must not say what is asked next.
            nominal = isinstance(column, Categorical) and not column.ordered and (bought or column.num_values > 2)
            facts: dict[str, Any] = {"nominal": nominal, "marks": marks, "first": first, "learnt": bought}
            features.append(Feature(column=name, role="value", size=size, **facts))
    return Layout(features=tuple(features))


def _first(column: Modelled) -> int | None:
    if not isinstance(column, Integer | Continuous) or column.num_values is None:
        return None
    return round(column.lower * 10 ** (getattr(column, "decimals", None) or 0))


def _marks(size: int, first: int) -> tuple[int, ...]:
    return tuple(sorted({0, size - 1, *([-first] if 0 <= -first < size else [])}))
