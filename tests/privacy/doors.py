"""Small curators to test the doors with: rows of one vector, a loss whose gradient is that vector."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from sfumato.privacy import Adjacency, Budget, Curator, FlatClip, Ledger, PoissonSampling, Randomness, SgdPlan
from sfumato.privacy.factors import Rule, VectorRule
from sfumato.privacy.plan import SgdPlan as Plan

NARROW = Budget(epsilon=0.1, delta=1e-5)
"""For noise that is compared with its own multiplier: much noise takes the accountant a tenth of the time."""

WIDE = Budget(epsilon=2.0, delta=1e-5)
"""For what must be seen through the noise."""


def curator_of(
    rows: np.ndarray,
    *,
    budget: Budget = NARROW,
    adjacency: Adjacency | None = None,
    size: int | None = None,
    seed: int = 0,
) -> Curator:
    """A curator over vectors, with a fixed key so that a statistical test repeats."""
    ledger = Ledger(budget, adjacency or Adjacency())
    size = max(1, len(rows)) if size is None else size
    return Curator(
        {"x": rows.astype(np.float32)}, ledger=ledger, randomness=Randomness.from_seed(seed), public_size=size
    )


def linear_loss(params: Any, row: Any, key: Any) -> Any:
    """A loss whose gradient in the parameters is the row itself."""
    return jnp.sum(params * row["x"])


def plan_of(*, rate: float = 0.1, bound: float = 1.0, steps: int = 1) -> Plan:
    return SgdPlan(sampling=PoissonSampling(rate=rate), clip=FlatClip(bound=bound), steps=steps)


def gradients_of(
    curator: Curator, plan: Plan, num_parameters: int, loss: Callable[..., Any] = linear_loss
) -> np.ndarray:
    """The noisy mean gradients of every step, as an update that only keeps them sees them."""

    def keep(gradient: Any, state: Any, params: Any) -> Any:
        kept, step = state
        return params, (kept.at[step].set(gradient), step + 1)

    start = jnp.zeros((plan.steps, num_parameters), jnp.float32), jnp.zeros((), jnp.int32)
    params = jnp.zeros(num_parameters, jnp.float32)
    _, (kept, _) = curator.noisy_descent(loss, params, start, plan=plan, update=keep, purpose="test")
    return np.asarray(kept, np.float64)


def multiplier_of(curator: Curator) -> float:
    """The noise multiplier of the last charge."""
    return curator._ledger.entries[-1].event.noise_multiplier


class Pulls:
    """The same loss in factors: two arrays of weights, each with the part of the row that is its own."""

    common_names: tuple[str, ...] = ()

    def __init__(self, first: int, second: int) -> None:
        self.sizes = {"first": first, "second": second}

    @property
    def rules(self) -> dict[str, Rule]:
        return {name: VectorRule(target=name) for name in self.sizes}

    def weights(self, params: Any) -> Any:
        return {"first": params[: self.sizes["first"]], "second": params[self.sizes["first"] :]}

    def taps(self) -> dict[str, tuple[int, int, int]]:
        return {name: (1, 1, size) for name, size in self.sizes.items()}

    def row(self, weights: Any, row: Any, key: Any, taps: Any) -> Any:
        return jnp.sum(jnp.concatenate([taps["first"], taps["second"]], axis=2) * row["x"]), {}

    def common(self, weights: Any) -> Any:
        return jnp.zeros((), jnp.float32)
