"""Teachers on disjoint parts: what a unit can move, that no part sees another's rows, and what is charged."""

from dataclasses import replace
from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.errors import ArgumentError
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness, Relation
from sfumato.privacy.accounting import headline
from sfumato.privacy.clipping import GRID
from sfumato.privacy.events import GaussianSum
from sfumato.privacy.step import PrivateRows
from sfumato.privacy.teachers import Dealt, TeacherPlan, Teaching, deal, first_rows, step_total, warmed

stepped = eqx.filter_jit(step_total)
"""A step as one program, as fits run it."""

PARTS = 7
PLAN = TeacherPlan(parts=PARTS, steps=3, batch=4, num_entries=3, bound=0.5)


def learn(state, public, rows, key):
    """A state that remembers all of its rows that it ever met."""
    return 0.9 * state + jnp.sum(rows["x"]) * (1 + jax.random.uniform(key, (3,), jnp.float32))


TEACHING = Teaching(
    learn=learn,
    answer=lambda state, public: state + public,
    update=lambda total, public: (public + 0.1 * total).astype(public.dtype),
)


def rows_of(values):
    return PrivateRows.of({"x": np.asarray(values, np.float32)})


def key_of(seed=3):
    return Randomness.from_seed(seed).key


def totals(values, parts, teaching=TEACHING, steps=4):
    """The exact sums of some steps with frozen answers: what is public is the same whatever the rows say."""
    rows, room = rows_of(values), rows_of(values).real.shape[0]
    states, public, found = jnp.zeros((PARTS, 3), jnp.float32), jnp.zeros(3, jnp.float32), []
    with jax.enable_x64(True):
        dealt = Dealt.of(parts, PARTS, room)
        for step in range(steps):
            key = jax.random.fold_in(jax.random.key(1), step)
            states, total = stepped(teaching, PLAN, states, public, rows, dealt, key)
            found.append(np.asarray(total, np.float64))
            public = public + 0.1
    return np.array(found), np.asarray(states)


def neighbours(seed, num=60):
    random = np.random.default_rng(seed)
    values = random.normal(0, 10, num)
    parts = deal(np.arange(num + 1), key_of(), 1, PARTS)
    extra = random.choice([1e9, np.nan, -3.0, np.inf])
    return (values, parts[:num]), (np.append(values, extra), parts)


@pytest.mark.parametrize("seed", range(6))
def test_one_row_moves_a_sum_by_two_bounds_at_most_and_no_other_part(seed):
    (values, parts), (more, dealt) = neighbours(seed)
    (before, states), (after, new_states) = totals(values, parts), totals(more, dealt)
    assert np.linalg.norm(after - before, axis=1).max() <= 2 * GRID
    others = np.arange(PARTS) != dealt[-1]
    assert np.array_equal(states[others], new_states[others]), "a row more in one part changes no draw in another"


def test_the_bound_is_two_and_not_one():
    """A part that turns round moves the sum by both of its answers: noise for one bound would be too small."""
    values, parts = np.full(20, 5.0), np.arange(20) % PARTS
    turned = values.copy()
    turned[parts == 0] = -5.0
    before, after = totals(values, parts, steps=1)[0], totals(turned, parts, steps=1)[0]
    distance = np.linalg.norm(after - before)
    assert 1.9 * GRID < distance <= 2 * GRID


def test_a_mutant_whose_parts_share_rows_is_told_apart():
    """A draw that runs over the end of its part: rows of the next part are seen, and its neighbour's state moves."""

    class Leaky(Dealt):
        def drawn(self, part, key, batch):
            return self.order[(self.starts[part] + jnp.arange(batch) * 5) % 60]

    random = np.random.default_rng(0)
    values = random.normal(0, 10, 60)
    parts = np.sort(np.arange(60) % PARTS)
    changed = values.copy()
    changed[parts == 3] = 100.0
    states = []
    for given in (values, changed):
        with jax.enable_x64(True):
            dealt = Dealt.of(parts, PARTS, 128)
            leaky = Leaky(dealt.order, dealt.starts, dealt.counts)
            start = (jnp.zeros((PARTS, 3), jnp.float32), jnp.zeros(3, jnp.float32))
            states.append([
                np.asarray(stepped(TEACHING, PLAN, *start, rows_of(given), one, jax.random.key(1))[0])
                for one in (dealt, leaky)
            ])  # fmt: skip
    others = np.arange(PARTS) != 3
    assert np.array_equal(states[0][0][others], states[1][0][others])
    assert not np.array_equal(states[0][1][others], states[1][1][others])


def warm_states(values, parts, warm_steps=5):
    plan, rows = replace(PLAN, warm_steps=warm_steps), rows_of(values)
    key_of = lambda step: jax.random.fold_in(jax.random.key(1), step)
    with jax.enable_x64(True):
        dealt, states = Dealt.of(parts, PARTS, rows.real.shape[0]), jnp.zeros((PARTS, 3), jnp.float32)
        return np.asarray(warmed(TEACHING, plan, states, jnp.zeros(3, jnp.float32), rows, dealt, key_of))


@pytest.mark.parametrize("seed", range(3))
def test_before_the_first_answer_a_row_moves_its_own_part_alone(seed):
    (values, parts), (more, dealt) = neighbours(seed)
    before, after = warm_states(values, parts), warm_states(more, dealt)
    others = np.arange(PARTS) != dealt[-1]
    assert np.array_equal(before[others], after[others]) and np.any(before)
    assert not np.array_equal(before[~others], after[~others])
    assert not np.any(warm_states(values, parts, warm_steps=0))


def test_learning_before_the_first_answer_costs_nothing_and_is_done_once():
    """The answer is how often a part has learnt: after five steps before the first it says six, seven, eight."""
    count = Teaching(
        learn=lambda state, public, rows, key: state + 1,
        answer=lambda state, public: 0.01 * state,
        update=lambda total, public: (public[0] + total, public[1] + 1),
    )
    found, events = [], []
    for warm_steps in (0, 5):
        ledger = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())
        plan = TeacherPlan(parts=2, steps=3, batch=1, num_entries=1, bound=1.0, warm_steps=warm_steps)
        start = (jnp.zeros(1, jnp.float32), jnp.zeros((), jnp.int32))
        given = {"plan": plan, "purpose": "counts"}
        told = curator_of(ledger).noisy_teachers(count, jnp.zeros((2, 1), jnp.float32), start, **given)
        found.append(float(told[0][0]))
        events.append(ledger.events)
        assert int(told[1]) == 3
    assert events[0] == events[1], "what does not leave is not charged"
    # The noise is the same in both runs: 2 parts * 0.01 * ((6 + 7 + 8) - (1 + 2 + 3)), but for the grid.
    assert found[1] - found[0] == pytest.approx(0.3, abs=1e-3)


def test_all_parts_are_shown_the_same_and_never_by_a_key_of_a_part():
    """What is shown comes from a key of its own: what parts draw does not depend on how it is used."""
    seen = Teaching(
        show=lambda public, key: jax.random.uniform(key, (3,), jnp.float32),
        learn=lambda state, shown, rows, key: jnp.stack([shown[0], jax.random.uniform(key, (), jnp.float32), shown[2]]),
        answer=lambda state, shown: state,
        update=TEACHING.update,
    )
    _, states = totals(np.ones(60), np.arange(60) % PARTS, teaching=seen, steps=1)
    assert len(np.unique(states[:, 0])) == 1 and len(np.unique(states[:, 1])) == PARTS
    assert states[0, 0] not in states[:, 1]


def test_units_go_to_one_part_and_keep_it():
    units = np.array([5, 9, 5, 2, 9, 5])
    parts = deal(first_rows(units, 6), key_of(), 4, 1_000)
    assert parts[0] == parts[2] == parts[5] and parts[1] == parts[4]
    more = deal(first_rows(np.append(units, 77), 7), key_of(), 4, 1_000)
    assert np.array_equal(more[:6], parts), "a unit more moves no other"
    spread = deal(np.arange(20_000), key_of(), 4, 10)
    # Each count has a deviation of 42; five of them are passed once in a million draws of ten.
    assert np.abs(np.bincount(spread, minlength=10) - 2_000).max() < 5 * 42.5


def test_a_part_without_rows_does_not_learn():
    values, parts = np.ones(5), np.zeros(5, int)
    _, states = totals(values, parts)
    assert np.all(states[0] != 0) and not states[1:].any()
    _, none = totals(np.zeros(0), np.zeros(0, int))
    assert not none.any()


def curator_of(ledger, rows=40, seed=2):
    values = np.linspace(-1, 1, rows, dtype=np.float32)
    return Curator({"x": values}, ledger=ledger, randomness=Randomness.from_seed(seed))


def asked(curator, plan=PLAN, teaching=TEACHING):
    states, public = jnp.zeros((plan.parts, 3), jnp.float32), jnp.zeros(3, jnp.float32)
    return curator.noisy_teachers(teaching, states, public, plan=plan, purpose="answers")


def test_all_steps_are_one_charge_before_the_first():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())
    curator = curator_of(ledger)
    asked(curator)
    assert len(ledger.events) == 1 and isinstance(ledger.events[0], GaussianSum)
    assert ledger.events[0] == Ledger(ledger.budget, Adjacency()).calibrate(_sum), "with all that there was"
    asked(curator)
    assert ledger.events[1].noise_multiplier > 20 * ledger.events[0].noise_multiplier, "only crumbs are left"
    assert headline(ledger.events, Adjacency(), 1e-6).epsilon <= 1.0


def _sum(multiplier):
    return GaussianSum(noise_multiplier=multiplier)


def test_the_noise_is_that_of_two_bounds_and_all_steps():
    """Answers are zero, so what comes out is noise. Its deviation is known to 3 %: five times that is allowed."""
    plan = TeacherPlan(parts=2, steps=100, batch=1, num_entries=6, bound=0.5)
    silent = Teaching(
        learn=lambda state, public, rows, key: state,
        answer=lambda state, public: jnp.zeros(6, jnp.float32),
        update=lambda total, public: (public[0] + jnp.sum(total**2), public[1] + 1),
    )
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())
    start = (jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32))
    squares, steps = curator_of(ledger).noisy_teachers(
        silent, jnp.zeros((2, 1), jnp.float32), start, plan=plan, purpose="noise"
    )
    expected = ledger.events[0].noise_multiplier * sqrt(100) * 2 * 0.5
    assert int(steps) == 100
    assert sqrt(float(squares) / 600) == pytest.approx(expected, rel=0.15)


def test_units_must_be_told_and_replacement_is_refused():
    persons = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency(unit="who", max_rows=3))
    with pytest.raises(ArgumentError, match="units must be told"):
        asked(curator_of(persons))
    told = curator_of(Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency(unit="who", max_rows=3)), seed=4)
    asked(told.holding({"x": np.zeros(6, np.float32)}, units=np.array([1, 1, 2, 2, 3, 3])))
    replaced = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency(relation=Relation.REPLACE_ONE))
    with pytest.raises(ArgumentError, match="two of them"):
        asked(curator_of(replaced, seed=5))


@pytest.mark.parametrize("shape", [(3, 1), (1,), (2,), (1, 3)])
def test_an_answer_of_another_shape_is_refused(shape):
    """Noise would be spread over it: several copies of one sum, or one noise on several."""
    wrong = Teaching(learn=learn, answer=lambda state, public: jnp.zeros(shape, jnp.float32), update=TEACHING.update)
    with pytest.raises(ArgumentError, match="3 entries"):
        asked(curator_of(Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())), teaching=wrong)
