"""Canaries: rows made to be found, put through the real doors while a method's own fit runs unchanged.

Each canary has two coordinates to itself, in two arrays, and asks for far more of both than the clipping bound allows.
What comes out of a door along them is then the bound (if the canary was in and took part) plus noise, which is the
worst case that the accountant reckons with. So the attack is tight: a lower bound far below the certificate would mean
a loose accountant, one above it a defect of clipping, noise, sampling, calibration or ledger.

Reference: Nasr et al. 2023, "Tight auditing of differentially private machine learning"; Maddock, Sablayrolles and
Stock 2023 (canary gradients).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.stats import binom

from sfumato.audit.teacher_canaries import GROUP, groups, listening, scores_of, silence
from sfumato.checks import whole
from sfumato.privacy import Adjacency, Curator, FixedSizeSampling, PoissonSampling, Relation, SgdPlan
from sfumato.privacy.events import Event, ExponentialChoice, GaussianSum, LaplaceSum
from sfumato.privacy.factors import FactoredLoss, Rule, VectorRule
from sfumato.privacy.queries import CountQuery, DistanceQuery, ScoreQuery, SumQuery
from sfumato.privacy.teachers import TeacherPlan

Participation: TypeAlias = Literal["full", "planned"]

_ASKED = 1000.0
"""How many clipping bounds a canary asks for. Unclipped it would still fit the 32-bit sum, and show."""

_FULL_STEPS, _TEACHER_STEPS = 8, 3
"""Steps of a descent, and rounds of teachers, under full participation, where their number changes no bound."""


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


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What one call of a door told: what it was charged as, the scores of the canaries, and the noise they met.

    ``noise`` holds a line for each step, in standard deviations; None where it is hidden by sampling.
    """

    purpose: str
    event: Event
    scores: np.ndarray
    noise: np.ndarray | None = None


class CanaryCurator(Curator):
    """A curator whose doors are asked about canaries, whatever the method asks them.

    Every door runs the real one, with the method's own clipping, share, plan, calibration and ledger; only the
    function of a row is another. ``heard`` keeps, for each call, the log-likelihood ratio of "in" against "out" of each
    canary. The method gets a stand-in for the answer: valid, since an auditor may do with an answer what he likes.

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
        self.heard: list[Heard] = []
        self.faults: list[str] = []

    @property
    def scores(self) -> np.ndarray:
        """The log-likelihood ratio of each canary over all that was heard."""
        return np.sum([heard.scores for heard in self.heard], axis=0) if self.heard else np.zeros(self._canaries.num)

    def through(self, function: Callable[[Any], Any]) -> "CanaryCurator":
        """These very doors: canaries look the same through every function, since all questions are replaced."""
        return self

    def noisy_sum_at(self, query: SumQuery | CountQuery, *, noise_multiplier: float) -> np.ndarray:
        """The real noisy sum over canaries; the method is given what an empty table might have answered."""
        num, turn, charged = self._canaries.num, self._turn, len(self._ledger.entries)
        loud = self._loud(query)
        seen = super().noisy_sum_at(loud, noise_multiplier=noise_multiplier) / query.clip.bound
        sigma = noise_multiplier * self._ledger.adjacency.sum_factor
        along = turn * (seen[:num] + seen[num:]) / sqrt(2)
        with jax.enable_x64(True):
            scores = np.asarray(log_ratio(jnp.asarray(along), sigma, 1.0, self._ledger.adjacency))
        noise = (seen - turn * self._pull_of_all()) / sigma
        self._note(query.purpose, GaussianSum(noise_multiplier=noise_multiplier), scores, noise[None], charged)
        return self._random.normal(0, sigma * query.clip.bound, query.num_entries)

    def noisy_laplace_sum(self, query: SumQuery, *, epsilon: float) -> np.ndarray:
        """The real Laplace sum over canaries, of which each may have half of the bound at both of its coordinates."""
        num, turn, charged = self._canaries.num, self._turn, len(self._ledger.entries)
        seen = turn * super().noisy_laplace_sum(self._loud(query), epsilon=epsilon) / query.clip.bound
        adjacency = self._ledger.adjacency
        scale = adjacency.sum_factor / epsilon
        scores = laplace_log_ratio(seen.reshape(2, num), scale, adjacency)
        noise = (seen - self._pull_of_all() / sqrt(2)) / (sqrt(2) * scale)
        self._note(query.purpose, LaplaceSum(epsilon=epsilon), scores, turn * noise[None], charged)
        return self._random.laplace(0, scale * query.clip.bound, query.num_entries)

    def _loud(self, query: SumQuery | CountQuery) -> SumQuery:
        """A sum with the method's own clipping in which each canary asks for far more than its bound, in turns."""
        num, asked = self._canaries.num, _ASKED * query.clip.bound * self._turn
        self._turn = -self._turn
        pull = Pull(jnp.asarray(asked, jnp.float32), num)
        return SumQuery(function=pull, num_entries=2 * num, clip=query.clip, purpose=query.purpose)

    def _pull_of_all(self) -> np.ndarray:
        """What sound clipping by the Euclidean norm lets the canaries add at each of their coordinates, in bounds."""
        adjacency, coins = self._ledger.adjacency, self._canaries.coins
        if adjacency.relation is Relation.REPLACE_ONE:
            own = np.where(coins, 1.0, -1.0)
        else:
            own = coins * float(adjacency.max_rows)
        return np.concatenate([own, own]) / sqrt(2)

    def _note(self, purpose: str, event: Event, scores: np.ndarray, noise: np.ndarray | None, charged: int) -> None:
        """Keep what was heard, and compare what was charged for it with what was done."""
        new = [(entry.purpose, entry.event) for entry in self._ledger.entries[charged:]]
        if new != [(purpose, event)]:
            self.faults.append(f"{purpose}: the ledger was not charged for what was done")
        self.heard.append(Heard(purpose=purpose, event=event, scores=scores, noise=noise))

    def noisy_choice(self, query: ScoreQuery | DistanceQuery, *, epsilon: float) -> int:
        """The first candidate, charged but not looked at: what is thrown away can only loosen the bound."""
        self._charge(ExponentialChoice(epsilon=epsilon), query.purpose)
        return 0

    def noisy_teachers(self, teaching: Any, states: Any, public: Any, *, plan: TeacherPlan, purpose: str) -> Any:
        """The real noisy sums of parts, with a canary in each; the method is given back what it started from."""
        num, charged = self._canaries.num, len(self._ledger.entries)
        event = self._ledger.calibrate(lambda multiplier: GaussianSum(noise_multiplier=multiplier))
        steps = min(plan.steps, _TEACHER_STEPS) if self._participation == "full" else plan.steps
        mine = replace(plan, parts=GROUP, batch=1, num_entries=2 * num, steps=steps, warm_steps=min(1, plan.warm_steps))
        asks = listening(num, _ASKED * plan.bound)
        seen = super().noisy_teachers(asks, None, silence(num, steps), plan=mine, purpose=purpose) / plan.bound
        multiplier: float = event.noise_multiplier  # type: ignore[union-attr]
        self._note(purpose, event, *scores_of(seen, self._canaries.coins, multiplier), charged)
        return public

    def _dealt(self, call: int, num_parts: int) -> Any:
        """Nothing yet: every group of canaries has a dealing of its own."""
        return None

    def _teach(self, teaching: Any, carry: Any, held: Any, **given: Any) -> Any:
        """The real rounds for each group of canaries, and what was heard at their own coordinates."""
        num, index = self._canaries.num, self._canaries.rows(self._ledger.adjacency)["index"]
        found = np.zeros(carry[1]["seen"].shape)
        for places, states, dealt in groups(index, num, self._rows.real.shape[0]):
            heard = super()._teach(teaching, (states, carry[1]), (dealt, held[1]), **given)
            both = np.concatenate([places, num + places])
            found[:, both] = np.asarray(heard["seen"], np.float64)[:, both]
        return found

    def noisy_descent(
        self, loss: Any, params: Any, state: Any, *, plan: SgdPlan, update: Any, purpose: str
    ) -> tuple[Any, Any]:
        """The real noisy descent over canaries; the method is given back what it started from."""
        plan = self.plan(plan)
        num, adjacency, rate = self._canaries.num, self._ledger.adjacency, plan.sampling.normaliser_rate
        zeros = jnp.zeros(num, jnp.float32)
        start = {"first": zeros, "second": zeros, "turn": jnp.ones((), jnp.float32)}
        steps = plan.steps if self._participation == "full" else 0
        scale = rate * self.size / plan.clip.bound

        def pull(at: Any, row: Any, key: Array) -> Float[Array, ""]:
            asked = _ASKED * plan.clip.bound * jax.lax.stop_gradient(at["turn"]) * row["sign"]
            return asked * (at["first"][row["index"]] + at["second"][row["index"]])

        # A loss that is clipped by factors goes another way through the door, and so do its canaries.
        asks: Any = FactoredPull(num, _ASKED * plan.clip.bound) if isinstance(loss, FactoredLoss) else pull

        def listen(mean: Any, heard: Any, at: Any) -> tuple[Any, Any]:
            (scores, noise, step), (sigma, pull_of_all) = heard
            seen = jnp.concatenate([mean["first"], mean["second"]]).astype(jnp.float64) * scale
            along = at["turn"] * (seen[:num] + seen[num:]) / sqrt(2)
            noise = noise.at[step].set((seen - at["turn"] * pull_of_all) / sigma) if steps else noise
            scores = scores + log_ratio(along, sigma, rate, adjacency)
            return {**at, "turn": -at["turn"]}, ((scores, noise, step + 1), heard[1])

        # Room for all steps that there may be, so that plans of other lengths find the loop in a compilation cache.
        room = np.zeros((_FULL_STEPS if steps else 0, 2 * num))
        before: Any = (np.zeros(num), room, np.zeros((), np.int32))
        charged = len(self._ledger.entries)
        _, ((scores, noise, _), _) = super().noisy_descent(
            asks, start, before, plan=plan, update=listen, purpose=purpose
        )
        multiplier = self._sigma() / (2 if adjacency.relation is Relation.REPLACE_ONE else 1)
        event = plan.event(multiplier, adjacency)
        self._note(purpose, event, np.asarray(scores), np.asarray(noise)[:steps] if steps else None, charged)
        return params, state

    def _loop(self, build: Any, held: Any, params: Any, state: Any, **given: Any) -> Any:
        """The real loop. The charge, which is made by now, and what canaries add go with the state, as no constants."""
        facts = jnp.asarray(self._sigma(), jnp.float64), jnp.asarray(self._pull_of_all())
        return super()._loop(build, held, params, (state, facts), **given)

    def _sigma(self) -> float:
        """The deviation of a step's noise, in bounds, as the last charge says."""
        multiplier = self._ledger.events[-1].noise_multiplier  # type: ignore[union-attr]
        return float(multiplier) * (2 if self._ledger.adjacency.relation is Relation.REPLACE_ONE else 1)

    def plan(self, plan: SgdPlan) -> SgdPlan:
        """The method's plan for as many rows as there are canaries; under full participation with every row."""
        if self._participation == "planned":
            return plan
        sampling: PoissonSampling | FixedSizeSampling = PoissonSampling(rate=1.0)
        if isinstance(plan.sampling, FixedSizeSampling):
            sampling = FixedSizeSampling(batch=self._canaries.num, rows=self._canaries.num)
        return replace(plan, sampling=sampling, steps=min(plan.steps, _FULL_STEPS))


class Pull(eqx.Module):
    """What a canary asks of a sum, at both of its coordinates."""

    asked: Float[Array, ""]
    num: int = eqx.field(static=True)

    def __call__(self, row: dict[str, Array]) -> Float[Array, " entry"]:
        own = jnp.where(jnp.arange(self.num) == row["index"], self.asked * row["sign"], 0.0).astype(jnp.float32)
        return jnp.concatenate([own, own])


@dataclass(frozen=True)
class FactoredPull:
    """The pull of canaries as a loss that gives factors."""

    num: int
    asked: float

    @property
    def rules(self) -> dict[str, Rule]:
        return {name: VectorRule(target=name) for name in ("first", "second", "turn")}

    common_names: ClassVar[tuple[str, ...]] = ()

    def weights(self, params: Any) -> dict[str, Array]:
        return {name: jnp.atleast_1d(params[name]) for name in ("first", "second", "turn")}

    def taps(self) -> dict[str, tuple[int, int, int]]:
        return {"first": (1, 1, self.num), "second": (1, 1, self.num), "turn": (1, 1, 1)}

    def row(self, weights: Any, row: Any, key: Array, taps: Any) -> tuple[Array, dict[str, Array]]:
        """What comes back at both coordinates of a canary is what it asks for, and nothing at all else."""
        own = taps["first"][0, 0, row["index"]] + taps["second"][0, 0, row["index"]]
        return self.asked * weights["turn"][0] * row["sign"] * own, {}

    def common(self, weights: Any) -> Array:
        """Nothing is common to all rows."""
        return jnp.zeros((), jnp.float32)


def log_ratio(
    seen: Float[Array, " canary"], sigma: float | Array, rate: float, adjacency: Adjacency
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


def laplace_log_ratio(seen: Float[np.ndarray, "coordinate canary"], scale: float, adjacency: Adjacency) -> np.ndarray:
    """The same of a Laplace sum: each row of a canary that is in pulls by half a bound at both coordinates."""
    pull = adjacency.max_rows / 2
    other = -pull if adjacency.relation is Relation.REPLACE_ONE else 0.0
    return np.asarray(np.sum(np.abs(seen - other) - np.abs(seen - pull), axis=0) / scale)
