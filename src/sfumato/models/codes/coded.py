"""Coded: a density on the unit cube from a distribution over codes and the codec that made them."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from sfumato.models.cells import EDGE
from sfumato.models.codes.codec import Codec
from sfumato.models.codes.joint import CodeDistribution
from sfumato.models.codes.together import draw_rows, evenly, generator


class CodedModel(eqx.Module):
    """A distribution over codes, and how codes stand for cells. Its likelihood is exact, for discrete rows too.

    >>> from sfumato.models.codes.tables import ConditionalTables
    >>> model = CodedModel(Codec.of_levels([2]), ConditionalTables.independent([np.array([0.25, 0.75])]))
    >>> float(jnp.exp(model.log_mean_density(jnp.array([0.5]), jnp.array([0.5]), jnp.zeros((1, 1)))))
    1.5
    """

    exact: ClassVar[bool] = True

    codec: Codec
    joint: CodeDistribution

    def log_mean_density(
        self, low: Float[Array, " feature"], width: Float[Array, " feature"], points: Float[Array, "draw feature"]
    ) -> Float[Array, ""]:
        """The log of the mean density on the unit cube over a row's cells; the points are not needed."""
        return self.joint.log_prob(self.codec.codes(low, width)) + self.codec.log_inner(low, width)

    def log_prob(self, features: Float[Array, " feature"]) -> Float[Array, ""]:
        """The log density of real features, whose normal distribution function is the point of the unit cube."""
        point = jnp.clip(ndtr(features), 0.0, 1.0)
        on_cube = self.log_mean_density(point, jnp.zeros_like(point), point[None])
        return on_cube + jnp.sum(norm.logpdf(features))

    def draw_rows(self, key: Array, num_rows: int, at_once: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The codes of so many rows, a bin of each, and a place in each bin; programs are made for ``at_once`` rows.

        Rows are drawn together: codes evenly among rows that agree in what they hang on, bins evenly among rows of the
        same code.
        """
        first, second = jax.random.split(key)
        codes, random = draw_rows(self.joint, first, num_rows, at_once), generator(second)
        bins, places = np.empty(codes.shape, np.int32), np.empty(codes.shape)
        for column, each in enumerate(self.codec.columns()):
            mine = codes[:, column]
            uniform = np.zeros(num_rows) if each.alone else evenly(random, mine)
            bins[:, column] = each.draw(mine, uniform)
            places[:, column] = each.places(bins[:, column], random.random((2, num_rows)))
        return codes, bins, places

    def sample(self, key: Array) -> Float[Array, " feature"]:
        """One row of real features."""
        first, second = jax.random.split(key)
        drawn = self.joint.sample(first)
        in_bins = self.codec.draw(drawn, jax.random.uniform(second, (3, drawn.size), jnp.float32))
        codes, bins, places = (part[:, None] for part in (drawn, *in_bins))
        low, high = (jnp.take_along_axis(self.codec.edges, bins + more, axis=1) for more in (0, 1))
        inside = (low + places * (high - low))[:, 0]
        found = jnp.full(self.codec.num_features, 0.5)
        for column, (value, flag) in enumerate(zip(self.codec.values, self.codec.flags, strict=True)):
            if value is not None:
                found = found.at[value].set(inside[column])
            if flag is not None:
                absent = codes[column, 0] == self.codec.sizes[column] - 1
                found = found.at[flag].set(jnp.where(absent, 0.75, 0.25))
        return ndtri(jnp.clip(found, EDGE, 1 - EDGE))

    def points(self, drawn: Any, levels: tuple[int | None, ...]) -> Float[np.ndarray, "row feature"]:
        """Points of the unit cube of many rows that were drawn, exact on the levels of the features."""
        codes, bins, places = (np.asarray(part) for part in drawn)
        return self.codec.points(codes, bins, places, levels)

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild the model."""
        return {
            "kind": "coded",
            "num_features": self.codec.num_features,
            "codec": self.codec.describe(),
            "joint": self.joint.describe(),
        }
