"""The features that a model of a schema sees: their names, their roles, their grids."""

from dataclasses import dataclass
from typing import Literal

from sfumato.schema import Categorical, Continuous, Integer, Modelled, Schema


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One coordinate of the unit cube.

    `size` is the number of equal cells that its values fall into, None where values are points. The role
    `missing` is the flag of a nullable column: the lower half is present, the upper half is missing. The values of
    a `nominal` feature stand in no order that means anything. `marks` are cells that rows often pile up in, as far as
    the schema alone can tell: the bounds of numbers, and zero.
    """

    column: str
    role: Literal["value", "missing"]
    size: int | None
    nominal: bool = False
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """All features, in the order of the schema."""

    features: tuple[Feature, ...]

    @property
    def num_features(self) -> int:
        """Number of coordinates of the unit cube."""
        return len(self.features)

    @property
    def ordered_columns(self) -> list[bool]:
        """For each column that has a feature, whether its values stand in an order."""
        ordered = {feature.column: False for feature in self.features}
        for feature in self.features:
            if feature.role == "value":
                ordered[feature.column] = not feature.nominal
        return list(ordered.values())


def layout_of(schema: Schema) -> Layout:
    """Lay out the features of a schema: a flag where a column is nullable, a value where it can vary.

    >>> from sfumato.schema import Integer
    >>> layout_of(Schema(columns={"age": Integer(lower=0, upper=120, nullable=True)})).num_features
    2
    """
    features = []
    for name, column in schema.modelled:
        if column.nullable:
            features.append(Feature(column=name, role="missing", size=2))
        if column.num_values != 1:
            nominal = isinstance(column, Categorical) and not column.ordered and column.num_values > 2
            size = column.num_values
            features.append(Feature(column=name, role="value", size=size, nominal=nominal, marks=_marks(column)))
    return Layout(features=tuple(features))


def _marks(column: Modelled) -> tuple[int, ...]:
    size = column.num_values
    if not isinstance(column, Integer | Continuous) or size is None:
        return ()
    zero = round(-column.lower * 10 ** (getattr(column, "decimals", None) or 0))
    return tuple(sorted({0, size - 1, *([zero] if 0 <= zero < size else [])}))
