"""Teachers: models on disjoint parts of the rows, trained without noise, of which only noisy sums of answers leave.

Every unit goes to one of m parts, drawn by itself and in secret. Each part has a state, which learns from rows of its
own part, from what is public, and from nothing else. In each of T steps all parts learn and answer with a vector, which
is clipped to a norm of B; the sum over parts plus Gaussian noise of deviation s = sigma * 2 B leaves, on the grid of
whole numbers, and what is public moves on. States never leave. Parts may learn for some steps before the first
answer (``warm_steps``); since nothing leaves in these, they cost nothing.

Privacy. Take tables that differ in one unit. Fix the parts that all other units were dealt to: the dealing is
independent by unit, so it is the same in law for both tables, and the unit in question is in one part, j. Given what
came out so far, all that a part but j does is the same for both tables, before the first answer and after it: its
rows, its random draws (they come from keys of its own place), what is public, and what all parts are shown (a function
of what is public and of a key of the step). So the sums of a step differ in the clipped vectors of part j alone: two
vectors of norm B at most, which lie 2 B apart at most, not B, since the part answers in both tables. A step is a
Gaussian sum of multiplier sigma. T of them, each chosen after the answers before it, are exactly one Gaussian sum of
multiplier sigma / sqrt(T) (Dong, Roth, Su 2022, corollary 2). That is what is charged, before the first step. Mixing
over the secret dealing cannot raise it (quasi-convexity). Rows of a unit lie in one part together, so that its
number of rows does not matter.

The proof needs all parts but one to be equal bit for bit, since training would turn a last digit into another answer.
It rests on ``learn`` and ``answer`` being functions of what they are given; the only shape that differs between
neighbours is the padded number of rows, which is read by place alone.

Parts are not padded: a part's rows are those from its start in the order of parts, and a draw of them uses its own
number of rows alone, so a row more in one part changes no draw in another. A part without rows does not learn.

Reference: Papernot et al. 2018 (noisy sums of teachers' votes); Jordon, Yoon, van der Schaar 2019 (PATE-GAN); Chen,
Orekondy, Fritz 2020 (GS-WGAN), which samples one part a step; here all answer, at the noise that this takes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int64

from sfumato.checks import between, whole
from sfumato.errors import ArgumentError
from sfumato.privacy.chacha import compiled_keystream, keystream
from sfumato.privacy.clipping import GRID, MOST_ROWS_AT_ONCE, FlatClip
from sfumato.privacy.noise import gaussian_integers
from sfumato.privacy.randomness import Stream, nonce
from sfumato.privacy.step import PrivateRows

SENSITIVITY = 2
"""By how many bounds one unit moves a step's sum: the answer of its part is there with it and without it."""


@dataclass(frozen=True, kw_only=True)
class TeacherPlan:
    """How many parts, steps and rows of a part a step, how long an answer is, and the bound of its norm.

    In ``warm_steps`` before the first step parts learn and do not answer.

    >>> TeacherPlan(parts=10, steps=100, batch=32, num_entries=5, bound=1.0).clip.bound
    1.0
    """

    parts: int
    steps: int
    batch: int
    num_entries: int
    bound: float
    warm_steps: int = 0

    def __post_init__(self) -> None:
        whole(0, warm_steps=self.warm_steps)
        whole(1, parts=self.parts, steps=self.steps, batch=self.batch, num_entries=self.num_entries)
        between(1, MOST_ROWS_AT_ONCE, parts=self.parts)
        between(1, 10**7, steps=self.steps + self.warm_steps)
        between(1e-6, 1e6, bound=self.bound)

    @property
    def clip(self) -> FlatClip:
        """What bounds the answer of a part."""
        return FlatClip(bound=self.bound)


class Teaching(eqx.Module):
    """The functions of one part, and of what is public.

    ``show(public, key)`` is what all parts are shown in a step. ``learn(state, shown, rows, key)`` gives the state of a
    part after a batch of its own rows, ``answer(state, shown)`` its vector. ``update(total, public)`` is
    post-processing of the noisy sum. Arrays that they hold, as methods of Equinox modules do, are arguments of what is
    compiled and no constants.
    """

    learn: Callable[[Any, Any, Any, Array], Any]
    answer: Callable[[Any, Any], Array]
    update: Callable[[Array, Any], Any]
    show: Callable[[Any, Array], Any] = lambda public, key: public


class Dealt(eqx.Module):
    """The rows in the order of their parts: the places of real rows, and where each part begins and how many it has."""

    order: Int[Array, " row"]
    starts: Int[Array, " part"]
    counts: Int[Array, " part"]

    @classmethod
    def of(cls, parts: Int[np.ndarray, " row"], num_parts: int, room: int) -> "Dealt":
        """Rows dealt to these parts, in their own order inside of each; ``room`` is how many a program is made for."""
        counts = np.bincount(parts, minlength=num_parts)
        order = np.pad(np.argsort(parts, kind="stable"), (0, room - len(parts)))
        starts = np.cumsum(counts) - counts
        return cls(*(jnp.asarray(found, jnp.int32) for found in (order, starts, counts)))

    def drawn(self, part: Array, key: Array, batch: int) -> Int[Array, " batch"]:
        """Places of rows of one part, drawn evenly with replacement; of any part at all where it has none."""
        count = jnp.maximum(self.counts[part], 1).astype(jnp.uint32)
        inside = (jax.random.bits(key, (batch,), jnp.uint32) % count).astype(jnp.int32)
        return self.order[jnp.minimum(self.starts[part] + inside, self.order.size - 1)]


def first_rows(units: Int[np.ndarray, " row"] | None, num_rows: int) -> Int[np.ndarray, " row"]:
    """For each row the first row of its unit; without units every row is one of its own.

    >>> first_rows(np.array([7, 3, 7, 3]), 4).tolist()
    [0, 1, 0, 1]
    """
    if units is None:
        return np.arange(num_rows)
    _, first, place = np.unique(units, return_index=True, return_inverse=True)
    return np.asarray(first[place])


def deal(first_rows: Int[np.ndarray, " row"], key: Array, call: int, num_parts: int) -> Int[np.ndarray, " row"]:
    """The part of each row, by a secret word of its unit's first row; ``first_rows`` says which row that is.

    Each word is that of a place in the key stream, so that a unit more moves no other to another part. The remainder
    of 32 bits is uneven by num_parts / 2**32 at most, which privacy does not rest on: the law is the same for all.
    """
    room = 1 << max(6, (len(first_rows) - 1).bit_length())  # few programs are compiled; other words are not used
    words = np.asarray(compiled_keystream(key, nonce(call, 0, Stream.SAMPLING), room))
    return (words[first_rows] % np.uint32(num_parts)).astype(np.int64)


def _learnt(
    teaching: Teaching, plan: TeacherPlan, states: Any, public: Any, rows: PrivateRows, dealt: Dealt, key: Array
) -> tuple[Any, Any]:
    """The states after a step, each from rows of its own part, and what all parts were shown."""
    shown = teaching.show(public, jax.random.fold_in(key, plan.parts))  # no part has this place

    def one(state: Any, part: Array) -> Any:
        draw, inside = jax.random.split(jax.random.fold_in(key, part))
        index = dealt.drawn(part, draw, plan.batch)
        batch = jax.tree.map(lambda column: column[index], rows.columns)
        learnt = teaching.learn(state, shown, batch, inside)
        some = dealt.counts[part] > 0
        return jax.tree.map(lambda new, old: jnp.where(some, new, old).astype(old.dtype), learnt, state)

    return jax.vmap(one)(states, jnp.arange(plan.parts)), shown


def warmed(
    teaching: Teaching, plan: TeacherPlan, states: Any, public: Any, rows: PrivateRows, dealt: Dealt, key_of: Any
) -> Any:
    """The states after the steps before the first answer; ``key_of`` gives the key of a step by its number."""
    learn = lambda step, states: _learnt(teaching, plan, states, public, rows, dealt, key_of(step))[0]
    return jax.lax.fori_loop(plan.steps, plan.steps + plan.warm_steps, learn, states)


def answers(
    teaching: Teaching, plan: TeacherPlan, states: Any, public: Any, rows: PrivateRows, dealt: Dealt, key: Array
) -> tuple[Any, Float[Array, "part entry"]]:
    """The states after a step, and the answer of each part, before it is clipped."""
    states, shown = _learnt(teaching, plan, states, public, rows, dealt, key)
    vectors = jax.vmap(lambda state: teaching.answer(state, shown))(states)
    if vectors.shape != (plan.parts, plan.num_entries):  # another shape would meet the noise in another one
        raise ArgumentError(f"Expected an answer of {plan.num_entries} entries a part.")
    return states, vectors


def step_total(
    teaching: Teaching, plan: TeacherPlan, states: Any, public: Any, rows: PrivateRows, dealt: Dealt, key: Array
) -> tuple[Any, Int64[Array, " entry"]]:
    """The states after a step, and the exact sum of the clipped answers in grid units, before any noise."""
    states, vectors = answers(teaching, plan, states, public, rows, dealt, key)
    total = plan.clip.grid_sum([vectors], jnp.ones(plan.parts, bool))[0]
    return states, total.astype(jnp.int64)


def compiled_teachers(fixed: Teaching, plan: TeacherPlan) -> Callable[..., Any]:
    """A function (carry, held, rows, key, call, start, stop) -> carry of steps: learn, answer, noise, update.

    ``held`` are the arrays of the teaching, of which ``fixed`` is the rest, the dealt rows and the deviation of the
    noise in grid units. They, the rows and the number of the call are arguments of the compiled function and never
    constants in it, so that the next fit of the same kind finds it in a compilation cache. Steps without an answer come
    before the first, with numbers after the last.
    """

    @jax.jit
    def run(carry: Any, held: Any, rows: PrivateRows, key: Array, call: Array, start: Array, stop: Array) -> Any:
        arrays, dealt, deviation = held
        teaching = eqx.combine(arrays, fixed)
        key_of = lambda step: jax.random.wrap_key_data(keystream(key, nonce(call, step, Stream.ROWS), 2))

        def one(step: Array, carry: Any) -> Any:
            states, public = carry
            states, total = step_total(teaching, plan, states, public, rows, dealt, key_of(step))
            noise = gaussian_integers(key, nonce(call, step, Stream.NOISE), plan.num_entries, deviation)
            noisy = ((total + noise) * (plan.bound / GRID)).astype(jnp.float32)
            return states, teaching.update(noisy, public)

        if plan.warm_steps:
            warm = lambda states: warmed(teaching, plan, states, carry[1], rows, dealt, key_of)
            carry = (jax.lax.cond(start == 0, warm, lambda states: states, carry[0]), carry[1])
        return jax.lax.fori_loop(start, stop, one, carry)

    return run
