"""Level order: levels that stand in no order of their own, put in one that means something.

A copula sees every feature as a line. The levels of a nominal column are on it in the order in which the schema lists
them, which says nothing. Here they are put in the order of what goes along with them: for each level the mean scores of
all other features are bought, and levels are lined up along the direction in which these differ most.
Reference: optimal scaling and correspondence analysis, Guttman 1941; Greenacre 1984.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.encoding.layout import Layout
from sfumato.fitting.scores import row_scores, scores_of
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.privacy import Curator, FlatClip, SumQuery
from sfumato.privacy.queries import count_query

_MOST_ENTRIES = 2**18
"""Of the sum: levels of all columns that are ordered, times features."""


def order_levels(
    curator: Curator, layout: Layout, marginals: MarginalMap, share: float, most_levels: int
) -> MarginalMap:
    """The same marginals with the levels of nominal features in another order.

    ``most_levels`` is up to how many values the marginals have a bin for each. Columns of more levels stay as they are,
    and so do the largest ones of very many.
    Cost: one Gaussian sum of one bounded vector, worth ``share`` of the budget; none if no column is nominal. Schema
    and settings alone say whether it is asked for, so that the events of a fit do not depend on any answer.
    """
    sizes = _ordered(layout, most_levels)
    if not sizes:
        if layout.num_features > 1 and any(feature.learnt and feature.nominal for feature in layout.features):
            curator.noisy_sum(count_query(), share=share)  # as if some had few levels, which is an answer itself
        return marginals
    spread = sum(score.variance for score in scores_of(layout, marginals))
    clip = FlatClip(bound=1.2 * float(np.sqrt(len(sizes) * spread)))
    query = SumQuery(
        function=_LevelScores(marginals, tuple(sizes.items())),
        num_entries=sum(sizes.values()) * layout.num_features,
        clip=clip,
        purpose="order of the levels of nominal columns",
    )
    noise = curator.noise_of(clip.bound, share) / curator.size
    answer = curator.noisy_sum(query, share=share).reshape(-1, layout.num_features) / curator.size
    starts, shares, top = np.array(marginals.starts), np.asarray(marginals.shares, float), 0
    for place, size in sizes.items():
        masses = np.diff(shares[place])[:size]
        order = np.argsort(level_scores(answer[top : top + size], masses, noise), kind="stable")
        starts[place, order] = np.concatenate([[0.0], np.cumsum(masses[order])[:-1]])
        top += size
    return MarginalMap(marginals.edges, marginals.shares, jnp.asarray(starts, jnp.float32))


def _ordered(layout: Layout, most_levels: int) -> dict[int, int]:
    """The places of the features whose levels are put in order, and how many levels each has."""
    nominal = [(feature.size or 0, place) for place, feature in enumerate(layout.features) if feature.nominal]
    sizes, entries = {}, 0
    for size, place in sorted(nominal):
        entries += size * layout.num_features
        if size <= most_levels and entries <= _MOST_ENTRIES:
            sizes[place] = size
    return sizes if layout.num_features > 1 else {}


_TYPICAL = 0.5
"""By how much the mean score of a feature typically differs between levels, in deviations of the feature."""


def level_scores(
    sums: Float[np.ndarray, "level feature"], masses: Float[np.ndarray, " level"], noise: float
) -> Float[np.ndarray, " level"]:
    """A number for each level: its mean scores along the direction in which levels differ most.

    ``sums`` are mean products of being of a level and a score, with noise. Levels too rare to stand out of it come to
    lie in the middle.

    >>> sums = np.array([[0.1, 0.0], [-0.1, 0.0], [0.0, 0.0]])
    >>> np.abs(np.diff(level_scores(sums, np.array([0.4, 0.3, 0.3]), 1e-6))).round(2).tolist()
    [0.58, 0.33]
    """
    means = sums * (masses / (masses**2 + (noise / _TYPICAL) ** 2))[:, None]
    _, _, directions = np.linalg.svd(means * np.sqrt(masses)[:, None], full_matrices=False)
    return np.asarray(means @ directions[0])


class _LevelScores(eqx.Module):
    """For each level of the nominal features, the scores of all other features if the row has it, else zeros."""

    marginals: MarginalMap
    sizes: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def __call__(self, row: dict[str, Array]) -> Array:
        scores, parts = row_scores(self.marginals, row), []
        for place, size in self.sizes:
            level = jnp.round(row["low"][place] * size).astype(jnp.int32)
            here = jnp.where(row["width"][place] < 1, jax.nn.one_hot(level, size, dtype=scores.dtype), 0.0)
            parts.append(jnp.outer(here, scores.at[place].set(0.0)).reshape(-1))
        return jnp.concatenate(parts)
