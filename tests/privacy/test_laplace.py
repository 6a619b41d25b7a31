"""Laplace sums: hostile rows stay within the bound, the noise has its scale and shape, and the door charges first.

Each statistical check states its false-alarm rate; seeds are fixed, and the mutants are here or in ``tests/planted``.
"""

from fractions import Fraction
from itertools import pairwise
from math import exp, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from privacy.doors import WIDE, curator_of
from privacy.test_clipping import grid_rows, hostile
from sfumato.errors import ArgumentError, BudgetError
from sfumato.privacy import AbsoluteClip, Adjacency, Budget, FlatClip, Ledger, Randomness, Relation, SumQuery
from sfumato.privacy.accounting import headline
from sfumato.privacy.chacha import keystream
from sfumato.privacy.clipping import GRID
from sfumato.privacy.events import Concentrated, GaussianSum, LaplaceSum
from sfumato.privacy.laplace import StreamBits, laplace_integers, laplace_scale
from sfumato.privacy.randomness import Stream, nonce
from sfumato.privacy.unprotected import Unprotected

ALARM = 1e-6


def query_of(size, clip=None, function=lambda row: row["x"]):
    clip = AbsoluteClip(bound=1.0) if clip is None else clip
    return SumQuery(function=function, num_entries=size, clip=clip, purpose="test")


# --- clipping -------------------------------------------------------------------------------------------------


def test_no_row_exceeds_the_bound_in_absolute_values():
    """Hostile rows over one, two and three leaves: absolute values add up to at most GRID, exactly; all finite."""
    for seed, sizes in enumerate(((7,), (3, 50), (1, 400, 30))):
        rows = hostile(3_000, sum(sizes), seed)
        # Spread evenly a row has the largest sum of absolute values for its Euclidean norm.
        rows[:200] = np.random.default_rng(seed).choice([-1, 1], (200, sum(sizes))) * np.float32(1 / sum(sizes))
        tree = [jnp.asarray(rows[:, a:b]) for a, b in pairwise(np.cumsum((0, *sizes)))]
        bound = (1.0, 1.0, 1e-3)[seed]
        grid = grid_rows(tree, bound, AbsoluteClip)
        assert np.abs(grid).sum(axis=1).max() <= GRID
        assert not grid[~np.isfinite(rows).all(axis=1)].any()
        assert np.abs(grid[:200]).sum(axis=1).min() > 0.999 * GRID


def test_large_leaves_stay_within_the_bound_in_absolute_values():
    """Past 2**14 entries sums are in float64; just below, float32 sums may err the most. Equal entries err alike."""
    draw = np.random.default_rng(3)
    for size in (2**14, 40_000):
        rows = draw.normal(size=(8, size))
        rows[:4] = 10.0 ** draw.uniform(-3, 3, (4, 1)) * draw.choice([-1, 1], (4, size))
        sums = np.abs(grid_rows(jnp.asarray(rows, jnp.float32), 1.0, AbsoluteClip)).sum(axis=1)
        assert sums.max() <= GRID
        assert sums.min() > 0.98 * GRID - size  # each entry is cut by less than a step


def test_short_vectors_keep_their_length_and_direction():
    rows = np.random.default_rng(4).normal(size=(50, 20)).astype(np.float32) * 0.01
    assert np.abs(grid_rows(jnp.asarray(rows), 1.0, AbsoluteClip) / GRID - rows).max() < 3 / GRID


# --- noise ----------------------------------------------------------------------------------------------------


def assert_scale(noise, scale):
    """Two-sided test that absolute values of so many Laplace numbers have this mean; false alarm 1e-6."""
    statistic = 2 * float(np.sum(np.abs(noise))) / scale  # chi-square with two degrees of freedom a number
    low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], 2 * noise.size)
    assert low <= statistic <= high, f"scale off by a factor of {statistic / 2 / noise.size:.4f}"


@pytest.mark.parametrize(
    ("adjacency", "factor"),
    [
        (Adjacency(), 1),
        (Adjacency(unit="person", max_rows=3), 3),
        (Adjacency(relation=Relation.REPLACE_ONE), 2),
    ],
    ids=["row", "person", "replace-one"],
)
def test_noise_scale_of_a_laplace_sum(adjacency, factor):
    """Through the door, over no rows: 20,000 numbers, with a scale of the bound times the rows over epsilon."""
    curator = curator_of(np.zeros((0, 1)), budget=WIDE, adjacency=adjacency)
    query = query_of(20_000, AbsoluteClip(bound=5.0), lambda row: jnp.zeros(20_000, jnp.float32))
    noise = curator.noisy_laplace_sum(query, epsilon=0.5)
    assert_scale(noise, 5.0 * factor / 0.5)
    assert abs(noise.std() / curator.laplace_noise(5.0, 0.5) - 1) < 5 * sqrt(5 / 4 / noise.size)  # five deviations
    for mutant in (0.94, 1.06):
        with pytest.raises(AssertionError, match="scale off"):
            assert_scale(mutant * noise, 5.0 * factor / 0.5)


def test_the_vector_is_laplace_and_whole_and_its_entries_are_independent():
    """Kolmogorov-Smirnov against the law at 20,000 draws, and neighbours in the vector, false alarms 1e-6 each."""
    draws = np.array(laplace_integers(Randomness.from_seed(1).key, 1, 20_000, 3 * GRID))
    assert draws.dtype == np.int64
    assert stats.kstest(draws / (3 * GRID), "laplace").pvalue > ALARM
    normal = np.random.default_rng(0).normal(scale=sqrt(2), size=20_000)
    assert stats.kstest(normal, "laplace").pvalue < ALARM, "the mutant: Gaussian noise of the same deviation"
    limit = stats.norm.isf(ALARM / 2) / sqrt(10_000)
    for function in (np.sign, np.abs):
        assert abs(np.corrcoef(function(draws[::2]), function(draws[1::2]))[0, 1]) < limit


def test_small_scales_have_the_exact_chances():
    """At scale 2, 8,000 draws from the stream: five standard errors at each of nine values (5e-6 alarms)."""
    drawn = laplace_integers(Randomness.from_seed(2).key, 7, 8_000, 2)
    top = (1 - exp(-0.5)) / (1 + exp(-0.5))
    for value in range(-4, 5):
        expected = top * exp(-abs(value) / 2)
        assert abs(drawn.count(value) / 8_000 - expected) < 5 * sqrt(expected * (1 - expected) / 8_000)


def test_calls_and_keys_have_noise_of_their_own_and_a_key_repeats_it():
    curator, again = (curator_of(np.zeros((0, 64)), budget=WIDE) for _ in "ab")
    first, second = (curator.noisy_laplace_sum(query_of(64), epsilon=0.1) for _ in "ab")
    assert not np.any(first == second)
    assert np.array_equal(first, again.noisy_laplace_sum(query_of(64), epsilon=0.1))
    other = curator_of(np.zeros((0, 64)), budget=WIDE, seed=1).noisy_laplace_sum(query_of(64), epsilon=0.1)
    assert not np.any(first == other)
    assert np.array_equal(np.round(first * GRID), first * GRID), "whole grid steps"


def test_bits_are_those_of_the_stream_and_each_is_used_once():
    key = Randomness.from_seed(5).key
    expected = [np.asarray(keystream(key, nonce(3, block, Stream.NOISE), 4096)).tolist() for block in range(2)]
    bits = StreamBits(key, 3)
    assert [bits(32) for _ in range(8192)] == [*reversed(expected[0]), *reversed(expected[1])]
    assert all(StreamBits(key, 3)(num) < 2**num for num in range(100))
    assert repr(bits) == "StreamBits()"


def test_the_scale_covers_epsilon_exactly():
    """The rate of the noise times the sensitivity is at most epsilon, and nearly all of it."""
    draw = np.random.default_rng(0)
    for epsilon in 10.0 ** draw.uniform(-8, 2, 300):
        spent = Fraction(3 * GRID, laplace_scale(float(epsilon), 3 * GRID))
        assert Fraction(float(epsilon)) * (1 - Fraction(1, 10_000)) < spent <= Fraction(float(epsilon))


# --- the door -------------------------------------------------------------------------------------------------


def test_a_sum_comes_through_the_noise_and_is_charged():
    rows = np.random.default_rng(6).dirichlet(np.ones(4), 4_000)
    curator = curator_of(rows, budget=WIDE)
    found = curator.noisy_laplace_sum(query_of(4), epsilon=1.0)
    assert np.abs(found - rows.sum(axis=0)).max() < 20  # noise of scale one: passed once in 10^8
    assert [(entry.event, entry.purpose) for entry in curator._ledger.entries] == [(LaplaceSum(epsilon=1.0), "test")]


def test_neighbours_differ_by_no_more_than_the_noise_is_scaled_to():
    """The sums before the noise, as the door takes them: rows of all shapes, each left out once."""
    from sfumato.privacy.counting import Counted, exact_sum
    from sfumato.privacy.step import PrivateRows

    rows = hostile(24, 30, 9)
    rows[:8] = np.random.default_rng(1).choice([-1, 1], (8, 30))
    with jax.enable_x64(True):
        total = lambda kept: np.asarray(exact_sum(Counted(PrivateRows.of({"x": kept})), query_of(30)))
        whole = total(rows)
        moved = [int(np.abs(whole - total(np.delete(rows, place, axis=0))).sum()) for place in range(24)]
    assert 0.999 * GRID < max(moved) <= GRID


def test_a_clip_by_another_norm_is_refused_before_anything_is_charged():
    curator = curator_of(np.zeros((3, 2)))
    with pytest.raises(ArgumentError, match="absolute values"):
        curator.noisy_laplace_sum(query_of(2, FlatClip(bound=1.0)), epsilon=0.01)
    assert curator._ledger.entries == ()


def test_what_the_budget_does_not_cover_is_refused_and_nothing_is_drawn(monkeypatch):
    curator = curator_of(np.zeros((3, 2)), budget=Budget(epsilon=0.5, delta=1e-5))
    monkeypatch.setattr("sfumato.privacy.curator.laplace_integers", lambda *given: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetError):
        curator.noisy_laplace_sum(query_of(2), epsilon=0.51)
    assert curator._ledger.entries == ()


@pytest.mark.parametrize("times", [1, 7])
def test_rounds_use_all_that_is_left_and_not_more(times):
    curator = curator_of(np.zeros((3, 2)))
    curator._ledger.charge(GaussianSum(noise_multiplier=curator.noise_multiplier(0.3)), "before")
    epsilon = curator.laplace_epsilon(times)
    for _ in range(times):
        curator.noisy_laplace_sum(query_of(2), epsilon=epsilon)
    assert 0.999 * 0.1 <= headline(curator._ledger.events, Adjacency(), 1e-5).epsilon <= 0.1
    with pytest.raises(BudgetError):
        curator.noisy_laplace_sum(query_of(2), epsilon=epsilon)


def test_a_share_is_worth_that_of_a_gaussian_sum():
    """Nine sums at a share have the rho of one Gaussian sum of it; a reserve pays for both alike."""
    curator = curator_of(np.zeros((3, 2)), budget=WIDE)
    epsilon = curator.laplace_epsilon(9, share=0.2)
    assert 9 * epsilon**2 / 2 == pytest.approx(curator.noise_multiplier(0.2) ** -2 / 2)
    rho = curator.reserve("all")
    for _ in range(9):
        curator.noisy_laplace_sum(query_of(2), epsilon=sqrt(2 * rho / 10))
    with pytest.raises(BudgetError, match="reserve"):
        curator.noisy_laplace_sum(query_of(2), epsilon=sqrt(2 * rho / 9))
    assert [type(event) for event in curator._ledger.events] == [Concentrated]


def test_without_protection_the_sum_is_exact():
    rows = 100 * np.random.default_rng(3).normal(size=(70, 3)).astype(np.float32)
    ledger = Ledger(WIDE, Adjacency())
    doors = Unprotected({"x": rows}, ledger=ledger, randomness=Randomness.from_seed(0), public_size=70)
    found = doors.noisy_laplace_sum(query_of(3), epsilon=doors.laplace_epsilon(5))
    np.testing.assert_allclose(found, rows.astype(np.float64).sum(axis=0), rtol=1e-12)
    assert doors.laplace_noise(1.0, 0.1) == 0.0
    assert headline(ledger.events, ledger.adjacency, 1e-5).epsilon == float("inf")
