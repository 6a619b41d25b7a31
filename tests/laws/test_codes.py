"""Laws of codes: nothing is lost on the way there and back, all rows together have mass one, forged files are refused.

Noise has a fixed key, so each test either always or never fails, unless it says otherwise.
"""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

from sfumato.encoding.features import decode_features, encode_features
from sfumato.encoding.layout import layout_of
from sfumato.errors import ArgumentError, ReleaseError
from sfumato.fitting.codecs import PaidBins, buy_codec, even_codec
from sfumato.models.codes.chain import Chain, ChainShape
from sfumato.models.codes.coded import CodedModel
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.codes.together import pick
from sfumato.models.registry import skeleton
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
from sfumato.release.release import sample_points
from sfumato.schema import Boolean, Categorical, Continuous, Integer, Schema

ROWS = 20_000
SCHEMA = Schema(
    columns={
        "gain": Integer(lower=0, upper=99_999),
        "hours": Integer(lower=1, upper=99, nullable=True),
        "town": Categorical(levels=tuple("abcdefgh")),
        "score": Continuous(lower=-1, upper=1),
        "rare": Boolean(),
    },
    rows=ROWS,
)


@cache
def table():
    random = np.random.default_rng(4)
    gain = np.where(random.random(ROWS) < 0.9, 0, random.integers(1, 99_999, ROWS))
    hours = np.where(random.random(ROWS) < 0.4, 40, random.integers(1, 99, ROWS))
    return pa.table(
        {
            "gain": gain,
            "hours": pa.array(hours, mask=random.random(ROWS) < 0.2),
            "town": random.choice(list("abcdefgh"), ROWS, p=[0.4, 0.3, 0.2, 0.0992, *[0.0002] * 4]),
            "score": np.tanh(random.normal(size=ROWS)),
            "rare": random.random(ROWS) < 0.01,
        }
    )


@cache
def bought(epsilon=10.0):
    cells = encode_features(table(), SCHEMA)
    rows = {"low": cells.low.astype(np.float32), "width": cells.width.astype(np.float32)}
    ledger = Ledger(Budget(epsilon=epsilon, delta=1e-6), Adjacency())
    curator = Curator(rows, ledger=ledger, randomness=Randomness.from_seed(3), public_size=ROWS)
    return buy_codec(curator, layout_of(SCHEMA), PaidBins(share=0.9)), rows, ledger


def levels():
    return tuple(feature.size for feature in layout_of(SCHEMA).features)


def test_a_bought_codec_keeps_point_masses_and_missing_values():
    coded, _, ledger = bought()
    model = CodedModel(coded.codec, ConditionalTables.independent(list(coded.shares)))
    points = sample_points(model, jax.random.key(0), 20_000, levels())
    rows = decode_features(points, SCHEMA).to_pandas()
    # Four deviations of a share of 20,000 rows are 0.014 at most; noise at this epsilon is far below.
    assert abs((rows["gain"] == 0).mean() - 0.9) < 0.015
    assert abs((rows["hours"] == 40).mean() - 0.8 * 0.406) < 0.02
    assert abs(rows["hours"].isna().mean() - 0.2) < 0.015
    assert 0.004 < rows["rare"].mean() < 0.016  # never joined, however rare
    rounds = [f"one-way marginals, round {n} of 3" for n in (1, 2, 3)]
    assert [entry.purpose for entry in ledger.entries] == [*rounds, "how round numbers are"]


def test_levels_too_rare_for_their_noise_share_a_code():
    coded, _, _ = bought(0.5)
    assert coded.codec.sizes[2] < 8
    inner = np.asarray(coded.codec.inner[2])[:8]
    code_of = np.asarray(coded.codec.code_of[2])[:8].astype(int)
    assert np.allclose(np.bincount(code_of, inner), 1)


@pytest.mark.parametrize("kind", ["even", "bought"])
def test_what_is_drawn_has_the_codes_it_was_drawn_from(kind):
    """Through the decoder and the encoder of tables, so that no rounding on the way moves a row out of its bin."""
    codec = even_codec(layout_of(SCHEMA), 30) if kind == "even" else bought()[0].codec
    random = np.random.default_rng(1)
    codes = np.stack([random.integers(0, size, 500) for size in codec.sizes], axis=1).astype(np.int32)
    drawn = jax.vmap(codec.draw)(jnp.asarray(codes), jax.random.uniform(jax.random.key(2), (500, 3, len(codec.sizes))))
    again = encode_features(decode_features(codec.points(codes, *map(np.asarray, drawn), levels()), SCHEMA), SCHEMA)
    low, width = again.low.astype(np.float32), again.width.astype(np.float32)
    assert np.array_equal(np.asarray(jax.vmap(codec.codes)(low, width)), codes)


def tiny_chain(base=True, shared=False):
    """Three columns of codes, every array of the chain random."""
    sizes = (3, 3, 3) if shared else (2, 3, 4)
    random = np.random.default_rng(5)
    shape = ChainShape(sizes, (2, 0, 1), 4, shared)
    tables = None
    if base:
        draw = lambda rows, size: jnp.asarray(random.dirichlet(np.ones(size), rows), jnp.float32)
        above = ((2,), (0, 2), ())
        rows = [int(np.prod([sizes[parent] for parent in each])) for each in above]
        tables = ConditionalTables(
            tuple(draw(count, size) for count, size in zip(rows, sizes, strict=True)), (2, 0, 1), above
        )
    chain = Chain.start(shape, key=jax.random.key(1), base=tables)
    leaves, structure = jax.tree.flatten(chain.trainable())
    moved = [leaf + jnp.asarray(random.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
    return eqx_combine(jax.tree.unflatten(structure, moved), chain)


def eqx_combine(params, chain):
    import equinox as eqx

    return eqx.combine(params, chain)


@pytest.mark.parametrize(("base", "shared"), [(True, False), (False, False), (False, True)], ids=str)
def test_a_chain_is_a_distribution_and_draws_what_it_says(base, shared):
    """All rows together have mass one; and the counts of 40,000 draws fit (chi-square, false alarms 1e-6)."""
    from scipy.stats import chi2

    chain = tiny_chain(base, shared)
    every = np.array(list(product(*(range(size) for size in chain.sizes))), np.int32)
    mass = np.exp(np.asarray(jax.vmap(chain.log_prob)(every), np.float64))
    assert abs(mass.sum() - 1) < 1e-5
    drawn = np.asarray(jax.jit(jax.vmap(chain.sample))(jax.random.split(jax.random.key(9), 40_000)))
    places = np.ravel_multi_index(drawn.T, chain.sizes)
    counts = np.bincount(places, minlength=len(mass))
    often = mass * 40_000 >= 5
    far = lambda law: np.sum((counts - 40_000 * law)[often] ** 2 / (40_000 * law)[often])
    assert far(mass) < chi2.isf(1e-6, often.sum())
    assert far(np.roll(mass, 1)) > chi2.isf(1e-6, often.sum())  # the chain read in another order


def test_a_chain_starts_as_its_base():
    base = tiny_chain().base
    start = Chain.start(ChainShape(base.sizes, base.order, 8), key=jax.random.key(0), base=base)
    every = np.array(list(product(*(range(size) for size in base.sizes))), np.int32)
    assert np.allclose(jax.vmap(start.log_prob)(every), jax.vmap(base.log_prob)(every), atol=1e-5)


def test_nothing_is_picked_that_has_no_chance():
    chances = jnp.array([0.0, 0.3, 0.0, 0.7, 0.0])
    found = {int(pick(chances, jnp.float32(u))) for u in (0.0, 0.29999, 0.30001, 0.9999999)}
    assert found == {1, 3}


def test_the_likelihood_of_all_rows_of_a_small_table_adds_up_to_one():
    """Exactly, missing values and both halves of a flag included: a mass on cells, not an estimate."""
    schema = Schema(columns={"a": Integer(lower=0, upper=6, nullable=True), "b": Boolean()}, rows=100)
    codec = even_codec(layout_of(schema), 3)
    random = np.random.default_rng(8)
    tables = tuple(
        jnp.asarray(random.dirichlet(np.ones(size), rows), jnp.float32)
        for size, rows in zip(codec.sizes, (1, codec.sizes[0]), strict=True)
    )
    model = CodedModel(codec, ConditionalTables(tables, (0, 1), ((), (0,))))
    rows = pa.table({"a": [*range(7), None] * 2, "b": [False] * 8 + [True] * 8})
    cells = encode_features(rows, schema)
    nothing = jnp.zeros((1, 3))
    on_cube = jax.vmap(lambda low, width: model.log_mean_density(low, width, nothing))(
        jnp.asarray(cells.low, jnp.float32), jnp.asarray(cells.width, jnp.float32)
    )
    assert abs(np.exp(np.asarray(on_cube, np.float64) + cells.log_unit).sum() - 1) < 1e-5


def test_tables_refuse_parents_that_come_later():
    table = jnp.full((2, 2), 0.5)
    with pytest.raises(ArgumentError):
        ConditionalTables((table, table), (0, 1), ((1,), ()))


def description():
    chain = tiny_chain()
    from sfumato.models.codes.codec import Codec

    return CodedModel(Codec.of_levels(list(chain.sizes)), chain).describe()


FORGED = {
    "no codec": lambda fields: fields.pop("codec"),
    "a huge width": lambda fields: fields["joint"].update(width=10**6),
    "a width that is no number": lambda fields: fields["joint"].update(width="8"),
    "a truth value for a number": lambda fields: fields["joint"].update(width=True),
    "an order that leaves a column out": lambda fields: fields["joint"].update(order=[0, 0, 1]),
    "parents past the columns": lambda fields: fields["joint"]["base"].update(parents=[[7], [], []]),
    "parents that come later": lambda fields: fields["joint"]["base"].update(parents=[[1], [0], []]),
    "a parent twice": lambda fields: fields["joint"]["base"].update(parents=[[2, 2], [0, 2], []]),
    "many parents": lambda fields: fields["joint"]["base"].update(parents=[[2] * 10**5, [0, 2], []]),
    "a base of more columns": lambda fields: fields["joint"]["base"].update(
        sizes=[2, 3, 4, 2], order=[3, 2, 0, 1], parents=[[3], [0], [], []]
    ),
    "no columns": lambda fields: fields["joint"].update(sizes=[], order=[]),
    "many layers": lambda fields: fields.update(
        joint={"kind": "transformer", "sizes": [2, 3, 4], "order": [0, 1, 2], "layers": 100, "width": 1, "heads": 1}
    ),
    "tables past the file": lambda fields: fields["joint"]["base"].update(sizes=[2, 3, 10**6]),
    "a base of other codes": lambda fields: fields["joint"]["base"].update(sizes=[3, 3, 4]),
    "another number of codes": lambda fields: fields["codec"].update(sizes=[2, 3, 5]),
    "a feature used twice": lambda fields: fields["codec"].update(values=[0, 0, 1]),
    "an unknown joint": lambda fields: fields["joint"].update(kind="oracle"),
    "sharing that is no truth value": lambda fields: fields["joint"].update(shared=1),
}


def test_a_description_is_rebuilt():
    assert skeleton(description(), [10_000]).describe() == description()


@pytest.mark.parametrize("name", sorted(FORGED))
def test_forged_descriptions_are_refused(name):
    fields = description()
    FORGED[name](fields)
    with pytest.raises(ReleaseError):
        skeleton(fields, [1_000])
