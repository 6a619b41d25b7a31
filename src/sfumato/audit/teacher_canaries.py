"""Teacher canaries: a canary that has a part to itself and turns its answer round.

The worst that one unit can do to teachers on parts is what the proof reckons with (``privacy/teachers.py``): its part
answers with a vector of the whole bound where the unit is there, and with the opposite one where it is not. So each
canary has a part of its own, which has met a row or has not, and answers along the canary's two coordinates far more
loudly than the bound allows. Which part a unit is dealt to is the attacker's choice, as a proof for every dealing
allows; how a part draws its rows, learns, is clipped, summed, noised and charged is the real code.

There are more canaries than a plan may have parts. They come in groups, each through the same call with the same noise,
of which it is heard at its own coordinates alone: as if all of them had been there at once.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sfumato.privacy.teachers import SENSITIVITY, Dealt, Teaching

GROUP = 500
"""Canaries that go through a call together, each in a part of its own."""


def listening(num: int, asked: float) -> Teaching:
    """Parts that say of a canary whether they have met it, and a public side that keeps every answer."""

    def learn(state: Any, shown: Any, rows: Any, key: Array) -> Any:
        met = jnp.any(rows["index"] == state["place"])
        return {"place": state["place"], "met": jnp.maximum(state["met"], met.astype(jnp.float32))}

    def answer(state: Any, shown: Any) -> Array:
        pull = asked * shown["turn"] * (2 * state["met"] - 1)
        own = jnp.where(jnp.arange(num) == state["place"], pull, 0.0).astype(jnp.float32)
        return jnp.concatenate([own, own])

    def update(total: Array, public: Any) -> Any:
        seen = public["seen"].at[public["step"]].set(total.astype(public["seen"].dtype))
        return {"seen": seen, "step": public["step"] + 1, "turn": -public["turn"]}

    return Teaching(learn=learn, answer=answer, update=update)


def silence(num: int, steps: int) -> dict[str, Array]:
    """What is public before the first answer. Pulls take turns, so that noise which is used twice cancels and shows."""
    return {
        "seen": jnp.zeros((steps, 2 * num), jnp.float32),
        "step": jnp.zeros((), jnp.int32),
        "turn": jnp.ones((), jnp.float32),
    }


def groups(index: np.ndarray, num: int, room: int) -> Iterator[tuple[np.ndarray, dict[str, Array], Dealt]]:
    """Canaries in groups: their places, the states of their parts, and the rows that each part has.

    ``index`` says whose each row is, in order; a canary that is out has no row. The last group is filled up with parts
    that have none and pull at nothing, so that nothing is compiled twice.
    """
    for start in range(0, num, GROUP):
        places = np.arange(start, start + GROUP)
        first, last = np.searchsorted(index, places), np.searchsorted(index, places, side="right")
        dealt = Dealt(*(jnp.asarray(part, jnp.int32) for part in (np.arange(room), first, last - first)))
        states = {"place": jnp.asarray(places, jnp.int32), "met": jnp.zeros(GROUP, jnp.float32)}
        yield places[places < num], states, dealt


def scores_of(seen: np.ndarray, coins: np.ndarray, noise_multiplier: float) -> tuple[np.ndarray, np.ndarray]:
    """The log-likelihood ratio of "in" against "out" of each canary, and the noise of each step in deviations.

    ``seen`` has a line of answers for each step, in bounds; a canary pulls by one bound either way.
    """
    steps, num = seen.shape[0], coins.size
    sigma = noise_multiplier * sqrt(steps) * SENSITIVITY
    turns = np.where(np.arange(steps) % 2, -1.0, 1.0)[:, None]
    along = turns * (seen[:, :num] + seen[:, num:]) / sqrt(2)
    pull = turns * np.tile(np.where(coins, 1.0, -1.0), 2) / sqrt(2)
    return np.sum(2 * along / sigma**2, axis=0), (seen - pull) / sigma
