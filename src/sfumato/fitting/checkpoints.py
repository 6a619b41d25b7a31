"""Checkpoints: what a compiled training keeps of itself along the way, at evenly spaced turns.

Their number is public and fixed before the training. All of it is post-processing of what the door answered.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array


class Checkpoints(eqx.Module):
    """So many checkpoints of a training of so many turns; the last one is kept after the last turn.

    >>> times = Checkpoints(num=2, turns=4)
    >>> kept = times.start(jnp.zeros(()))
    >>> for turn in range(1, 5):
    ...     kept = times.kept(kept, jnp.asarray(float(turn)), turn)
    >>> [float(each) for each in times.each(kept)]
    [2.0, 4.0]
    """

    num: int = eqx.field(static=True)
    turns: int = eqx.field(static=True)

    def start(self, params: Any) -> Any:
        """What is kept before the first turn: the start, in every place."""
        return jax.tree.map(lambda part: jnp.repeat(part[None], self.num, axis=0), params)

    def kept(self, before: Any, now: Any, turn: Any) -> Any:
        """What is kept after a turn, counted from one: each place follows until its own time is over."""
        still = jnp.arange(self.num) >= ((turn - 1) * self.num) // self.turns
        keep = lambda old, new: jnp.where(still.reshape(-1, *[1] * new.ndim), new[None].astype(old.dtype), old)
        return jax.tree.map(keep, before, now)

    def each(self, kept: Any) -> list[Any]:
        """The checkpoints, from the first to the last."""
        return [_at(kept, place) for place in range(self.num)]


def _at(kept: Any, place: int) -> Any:
    def one(part: Array) -> Array:
        return jnp.asarray(part[place])

    return jax.tree.map(one, kept)
