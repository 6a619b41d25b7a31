"""Critic loss: what a critic loses on one row, real or made, with the rules of its layers for fast clipping.

Only the part on real rows meets private ones, through the door. What the critic loses on made rows is public: its
gradient is clipped row by row just as that of real rows is, or the two would not cancel where made rows are like real
ones, and it has no noise.
"""

from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.models.generators.conditional import condition_width, conditions
from sfumato.models.generators.critic import CriticShape, Weights
from sfumato.privacy.factors import MatrixRule, Rule, VectorRule

Kind = Literal["wasserstein", "log"]

MOST_APART = 8
"""Up to how many labels a critic sees apart: it has weights for each of them."""


def real_part(kind: Kind, score: Float[Array, ""]) -> Float[Array, ""]:
    """What a critic loses on a real row of this score.

    >>> float(real_part("wasserstein", jnp.array(2.0)))
    -2.0
    """
    return -score if kind == "wasserstein" else jax.nn.softplus(-score)


def made_part(kind: Kind, score: Float[Array, ""]) -> Float[Array, ""]:
    """What a critic loses on a made row of this score."""
    return score if kind == "wasserstein" else jax.nn.softplus(score)


class Scene(eqx.Module):
    """What a critic is shown: a row of a table, or a row that a generator makes, as numbers in the same form.

    ``embedder`` is a generator of which only blocks and marginals are used, both public.
    """

    embedder: Any
    temperature: float = eqx.field(static=True, default=0.5)

    @property
    def inputs(self) -> int:
        """The numbers of a row."""
        return self.embedder.blocks.width

    @property
    def label(self) -> tuple[int, int] | None:
        """Where the label of a row begins and ends among its numbers, if it has one of few levels."""
        return self._part(self.embedder.shape.label)

    def _part(self, place: int | None) -> tuple[int, int] | None:
        part = None if place is None else self.embedder.blocks.part(place)
        return None if part is None or part.stop - part.start > MOST_APART else (part.start, part.stop)

    def real(self, row: Any, key: Array) -> Float[Array, " number"]:
        """A row of a table, from its cells: points are drawn in theirs."""
        share = jax.random.uniform(key, row["low"].shape, row["low"].dtype)
        return self.embedder.embed(row["low"], row["width"], share)

    def made(
        self, generator: Any, key: Array, label: Int[Array, ""] | None = None
    ) -> tuple[Float[Array, " number"], Float[Array, ""]]:
        """A made row, hard as real ones are, with the gradient of a relaxed one; and what it cost its maker besides.

        Its label, if it has one, is drawn by its share where none is given.
        """
        made = generator.relaxed(key, label, temperature=self.temperature, straight=True)
        return made, jnp.zeros((), made.dtype)


class ConditionalScene(Scene):
    """Rows beside a condition: one level of one of their columns. ``embedder`` is a conditional generator.

    A private row brings its own condition: that of a column which is picked evenly by the row's own key, so that rows
    need not be looked for by their levels, which would tell who there is. Made rows get conditions by bought shares,
    and pay where they do not keep them. ``place`` is the feature that critics take for the label, if any.
    """

    place: int | None = eqx.field(static=True, default=None)

    @property
    def inputs(self) -> int:
        return self.embedder.blocks.width + condition_width(self.embedder.blocks)

    @property
    def label(self) -> tuple[int, int] | None:
        return self._part(self.place)

    def real(self, row: Any, key: Array) -> Float[Array, " number"]:
        first, second = jax.random.split(key)
        numbers = super().real(row, first)
        widths = [self.embedder.blocks.blocks[place].width for place in conditions(self.embedder.blocks)]
        column = jax.random.randint(second, (), 0, len(widths))
        mine = np.repeat(np.arange(len(widths)), widths) == column
        return jnp.concatenate([numbers, jnp.where(mine, self.embedder.asked(numbers), 0.0)])

    def made(
        self, generator: Any, key: Array, label: Int[Array, ""] | None = None
    ) -> tuple[Float[Array, " number"], Float[Array, ""]]:
        first, second, third = jax.random.split(key, 3)
        condition = generator.draw_condition(first)
        outputs = generator.outputs(second, condition)
        made = generator.blocks.relaxed(outputs, third, self.temperature, straight=True)
        logs = [jax.nn.log_softmax(outputs[generator.blocks.part(place)]) for place in conditions(generator.blocks)]
        return jnp.concatenate([made, condition]), -jnp.sum(condition * jnp.concatenate(logs))


class RealLoss(eqx.Module):
    """The loss of a private row in factors: its cells as a critic sees them, scored."""

    scene: Scene
    shape: CriticShape = eqx.field(static=True)
    kind: Kind = eqx.field(static=True)

    @property
    def rules(self) -> Mapping[str, Rule]:
        found: dict[str, Rule] = {}
        for place in range(len(self.shape.layers)):
            found[f"weight{place}"] = MatrixRule(source=f"into{place}", target=f"layer{place}")
            found[f"bias{place}"] = VectorRule(target=f"layer{place}")
        return found

    def weights(self, params: Weights) -> Weights:
        return params

    def taps(self) -> dict[str, tuple[int, int, int]]:
        return {name: (1, 1, size) for name, size in self.shape.taps().items()}

    def row(
        self, weights: Weights, row: Any, key: Array, taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        numbers = self.scene.real(row, key)
        score, notes = self.shape.tapped(weights, numbers, {name: tap[0, 0] for name, tap in taps.items()})
        return real_part(self.kind, score), {name: note[None, None] for name, note in notes.items()}

    @property
    def common_names(self) -> tuple[str, ...]:
        return ()

    def common(self, weights: Weights) -> Float[Array, ""]:
        return jnp.zeros((), jnp.float32)


def row_norms(
    shape: CriticShape, weights: Weights, numbers: Float[Array, " number"], part: Any
) -> Float[Array, " layer"]:
    """The norm of a row's gradient in each layer, without that gradient: by what went in and what came back."""
    zeros = {name: jnp.zeros(size, jnp.float32) for name, size in shape.taps().items()}

    def loss(taps: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
        score, notes = shape.tapped(weights, numbers, taps)
        return part(score), notes

    backs, notes = jax.grad(loss, has_aux=True)(zeros)
    norms = []
    for place in range(len(shape.layers)):
        back, into = backs[f"layer{place}"], notes[f"into{place}"]
        norms.append(jnp.sqrt(jnp.sum(back**2) * (1 + jnp.sum(into**2))))
    return jnp.stack(norms)


def clipped_mean(
    shape: CriticShape, weights: Weights, rows: Float[Array, "row number"], part: Any, bound: float
) -> Weights:
    """The mean over rows of a loss part's gradient, each row clipped to the bound as at the door, without noise."""
    norms = jax.vmap(lambda row: jnp.sqrt(jnp.sum(row_norms(shape, weights, row, part) ** 2)))(rows)
    factor = jax.lax.stop_gradient(jnp.minimum(1.0, bound / jnp.maximum(norms, 1e-12)).astype(jnp.float32))

    def loss(weights: Weights) -> Array:
        return jnp.mean(factor * jax.vmap(lambda row: part(shape.score(weights, row)))(rows))

    return jax.grad(loss)(weights)
