"""The features that a model of a schema sees: their names, their roles, their grids."""

from dataclasses import dataclass
from typing import Literal

from sfumato.schema import Categorical, Schema


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One coordinate of the unit cube.

    `size` is the number of equal cells that its values fall into, None where values are points. The role
    `missing` is the flag of a nullable column: the lower half is present, the upper half is missing. The values of
    a `nominal` feature stand in no order that means anything.
    """

    column: str
    role: Literal["value", "missing"]
    size: int | None
    nominal: bool = False


@dataclass(frozen=True, kw_only=True)
class Layout:
    """All features, in the order of the schema."""

    features: tuple[Feature, ...]

    @property
    def num_features(self) -> int:
        """Number of coordinates of the unit cube."""
        return len(self.features)


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
            features.append(Feature(column=name, role="value", size=column.num_values, nominal=nominal))
    return Layout(features=tuple(features))
