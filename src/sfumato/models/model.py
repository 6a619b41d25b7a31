"""Model: what a method releases. Written for one row; batching is done by ``vmap`` outside."""

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float


@runtime_checkable
class Model(Protocol):
    """What rows can be drawn from. It need not have a likelihood.

    Features are real numbers; ``encoding`` and ``models.cells`` say how a table's columns become features.
    """

    def sample(self, key: Array) -> Float[Array, " feature"]:
        """One row of features."""
        ...

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild the model: JSON-safe, with its ``kind``."""
        ...


@runtime_checkable
class DensityModel(Model, Protocol):
    """A density over the features of one row, with exact likelihood and sampling."""

    def log_prob(self, features: Float[Array, " feature"]) -> Float[Array, ""]:
        """The log density of one row of features, in nats."""
        ...


@runtime_checkable
class CellModel(DensityModel, Protocol):
    """A density that finds the mass of a row's cells in a way of its own, better than by evenly spread points.

    ``exact`` says that it needs no points for it at all.
    """

    exact: ClassVar[bool]

    def log_mean_density(
        self, low: Float[Array, " feature"], width: Float[Array, " feature"], points: Float[Array, "draw feature"]
    ) -> Float[Array, ""]:
        """The log of the mean density on the unit cube over the cells of a row, from points of the unit cube."""
        ...


@runtime_checkable
class LevelModel(Model, Protocol):
    """A model that draws levels as such, so that no rounding on the way to the real line and back moves them."""

    def draw_rows(self, key: Array, num_rows: int, at_once: int) -> Any:
        """What is random in so many rows, which may be drawn together; programs are compiled for ``at_once`` rows."""
        ...

    def points(self, drawn: Any, levels: tuple[int | None, ...]) -> Float[np.ndarray, "row feature"]:
        """The points of the unit cube of many rows that were drawn, on the levels of each feature where it has some."""
        ...
