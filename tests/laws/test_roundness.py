"""Laws of round numbers: bins are counted as a loop counts them, draws follow the weights, and a table keeps its look.

Noise has a fixed key, so each test either always or never fails.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chisquare

from sfumato.encoding.features import decode_features, encode_features
from sfumato.encoding.layout import layout_of
from sfumato.errors import ReleaseError
from sfumato.fitting import codecs, roundness
from sfumato.fitting.codecs import PaidBins, buy_codec
from sfumato.fitting.roundness import weights_of
from sfumato.models.codes.coded import CodedModel
from sfumato.models.codes.roundness import GRAINS, MOST_LEVELS, Roundness
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.registry import skeleton
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
from sfumato.release.release import sample_points
from sfumato.schema import Categorical, Continuous, Integer, Schema

ROWS = 20_000
SCHEMA = Schema(
    columns={
        "price": Integer(lower=75_000, upper=7_700_000),
        "dose": Continuous(lower=-2.0, upper=20.0, decimals=2, nullable=True),
        "weight": Integer(lower=0, upper=50_000),
        "town": Categorical(levels=("a", "b", "c")),
    },
    rows=ROWS,
)


def grain_of(value):
    return sum(value % grain == 0 for grain in GRAINS) - 1


BINS = [(0, 1, 7), (-3, 250, 5_000), (-100_000, 200_001, 400_000), (12, 5_012, 6_000)]
"""The first value of a bin, the value past its last one, and how many values its column has."""


def one_bin(start, stop, levels, weights):
    first = start - (levels - (stop - start))  # the bin stands at the upper end of its column
    ends = jnp.asarray([[np.float32((start - first) / levels), np.float32((stop - first) / levels)]])
    return Roundness(jnp.asarray([weights], jnp.float32), (first,), (levels,)), ends, first


@pytest.mark.parametrize("bin_", BINS, ids=str)
def test_values_of_a_bin_are_counted_weighed_and_drawn_as_a_loop_would(bin_):
    """Draws by a chi-square test at 1e-6; weights in another order, the mutant, must fail it."""
    start, stop, levels = bin_
    random = np.random.default_rng(3)
    weights = random.uniform(0.2, 2, len(GRAINS))
    model, ends, first = one_bin(start, stop, levels, weights)
    values = np.arange(start, stop)
    grains = np.array([grain_of(int(value)) for value in values])
    counts = np.bincount(grains, minlength=len(GRAINS))
    assert np.array_equal(np.asarray(model.counts(ends))[0], counts)
    mine = weights[grains]
    points = jnp.asarray(np.float32((values - first) / levels))[:2_000]
    found = jax.vmap(lambda point: model.log_weight(ends, point[None])[0])(points)
    assert np.allclose(found, np.log(mine * len(values) / mine.sum())[:2_000], atol=1e-4)
    uniform = jnp.asarray(random.random((5_000, 2, 1)), jnp.float32)
    places = np.asarray(jax.vmap(lambda each: model.places(ends, each))(uniform), np.float64)[:, 0]
    drawn = start + np.floor(places * (stop - start)).astype(int)
    assert drawn.min() >= start and drawn.max() < stop
    tally = np.bincount([grain_of(int(value)) for value in drawn], minlength=len(GRAINS))
    often = counts * weights / (counts * weights).sum() * 5_000 >= 5
    if often.sum() > 1:
        law = lambda each: (counts * each)[often] / (counts * each)[often].sum() * tally[often].sum()
        assert chisquare(tally[often], law(weights)).pvalue > 1e-6
        assert chisquare(tally[often], law(weights[::-1])).pvalue < 1e-6


def test_cells_of_the_longest_columns_are_told_apart_in_32_bits():
    levels = MOST_LEVELS
    model = Roundness(jnp.ones((1, len(GRAINS))), (0,), (levels,))
    values = np.concatenate([np.arange(levels - 3_000, levels), np.random.default_rng(0).integers(0, levels, 3_000)])
    grains = jax.vmap(model.grains)(jnp.asarray((values / levels)[:, None], jnp.float32))[:, 0]
    assert np.array_equal(grains, [grain_of(int(value)) for value in values])


@cache
def table():
    random = np.random.default_rng(4)
    price = np.clip(np.exp(random.normal(13, 0.5, ROWS)), 80_000, 7_000_000)
    price = np.where(random.random(ROWS) < 0.8, np.round(price, -3), np.round(price))
    dose = np.round(np.where(random.random(ROWS) < 0.9, np.round(random.gamma(3, 2, ROWS) * 2) / 2, 1.23), 2)
    return pa.table(
        {
            "price": price.astype(np.int64),
            "dose": pa.array(np.clip(dose, -2, 20), mask=random.random(ROWS) < 0.3),
            "weight": random.integers(0, 50_001, ROWS),
            "town": random.choice(list("abc"), ROWS),
        }
    )


@cache
def bought(roundness=0.3):
    cells = encode_features(table(), SCHEMA)
    rows = {"low": cells.low.astype(np.float32), "width": cells.width.astype(np.float32)}
    ledger = Ledger(Budget(epsilon=5.0, delta=1e-6), Adjacency())
    curator = Curator(rows, ledger=ledger, randomness=Randomness.from_seed(3), public_size=ROWS)
    coded = buy_codec(curator, layout_of(SCHEMA), PaidBins(share=0.9, roundness=roundness))
    return CodedModel(coded.codec, ConditionalTables.independent(list(coded.shares))), ledger


def share_of(rows, column, grain):
    values = rows[column].dropna().to_numpy()
    return np.mean(np.round(values * (100 if column == "dose" else 1)).astype(int) % grain == 0)


def test_a_table_keeps_its_look():
    """Shares of 20,000 rows, whose deviation is 0.004 at most; without the purchase prices are round once in 1,000."""
    levels = tuple(feature.size for feature in layout_of(SCHEMA).features)
    real = table().to_pandas()
    rows, plain = (
        decode_features(sample_points(bought(part)[0], jax.random.key(0), ROWS, levels), SCHEMA).to_pandas()
        for part in (0.3, 0.0)
    )
    for column, grain in (("price", 1_000), ("weight", 10)):
        assert abs(share_of(rows, column, grain) - share_of(real, column, grain)) < 0.03, column
    assert share_of(plain, "price", 1_000) < 0.05 < share_of(real, "price", 1_000)
    # Bins of doses are so narrow that many hold no round value, which takes some of it away. Which bins are bought is
    # up to the noise: of eight seeds, plain shares have mean 0.498 and deviation 0.032, bought ones 0.792 and 0.021.
    # So 0.63 is four deviations above the one, and 0.7 as many below the other: a false alarm once in 10^4.
    assert share_of(plain, "dose", 50) < 0.63 < 0.7 < share_of(rows, "dose", 50) < share_of(real, "dose", 50) + 0.03


def test_it_is_charged_once_and_only_where_a_schema_says_that_numbers_may_be_round():
    purposes = [entry.purpose for entry in bought()[1].entries]
    assert purposes == [*(f"one-way marginals, round {n} of 3" for n in (1, 2, 3)), "how round numbers are"]
    assert len(bought(0.0)[1].entries) == 3


def test_the_masses_of_all_values_add_up_to_one():
    """Of one column, summed over its 50,001 values at the other columns' first cells, against a table of 2,201."""
    model, _ = bought()
    codec = model.codec
    for value in ("dose", "weight"):
        place = [feature.column == value and feature.role == "value" for feature in layout_of(SCHEMA).features].index(1)
        size = layout_of(SCHEMA).features[place].size
        column = codec.values.index(place)
        low = np.zeros((size, codec.num_features), np.float32)
        width = np.full((size, codec.num_features), 1e-7, np.float32)
        low[:, place], width[:, place] = np.arange(size) / size, 1 / size

        def inside(low, width, column=column):
            bins = codec.bins_of(low, width)[:, None]
            share = jnp.take_along_axis(codec.inner, bins, axis=1)[column, 0]
            wide = jnp.diff(codec.ends(bins), axis=1)[column, 0]
            weight = codec.roundness.log_weight(codec.ends(bins), codec.of_values(low))[column]
            return codec.codes(low, width)[column], share / wide * jnp.exp(weight)

        codes, density = jax.jit(jax.vmap(inside))(low, width)
        mass = np.bincount(np.asarray(codes), np.asarray(density, np.float64) / size)
        assert np.allclose(mass, 1, atol=2e-3), value


def test_noise_alone_makes_nothing_round():
    random = np.random.default_rng(1)
    in_bins = np.array([[800, 100, 90, 10], [80, 10, 9, 1]])
    shares = np.array([0.7, 0.3])
    by_chance = 5_000 * np.array([0.8, 0.1, 0.09, 0.01])
    believed = [np.any(weights_of(by_chance + random.normal(0, 30, 4), 30.0, shares, in_bins) != 1) for _ in range(200)]
    assert np.mean(believed) < 0.06  # three deviations, four grains: 1.1 % are expected


@pytest.mark.parametrize(
    "forged", [{"firsts": [0]}, {"levels": [0, 0, 0, 2**30]}, {"firsts": [0, 0, 0, 2**40]}, {"levels": "all"}], ids=str
)
def test_forged_descriptions_are_refused(forged):
    model, _ = bought()
    fields = model.describe()
    sizes = [leaf.size for leaf in jax.tree.leaves(model)]
    assert skeleton(fields, sizes) is not None
    fields["codec"]["roundness"].update(forged)
    with pytest.raises(ReleaseError):
        skeleton(fields, sizes)


@pytest.mark.filterwarnings("error")
def test_weights_are_finite_whatever_the_noisy_counts_say():
    """Bins that hold nothing, counts of grains that no such bin has, counts below zero: each made them infinite."""
    random = np.random.default_rng(0)
    for _ in range(2_000):
        in_bins = random.integers(0, 50, (5, 4)) * (random.random((5, 4)) < 0.5)
        in_bins[:, 0] += 2 * (in_bins.sum(1) == 0)
        shares = np.maximum(random.normal(size=5), 0.0) * 10 ** random.uniform(-8, 4) * random.integers(0, 2)
        counts = random.normal(size=4) * 10 ** random.uniform(0, 5)
        found = weights_of(counts, 10 ** random.uniform(-1, 3), shares, in_bins)
        assert np.isfinite(found).all()
        assert (found > 0).all()


def test_what_codes_hold_corrects_how_round_values_are():
    """Counts of values of which nines of ten are multiples of ten, but for those of the first bin, which are all one.

    By a histogram that puts half of the mass into that bin, the others' values would have to be as good as all round.
    """
    schema = Schema(columns={"a": Integer(lower=0, upper=199)}, rows=ROWS)
    codec, layout = codecs.even_codec(layout_of(schema), 4), layout_of(schema)
    plain, shares = roundness._without_weights(layout, codec, [True]), np.array([0.1, 0.3, 0.3, 0.3])
    in_bins = roundness._in_bins(codec, plain)[:, 0]
    truth = np.where(np.arange(len(GRAINS)) >= GRAINS.index(10), 20.0, 1.0)
    truth[-1] = 500.0  # of zero, in the first bin
    law = shares @ (in_bins * truth / (in_bins * truth).sum(1, keepdims=True))
    wrong = np.array([0.4, 0.2, 0.2, 0.2])
    grains = roundness.Grains(plain=plain, counts={0: 1e6 * law}, noise=1.0, held=(wrong,))
    found = lambda codec: np.asarray(codec.roundness.weights[0], float)
    chances = lambda weights: shares @ (in_bins * weights / (in_bins * weights).sum(1, keepdims=True))
    corrected, told = chances(found(grains.weighed(codec, [shares]))), chances(found(grains.weighed(codec)))
    assert np.abs(corrected - law).sum() < 0.01 < 0.05 < np.abs(told - law).sum()


def test_cuts_that_no_code_was_made_of_are_taken_back():
    """The distribution function of the bins stays as it was, and no two neighbours of one code have one density."""
    random, fewer = np.random.default_rng(2), 0
    line = lambda at, edges, shares: np.interp(at, edges, np.concatenate([[0.0], np.cumsum(shares)]))
    for _ in range(100):
        edges = np.unique(np.concatenate([[0.0, 1.0], random.random(6)]))
        shares = random.dirichlet(np.ones(len(edges) - 1))
        finer, cut = codecs.split(edges, shares, None, 0.2)
        code_of = codecs.in_order(cut, random.uniform(0.05, 0.5))
        joined, held, codes = codecs.mended(finer, cut, code_of)
        assert set(edges) <= set(joined) <= set(finer)
        assert np.allclose(line(finer, joined, held), line(finer, finer, cut))
        assert np.array_equal(codes[np.searchsorted(joined, finer[:-1], "right") - 1], code_of)
        density = held / np.diff(joined)
        alike = np.isclose(density[1:], density[:-1], rtol=1e-9) & (codes[1:] == codes[:-1])
        assert not alike.any()
        fewer += len(joined) < len(finer)
    assert fewer > 20
