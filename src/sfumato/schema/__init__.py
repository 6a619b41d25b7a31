"""Columns with public domains, checked all at once, and a draft for a person to edit."""

from sfumato.schema.columns import (
    Boolean,
    Categorical,
    Column,
    Continuous,
    Date,
    Datetime,
    Identifier,
    Integer,
    Learnt,
    LearntCategorical,
    LearntContinuous,
    LearntInteger,
    Modelled,
    kind_of,
)
from sfumato.schema.draft import Draft, draft, is_unreviewed
from sfumato.schema.geojson import read_polygon
from sfumato.schema.place import Place
from sfumato.schema.schema import Schema, Unit

__all__ = [
    "Boolean",
    "Categorical",
    "Column",
    "Continuous",
    "Date",
    "Datetime",
    "Draft",
    "Identifier",
    "Integer",
    "Learnt",
    "LearntCategorical",
    "LearntContinuous",
    "LearntInteger",
    "Modelled",
    "Place",
    "Schema",
    "Unit",
    "draft",
    "is_unreviewed",
    "kind_of",
    "read_polygon",
]
