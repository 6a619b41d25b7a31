"""Adversarial: a generator that is taught by a critic, of which only the critic meets private rows.

The critic's loss has a part on real rows and a part on made rows. The first goes through the door, row by row, clipped
and noised: ``curator.noisy_descent``, so that every critic step is charged before the first one. Everything else is
post-processing and happens inside the door's ``update``: the part on made rows, the penalty, the optimiser, bounds on
weights, and every few critic steps a step of the generator, which sees the critic and no row. The whole game is
one compiled loop.

No layer here can mix rows on the real side: critics are functions of one row.
Reference: Goodfellow et al. 2014; Arjovsky, Chintala, Bottou 2017; Xie et al. 2018 (the private critic); Boob et al.
2018, Algorithm 3.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from sfumato.checks import between, positive, whole
from sfumato.errors import ArgumentError
from sfumato.fitting.checkpoints import Checkpoints
from sfumato.fitting.critic_loss import Kind, Scene, real_part
from sfumato.fitting.critics import CriticRule, steepness
from sfumato.fitting.pretraining import public_batch
from sfumato.models.generators.conditional import ConditionalGenerator
from sfumato.models.generators.generator import Generator
from sfumato.privacy import Curator, SgdPlan

Maker: TypeAlias = Generator | ConditionalGenerator
Made = TypeVar("Made", bound=Generator | ConditionalGenerator)


@dataclass(frozen=True, kw_only=True)
class Game:
    """The rules of the game between generator and critic.

    ``loss`` is that of a Wasserstein critic or of a classifier ("log"). The generator takes a step after every
    ``critic_steps`` of the critic, each on ``made`` made rows, both by Adam at ``learning_rate`` and ``critic_rate``,
    which fall to a twentieth; the model that is released is an average over the generator's iterates, with the weight
    ``averaging`` for the past. ``penalty`` keeps slopes of the critic
    between made rows near one at most; ``weight_bound`` cuts its weights, as the first Wasserstein critics did.
    ``warm_steps`` is for how many steps the game is played on public rows first, where there are any.
    """

    loss: Kind = "log"
    critic_steps: int = 1
    made: int = 256
    learning_rate: float = 3e-4
    critic_rate: float = 3e-3
    averaging: float = 0.99
    penalty: float = 1.0
    weight_bound: float | None = None
    warm_steps: int = 500

    def __post_init__(self) -> None:
        if self.loss not in ("wasserstein", "log"):
            raise ArgumentError(f"Expected loss={self.loss!r} to be 'wasserstein' or 'log'.")
        whole(1, critic_steps=self.critic_steps, warm_steps=self.warm_steps)
        whole(2, made=self.made)
        positive(learning_rate=self.learning_rate, critic_rate=self.critic_rate)
        between(0, 1, averaging=self.averaging)
        between(0, 1e6, penalty=self.penalty)
        if self.weight_bound is not None:
            positive(weight_bound=self.weight_bound)


def play_game(
    curator: Curator,
    generator: Made,
    critic: CriticRule,
    *,
    plan: SgdPlan,
    game: Game,
    key: Array,
    checkpoints: int = 1,
) -> list[Made]:
    """Generators along the game, each an average over iterates up to it; the last is that of the whole game.

    Cost: the plan's event, with whatever noise the rest of the budget asks for.
    """
    table = _Table(critic, generator, game, plan.steps, max(1, checkpoints))
    first, second, third = jax.random.split(key, 3)
    params, makers = critic.start(critic.shape.start(first)), eqx.filter(layers_of(generator), eqx.is_array)
    if curator.public_rows is not None:
        params, makers = _warmed(table, params, makers, curator.public_rows, second)
    given: dict[str, Any] = {"plan": plan, "update": _Update(table), "purpose": "gradients of a critic"}
    state = eqx.filter_jit(_Table.start)(table, params, makers, third)
    _, state = curator.noisy_descent(critic.loss(), params, state, **given)
    return [table.generator(makers) for makers in table.times.each(state["kept"])]


def public_look(curator: Curator, scene: Scene, generator: Maker, num: int, key: Array) -> Float[Array, "row number"]:
    """So many rows that cost nothing, as a critic sees them: of a public table, else of the generator."""
    first, second = jax.random.split(key)
    keys = jax.random.split(first, num)
    if curator.public_rows is None:
        return jax.vmap(lambda one: scene.made(generator, one)[0])(keys)
    return jax.vmap(scene.real)(public_batch(curator.public_rows, second, num), keys)


def layers_of(generator: Maker) -> Any:
    """What a game moves of a generator: its layers. Shares and marginals were bought and stay."""
    return generator.inner.layers if isinstance(generator, ConditionalGenerator) else generator.layers


class _Table(eqx.Module):
    """The rules at work: what happens after each answer of the door."""

    critic: CriticRule
    skeleton: Maker
    game: Game = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    checkpoints: int = eqx.field(static=True)

    @property
    def rounds(self) -> int:
        return max(1, self.steps // self.game.critic_steps)

    @property
    def times(self) -> Checkpoints:
        return Checkpoints(num=self.checkpoints, turns=self.rounds)

    def generator(self, makers: Any) -> Any:
        return eqx.tree_at(layers_of, self.skeleton, eqx.combine(makers, layers_of(self.skeleton)))

    def critic_optimiser(self) -> optax.GradientTransformation:
        return _adam(self.game.critic_rate, self.steps)

    def maker_optimiser(self) -> optax.GradientTransformation:
        return _adam(self.game.learning_rate, self.rounds)

    def start(self, params: Any, makers: Any, key: Array) -> dict[str, Any]:
        """What the door carries along from step to step."""
        return {
            "makers": makers,
            "average": makers,
            "kept": self.times.start(makers),
            "moments": self.critic_optimiser().init(self.critic.weights(params)),
            "maker_moments": self.maker_optimiser().init(makers),
            "key": key,
            "step": jnp.zeros((), jnp.int32),
        }

    def made_rows(self, makers: Any, key: Array) -> tuple[Array, Array]:
        """Made rows, and the mean of what they cost their maker beside the critic's word."""
        generator = self.generator(makers)
        make = lambda one: self.critic.scene.made(generator, one)
        rows, costs = jax.vmap(make)(jax.random.split(key, self.game.made))
        return rows, jnp.mean(costs)

    def update(self, gradient: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
        """A step of the critic from the noisy gradient on real rows, and a step of the generator when it is due."""
        return self.turn(self.critic.real_mean(gradient, params), state, params, gradient)

    def turn(self, real: Any, state: dict[str, Any], params: Any, gradient: Any) -> tuple[Any, dict[str, Any]]:
        """The same from the mean gradient on real rows; ``gradient`` is what the door gave, if it was one."""
        keys = jax.random.split(jax.random.fold_in(state["key"], state["step"]), 3)
        weights = self.critic.weights(params)
        rows = jax.lax.stop_gradient(self.made_rows(state["makers"], keys[0])[0])
        total = _added(real, self.critic.row_mean(params, rows, real=False))
        if self.game.penalty:
            steep = lambda weights: self.game.penalty * steepness(self.critic.shape, weights, rows, keys[1])
            total = _added(total, jax.grad(steep)(weights))
        change, moments = self.critic_optimiser().update(total, state["moments"], weights)
        weights = self._bounded(optax.apply_updates(weights, change))
        params = self.critic.moved(params, weights, gradient, rows)
        state = self._maker_turn({**state, "moments": moments}, weights, keys[2])
        return params, {**state, "step": state["step"] + 1}

    def _bounded(self, weights: Any) -> Any:
        bound = self.game.weight_bound
        return weights if bound is None else jax.tree.map(lambda part: jnp.clip(part, -bound, bound), weights)

    def _maker_turn(self, state: dict[str, Any], weights: Any, key: Array) -> dict[str, Any]:
        due = (state["step"] + 1) % self.game.critic_steps == 0
        moved = lambda state: _same_types(self._maker_step(state, weights, key), state)
        return jax.lax.cond(due, moved, lambda state: state, state)

    def _maker_step(self, state: dict[str, Any], weights: Any, key: Array) -> dict[str, Any]:
        def loss(makers: Any) -> Array:
            rows, costs = self.made_rows(makers, key)
            scores = jax.vmap(lambda row: self.critic.shape.score(weights, row))(rows)
            return jnp.mean(jax.vmap(lambda score: real_part(self.game.loss, score))(scores)) + costs

        found = jax.grad(loss)(state["makers"])
        change, moments = self.maker_optimiser().update(found, state["maker_moments"], state["makers"])
        makers = optax.apply_updates(state["makers"], change)
        turn = (state["step"] + 1) // self.game.critic_steps
        past = jnp.minimum(self.game.averaging, turn / (9 + turn))  # the start must not linger
        average = jax.tree.map(lambda mean, new: past * mean + (1 - past) * new, state["average"], makers)
        kept = self.times.kept(state["kept"], average, turn)
        return {**state, "makers": makers, "average": average, "kept": kept, "maker_moments": moments}


def _adam(rate: float, steps: int) -> optax.GradientTransformation:
    """Adam with little memory of past directions, which turn round in a game (Radford, Metz, Chintala 2016)."""
    return optax.adam(optax.linear_schedule(rate, rate / 20, steps), b1=0.5)


class _Update(eqx.Module):
    """What follows an answer of the door: a module, so that its arrays are no constants of the compiled game."""

    table: _Table

    def __call__(self, gradient: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
        return _updated(self.table, gradient, state, params)


@eqx.filter_jit
def _updated(table: _Table, gradient: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
    """As ``_Table.update``; compiled once for all games of a kind where it is called by itself."""
    return table.update(gradient, state, params)


def _warmed(table: _Table, params: Any, makers: Any, rows: Any, key: Array) -> tuple[Any, Any]:
    """Critic and generator after the same game on public rows, with nothing clipped beyond the rule and no noise."""
    critic, steps = table.critic, table.game.warm_steps
    warm = _Table(critic, table.skeleton, table.game, steps, 1)

    @eqx.filter_jit
    def run(params: Any, makers: Any, rows: Any) -> Any:
        def step(place: Array, carry: Any) -> Any:
            params, state = carry
            draw, inside = jax.random.split(jax.random.fold_in(key, place))
            batch = public_batch(rows, draw, table.game.made)
            real = jax.vmap(critic.scene.real)(batch, jax.random.split(inside, table.game.made))
            return warm.turn(critic.row_mean(params, real, real=True), state, params, None)

        start = (params, warm.start(params, makers, jax.random.fold_in(key, steps)))
        return jax.lax.fori_loop(0, steps, step, start)

    params, state = run(params, makers, rows)
    return params, state["average"]


def _added(one: Any, other: Any) -> Any:
    return jax.tree.map(lambda left, right: left + right.astype(left.dtype), one, other)


def _same_types(new: Any, old: Any) -> Any:
    """The same numbers in the types that a compiled loop began with."""
    as_before = lambda now, before: (
        now if jnp.issubdtype(before.dtype, jax.dtypes.prng_key) else now.astype(before.dtype)
    )
    return jax.tree.map(as_before, new, old)
