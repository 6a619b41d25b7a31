"""Adjacency: which two tables count as neighbours, and so what a release protects."""

from dataclasses import dataclass
from enum import StrEnum

from sfumato.checks import whole
from sfumato.errors import ArgumentError


class Relation(StrEnum):
    """How two neighbouring tables differ.

    Under ``ADD_OR_REMOVE_ONE`` one unit is present in one table only, so the number of rows is private. Under
    ``REPLACE_ONE`` one row has other values; the number of rows is then public, and a bounded sum moves by
    twice its bound.
    """

    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    REPLACE_ONE = "replace-one"


@dataclass(frozen=True, kw_only=True)
class Adjacency:
    """The neighbouring relation together with its unit: one row, or one person with at most ``max_rows`` rows.

    >>> Adjacency().sum_factor
    1
    >>> Adjacency(unit="patient", max_rows=5).sum_factor
    5
    """

    relation: Relation = Relation.ADD_OR_REMOVE_ONE
    unit: str = "row"
    max_rows: int = 1

    def __post_init__(self) -> None:
        whole(1, max_rows=self.max_rows)
        if self.relation is Relation.REPLACE_ONE and (self.max_rows > 1 or self.unit != "row"):
            raise ArgumentError(
                "A unit column is protected under add-or-remove-one only: "
                "use Poisson sampling, or drop the unit from the schema."
            )

    @property
    def sum_factor(self) -> int:
        """By how many row bounds a sum over all rows moves between neighbours."""
        return self.max_rows if self.relation is Relation.ADD_OR_REMOVE_ONE else 2

    def to_dict(self) -> dict[str, object]:
        return {"relation": self.relation.value, "unit": self.unit, "max_rows": self.max_rows}
