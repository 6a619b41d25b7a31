"""Canaries: rows made to be found, put through the real doors while a method's own fit runs unchanged.

Each canary has a coordinate to itself and asks for far more of it than the clipping bound allows. What comes out of a
door at that coordinate is then the bound (if the canary was in and took part) plus noise, which is the worst case that
the accountant reckons with. So the attack is tight: a lower bound far below the certificate would mean a loose
accountant, one above it a defect of clipping, noise, sampling, calibration or ledger.

Reference: Nasr et al. 2023, "Tight auditing of differentially private machine learning"; Maddock, Sablayrolles and
Stock 2023 (canary gradients).
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.stats import binom

from sfumato.checks import whole
from sfumato.privacy import Adjacency, Curator, FixedSizeSampling, PoissonSampling, Relation, SgdPlan
from sfumato.privacy.events import ExponentialChoice
from sfumato.privacy.queries import ScoreQuery, SumQuery

Participation: TypeAlias = Literal["full", "planned"]

_ASKED = 1000.0
"""How many clipping bounds a canary asks for. Unclipped it would still fit the 32-bit sum, and show."""

_FULL_STEPS = 8
"""Steps of a descent under full participation, where the number of steps changes no bound."""


@dataclass(frozen=True)
class Canaries:
    """So many canaries, and the fair coins that said which are in. The coins are the auditor's, not the method's."""

    coins: np.ndarray

    @classmethod
    def toss(cls, num: int, random: np.random.Generator) -> "Canaries":
        """Fair coins for ``num`` canaries."""
        whole(1, num=num)
        return cls(random.integers(2, size=num).astype(bool))

    @property
    def num(self) -> int:
        return int(self.coins.size)

    def rows(self, adjacency: Adjacency) -> dict[str, np.ndarray]:
        """The rows that the curator is given.

        Under add-or-remove-one a canary that is out is not there; one that is in has all the rows that a unit may
        have. Under replace-one all are there, and a coin says which way each of them pulls.
        """
        index = np.arange(self.num, dtype=np.int32)
        if adjacency.relation is Relation.REPLACE_ONE:
            return {"index": index, "sign": np.where(self.coins, 1.0, -1.0).astype(np.float32)}
        present = np.repeat(index[self.coins], adjacency.max_rows)
        return {"index": present, "sign": np.ones(present.size, np.float32)}


class CanaryCurator(Curator):
    """A curator whose doors are asked about canaries, whatever the method asks them.

    Every door runs the real one, with the method's own clipping, share, plan, calibration and ledger; only the
    function of a row is another. ``scores`` sums up, over all doors, the log-likelihood ratio of "in" against "out" for
    each canary. The method gets a stand-in for the answer: valid, since an auditor may do with an answer what he likes.

    Successive questions pull with alternating sign, so that noise which is used twice cancels and shows.
    Under ``participation="full"`` every row takes part in every step of at most eight, so that the scores are normal;
    under "planned" the plan is the method's own.
    """

    def __init__(
        self, canaries: Canaries, *, participation: Participation, random: np.random.Generator, **given: Any
    ) -> None:
        super().__init__(canaries.rows(given["ledger"].adjacency), public_size=canaries.num, **given)
        self._canaries = canaries
        self._participation = participation
        self._random = random
        self._turn = 1.0
        self.scores = np.zeros(canaries.num)

    def noisy_sum(self, query: SumQuery, *, share: float) -> np.ndarray:
        """The real noisy sum over canaries; the method is given what an empty table might have answered."""
        num, asked, turn = self._canaries.num, _ASKED * query.clip.bound, self._turn
        self._turn = -turn

        def pull(row: dict[str, Array]) -> Array:
            return jnp.where(jnp.arange(num) == row["index"], asked * turn * row["sign"], 0.0).astype(jnp.float32)

        seen = super().noisy_sum(replace(query, function=pull, num_entries=num), share=share)
        multiplier = self._ledger.budget.multiplier(share)
        adjacency = self._ledger.adjacency
        sigma = multiplier * adjacency.sum_factor
        with jax.enable_x64(True):
            self.scores += np.asarray(log_ratio(jnp.asarray(turn * seen / query.clip.bound), sigma, 1.0, adjacency))
        return self._random.normal(0, sigma * query.clip.bound, query.num_entries)

    def noisy_choice(self, query: ScoreQuery, *, epsilon: float) -> int:
        """The first candidate, charged but not looked at: what is thrown away can only loosen the bound."""
        self._charge(ExponentialChoice(epsilon=epsilon), query.purpose)
        return 0

    def noisy_descent(
        self, loss: Any, params: Any, state: Any, *, plan: SgdPlan, update: Any, purpose: str
    ) -> tuple[Any, Any]:
        """The real noisy descent over canaries; the method is given back what it started from."""
        plan = self.plan(plan)
        bound, adjacency = plan.clip.bound, self._ledger.adjacency
        rate = plan.sampling.normaliser_rate
        start = {"canaries": jnp.zeros(self._canaries.num, jnp.float32), "turn": jnp.ones((), jnp.float32)}

        def pull(at: Any, row: Any, key: Array) -> Float[Array, ""]:
            return _ASKED * bound * jax.lax.stop_gradient(at["turn"]) * row["sign"] * at["canaries"][row["index"]]

        def listen(mean: Any, scores: Any, at: Any) -> tuple[Any, Any]:
            # The charge is the last of the ledger by the time that this is compiled.
            multiplier = self._ledger.events[-1].noise_multiplier  # type: ignore[union-attr]
            sigma = multiplier * (2 if adjacency.relation is Relation.REPLACE_ONE else 1)
            seen = mean["canaries"].astype(jnp.float64) * (at["turn"] * rate * self.size / bound)
            return {**at, "turn": -at["turn"]}, scores + log_ratio(seen, sigma, rate, adjacency)

        _, scores = super().noisy_descent(pull, start, self.scores, plan=plan, update=listen, purpose=purpose)
        self.scores = np.asarray(scores, np.float64)
        return params, state

    def plan(self, plan: SgdPlan) -> SgdPlan:
        """The method's plan for as many rows as there are canaries; under full participation with every row."""
        if self._participation == "planned":
            return plan
        sampling: PoissonSampling | FixedSizeSampling = PoissonSampling(rate=1.0)
        if isinstance(plan.sampling, FixedSizeSampling):
            sampling = FixedSizeSampling(batch=self._canaries.num, rows=self._canaries.num)
        return replace(plan, sampling=sampling, steps=min(plan.steps, _FULL_STEPS))


def log_ratio(
    seen: Float[Array, " canary"], sigma: float, rate: float, adjacency: Adjacency
) -> Float[Array, " canary"]:
    """log p(seen | in) - log p(seen | out), for an observation in clipping bounds with noise of deviation ``sigma``.

    A canary that is in pulls with as many of its rows as were taken, each with probability ``rate``. One that is out
    pulls not at all, or under replace-one the other way. At rate 1 the ratio is linear in what was seen.
    """
    taken = np.arange(adjacency.max_rows + 1.0)
    with np.errstate(divide="ignore"):
        weight = jnp.asarray(binom.logpmf(taken, adjacency.max_rows, min(1.0, rate)))
    pulled = lambda sign: logsumexp(weight + (2 * sign * taken * seen[:, None] - taken**2) / (2 * sigma**2), axis=1)
    return pulled(1.0) - (pulled(-1.0) if adjacency.relation is Relation.REPLACE_ONE else 0.0)
