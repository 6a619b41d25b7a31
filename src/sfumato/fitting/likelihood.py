"""Likelihood: fits a density model to rows by noisy clipped gradients of the negative log-likelihood.

Everything here after the door is post-processing: the optimiser, its schedule and the average of the last
iterates see noisy gradients only.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from sfumato.checks import between, positive
from sfumato.errors import ArgumentError
from sfumato.fitting.checkpoints import Checkpoints
from sfumato.fitting.pretraining import STEPS, pretrained
from sfumato.models.cells import dequantise
from sfumato.models.model import DensityModel
from sfumato.privacy import Curator, SgdPlan

Model = TypeVar("Model", bound=DensityModel)


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """Adam or AdaBelief with a short warm-up, a linear decay to a twentieth, and an average over the iterates.

    ``averaging`` is the weight of the past in the average; 0 keeps the last iterate. ``decay`` off keeps the rate as it
    is, from the first step to the last.
    Reference: Kingma and Ba 2015; Zhuang et al. 2020 (AdaBelief); De et al. 2022 on averaging under noise.
    """

    learning_rate: float = 1e-2
    averaging: float = 0.99
    kind: Literal["adam", "adabelief"] = "adam"
    decay: bool = True

    def __post_init__(self) -> None:
        positive(learning_rate=self.learning_rate)
        between(0, 1, averaging=self.averaging)
        if self.kind not in ("adam", "adabelief"):
            raise ArgumentError(f"Expected kind={self.kind!r} to be 'adam' or 'adabelief'.")

    def transformation(self, steps: int) -> optax.GradientTransformation:
        """The Optax transformation for a run of so many steps."""
        rate = self._schedule(steps) if self.decay else self.learning_rate
        return optax.adabelief(rate) if self.kind == "adabelief" else optax.adam(rate)

    def _schedule(self, steps: int) -> optax.Schedule:
        warm = min(20, max(1, steps // 10))
        return optax.join_schedules(
            [
                optax.linear_schedule(self.learning_rate / warm, self.learning_rate, warm),
                optax.linear_schedule(self.learning_rate, self.learning_rate / 20, max(1, steps - warm)),
            ],
            [warm],
        )


def negative_log_likelihood(model: DensityModel, row: Any, key: Array) -> Float[Array, ""]:
    """The loss of one row: minus its log density at a point drawn in its cells."""
    return -model.log_prob(dequantise(row["low"], row["width"], key))


class RowLoss(eqx.Module):
    """The same as a function of what is trained; the arrays of the rest are no constants of what is compiled."""

    fixed: Any

    def __call__(self, params: Any, row: Any, key: Array) -> Float[Array, ""]:
        return negative_log_likelihood(eqx.combine(params, self.fixed), row, key)


def descend(
    model: Model,
    params: Any,
    loss: Any,
    curator: Curator,
    *,
    plan: SgdPlan,
    optimiser: Optimiser,
    purpose: str,
    checkpoints: int = 1,
) -> list[Model]:
    """Models with their ``params`` moved by noisy gradient descent on a loss, averaged over the iterates up to each.

    There are so many checkpoints, evenly spaced; the last is the model after all steps.
    Where the curator has public rows, plain gradient steps on these come first.
    Cost: the plan's event, with whatever noise the rest of the budget asks for.
    """
    before = min(STEPS, plan.steps)
    times = Checkpoints(num=checkpoints, turns=plan.steps)
    params = pretrained(loss, params, curator, transformation=optimiser.transformation(before), steps=before)
    # Where there is but one checkpoint, the average is it, and nothing else need be carried along.
    kept = None if checkpoints == 1 else times.start(params)
    state = (optimiser.transformation(plan.steps).init(params), params, kept, jnp.zeros((), jnp.int32))
    update = _Update(optimiser, times)
    _, state = curator.noisy_descent(loss, params, state, plan=plan, update=update, purpose=purpose)
    found = [jax.tree.map(jnp.asarray, state[1])] if state[2] is None else times.each(state[2])
    return [eqx.combine(each, model) for each in found]


class _Update(eqx.Module):
    """A step of the optimiser and of the average: a module, so that two fits of a kind can be seen to do the same."""

    optimiser: Optimiser = eqx.field(static=True)
    times: Checkpoints

    def __call__(self, gradient: Any, state: Any, params: Any) -> tuple[Any, Any]:
        moments, average, kept, step = state
        change, moments = self.optimiser.transformation(self.times.turns).update(gradient, moments, params)
        params = optax.apply_updates(params, change)
        past = jnp.minimum(self.optimiser.averaging, (1 + step) / (10 + step))  # the start must not linger
        average = jax.tree.map(lambda mean, new: (past * mean + (1 - past) * new).astype(new.dtype), average, params)
        kept = None if kept is None else self.times.kept(kept, average, step + 1)
        return params, (moments, average, kept, step + 1)
