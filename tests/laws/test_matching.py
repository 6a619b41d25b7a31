"""Matching: embeddings of norm at most one, sums that equal a slow loop, and training that finds what was summed."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.encoding.layout import layout_of
from sfumato.errors import ArgumentError
from sfumato.fitting.fourier import _subsets, mixed_embedding, wave_embedding
from sfumato.fitting.generator_start import GeneratorSize, label_place
from sfumato.fitting.likelihood import Optimiser
from sfumato.fitting.matching import RowVector, Training, _Distance, _even_places, buy_target, columns_seen, match
from sfumato.fitting.tangent import TangentEmbedding
from sfumato.models.generators.blocks import blocks_of
from sfumato.models.generators.generator import Generator
from sfumato.privacy import Adjacency, Budget, Ledger, Randomness
from sfumato.privacy.unprotected import Unprotected
from sfumato.progress import quiet
from sfumato.schema import Boolean, Categorical, Continuous, Integer, Schema

SCHEMA = Schema(
    columns={
        "town": Categorical(levels=("a", "b", "c"), nullable=True),
        "visits": Integer(lower=0, upper=4),
        "weight": Continuous(lower=0, upper=1),
        "age": Integer(lower=0, upper=99, nullable=True),
        "ill": Boolean(nullable=True),
    }
)
LAYOUT = layout_of(SCHEMA)
LABEL = label_place(LAYOUT, "ill")
KEY = jax.random.key(3)

EMBEDDINGS = {
    "waves of one": lambda blocks, columns: wave_embedding(blocks, columns, features=40, width=0.2, order=1, key=KEY),
    "waves of two": lambda blocks, columns: wave_embedding(blocks, columns, features=90, width=0.2, order=2, key=KEY),
    "few waves": lambda blocks, columns: wave_embedding(blocks, columns, features=20, width=0.2, order=3, key=KEY),
    "mixed": lambda blocks, columns: mixed_embedding(blocks, columns, features=30, width=0.2, key=KEY),
    "tangent": lambda blocks, columns: TangentEmbedding.start(blocks, columns, width=5, key=KEY),
}
over_embeddings = pytest.mark.parametrize("name", EMBEDDINGS)


SMALL = GeneratorSize(latent=3, width=8, depth=1)


def generator_of(layout=LAYOUT, label=None, size=SMALL):
    return Generator.start(size.shape(blocks_of(layout, label), label), key=jax.random.key(0))


def vector_of(name, *, label=None, draws=8):
    generator = generator_of(label=label)
    embedding = EMBEDDINGS[name](generator.blocks, columns_seen(generator))
    return RowVector(generator, embedding, _even_places(draws, LAYOUT.num_features))


def rows_of(num, seed=0):
    """Rows as a curator holds them, with missing values."""
    draw = np.random.default_rng(seed)
    low, width = np.zeros((num, LAYOUT.num_features)), np.zeros((num, LAYOUT.num_features))
    for place, feature in enumerate(LAYOUT.features):
        size = feature.size
        low[:, place] = draw.random(num) if size is None else draw.integers(0, size, num) / size
        width[:, place] = 0.0 if size is None else 1 / size
        if feature.role == "value" and place > 0 and LAYOUT.features[place - 1].column == feature.column:
            gone = low[:, place - 1] >= 0.5
            low[gone, place], width[gone, place] = 0.0, 1.0
    return {"low": low.astype(np.float32), "width": width.astype(np.float32)}


def hostile_rows(num, seed=0):
    """Cells that no reading of a table gives: NaN, infinities, huge and negative numbers."""
    draw = np.random.default_rng(seed)
    odd = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -0.5, 1.5, 0.0, 1.0, 0.3])
    shape = (num, LAYOUT.num_features)
    return {name: draw.choice(odd, shape).astype(np.float32) for name in ("low", "width")}


@over_embeddings
@pytest.mark.parametrize("label", [None, LABEL])
def test_the_vector_of_a_row_has_norm_at_most_one(name, label):
    """Also of hostile rows; the mutant leaves the division by the number of waves, or by the norm, out."""
    vector = vector_of(name, label=label)
    plain = rows_of(60)
    for rows in (plain, hostile_rows(60)):
        found = np.asarray(jax.jit(jax.vmap(vector))(rows), np.float64)
        assert np.all(np.isfinite(found))
        assert np.max(np.linalg.norm(found, axis=1)) <= 1 + 1e-5
        assert np.max(np.linalg.norm(2 * found, axis=1)) > 1, "twice as long is too long"
        if label is not None and rows is plain:
            blocks = found.reshape(60, vector.generator.shape.classes, -1)
            assert np.all(np.count_nonzero(np.abs(blocks).sum(axis=2), axis=1) <= 1), "one label a row"


@over_embeddings
def test_embeddings_have_the_size_they_state_and_do_not_look_at_the_label(name):
    vector = vector_of(name, label=LABEL)
    width = vector.generator.blocks.width
    numbers = jax.random.uniform(jax.random.key(1), (width,))
    assert vector.embedding(numbers).shape == (vector.embedding.size,)
    gradient = np.asarray(jax.jit(jax.jacobian(vector.embedding))(numbers))
    hidden = np.r_[vector.generator.blocks.part(LABEL), vector.generator.blocks.part(LABEL - 1)]
    assert not np.any(gradient[:, hidden])
    assert np.any(gradient[:, : hidden.min()])


@pytest.mark.parametrize("name", [name for name in EMBEDDINGS if name != "tangent"])
def test_the_embedding_of_chances_is_the_mean_over_what_they_throw(name):
    """By enumeration of all values of two features; the mutant throws one of them by other chances."""
    layout = layout_of(Schema(columns={"a": Categorical(levels=("x", "y", "z")), "b": Integer(lower=0, upper=3)}))
    blocks = blocks_of(layout)
    embedding = EMBEDDINGS[name](blocks, (0, 1))
    outputs = jnp.array([0.3, -1.0, 0.5, 0.8, -0.2])
    chances = blocks.expected(outputs)
    shares = [np.asarray(blocks.value_shares(chances, place), np.float64) for place in (0, 1)]

    cells = jnp.array([[a / 3, b / 4] for a, b in itertools.product(range(3), range(4))])
    widths = jnp.array([1 / 3, 1 / 4])
    each = jax.jit(jax.vmap(lambda low: embedding(blocks.embed(low, widths, jnp.zeros(2)))))(cells)

    def mean(first, second):
        return np.outer(first, second).reshape(-1) @ np.asarray(each, np.float64)

    np.testing.assert_allclose(embedding(chances), mean(*shares), atol=1e-5)
    assert np.max(np.abs(embedding(chances) - mean(shares[0], np.full(4, 0.25)))) > 1e-3


@pytest.mark.parametrize(("columns", "order", "most"), [(5, 2, 100), (5, 2, 9), (5, 3, 12), (1, 1, 4), (40, 3, 60)])
def test_sets_of_columns_are_distinct_and_small_ones_come_first(columns, order, most):
    found = [tuple(place for place in one if place < columns) for one in _subsets(columns, order, most, KEY).tolist()]
    everything = sum(math.comb(columns, size) for size in range(1, order + 1))
    assert len(set(found)) == len(found) == min(most, everything)
    assert found[: min(columns, most)] == [(column,) for column in range(min(columns, most))]
    assert all(len(set(one)) == len(one) for one in found)


def test_embeddings_grow_with_the_number_of_columns_within_bounds():
    for columns, expected in ((3, 2_000), (40, 8 * 820), (80, 8_000)):
        layout = layout_of(Schema(columns={f"c{place}": Boolean() for place in range(columns)}))
        every = tuple(range(columns))
        found = wave_embedding(blocks_of(layout), every, features=None, width=0.2, order=2, key=KEY).size
        assert 0.7 * expected <= found <= expected


def doors(rows, size):
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency())
    return Unprotected(rows, ledger=ledger, randomness=Randomness.from_seed(0), public_size=size)


def _parts_of(vector):
    return vector.generator.embed, vector.embedding, vector.generator.label_of


@over_embeddings
@pytest.mark.parametrize("label", [None, LABEL])
def test_the_sum_equals_a_slow_loop(name, label):
    vector, rows = vector_of(name, label=label), rows_of(12, seed=4)
    target = buy_target(doors(rows, 12), vector.generator, vector.embedding)
    embed, embedding, label_of = (eqx.filter_jit(each) for each in _parts_of(vector))
    total, counts = 0.0, np.zeros(max(1, vector.generator.shape.classes))
    for low, width in zip(rows["low"], rows["width"], strict=True):
        seen = [embed(jnp.asarray(low), jnp.asarray(width), place) for place in vector.places]
        mean = sum(np.asarray(embedding(each), np.float64) for each in seen) / len(seen)
        here = np.ones(1) if label is None else np.asarray(label_of(seen[0]), np.float64)
        total, counts = total + np.outer(here, mean), counts + here
    np.testing.assert_allclose(target.means, total / 12, atol=2e-5)
    np.testing.assert_allclose(target.shares, counts / 12, atol=1e-5)


def test_the_loss_is_the_squared_distance_in_the_mean():
    """Over 400 pairs of batches of two rows; a single batch, the mutant, adds its own variance. Seed fixed; by the
    central limit the mean of pairs is off by more than 5 of its standard errors with a chance below 1e-6."""
    vector = vector_of("waves of two")
    generator, embedding = vector.generator, vector.embedding
    target = buy_target(doors(rows_of(50), 50), generator, embedding)
    loss = _Distance.of(embedding, target, np.ones(1), 2)
    weight = float(loss.weights[0])
    means = jax.jit(jax.vmap(lambda key: loss.batch_means(generator, key)))(jax.random.split(jax.random.key(7), 8_000))
    squared = weight * float(np.sum((np.mean(np.asarray(means, np.float64), axis=0) - target.means) ** 2))
    found = np.asarray(jax.jit(jax.vmap(lambda key: loss(generator, key)))(jax.random.split(KEY, 400)), np.float64)
    error = found.std() / 20
    assert abs(found.mean() - squared) < 5 * error
    single = weight * np.sum((np.asarray(means, np.float64) - target.means) ** 2, axis=(1, 2))
    assert abs(single.mean() - squared) > 5 * error


def test_training_finds_how_columns_go_together():
    """Two coins that agree nine times of ten, and a number that follows one: three labels in the last column.

    The mutant is not trained. Exact sums and fixed keys, so that nothing is left to chance.
    """
    layout = layout_of(Schema(columns={"a": Boolean(), "b": Boolean(), "x": Continuous(lower=0, upper=1)}))
    draw = np.random.default_rng(0)
    coin = draw.integers(0, 2, 400)
    other = np.where(draw.random(400) < 0.9, coin, 1 - coin)
    low = np.stack([coin / 2, other / 2, 0.25 + 0.5 * other], axis=1).astype(np.float32)
    rows = {"low": low, "width": np.tile(np.array([0.5, 0.5, 0.0], np.float32), (400, 1))}
    generator = generator_of(layout, size=GeneratorSize(latent=4, width=16, depth=1))
    embedding = wave_embedding(generator.blocks, (0, 1, 2), features=60, width=0.3, order=2, key=KEY)
    target = buy_target(doors(rows, 400), generator, embedding)
    training = Training(steps=300, batch=64, optimiser=Optimiser(learning_rate=1e-2, averaging=0.9))
    seen = []
    progress = lambda purpose, done, total: seen.append((done, total))
    trained = match(generator, embedding, target, training, key=KEY, progress=progress)
    assert seen[0] == (0, 300) and seen[-1] == (300, 300)
    for model, good in ((trained, True), (generator, False)):
        drawn = model.draw_rows(jax.random.key(1), 2_000, 2_000)
        agree = np.mean(drawn[:, 0] == drawn[:, 1])
        apart = np.mean(drawn[drawn[:, 1] == 1, 2]) - np.mean(drawn[drawn[:, 1] == 0, 2])
        assert (abs(agree - 0.9) < 0.05 and abs(apart - 0.5) < 0.1) == good


def test_rare_labels_keep_their_share_and_their_rows():
    layout = layout_of(Schema(columns={"x": Continuous(lower=0, upper=1), "y": Boolean()}))
    rare = np.arange(500) % 20 == 0
    low = np.stack([np.where(rare, 0.9, 0.2), rare / 2], axis=1).astype(np.float32)
    rows = {"low": low, "width": np.tile(np.array([0.0, 0.5], np.float32), (500, 1))}
    generator = generator_of(layout, label=1)
    embedding = wave_embedding(generator.blocks, (0,), features=30, width=0.3, order=1, key=KEY)
    target = buy_target(doors(rows, 500), generator, embedding)
    training = Training(steps=300, batch=32, optimiser=Optimiser(learning_rate=1e-2, averaging=0.9))
    drawn = match(generator, embedding, target, training, key=KEY, progress=quiet).draw_rows(KEY, 4_000, 4_000)
    assert np.mean(drawn[:, 1]) == pytest.approx(0.05, abs=0.02)
    assert np.mean(drawn[drawn[:, 1] == 1, 0]) == pytest.approx(0.9, abs=0.1)
    assert np.mean(drawn[drawn[:, 1] == 0, 0]) == pytest.approx(0.2, abs=0.1)


def test_what_was_bought_is_not_trained():
    generator = generator_of(label=LABEL)
    embedding = EMBEDDINGS["mixed"](generator.blocks, columns_seen(generator))
    target = buy_target(doors(rows_of(40), 40), generator, embedding)
    training = Training(steps=2, batch=4)
    found = match(generator, embedding, target, training, key=KEY, progress=quiet)
    np.testing.assert_allclose(np.exp(found.label_logits), np.maximum(target.shares, 1e-6), rtol=1e-4)
    assert not eqx.tree_equal(found.layers, generator.layers)


@pytest.mark.parametrize("label", ["nobody", "weight"])
def test_a_label_that_is_no_column_of_few_values_is_refused(label):
    with pytest.raises(ArgumentError, match=f"label '{label}'"):
        label_place(LAYOUT, label)
