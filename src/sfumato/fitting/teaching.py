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

from sfumato.checks import between, positive, whole
from sfumato.fitting.adversarial import Made, layers_of
from sfumato.fitting.checkpoints import Checkpoints
from sfumato.fitting.critic_loss import Scene, made_part, real_part
from sfumato.fitting.critics import CriticSize, critic_shape, steepness
from sfumato.fitting.student import Student
from sfumato.models.generators.conditional import ConditionalGenerator
from sfumato.models.generators.critic import CriticShape, Weights
from sfumato.privacy import Curator
from sfumato.privacy.teachers import SENSITIVITY, TeacherPlan, Teaching

Answers = Literal["slopes", "votes"]

_FRESH = 256
"""Made rows of a step that cost nothing: those that a student teaches on, or that columns are held by."""


@dataclass(frozen=True, kw_only=True)
class Classroom:
    """How many critics there are, how often they are asked about how many made rows, and how each learns.

    ``parts`` is one for every ``part_rows`` declared rows by default, from 10 to 1,000. Noise grows with the root of
    ``rounds`` * ``made``, and the answer with ``parts``. ``local_steps`` of a critic come before each round, on
    ``batch`` rows of its own, and ``warm_steps`` times as many before the first one. After each answer the generator
    takes one step by slopes, or ``maker_steps`` by a student; ``anchor`` is what it pays where single columns drift.
    """

    parts: int | None = None
    part_rows: int = 50
    rounds: int = 60
    made: int = 16
    warm_steps: int = 20
    local_steps: int = 1
    batch: int = 32
    maker_steps: int = 5
    learning_rate: float = 1e-2
    critic_rate: float = 3e-3
    anchor: float = 2.0

    def __post_init__(self) -> None:
        if self.parts is not None:
            whole(1, parts=self.parts)
        whole(0, warm_steps=self.warm_steps)
        whole(1, part_rows=self.part_rows)
        whole(1, rounds=self.rounds, local_steps=self.local_steps, batch=self.batch, maker_steps=self.maker_steps)
        whole(2, made=self.made)
        positive(learning_rate=self.learning_rate, critic_rate=self.critic_rate)
        between(0, 1e6, anchor=self.anchor)

    def num_parts(self, declared: int | None) -> int:
        """How many parts a table of a declared size has.

        >>> Classroom().num_parts(30_000), Classroom().num_parts(None)
        (600, 100)
        """
        if self.parts is not None:
            return self.parts
        return 100 if declared is None else max(10, min(1_000, declared // self.part_rows))


def teach_generator(
    curator: Curator,
    generator: Made,
    scene: Scene,
    size: CriticSize,
    settings: Classroom,
    answers: Answers,
    *,
    key: Array,
    checkpoints: int = 1,
) -> list[Made]:
    """Generators along the rounds, the last after all of them.

    Cost: one Gaussian sum for all rounds, with all that is left of the budget.
    """
    shape = critic_shape(scene, size)
    num_entries = settings.made * (shape.inputs if answers == "slopes" else 1)
    plan = TeacherPlan(
        parts=settings.num_parts(curator.declared_size),
        steps=settings.rounds,
        batch=settings.local_steps * settings.batch,
        num_entries=num_entries,
        bound=sqrt(settings.made) * (1.0 if answers == "slopes" else 0.5),
        warm_steps=settings.warm_steps,
    )
    first, second, third, fourth = jax.random.split(key, 4)
    given = (scene, generator, shape, settings, answers, checkpoints)
    room = _Room(*given, jnp.zeros(shape.inputs), jnp.zeros(()))
    noise = curator.least_noise() * SENSITIVITY * sqrt(plan.steps) * plan.bound / plan.parts
    room = _Room(*given, eqx.filter_jit(_Room.means)(room, fourth), jnp.asarray(noise, jnp.float32))
    states = eqx.filter_jit(_Room.start_critics)(room, first, plan.parts)
    teaching = Teaching(show=room.show, learn=room.learn, answer=room.answer, update=_Update(room, plan.parts))
    public = eqx.filter_jit(_Room.start)(room, second, third)
    public = curator.noisy_teachers(teaching, states, public, plan=plan, purpose=f"{answers} of critics on parts")
    return [room.generator(makers) for makers in room.times.each(public["kept"])]


class _Room(eqx.Module):
    """What critics, student and generator do."""

    scene: Scene
    skeleton: Any
    shape: CriticShape = eqx.field(static=True)
    settings: Classroom = eqx.field(static=True)
    answers: Answers = eqx.field(static=True)
    checkpoints: int = eqx.field(static=True)
    anchor: Float[Array, " number"]
    noise: Float[Array, ""]

    @property
    def times(self) -> Checkpoints:
        return Checkpoints(num=self.checkpoints, turns=self.settings.rounds)

    def generator(self, makers: Any) -> Any:
        return eqx.tree_at(layers_of, self.skeleton, eqx.combine(makers, layers_of(self.skeleton)))

    def _critic_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.settings.critic_rate, b1=0.5)

    def _maker_optimiser(self) -> optax.GradientTransformation:
        steps = self.settings.rounds * (1 if self.answers == "slopes" else self.settings.maker_steps)
        rate = self.settings.learning_rate
        return optax.adam(optax.linear_schedule(rate, rate / 20, steps), b1=0.5)

    def start_critics(self, key: Array, parts: int) -> Any:
        """All start alike: what they disagree about is then their rows, and no chance of the start."""
        weights = self.shape.start(key)
        one = weights, self._critic_optimiser().init(weights)
        return jax.tree.map(lambda part: jnp.repeat(part[None], parts, axis=0), one)

    def start(self, key: Array, other: Array) -> dict[str, Any]:
        makers = eqx.filter(layers_of(self.skeleton), eqx.is_array)
        moments = self._maker_optimiser().init(makers)
        found = {"makers": makers, "average": makers, "moments": moments, "key": key}
        found["kept"] = self.times.start(makers)
        student = Student.start(self.shape, other) if self.answers == "votes" else None
        return {**found, "student": student, "step": jnp.zeros((), jnp.int32)}

    def made(self, makers: Any, key: Array, num: int) -> tuple[Float[Array, "row number"], Array]:
        """Made rows, of which every label has as many, and the mean of what they cost their maker besides."""
        generator, classes = self.generator(makers), self._classes
        one = lambda key, label: self.scene.made(generator, key, label if classes else None)
        rows, costs = jax.vmap(one)(jax.random.split(key, num), jnp.arange(num) % max(1, classes))
        return rows, jnp.mean(costs)

    def means(self, key: Array) -> Float[Array, " number"]:
        """The mean of each number over rows of the start, which has every column right by itself."""
        makers = eqx.filter(layers_of(self.skeleton), eqx.is_array)
        return self._means(jax.lax.stop_gradient(self.made(makers, key, 8 * _FRESH)[0]))

    def _means(self, rows: Float[Array, "row number"]) -> Float[Array, " number"]:
        if not self._classes:
            return jnp.mean(rows, axis=0)
        shares = jax.nn.softmax(self.skeleton.label_logits)  # made rows have all labels evenly
        return jnp.mean(jax.vmap(lambda row: self._classes * self.skeleton.label_of(row) @ shares * row)(rows), axis=0)

    @property
    def _classes(self) -> int:
        known = self.scene.label is not None and not isinstance(self.skeleton, ConditionalGenerator)
        return self.skeleton.shape.classes if known else 0

    def _asked(self, makers: Any, public: dict[str, Any]) -> tuple[Float[Array, "row number"], Array]:
        """The made rows that all critics are asked about in this round."""
        return self.made(makers, jax.random.fold_in(public["key"], public["step"]), self.settings.made)

    def show(self, public: dict[str, Any], key: Array) -> dict[str, Array]:
        """Made rows to learn from, for each step of a critic, and those that it is asked about."""
        num = self.settings.local_steps * self.settings.batch
        return {"made": self.made(public["makers"], key, num)[0], "asked": self._asked(public["makers"], public)[0]}

    def learn(self, state: Any, shown: dict[str, Array], rows: Any, key: Array) -> Any:
        """A critic after some steps on rows of its own part and on made rows."""

        def step(place: Array, carry: Any) -> Any:
            weights, moments = carry
            one, two = jax.random.split(jax.random.fold_in(key, place))
            batch = jax.tree.map(lambda column: self._slice(column, place), rows)
            real = jax.vmap(self.scene.real)(batch, jax.random.split(one, self.settings.batch))
            made = self._slice(shown["made"], place)
            found = jax.grad(lambda weights: self._loss(weights, real, made, two))(weights)
            change, moments = self._critic_optimiser().update(found, moments, weights)
            return optax.apply_updates(weights, change), moments

        return jax.lax.fori_loop(0, self.settings.local_steps, step, state)

    def _slice(self, column: Array, place: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(column, place * self.settings.batch, self.settings.batch)

    def _loss(self, weights: Weights, real: Array, made: Array, key: Array) -> Array:
        score = jax.vmap(lambda row: self.shape.score(weights, row))
        worth = jax.vmap(self._worth)(real)
        lost = jnp.mean(worth * real_part("log", score(real))) + jnp.mean(made_part("log", score(made)))
        return lost + steepness(self.shape, weights, made, key)

    def _worth(self, row: Float[Array, " number"]) -> Float[Array, ""]:
        """What a real row counts for: rare labels more, by their bought shares, since made rows have all evenly."""
        if not self._classes:
            return jnp.ones((), row.dtype)
        shares = jax.nn.softmax(self.skeleton.label_logits)
        return jnp.sum(self.skeleton.label_of(row) / jnp.maximum(self._classes * shares, 0.05))

    def answer(self, state: Any, shown: dict[str, Array]) -> Float[Array, " entry"]:
        """What a critic says of the made rows of this round."""
        weights, rows = state[0], shown["asked"]
        if self.answers == "votes":
            return jnp.where(jax.vmap(lambda row: self.shape.score(weights, row))(rows) > 0, 0.5, -0.5)
        slopes = jax.vmap(jax.grad(lambda row: -self.shape.score(weights, row)))(rows)
        if self.scene.label is not None:  # a label is given, so that no slope along it can move it
            slopes = slopes.at[:, slice(*self.scene.label)].set(0.0)
        return (slopes / jnp.maximum(jnp.linalg.norm(slopes, axis=1, keepdims=True), 1e-12)).reshape(-1)

    def update(self, total: Float[Array, " entry"], public: dict[str, Any], parts: int) -> dict[str, Any]:
        """The generator after a noisy sum of answers."""
        mean = total / parts
        if self.answers == "votes":
            public = self._studied(mean, public)
            step = lambda place, public: self._moved(public, self._told(public, place))
            public = jax.lax.fori_loop(0, self.settings.maker_steps, step, public)
        else:
            public = self._moved(public, self._pushed(mean.reshape(self.settings.made, -1), public))
        past = jnp.minimum(0.9, (1 + public["step"]) / (10 + public["step"])).astype(jnp.float32)
        average = jax.tree.map(lambda mean, new: past * mean + (1 - past) * new, public["average"], public["makers"])
        kept = self.times.kept(public["kept"], average, public["step"] + 1)
        return {**public, "average": average, "kept": kept, "step": public["step"] + 1}

    def _pushed(self, slopes: Float[Array, "row number"], public: dict[str, Any]) -> Any:
        """What pushes the rows that were asked about along noisy slopes, as a loss of the generator."""

        def loss(makers: Any) -> Array:
            rows, costs = self._asked(makers, public)
            fresh = self.made(makers, jax.random.fold_in(public["key"], -1 - public["step"]), _FRESH)[0]
            return jnp.sum(slopes * rows) / self.settings.made + costs + self._drift(fresh)

        return loss

    def _told(self, public: dict[str, Any], place: Array) -> Any:
        """What the student says of fresh made rows, as a loss of the generator."""
        key = jax.random.fold_in(jax.random.fold_in(public["key"], public["step"]), 1 + place)

        def loss(makers: Any) -> Array:
            rows, costs = self.made(makers, key, _FRESH)
            return -jnp.mean(jax.vmap(public["student"].score)(rows)) + costs + self._drift(rows)

        return loss

    def _drift(self, rows: Float[Array, "row number"]) -> Float[Array, ""]:
        """How far single columns have gone from where they started: they were bought and are right."""
        return self.settings.anchor * jnp.sum((self._means(rows) - self.anchor) ** 2)

    def _moved(self, public: dict[str, Any], loss: Any) -> dict[str, Any]:
        makers = public["makers"]
        change, moments = self._maker_optimiser().update(jax.grad(loss)(makers), public["moments"], makers)
        return {**public, "makers": optax.apply_updates(makers, change), "moments": moments}

    def _studied(self, mean: Float[Array, " row"], public: dict[str, Any]) -> dict[str, Any]:
        rows = self._asked(public["makers"], public)[0]
        return {**public, "student": public["student"].studied(rows, mean, self.noise)}


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
