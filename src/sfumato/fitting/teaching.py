"""Teaching: a generator that learns from critics on disjoint parts of the rows, of which only noisy sums leave.

Each critic sees rows of its own part and made rows, without noise, behind ``curator.noisy_teachers``. It answers with

* *slopes*: which way each of some made rows should move to look more real, every row's at most one long. The noisy
  sum is the gradient at the generator's door, from which the generator's own follows (GS-WGAN);
* *votes*: whether each made row looks real, half up or half down. A student learns what the noisy majority says of made
  rows, and the generator learns from the student (PATE-GAN).

Reference: Chen, Orekondy, Fritz 2020; Jordon, Yoon, van der Schaar 2019; Papernot et al. 2018.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from sfumato.checks import positive, whole
from sfumato.fitting.adversarial import Made, layers_of
from sfumato.fitting.critic_loss import Scene, made_part, real_part
from sfumato.fitting.critics import CriticSize, steepness
from sfumato.models.generators.critic import CriticShape, Weights
from sfumato.privacy import Curator
from sfumato.privacy.teachers import TeacherPlan, Teaching

Answers = Literal["slopes", "votes"]


@dataclass(frozen=True, kw_only=True)
class Classroom:
    """How many critics there are, how often they are asked about how many made rows, and how each learns.

    ``parts`` is one for every 50 declared rows by default, from 10 to 1,000. Noise grows with the root of
    ``rounds`` * ``made``, and the answer with ``parts``. ``local_steps`` of a critic come before each round, on
    ``batch`` rows of its own.
    """

    parts: int | None = None
    rounds: int = 100
    made: int = 16
    local_steps: int = 3
    batch: int = 32
    learning_rate: float = 1e-3
    critic_rate: float = 3e-3

    def __post_init__(self) -> None:
        if self.parts is not None:
            whole(1, parts=self.parts)
        whole(1, rounds=self.rounds, local_steps=self.local_steps, batch=self.batch)
        whole(2, made=self.made)
        positive(learning_rate=self.learning_rate, critic_rate=self.critic_rate)

    def num_parts(self, declared: int | None) -> int:
        """How many parts a table of a declared size has.

        >>> Classroom().num_parts(30_000), Classroom().num_parts(None)
        (600, 100)
        """
        if self.parts is not None:
            return self.parts
        return 100 if declared is None else max(10, min(1_000, declared // 50))


def teach_generator(
    curator: Curator,
    generator: Made,
    scene: Scene,
    size: CriticSize,
    settings: Classroom,
    answers: Answers,
    *,
    key: Array,
) -> Made:
    """The generator after all rounds. Cost: one Gaussian sum for all of them, with all that is left of the budget."""
    shape = CriticShape(scene.inputs, size.width, size.depth)
    room = _Room(scene, generator, shape, settings, answers)
    num_entries = settings.made * (shape.inputs if answers == "slopes" else 1)
    plan = TeacherPlan(
        parts=settings.num_parts(curator.declared_size),
        steps=settings.rounds,
        batch=settings.local_steps * settings.batch,
        num_entries=num_entries,
        bound=sqrt(settings.made) * (1.0 if answers == "slopes" else 0.5),
    )
    first, second, third = jax.random.split(key, 3)
    states = jax.vmap(room.start_critic)(jax.random.split(first, plan.parts))
    teaching = Teaching(learn=room.learn, answer=room.answer, update=_Update(room, plan.parts))
    public = room.start(second, third)
    public = curator.noisy_teachers(teaching, states, public, plan=plan, purpose=f"{answers} of critics on parts")
    return room.generator(jax.tree.map(jnp.asarray, public["average"]))


class _Room(eqx.Module):
    """What critics, student and generator do."""

    scene: Scene
    skeleton: Any
    shape: CriticShape = eqx.field(static=True)
    settings: Classroom = eqx.field(static=True)
    answers: Answers = eqx.field(static=True)

    def generator(self, makers: Any) -> Any:
        return eqx.tree_at(layers_of, self.skeleton, eqx.combine(makers, layers_of(self.skeleton)))

    def _critic_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.settings.critic_rate, b1=0.5)

    def _maker_optimiser(self) -> optax.GradientTransformation:
        rate = self.settings.learning_rate
        return optax.adam(optax.linear_schedule(rate, rate / 20, self.settings.rounds), b1=0.5)

    def start_critic(self, key: Array) -> Any:
        weights = self.shape.start(key)
        return weights, self._critic_optimiser().init(weights)

    def start(self, key: Array, other: Array) -> dict[str, Any]:
        makers = eqx.filter(layers_of(self.skeleton), eqx.is_array)
        moments = self._maker_optimiser().init(makers)
        student, student_moments = self.start_critic(other)
        return {
            "makers": makers, "average": makers, "moments": moments, "student": student,
            "student_moments": student_moments, "key": key, "step": jnp.zeros((), jnp.int32),
        }  # fmt: skip

    def made(self, makers: Any, key: Array, num: int) -> tuple[Float[Array, "row number"], Array]:
        generator = self.generator(makers)
        rows, costs = jax.vmap(lambda one: self.scene.made(generator, one))(jax.random.split(key, num))
        return rows, jnp.mean(costs)

    def _asked(self, makers: Any, public: dict[str, Any]) -> tuple[Float[Array, "row number"], Array]:
        """The made rows that all critics are asked about in this round."""
        return self.made(makers, jax.random.fold_in(public["key"], public["step"]), self.settings.made)

    def learn(self, state: Any, public: dict[str, Any], rows: Any, key: Array) -> Any:
        """A critic after some steps on rows of its own part and on made rows."""

        def step(place: Array, carry: Any) -> Any:
            weights, moments = carry
            one, two, three = jax.random.split(jax.random.fold_in(key, place), 3)
            batch = jax.tree.map(lambda column: self._slice(column, place), rows)
            real = jax.vmap(self.scene.real)(batch, jax.random.split(one, self.settings.batch))
            made = jax.lax.stop_gradient(self.made(public["makers"], two, self.settings.batch)[0])
            found = jax.grad(lambda weights: self._loss(weights, real, made, three))(weights)
            change, moments = self._critic_optimiser().update(found, moments, weights)
            return optax.apply_updates(weights, change), moments

        return jax.lax.fori_loop(0, self.settings.local_steps, step, state)

    def _slice(self, column: Array, place: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(column, place * self.settings.batch, self.settings.batch)

    def _loss(self, weights: Weights, real: Array, made: Array, key: Array) -> Array:
        score = jax.vmap(lambda row: self.shape.score(weights, row))
        lost = jnp.mean(real_part("log", score(real))) + jnp.mean(made_part("log", score(made)))
        return lost + steepness(self.shape, weights, made, key)

    def answer(self, state: Any, public: dict[str, Any]) -> Float[Array, " entry"]:
        """What a critic says of the made rows of this round."""
        weights, rows = state[0], self._asked(public["makers"], public)[0]
        if self.answers == "votes":
            return jnp.where(jax.vmap(lambda row: self.shape.score(weights, row))(rows) > 0, 0.5, -0.5)
        slope = jax.grad(lambda row: real_part("log", self.shape.score(weights, row)))
        slopes = jax.vmap(slope)(rows)
        return (slopes / jnp.maximum(jnp.linalg.norm(slopes, axis=1, keepdims=True), 1e-12)).reshape(-1)

    def update(self, total: Float[Array, " entry"], public: dict[str, Any], parts: int) -> dict[str, Any]:
        """The generator after a noisy sum of answers."""
        mean = total / parts
        if self.answers == "votes":
            public = self._studied(mean, public)
            student = public["student"]
            told = lambda rows: jnp.mean(real_part("log", jax.vmap(lambda row: self.shape.score(student, row))(rows)))
        else:
            slopes = mean.reshape(self.settings.made, -1)
            told = lambda rows: jnp.sum(slopes * rows) / self.settings.made

        def loss(makers: Any) -> Array:
            rows, costs = self._asked(makers, public)
            return told(rows) + costs

        change, moments = self._maker_optimiser().update(
            jax.grad(loss)(public["makers"]), public["moments"], public["makers"]
        )
        makers = optax.apply_updates(public["makers"], change)
        past = jnp.minimum(0.9, (1 + public["step"]) / (10 + public["step"])).astype(jnp.float32)
        average = jax.tree.map(lambda mean, new: past * mean + (1 - past) * new, public["average"], makers)
        return {**public, "makers": makers, "moments": moments, "average": average, "step": public["step"] + 1}

    def _studied(self, mean: Float[Array, " row"], public: dict[str, Any]) -> dict[str, Any]:
        """The student after a step on made rows, with the labels that the noisy majority gives them."""
        rows = jax.lax.stop_gradient(self._asked(public["makers"], public)[0])
        real = mean > 0

        def loss(weights: Weights) -> Array:
            scores = jax.vmap(lambda row: self.shape.score(weights, row))(rows)
            return jnp.mean(jnp.where(real, real_part("log", scores), made_part("log", scores)))

        moments, student = public["student_moments"], public["student"]
        for _ in range(self.settings.local_steps):
            change, moments = self._critic_optimiser().update(jax.grad(loss)(student), moments, student)
            student = optax.apply_updates(student, change)
        return {**public, "student": student, "student_moments": moments}


class _Update(eqx.Module):
    """What follows a noisy sum: a module and no closure, so that two fits of one kind can be seen to do the same."""

    room: _Room
    parts: int = eqx.field(static=True)

    def __call__(self, total: Array, public: dict[str, Any]) -> dict[str, Any]:
        return _updated(self.room, total, public, self.parts)


@eqx.filter_jit
def _updated(room: _Room, total: Array, public: dict[str, Any], parts: int) -> dict[str, Any]:
    """As ``_Room.update``; compiled once where it is called by itself."""
    found = room.update(total, public, parts)
    is_key = lambda part: jnp.issubdtype(part.dtype, jax.dtypes.prng_key)
    return jax.tree.map(lambda now, before: now if is_key(before) else now.astype(before.dtype), found, public)
