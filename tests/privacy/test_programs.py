"""Sums that are asked in rounds are compiled once a fit; no two functions share a program, and no two fits either."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privacy.doors import curator_of, linear_loss, plan_of
from sfumato.errors import ArgumentError
from sfumato.fitting.mixture_em import EmSettings, fit_mixture
from sfumato.fitting.scaling import ScalingShare, buy_scaling
from sfumato.models.flows.bijection import Affine
from sfumato.privacy import Adjacency, Budget, Curator, FlatClip, Ledger, Randomness, SumQuery
from sfumato.privacy.clipping import GRID
from sfumato.privacy.counting import exact_sum
from sfumato.privacy.programs import Programs, fixed_part
from sfumato.privacy.teachers import TeacherPlan, Teaching


class Weighted(eqx.Module):
    """A function of a row with an array, and with what is fixed: as a leaf, and in the structure."""

    weight: jax.Array
    offset: object = 0.0
    power: object = eqx.field(static=True, default=1)

    def __call__(self, row):
        return self.weight * row["x"] ** self.power + self.offset


def query_of(function, bound=100.0, entries=2):
    return SumQuery(function=function, num_entries=entries, clip=FlatClip(bound=bound), purpose="a sum")


def exact(curator, function, **given):
    """The sum before its noise, by the programs of the curator."""
    query = query_of(function, **given)
    with jax.enable_x64(True):
        return np.asarray(exact_sum(curator._counted, query, curator._programs)) * query.clip.bound / GRID


def compiled(curator):
    """How many programs of sums a curator and its views have compiled."""
    return sum(program._cache_size() for program in curator._programs._found.values())


def test_the_next_round_compiles_no_sum():
    curator = curator_of(np.ones((10, 2)))
    assert compiled(curator) == 0
    for by in (1.0, 3.0):
        function = Weighted(jnp.full(2, by, jnp.float32))
        curator.noisy_sum(query_of(function), share=0.1)
        assert compiled(curator) == 1
        np.testing.assert_allclose(exact(curator, function), [10 * by] * 2, rtol=1e-4)


@pytest.mark.parametrize("kind", ["through", "holding"])
def test_views_share_what_was_compiled(kind):
    curator = curator_of(np.ones((10, 2)))
    views = {
        "through": lambda: curator.through(lambda row: {"x": 2 * row["x"]}),
        "holding": lambda: curator.holding({"x": np.ones((20, 2), np.float32)}),
    }
    exact(curator, Weighted(jnp.ones(2)))
    seen = exact(views[kind](), Weighted(jnp.ones(2)))
    assert compiled(curator) == 1
    np.testing.assert_allclose(seen, [20.0, 20.0], rtol=1e-4)


def test_the_next_fit_shares_nothing():
    """A function that was changed in between, as a test may do, is met as it is now."""
    function = Weighted(jnp.ones(2))
    first, second = (curator_of(np.ones((10, 2))) for _ in range(2))
    exact(first, function)
    assert (compiled(first), compiled(second)) == (1, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Weighted, "__call__", lambda self, row: 7 * row["x"])
        np.testing.assert_allclose(exact(second, function), [70.0, 70.0], rtol=1e-4)


DIFFERENT = {
    "closures of one text": [(lambda row, by=by: by * row["x"]) for by in (1.0, 5.0)],
    "modules with other leaves": [Weighted(jnp.ones(2), offset=offset) for offset in (0.0, 4.0)],
    "modules with other fixed fields": [Weighted(jnp.full(2, 2.0), power=power) for power in (0, 1)],
    "modules of other closures": [partial(Weighted(jnp.full(2, by)).__call__) for by in (1.0, 5.0)],
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different_functions_never_share_a_program(kind):
    """Each is asked twice, in turns, and answers for itself."""
    rows = np.linspace(1, 2, 20).reshape(10, 2)
    curator = curator_of(rows)
    for function in DIFFERENT[kind] * 2:
        plain = np.sum([np.asarray(function({"x": row})) for row in rows], axis=0)
        np.testing.assert_allclose(exact(curator, function), plain, rtol=1e-4)
    assert len(curator._programs) == 2


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0.0, -0.0)], ids=str)
def test_what_python_calls_equal_is_still_told_apart(pair):
    one, two = pair
    assert one == two
    assert fixed_part(Weighted(1.0, offset=one)) != fixed_part(Weighted(1.0, offset=two))
    assert fixed_part(Weighted(1.0, power=one)) != fixed_part(Weighted(1.0, power=two))
    assert fixed_part(Weighted(1.0, power=one)) == fixed_part(Weighted(1.0, power=one))


def test_things_that_say_they_are_equal_are_told_apart():
    class Sly:
        def __init__(self, by):
            self.by = by

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 7

        def __call__(self, row):
            return self.by * row["x"]

    programs, built = Programs(), lambda fixed: lambda arrays, row: fixed(row)
    for by in (1.0, 2.0):
        program, arrays = programs.of(built, Sly(by))
        assert program(arrays, {"x": 3.0}) == 3.0 * by


def test_clip_and_entries_are_part_of_a_program():
    curator = curator_of(np.ones((10, 2)))
    function = lambda row: row["x"]
    loose, tight = (exact(curator, function, bound=bound) for bound in (100.0, 0.1))
    assert np.all(loose > 9.0) and np.all(tight < 1.0)
    with pytest.raises(ArgumentError, match="3 entries"):
        exact(curator, function, entries=3)


class Follow(eqx.Module):
    """What follows an answer, of a descent or of teachers, with an array; it notes whether that is an argument."""

    by: jax.Array
    seen: list = eqx.field(static=True)

    def __call__(self, *given):
        self.seen.append(isinstance(self.by, jax.core.Tracer))
        return given[-1], given[1]

    def learn(self, state, public, rows, key):
        return self.by * state

    def answer(self, state, public):
        self.seen.append(isinstance(self.by, jax.core.Tracer))
        return self.by * state

    def update(self, total, public):
        self.seen.append(isinstance(self.by, jax.core.Tracer))
        return (public + self.by).astype(public.dtype)


def test_arrays_of_what_follows_an_answer_are_no_constants():
    """A constant would be part of the program: it would be compiled anew for every fit."""
    follow, zeros = Follow(jnp.ones(2, jnp.float32), []), jnp.zeros(2, jnp.float32)
    descent, parts = (curator_of(np.ones((10, 2))) for _ in "ab")
    descent.noisy_descent(linear_loss, zeros, zeros, plan=plan_of(), update=follow, purpose="x")
    teaching = Teaching(learn=follow.learn, answer=follow.answer, update=follow.update)
    plan = TeacherPlan(parts=2, steps=1, batch=1, num_entries=2, bound=1.0)
    parts.noisy_teachers(teaching, jnp.zeros((2, 2), jnp.float32), zeros, plan=plan, purpose="x")
    assert len(follow.seen) >= 3 and all(follow.seen)


def cells(num):
    low = np.random.default_rng(0).random((num, 2), np.float32)
    return {"low": low, "width": np.zeros_like(low)}


@pytest.mark.parametrize("method", ["mixture", "scaling"])
def test_a_fit_in_rounds_compiles_one_sum(method):
    ledger = Ledger(Budget(epsilon=5.0, delta=1e-5), Adjacency())
    curator = Curator(cells(40), ledger=ledger, randomness=Randomness.from_seed(3), public_size=40)
    if method == "mixture":
        view = Affine(jnp.zeros(2), jnp.ones(2))
        given = {"share": None, "discrete": False, "key": jax.random.key(0)}
        fit_mixture(curator, EmSettings(components=2, rounds=4), view, 2, **given)
    else:
        buy_scaling(curator, 2, ScalingShare(rounds=3))
    assert compiled(curator) == 1
    assert len(ledger.entries) >= 3
