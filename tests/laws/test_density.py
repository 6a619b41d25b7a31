"""Laws of a release as a density: it adds up to one, and what is drawn from it is what it says.

Statistical tests draw with fixed seeds. Their false-alarm rate over the choice of seeds is 1e-6, and each is also
shown a mutant that it must reject.
"""

import itertools
from dataclasses import replace
from datetime import date, datetime
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from jax.scipy.stats import norm as jnorm
from scipy.special import ndtri
from scipy.stats import chi2, kstest, norm

from sfumato.encoding import canonicalise, layout_of
from sfumato.errors import ArgumentError, TableError
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.privacy import Adjacency, Budget, Ledger, Randomness
from sfumato.privacy.certificate import certify
from sfumato.release import Release
from sfumato.release import release as release_module
from sfumato.schema import Boolean, Categorical, Continuous, Date, Datetime, Identifier, Integer, Schema

FALSE_ALARM = 1e-6

DISCRETE = Schema(
    columns={
        "colour": Categorical(levels=("red", "green", "blue")),
        "smokes": Boolean(),
        "children": Integer(lower=0, upper=3, nullable=True),
    }
)
MIXED = Schema(
    columns={
        "who": Identifier(regenerate="uuid"),
        "age": Integer(lower=-3, upper=120, nullable=True),
        "income": Continuous(lower=-1e6, upper=1e6, nullable=True),
        "price": Continuous(lower=0.05, upper=9.95, decimals=2),
        "born": Date(lower=date(1900, 1, 1), upper=date(2020, 12, 31)),
        "seen": Datetime(lower=datetime(2020, 1, 1), upper=datetime(2020, 1, 9), resolution="hour", nullable=True),
        "code": Categorical(levels=(3, 1, 2), other=2, nullable=True),
        "only": Categorical(levels=("one",)),
        "on": Boolean(nullable=True),
        "number": Identifier(regenerate="number"),
        "gone": Identifier(),
    }
)
LENGTH = Schema(columns={"length": Continuous(lower=-2.0, upper=6.0)})


def key_of(number):
    return jax.random.wrap_key_data(jnp.array([11, number], jnp.uint32))


def flow_of(num_features, number=0, size=0.3, blocks=2, reach=1.0):
    """A flow with noise on all its arrays: no law may hold because a flow starts as the identity.

    ``reach`` stretches it: a flow past the reach of the standard normal has rows outside +-4.75, where the cube ends.
    """
    flow = MaskedAutoregressiveFlow.start(MafShape(num_features, blocks, 8, 1, True), key=key_of(number))
    leaves, structure = jax.tree.flatten(flow.blocks)
    keys = jax.random.split(key_of(number + 1_000), len(leaves))
    moved = [leaf + size * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    flow = MaskedAutoregressiveFlow(flow.scaling, jax.tree.unflatten(structure, moved), flow.shape)
    location, scale = np.linspace(-0.3, 0.4, num_features), reach * np.linspace(0.7, 1.2, num_features)
    return flow.rescaled(location, scale)


@cache
def certificate():
    return certify(Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency()), Randomness.from_os(), {"method": "none"})


@cache
def release_of(schema, number=0, size=0.1, reach=0.6):
    model = flow_of(layout_of(schema).num_features, number, size, reach=reach)
    return Release(model=model, schema=schema, certificate=certificate())


def all_rows(schema):
    """Every row that a discrete schema can hold."""
    domains = []
    for _, column in schema.modelled:
        values = {
            Categorical: lambda c: list(c.levels),
            Boolean: lambda c: [False, True],
            Integer: lambda c: list(range(c.lower, c.upper + 1)),
        }[type(column)](column)
        domains.append(values + [None] * column.nullable)
    rows = list(itertools.product(*domains))
    names = [name for name, _ in schema.modelled]
    return pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})


# --- the flow, on the real line -------------------------------------------------------------------------------


def integral_1(log_density):
    grid = jnp.linspace(-25, 25, 20_001)
    return float(jnp.sum(jnp.exp(jax.jit(jax.vmap(log_density))(grid[:, None]))) * (grid[1] - grid[0]))


def integral_2(log_density):
    grid = jnp.linspace(-16, 16, 801)
    points = jnp.stack(jnp.meshgrid(grid, grid), -1).reshape(-1, 2)
    return float(jnp.sum(jnp.exp(jax.jit(jax.vmap(log_density))(points))) * (grid[1] - grid[0]) ** 2)


@pytest.mark.parametrize("number", range(3))
def test_the_density_of_a_flow_integrates_to_one(number):
    assert integral_1(flow_of(1, number).log_prob) == pytest.approx(1, abs=1e-3)
    assert integral_2(flow_of(2, number).log_prob) == pytest.approx(1, abs=2e-3)


def test_a_density_without_its_log_determinant_does_not():
    """The mutant: the base density alone."""
    flow = flow_of(2, 0)

    def without(features):
        base, _ = flow.blocks.forward(flow.scaling.forward(features)[0])
        return jnp.sum(jnorm.logpdf(base))

    assert abs(integral_2(without) - 1) > 0.05


@pytest.mark.parametrize("number", range(2))
def test_drawn_features_follow_the_density(number):
    """What is drawn, sent forward, is standard normal: Kolmogorov's test on each feature of 20,000 rows.

    Three features and the products of neighbours' signs, 5 tests, each at a fifth of the false-alarm rate.
    """
    flow = flow_of(3, number)
    keys = jax.random.split(key_of(number + 77), 20_000)
    rows = jax.jit(jax.vmap(flow.sample))(keys)
    forward = jax.jit(jax.vmap(lambda model, x: model.blocks.forward(model.scaling.forward(x)[0])[0], (None, 0)))

    def least_p(model):
        base = np.asarray(forward(model, rows), np.float64)
        signs = [base[:, 0] * np.sign(base[:, 1]), base[:, 1] * np.sign(base[:, 2])]
        return min(kstest(column, "norm").pvalue for column in (*base.T, *signs))

    assert least_p(flow) > FALSE_ALARM / 5
    assert least_p(flow_of(3, number + 5)) < FALSE_ALARM / 5, "the mutant: another flow's rows"


# --- masses of discrete rows ----------------------------------------------------------------------------------


def test_masses_of_all_rows_add_up_to_one_and_tighten_with_draws():
    rows = all_rows(DISCRETE)
    assert rows.num_rows == 3 * 2 * 5
    few, many = [], []
    for number in range(3):
        release = release_of(DISCRETE, number)
        exact = np.exp(release.log_prob(rows, draws=8_192))
        assert exact.sum() == pytest.approx(1, abs=5e-3)
        errors = [np.abs(np.exp(release.log_prob(rows, draws=draws)) - exact).sum() for draws in (4, 32, 256)]
        few.append(errors[0])
        many.append(errors[2])
        assert errors[1] < 0.2, "the default"
    assert max(many) < 0.1
    assert np.mean(many) < 0.3 * np.mean(few)


@pytest.mark.parametrize("number", [0, 2])
def test_masses_of_a_wide_flow_add_up_to_one(number):
    """Drawn rows far out count for the first or last level; scores must see that mass too.

    Uniform points alone find 0.97 and 0.86 of it. Flows wider still (number 1) need more draws than this.
    """
    release = release_of(DISCRETE, number, 0.3, 1.0)
    assert np.exp(release.log_prob(all_rows(DISCRETE), draws=8_192)).sum() == pytest.approx(1, abs=0.02)


def p_value(counts, masses):
    """Of Pearson's test; rows of an expected count below ten are gathered."""
    expected = counts.sum() * masses
    rare = expected < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], max(expected[rare].sum(), 1e-9))
    if not rare.any():
        observed, wanted = observed[:-1], wanted[:-1]
    return float(chi2.sf(np.sum((observed - wanted) ** 2 / wanted), len(wanted) - 1))


def counts_of(sample, rows):
    places = {tuple(row.values()): place for place, row in enumerate(rows.to_pylist())}
    return np.bincount([places[tuple(row.values())] for row in sample.to_pylist()], minlength=rows.num_rows)


@pytest.mark.parametrize("number", range(2))
def test_frequencies_of_drawn_rows_are_the_masses(number, monkeypatch):
    rows = all_rows(DISCRETE)
    release = release_of(DISCRETE, number)
    counts = counts_of(release.sample(30_000, seed=number), rows)
    assert p_value(counts, np.exp(release.log_prob(rows, draws=8_192))) > FALSE_ALARM

    # The mutants: rows of another model, and masses that forget the unit of the table.
    other = release_of(DISCRETE, number + 5)
    assert p_value(counts_of(other.sample(30_000, seed=number), rows), np.exp(release.log_prob(rows))) < FALSE_ALARM
    encode = release_module.encode_features
    without_unit = lambda table, schema: replace(encode(table, schema), log_unit=np.zeros(table.num_rows))
    monkeypatch.setattr(release_module, "encode_features", without_unit)
    assert p_value(counts, np.exp(release.log_prob(rows, draws=8_192))) < FALSE_ALARM


# --- densities of continuous rows -----------------------------------------------------------------------------


def test_the_density_of_one_continuous_column_is_the_change_of_variables():
    release = release_of(LENGTH)
    values = np.linspace(-1.9, 5.9, 41)
    features = ndtri((values + 2) / 8)
    # With one feature the flow is a straight line; two points give it.
    line = [
        float(release.model.blocks.forward(release.model.scaling.forward(jnp.array([x]))[0])[0][0]) for x in (0.0, 1.0)
    ]
    slope = line[1] - line[0]
    expected = norm.logpdf(line[0] + slope * features) + np.log(abs(slope)) - norm.logpdf(features) - np.log(8)
    scores = release.log_prob(pa.table({"length": values}))
    np.testing.assert_allclose(scores, expected, atol=2e-4)
    assert np.array_equal(scores, release.log_prob(pa.table({"length": values}), draws=7)), "exact, so draws are moot"


def test_densities_integrate_to_one_in_the_units_of_the_table():
    values = np.linspace(-2, 6, 16_001)[:-1] + 8 / 32_000
    density = np.exp(release_of(LENGTH, 3).log_prob(pa.table({"length": values})))
    assert density.mean() * 8 == pytest.approx(1, abs=2e-3)

    cents = Schema(columns={"price": Continuous(lower=0, upper=2, decimals=2), "on": Boolean()})
    rows = pa.table({"price": [cent / 100 for cent in range(201)] * 2, "on": [False] * 201 + [True] * 201})
    masses = np.exp(release_of(cents).log_prob(rows, draws=256)) / 100
    assert masses.sum() == pytest.approx(1, abs=5e-3)


def test_mixed_rows_add_up_over_levels_and_integrate_over_lengths():
    schema = Schema(columns={"length": Continuous(lower=0, upper=5, nullable=True), "on": Boolean()})
    values = np.linspace(0, 5, 1_001)[:-1] + 5 / 2_000
    release = release_of(schema, 2)
    total = 0.0
    for on in (False, True):
        present = pa.table({"length": values, "on": [on] * len(values)})
        total += np.exp(release.log_prob(present, draws=1_024)).mean() * 5
        total += np.exp(
            release.log_prob(pa.table({"length": pa.array([None], pa.float64()), "on": [on]}), draws=4_096)
        )[0]
    assert total == pytest.approx(1, abs=5e-3)


# --- scoring --------------------------------------------------------------------------------------------------


def test_scores_are_of_each_row_by_itself_and_finite():
    release = release_of(MIXED)
    rows = release.sample(300, seed=4)
    scores = release.log_prob(rows)
    assert scores.shape == (300,) and np.all(np.isfinite(scores))
    np.testing.assert_allclose(release.log_prob(rows.slice(100, 7)), scores[100:107], atol=1e-4)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_allclose(release.log_prob(rows.take(pa.array(order))), scores[order], atol=1e-4)
    assert release.log_prob(rows.slice(0, 0)).shape == (0,)


def test_faulty_rows_are_scored_as_the_schema_reads_them():
    release = release_of(DISCRETE)
    faulty = pa.table({"colour": ["mauve", "red"], "smokes": ["yes", "x"], "children": ["99", "x"]})
    read = pa.table({"colour": ["red", "red"], "smokes": [True, False], "children": [3, None]})
    assert np.array_equal(release.log_prob(faulty), release.log_prob(read))


def test_scoring_refuses_what_is_not_of_the_schema():
    with pytest.raises(TableError, match="colour"):
        release_of(DISCRETE).log_prob(pa.table({"smokes": [True], "children": [1]}))
    with pytest.raises(ArgumentError, match="draws"):
        release_of(DISCRETE).log_prob(all_rows(DISCRETE), draws=0)


# --- sampling -------------------------------------------------------------------------------------------------


def test_a_seed_repeats_the_rows_and_no_seed_does_not():
    release = release_of(MIXED)
    assert release.sample(50, seed=8).equals(release.sample(50, seed=8))
    assert not release.sample(50, seed=8).equals(release.sample(50, seed=9))
    assert not release.sample(50).equals(release.sample(50))


def test_a_longer_sample_begins_as_the_shorter_one_and_goes_on_with_new_rows():
    release = release_of(LENGTH)
    long = release.sample(40_000, seed=3)["length"].to_numpy()
    assert np.array_equal(release.sample(100, seed=3)["length"].to_numpy(), long[:100])
    assert len(np.unique(long)) > 39_000, "batches do not repeat each other"


@pytest.mark.parametrize("size", [0.3, 5.0, 1e3])
def test_drawn_rows_lie_in_the_domain_whatever_the_model(size):
    release = release_of(MIXED, 0, size)
    sample = release.sample(400, seed=1)
    assert sample.column_names == [name for name in MIXED.columns if name != "gone"]
    modelled = sample.select([name for name, _ in MIXED.modelled])
    assert canonicalise(modelled, MIXED).equals(modelled)
    assert sample["number"].to_pylist() == list(range(1, 401))
    assert len(set(sample["who"].to_pylist())) == 400


def test_a_model_of_infinities_still_draws_rows_of_the_domain():
    good = release_of(MIXED)
    broken = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), good.model)
    sample = replace(good, model=broken).sample(10, seed=1).select([name for name, _ in MIXED.modelled])
    assert canonicalise(sample, MIXED).equals(sample)


def test_no_rows_and_wrong_numbers_of_rows():
    release = release_of(MIXED)
    assert release.sample(0).schema == release.sample(3).schema
    assert release.sample(0).num_rows == 0
    for wrong in (-1, 1.5, True, None):
        with pytest.raises(ArgumentError, match="num_rows"):
            release.sample(wrong)


def test_progress_tells_public_numbers_only():
    told = []
    release_of(LENGTH).sample(20_000, seed=0, progress=lambda *parts: told.append(parts))
    assert told == [("sampling", 0, 20_000), ("sampling", 16_384, 20_000), ("sampling", 20_000, 20_000)]
