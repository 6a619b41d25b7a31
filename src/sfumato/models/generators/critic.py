"""Critic: a network that scores one row of blocks, high for rows that look real. No layer of it can mix rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.errors import ArgumentError

Weights = dict[str, Array]


@dataclass(frozen=True)
class CriticShape:
    """What goes in, and the hidden layers.

    ``label`` is where the one-hot label of a row begins and ends, or None. Such a critic sees the row once more for
    each label, and nothing there but for the row's own: what goes with a label is then told by weights of its own
    and need not be found by hidden units. Reference: after the projection of Miyato and Koyama 2018.

    >>> CriticShape(10, width=4, depth=2).layers
    [(10, 4), (4, 4), (4, 1)]
    >>> CriticShape(10, width=4, depth=1, label=(7, 9)).layers
    [(30, 4), (4, 1)]
    """

    inputs: int
    width: int
    depth: int
    label: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        whole(1, inputs=self.inputs, width=self.width, depth=self.depth)
        if self.label is not None and not 0 <= self.label[0] < self.label[1] <= self.inputs:
            raise ArgumentError("Expected a label that lies inside of a row.")

    @property
    def layers(self) -> list[tuple[int, int]]:
        """What goes in and what comes out of each layer."""
        copies = 1 if self.label is None else 1 + self.label[1] - self.label[0]
        return list(pairwise([self.inputs * copies, *[self.width] * self.depth, 1]))

    def start(self, key: Array) -> Weights:
        """Weights before training: matrices by He's rule, no biases, and a last layer that says nothing yet."""
        found: Weights = {}
        for place, (into, out) in enumerate(self.layers):
            scale = np.float32(np.sqrt(2 / into) if place < self.depth else 0.1 / np.sqrt(into))
            found[f"weight{place}"] = scale * jax.random.normal(
                jax.random.fold_in(key, place), (out, into), jnp.float32
            )
            found[f"bias{place}"] = jnp.zeros(out, jnp.float32)
        return found

    def taps(self) -> dict[str, int]:
        """The places where layers give out something, with their sizes."""
        return {f"layer{place}": out for place, (_, out) in enumerate(self.layers)}

    def score(self, weights: Weights, numbers: Float[Array, " number"]) -> Float[Array, ""]:
        """The score of one row."""
        taps = {name: jnp.zeros(size, jnp.float32) for name, size in self.taps().items()}
        return self.tapped(weights, numbers, taps)[0]

    def tapped(
        self, weights: Weights, numbers: Float[Array, " number"], taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The score of one row with taps added to what layers give out, and what went into each layer."""
        hidden, notes = self.seen(numbers), {}
        for place in range(len(self.layers)):
            notes[f"into{place}"] = hidden
            hidden = weights[f"weight{place}"] @ hidden + weights[f"bias{place}"] + taps[f"layer{place}"]
            if place < self.depth:
                hidden = jax.nn.leaky_relu(hidden, 0.1)
        return hidden[0], notes

    def seen(self, numbers: Float[Array, " number"]) -> Float[Array, " seen"]:
        """What goes into the first layer: a row around zero, and once more where its label is."""
        centred = 2 * numbers - 1
        if self.label is None:
            return centred
        apart = jnp.outer(numbers[slice(*self.label)], centred)
        return jnp.concatenate([centred, apart.reshape(-1)])
