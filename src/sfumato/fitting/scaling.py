"""Scaling: the location and scale of each feature, bought through the noisy sum.

A flow that has to learn its units from noisy gradients wastes them; a few percent of the budget buys them once.
Each round looks through a window a feature: the clipped position of a row in it and its distance from the middle,
summed with noise, give the next middle and the next, narrower window. Distances and not squares are summed,
because the noise on a square hides small scales.

Reference: the zooming follows Biswas, Dong, Kamath, Ullman 2020 ("CoinPress").
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.checks import between, whole
from sfumato.models.cells import point_in_cell
from sfumato.models.flows.bijection import Bijection
from sfumato.privacy import Curator, FlatClip, SumQuery

_WIDEST = 5.0  # features are normal quantiles cut at 4.75, so this window sees every row
_SHARES = (np.arange(8, dtype=np.float32) + 0.5) / 8
_DEVIATIONS_PER_DISTANCE = 1.2533  # sqrt(pi / 2): standard deviation over mean distance of a normal


@dataclass(frozen=True, kw_only=True)
class ScalingShare:
    """How much of the budget goes to locations and scales, over how many rounds."""

    share: float = 0.04
    rounds: int = 3

    def __post_init__(self) -> None:
        between(1e-6, 0.9, share=self.share)
        whole(1, rounds=self.rounds)


def buy_scaling(
    curator: Curator,
    num_features: int,
    settings: ScalingShare,
    *,
    view: Bijection | None = None,
    what: str = "location and scale",
) -> tuple[Float[np.ndarray, " f"], Float[np.ndarray, " f"]]:
    """Noisy location and scale of every feature, or of what a bijection of the features makes of them.

    Cost: ``rounds`` Gaussian sums of 1 + 2f bounded entries, ``share`` of the budget together.
    """
    middle, reach = np.zeros(num_features), np.full(num_features, _WIDEST)
    scale = np.ones(num_features)
    for round_number in range(1, settings.rounds + 1):
        query = _window_query(middle, reach, view, f"{what}, round {round_number} of {settings.rounds}")
        answer = curator.noisy_sum(query, share=settings.share / settings.rounds)
        middle, scale, reach = _zoom(answer, middle, reach)
    return middle, scale


def _window_query(middle: np.ndarray, reach: np.ndarray, view: Bijection | None, purpose: str) -> SumQuery:
    look = _Window(jnp.asarray(middle, jnp.float32), jnp.asarray(reach, jnp.float32), view)
    size = 1 + 2 * middle.size
    return SumQuery(function=look, num_entries=size, clip=FlatClip(bound=float(np.sqrt(size))), purpose=purpose)


class _Window(eqx.Module):
    """One, the places of a row in the windows of its features, and the distances from their middles.

    The window is no constant of what is compiled, so that all rounds share it.
    """

    centre: Float[Array, " f"]
    width: Float[Array, " f"]
    view: Bijection | None

    def __call__(self, row: dict[str, Array]) -> Float[Array, " entry"]:
        # Even points of the cell, not one random point: the sum needs no dequantisation noise, but it must see how
        # far the points that training will draw lie apart, or columns of few levels get too small a scale.
        at = lambda share: point_in_cell(row["low"], row["width"], jnp.full_like(row["low"], share))
        points = jax.vmap(at)(_SHARES)
        seen = points if self.view is None else jax.vmap(self.view.forward)(points)[0]
        place = jnp.clip((seen - self.centre) / self.width, -1, 1)
        return jnp.concatenate([jnp.ones(1, jnp.float32), place.mean(axis=0), jnp.abs(place).mean(axis=0)])


def _zoom(answer: np.ndarray, middle: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    num_features = middle.size
    count = max(1.0, float(answer[0]))
    place = np.clip(answer[1 : 1 + num_features] / count, -1, 1)
    distance = np.clip(answer[1 + num_features :] / count, 0.0, 1.0)
    # The distance was taken from the old middle, so it holds the offset too.
    spread = np.sqrt(np.maximum((_DEVIATIONS_PER_DISTANCE * distance) ** 2 - place**2, 0.0))
    scale = np.clip(spread, 0.01, 1.0) * reach
    return middle + place * reach, scale, np.minimum(reach, 5 * scale)
