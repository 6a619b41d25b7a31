"""The kinds of column and their public domains.

A column says what a person knows about it without looking at the rows: its levels, its bounds, its grid.
Nothing is checked here: a `Schema` checks all its columns and lists every fault at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, TypeAlias

Level: TypeAlias = str | int
Resolution: TypeAlias = Literal["second", "minute", "hour", "day"]

SECONDS: dict[str, int] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


@dataclass(frozen=True, kw_only=True)
class Categorical:
    """A column with a finite list of levels, all text or all integers.

    A value which is no level becomes `other`, where that is declared, and missing where it is not.

    >>> Categorical(levels=("red", "green", "other"), other="other").num_values
    3
    """

    levels: tuple[Level, ...]
    ordered: bool = False
    other: Level | None = None
    nullable: bool = False

    def __post_init__(self) -> None:
        """Keep the levels as a tuple, whatever iterable came in."""
        if isinstance(self.levels, Iterable) and not isinstance(self.levels, str | bytes):
            object.__setattr__(self, "levels", tuple(self.levels))

    @property
    def num_values(self) -> int:
        """Number of values a present cell can take."""
        return len(self.levels)


@dataclass(frozen=True, kw_only=True)
class Boolean:
    """A column of true and false.

    >>> Boolean().num_values
    2
    """

    nullable: bool = False

    @property
    def num_values(self) -> int:
        """Number of values a present cell can take."""
        return 2


@dataclass(frozen=True, kw_only=True)
class Integer:
    """Whole numbers from `lower` to `upper`, both included.

    >>> Integer(lower=0, upper=120).num_values
    121
    """

    lower: int
    upper: int
    nullable: bool = False

    @property
    def num_values(self) -> int:
        """Number of values a present cell can take."""
        return self.upper - self.lower + 1


@dataclass(frozen=True, kw_only=True)
class Continuous:
    """Real numbers from `lower` to `upper`; with `decimals`, the decimal grid between them.

    >>> Continuous(lower=0, upper=1, decimals=2).num_values
    101
    >>> Continuous(lower=0, upper=1).num_values is None
    True
    """

    lower: float
    upper: float
    decimals: int | None = None
    nullable: bool = False

    def __post_init__(self) -> None:
        """Keep the bounds as floats: a person may well write `lower = 0`."""
        for name in ("lower", "upper"):
            value = getattr(self, name)
            # An int past the range of a float stays as it is, and is a fault of the schema.
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1000:
                object.__setattr__(self, name, float(value))

    @property
    def num_values(self) -> int | None:
        """Number of values a present cell can take; None where there is no grid."""
        if self.decimals is None:
            return None
        scale: int = 10**self.decimals
        return round(self.upper * scale) - round(self.lower * scale) + 1


@dataclass(frozen=True, kw_only=True)
class Date:
    """Days from `lower` to `upper`, both included.

    >>> Date(lower=date(2020, 1, 1), upper=date(2020, 12, 31)).num_values
    366
    """

    lower: date
    upper: date
    nullable: bool = False

    @property
    def num_values(self) -> int:
        """Number of values a present cell can take."""
        return (self.upper - self.lower).days + 1


@dataclass(frozen=True, kw_only=True)
class Datetime:
    """Moments from `lower` to `upper` on a grid of seconds, minutes, hours or days, without time zone (UTC).

    >>> Datetime(lower=datetime(2020, 1, 1), upper=datetime(2020, 1, 2), resolution="hour").num_values
    25
    """

    lower: datetime
    upper: datetime
    resolution: Resolution = "second"
    nullable: bool = False

    @property
    def num_values(self) -> int:
        """Number of values a present cell can take."""
        span = self.upper - self.lower
        return (span.days * 86400 + span.seconds) // SECONDS[self.resolution] + 1


@dataclass(frozen=True, kw_only=True)
class LearntCategorical:
    """A column whose levels nobody can list (`learn = true`): a fit buys those that many rows hold.

    All other values become `other`, which is always a level. Levels are texts, or whole numbers if `other` is one.

    >>> LearntCategorical(other="rest").known(["red", "green"]).levels
    ('green', 'red', 'rest')
    """

    other: Level = "other"
    nullable: bool = False

    def known(self, levels: Iterable[Level]) -> Categorical:
        """The column with these levels, sorted, and `other` last if it is not one of them."""
        found = sorted(levels, key=lambda level: str(level) if isinstance(self.other, str) else level)
        if self.other not in found:
            found.append(self.other)
        return Categorical(levels=tuple(found), other=self.other, nullable=self.nullable)


@dataclass(frozen=True, kw_only=True)
class LearntInteger:
    """Whole numbers whose bounds nobody knows (`learn = true`): a fit buys them.

    >>> LearntInteger().known(0, 99).upper
    99
    """

    nullable: bool = False

    def known(self, lower: int, upper: int) -> Integer:
        """The column with these bounds."""
        return Integer(lower=lower, upper=upper, nullable=self.nullable)


@dataclass(frozen=True, kw_only=True)
class LearntContinuous:
    """Real numbers whose bounds nobody knows (`learn = true`): a fit buys them.

    >>> LearntContinuous(decimals=1).known(0, 1).num_values
    11
    """

    decimals: int | None = None
    nullable: bool = False

    def known(self, lower: float, upper: float) -> Continuous:
        """The column with these bounds."""
        return Continuous(lower=lower, upper=upper, decimals=self.decimals, nullable=self.nullable)


@dataclass(frozen=True, kw_only=True)
class Identifier:
    """A column that names a row or a person: never modelled; dropped, or made anew for synthetic rows.

    >>> Identifier(regenerate="number").regenerate
    'number'
    """

    regenerate: Literal["drop", "number", "uuid"] = "drop"


Modelled: TypeAlias = Categorical | Boolean | Integer | Continuous | Date | Datetime
Learnt: TypeAlias = LearntCategorical | LearntInteger | LearntContinuous
Column: TypeAlias = Modelled | Learnt | Identifier

KINDS: dict[str, type[Column]] = {
    "categorical": Categorical,
    "boolean": Boolean,
    "integer": Integer,
    "continuous": Continuous,
    "date": Date,
    "datetime": Datetime,
    "identifier": Identifier,
}
LEARNT: dict[str, type[Learnt]] = {
    "categorical": LearntCategorical,
    "integer": LearntInteger,
    "continuous": LearntContinuous,
}
"""The kinds that may be written with `learn = true`."""


def kind_of(column: Column) -> str:
    """Name of the kind of a column, as it is written in a file.

    >>> kind_of(Boolean())
    'boolean'
    """
    return type(column).__name__.lower().removeprefix("learnt")
