"""Laws of bought marginals: rounds find point masses, shares are shares, and the map makes features uniform.

Noise has a fixed key, so each test either always or never fails; at the budget used here it is small beside the bins.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import ndtr
from scipy.special import ndtri

from sfumato.encoding.layout import layout_of
from sfumato.errors import ArgumentError
from sfumato.fitting.histogram import onto_simplex
from sfumato.fitting.marginals import MarginalShare, buy_marginals, normal_marginals
from sfumato.fitting.scaling import ScalingShare
from sfumato.models.flows import share_cells
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
from sfumato.schema import Categorical, Continuous, Integer, Schema
from sfumato.synthesizers import HFlow
from sfumato.synthesizers.hflow import CorrelationShare, FlowSize

ROWS, VALUES = 4_000, 100_000
SETTINGS = MarginalShare(share=0.9, rounds=5, bins=32)
SCHEMA = Schema(
    columns={
        "gain": Integer(lower=0, upper=VALUES - 1),
        "level": Categorical(levels=("a", "b", "c")),
        "size": Continuous(lower=0, upper=1),
    },
    rows=ROWS,
)


def made_up(seed=4):
    """Nine of ten gains are 0, the others anything; the levels are uneven; sizes are near 0.7."""
    random = np.random.default_rng(seed)
    gain = np.where(random.random(ROWS) < 0.9, 0, random.integers(0, VALUES, ROWS))
    level = random.choice(3, ROWS, p=[0.6, 0.3, 0.1])
    size = np.clip(random.normal(0.7, 0.05, ROWS), 0, 1)
    low = np.stack([gain / VALUES, level / 3, size], axis=1)
    return {"low": low.astype(np.float32), "width": np.tile([1 / VALUES, 1 / 3, 0], (ROWS, 1)).astype(np.float32)}


def bought(settings=SETTINGS, rows=None, epsilon=20.0):
    ledger = Ledger(Budget(epsilon=epsilon, delta=1e-5), Adjacency())
    rows = made_up() if rows is None else rows
    curator = Curator(rows, ledger=ledger, randomness=Randomness.from_seed(7), public_size=ROWS)
    return buy_marginals(curator, layout_of(SCHEMA), settings), ledger


def share_of(found, feature, low, high):
    """The share that the map gives an interval of the unit line."""
    edges, shares = np.asarray(found.edges[feature], float), np.asarray(found.shares[feature], float)
    return np.interp(high, edges, shares) - np.interp(low, edges, shares)


def test_a_value_that_most_rows_share_ends_in_a_bin_of_its_own():
    """Of 100,000 values, by 32 bins a round. The mutant without rounds leaves it in a bin of three thousand."""
    found, _ = bought()
    assert share_of(found, 0, 0, 1 / VALUES) == pytest.approx(0.9, abs=0.02)
    assert float(found.edges[0, 1]) == pytest.approx(1 / VALUES, rel=1e-3)
    coarse, _ = bought(replace(SETTINGS, rounds=1))
    assert share_of(coarse, 0, 0, 1 / VALUES) < 0.01
    assert share_of(coarse, 0, 0, 1 / 32) == pytest.approx(0.9, abs=0.02), "it is not the noise that hides it"


def test_levels_and_numbers_get_the_shares_that_they_have():
    found, _ = bought()
    rows = made_up()
    for place, share in enumerate(np.bincount(np.round(rows["low"][:, 1] * 3).astype(int)) / ROWS):
        assert share_of(found, 1, place / 3, (place + 1) / 3) == pytest.approx(share, abs=0.01)
    for low, high in ((0, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 1)):
        inside = np.mean((rows["low"][:, 2] >= low) & (rows["low"][:, 2] < high))
        assert share_of(found, 2, low, high) == pytest.approx(inside, abs=0.04)


def test_behind_the_map_a_feature_is_uniform():
    """Sizes, to 0.04 in distribution; before the map they are 0.4 and more away."""
    found, _ = bought()
    points = np.random.default_rng(5).normal(0.7, 0.05, 2_000).clip(1e-4, 1 - 1e-4)
    features = np.tile(ndtri(points)[:, None], (1, 3))
    behind = jax.vmap(lambda x: ndtr(found.forward(x)[0][2]))(jnp.asarray(features, jnp.float32))
    place = (np.arange(2_000) + 0.5) / 2_000
    assert np.abs(np.sort(np.asarray(behind, float)) - place).max() < 0.04
    assert np.abs(np.sort(points) - place).max() > 0.4


@pytest.mark.parametrize("epsilon", [20.0, 0.01])
def test_edges_and_shares_rise_from_zero_to_one_and_no_value_is_without_mass(epsilon):
    """At a budget that measures well, and at one that measures nothing."""
    found, _ = bought(epsilon=epsilon)
    for lines in (np.asarray(found.edges, float), np.asarray(found.shares, float)):
        assert lines.shape[0] == 3 and np.all(lines[:, 0] == 0) and np.all(lines[:, -1] == 1)
        assert np.all(np.diff(lines, axis=1) >= 0)
    used = np.diff(found.edges, axis=1) > 0
    assert np.all((np.diff(found.shares, axis=1) > 0)[used])


def test_rounds_together_cost_the_share_and_one_round_is_enough_for_few_values():
    _, ledger = bought()
    assert 2 <= len(ledger.entries) <= SETTINGS.rounds
    assert all("marginals" in entry.purpose for entry in ledger.entries)
    few = replace(SETTINGS, bins=4)
    schema = Schema(columns={"level": Categorical(levels=("a", "b", "c"))}, rows=ROWS)
    rows = {name: value[:, 1:2] for name, value in made_up().items()}
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency())
    curator = Curator(rows, ledger=ledger, randomness=Randomness.from_seed(7), public_size=ROWS)
    buy_marginals(curator, layout_of(schema), few)
    assert len(ledger.entries) == 1


def test_no_rows_at_all_make_a_map_too():
    empty = {name: value[:0] for name, value in made_up().items()}
    found, _ = bought(rows=empty)
    assert np.all(np.isfinite(found.shares)) and np.all(np.diff(found.shares, axis=1) >= 0)


def test_the_simplex_projection_is_the_nearest_point():
    """Against the condition of the nearest point: what is kept was lowered by one number, the rest by at least its own.

    The mutant cuts at zero and divides by the sum, and is farther away.
    """
    random = np.random.default_rng(6)
    for _ in range(200):
        values = random.normal(size=random.integers(1, 30)) * 10.0 ** random.integers(-3, 3)
        found = onto_simplex(values)
        assert found.min() >= 0 and found.sum() == pytest.approx(1, abs=1e-9)
        lowered = (values - found)[found > 0]
        assert np.ptp(lowered) < 1e-9 * (1 + np.abs(values).max())
        assert np.all(values[found == 0] <= lowered.max() + 1e-9)
    values = np.array([0.9, 0.5, -0.3])
    mutant = np.maximum(values, 0) / np.maximum(values, 0).sum()
    assert np.linalg.norm(values - onto_simplex(values)) < np.linalg.norm(values - mutant) - 1e-3


def test_settings_that_make_no_sense_are_refused():
    for wrong in ({"share": 0.0}, {"share": 0.95}, {"rounds": 0}, {"bins": 1}):
        with pytest.raises(ArgumentError):
            MarginalShare(**wrong)


def test_normal_marginals_standardise_normal_features():
    """Features of this location and scale come out standard normal, with the log slope of the exact map.

    The exact map is division by the scale. Straight pieces differ from it a little; far out in the tails, where a
    thousandth of the mass is spread evenly, by more, so that 1.5 deviations are looked at.
    """
    location, scale = np.array([0.4, -1.0]), np.array([0.1, 0.7])
    found = normal_marginals(location, scale)
    standard = np.linspace(-1.5, 1.5, 41)[:, None] * np.ones(2)
    moved, log_slope = jax.vmap(found.forward)(jnp.asarray(location + scale * standard, jnp.float32))
    np.testing.assert_allclose(moved, standard, atol=0.02)
    # A straight piece has one slope for a tenth of a deviation; a scale that is off by a fifth would show as 0.18.
    np.testing.assert_allclose(np.mean(log_slope), -np.log(scale).sum(), atol=0.05)


def test_normal_marginals_of_another_scale_do_not():
    """The mutant: a scale that is off by a fifth leaves features that are."""
    found = normal_marginals(np.zeros(1), np.array([0.8]))
    moved = jax.vmap(found.forward)(jnp.linspace(-2, 2, 41)[:, None])[0]
    assert float(jnp.abs(moved[:, 0] - jnp.linspace(-2, 2, 41)).max()) > 0.3


SMOOTH = Schema(columns={name: Continuous(lower=0, upper=1) for name in "ab"}, rows=ROWS)


def test_tables_of_continuous_columns_have_defaults_of_their_own():
    smooth = HFlow().adapted(layout_of(SMOOTH))
    assert smooth == HFlow.continuous()
    assert isinstance(smooth.marginals, ScalingShare)
    assert smooth.correlations is None
    assert smooth.adapted(layout_of(SMOOTH)) == smooth


def test_what_was_set_stays_set_in_tables_of_continuous_columns():
    asked = HFlow(marginals=MarginalShare(share=0.3), steps=7, size=FlowSize(width=5))
    found = asked.adapted(layout_of(SMOOTH))
    assert (found.marginals, found.steps, found.size) == (asked.marginals, 7, asked.size)
    assert found.part == HFlow.continuous().part
    correlated = HFlow(correlations=CorrelationShare(share=0.2)).adapted(layout_of(SMOOTH))
    assert correlated.correlations == CorrelationShare(share=0.2)
    assert isinstance(correlated.marginals, MarginalShare)


def test_mixed_tables_and_learnt_columns_keep_the_usual_defaults():
    """What was learnt is an answer of the fit, and no charge may depend on it: so it may not choose settings."""
    assert HFlow().adapted(layout_of(SCHEMA)) == HFlow()
    assert HFlow().adapted(layout_of(SMOOTH, learnt=["a"])) == HFlow()
    assert HFlow(adapt=False).adapted(layout_of(SMOOTH)) == HFlow(adapt=False)
    assert HFlow.paper().adapted(layout_of(SMOOTH)) == HFlow.paper()


def test_a_table_of_continuous_columns_is_charged_for_scales_and_not_for_histograms():
    ledger = Ledger(Budget(epsilon=2.0, delta=1e-5), Adjacency())
    rows = {"low": made_up()["low"][:, [2, 2]], "width": np.zeros((ROWS, 2), np.float32)}
    curator = Curator(rows, ledger=ledger, randomness=Randomness.from_seed(7), public_size=ROWS)
    HFlow(steps=1, size=FlowSize(blocks=1, width=4)).fit(curator, layout_of(SMOOTH))
    purposes = [entry.purpose for entry in ledger.entries]
    assert purposes == [*(f"location and scale, round {k} of 3" for k in (1, 2, 3)), "gradients of the likelihood"]


def test_the_line_through_shares_is_that_of_interpolation():
    """At edges, between them, past both ends, and where bins are empty at the upper end."""
    random = np.random.default_rng(0)
    edges, shares = (np.sort(np.r_[0, random.uniform(size=20), 1, 1, 1]).astype(np.float32) for _ in range(2))
    points = np.r_[random.uniform(size=1000), edges, 1 + 1e-6, -1e-6].astype(np.float32)
    found = jax.vmap(lambda x: share_cells._along(x, jnp.asarray(edges), jnp.asarray(shares)))(points)
    np.testing.assert_allclose(found, jnp.interp(points, edges, shares), atol=2e-7)
