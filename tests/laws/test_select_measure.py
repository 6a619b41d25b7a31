"""Choosing and measuring: what is chosen is what differs, nothing is left of the budget, and models stay small."""

import warnings
from fractions import Fraction
from functools import cache

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.encoding.layout import layout_of
from sfumato.fitting.codecs import PaidBins
from sfumato.fitting.graphical import Measurement, estimate
from sfumato.fitting.queried import Queried
from sfumato.fitting.select_measure import CellNumbers, choose, measure
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
from sfumato.privacy.concentrated import rho_of
from sfumato.schema import Categorical, Schema
from sfumato.synthesizers import aim

SIZES = (3, 4, 2, 3, 5)
SCHEMA = Schema(
    columns={f"c{place}": Categorical(levels=tuple(range(size))) for place, size in enumerate(SIZES)}, rows=4_000
)
EDGES = {(0, 1), (1, 3), (2, 3), (3, 4)}


def codes_of(num, strength=0.9, seed=0):
    """Codes along a tree: a column repeats the one it hangs on, as far as it can, or is drawn anew."""
    random = np.random.default_rng(seed)
    codes = np.stack([random.integers(0, size, num) for size in SIZES], axis=1)
    for above, below in ((0, 1), (1, 3), (3, 2), (3, 4)):
        follows = random.random(num) < strength
        codes[:, below] = np.where(follows, codes[:, above] % SIZES[below], codes[:, below])
    return codes


def curator_of(codes, epsilon, seed=0):
    ledger = Ledger(Budget(epsilon=epsilon, delta=1e-6), Adjacency())
    rows = {
        "low": (codes / np.array(SIZES)).astype(np.float32),
        "width": np.broadcast_to(1 / np.array(SIZES), codes.shape).astype(np.float32),
    }
    return Curator(rows, ledger=ledger, randomness=Randomness.from_seed(seed), public_size=len(codes)), ledger


def view_of(codes, epsilon=5.0):
    ledger = Ledger(Budget(epsilon=epsilon, delta=1e-6), Adjacency())
    rows = {"codes": codes.astype(np.int32)}
    return Curator(rows, ledger=ledger, randomness=Randomness.from_seed(0), public_size=len(codes))


def shares_of(codes, pair):
    table = np.zeros([SIZES[column] for column in pair])
    np.add.at(table, tuple(codes[:, column] for column in pair), 1 / len(codes))
    return table


def test_cells_are_numbered_as_tables_are_laid_out():
    codes = codes_of(50)
    groups = [(0, 1), (3, 2), (4,), (0, 2, 4)]
    numbers = np.array([CellNumbers.of(groups, SIZES)({"codes": jnp.asarray(row)}) for row in codes])
    for place, group in enumerate(groups):
        expected = np.ravel_multi_index(tuple(codes[:, c] for c in group), [SIZES[c] for c in group])
        assert numbers[:, place].tolist() == expected.tolist()


def test_measured_tables_are_the_counts_and_their_noise():
    """Cells of three tables at a noise of two rows: none is off by more than 5.5 deviations (1e-6 for 38 cells)."""
    codes = codes_of(3_000)
    view = view_of(codes)
    found = measure(view, [(0, 1), (3, 2), (4,)], SIZES, noise_multiplier=2 / np.sqrt(3), purpose="test")
    for each in found:
        assert each.deviation == pytest.approx(2.0)
        assert np.abs(each.counts - 3_000 * shares_of(codes, each.columns)).max() < 11
    transposed = 3_000 * shares_of(codes, (2, 3)).reshape(3, 2)
    assert np.abs(found[1].counts - transposed).max() > 11, "a table with its axes exchanged would show"


def test_the_choice_is_the_table_that_is_described_worst():
    codes = codes_of(3_000)
    candidates = [(0, 1), (0, 2), (1, 3), (2, 4)]
    expected = [3_000 * shares_of(codes, pair) for pair in candidates]
    expected[2] = np.full((4, 3), 250.0)
    given = {"weights": [2.0, 5.0, 4.0, 1.0], "purpose": "test", "epsilon": 1.0}
    chosen = choose(view_of(codes), candidates, expected, SIZES, penalties=[0.0] * 4, **given)
    assert chosen == (1, 3)
    chosen = choose(view_of(codes), candidates, expected, SIZES, penalties=[0.0, 0.0, 9e3, 9e3], **given)
    assert chosen != (1, 3), "a penalty counts"


@pytest.mark.parametrize("strength", [0.9, 0.0])
def test_mst_finds_the_tree_where_there_is_one(strength, monkeypatch):
    asked = []
    real = sf.Mst._chosen
    monkeypatch.setattr(sf.Mst, "_chosen", lambda *given: asked.append(real(*given)) or asked[-1])
    curator, _ = curator_of(codes_of(4_000, strength), 1.0)
    sf.Mst().fit(curator, layout_of(SCHEMA))
    assert (set(asked[0]) == EDGES) == (strength > 0), "by chance alone one of 125 trees is found"


@cache
def fitted_aim(strength, rounds=16, megabytes=80.0, label=None, singles=None):
    """What AIM did: the models after each round, and the ledger."""
    models = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aim, "estimate", lambda *given, **rest: models.append(estimate(*given, **rest)) or models[-1])
        curator, ledger = curator_of(codes_of(4_000, strength), 3.0)
        method = sf.Aim(rounds=rounds, megabytes=megabytes, label=label, singles=singles)
        method.fit(curator, layout_of(SCHEMA))
    return models, ledger


def test_aim_learns_every_pair():
    codes = codes_of(4_000)
    errors = lambda model: [
        np.abs(table - shares_of(codes, pair)).sum() / 2 for pair, table in Queried(model).pairs().items()
    ]
    models, _ = fitted_aim(0.9)
    assert max(errors(models[-1])) < 0.1
    assert max(errors(models[0])) > 0.3, "columns alone do not do"


CASES = [(0.9, 16, None), (0.0, 16, None), (0.9, 3, None), (0.9, 1, None), (0.9, 16, 0.3), (0.9, 1, 0.9)]


@pytest.mark.parametrize(("strength", "rounds", "singles"), CASES)
def test_aim_spends_its_reserve_to_the_last_and_not_more(strength, rounds, singles):
    models, ledger = fitted_aim(strength, rounds, singles=singles)
    paid = sum(rho_of(entry.event) for entry in ledger.entries if entry.prepaid)
    total = Fraction(ledger.charges[-1].event.rho)
    assert total * (1 - Fraction(1, 2**45)) < paid <= total
    assert len(ledger.charges) == 1 and len(ledger.entries) == 2 * len(models)
    first = rho_of(next(entry.event for entry in ledger.entries if entry.prepaid))
    assert float(first / total) == pytest.approx(0.9 / rounds if singles is None else singles, rel=1e-9)


def test_aim_takes_larger_steps_where_there_is_nothing_to_learn():
    rounds = [len(fitted_aim(strength)[0]) for strength in (0.0, 0.9)]
    assert rounds[0] < 16 * len(SIZES) - len(SIZES)
    events = [entry.event for entry in fitted_aim(0.0)[1].entries if entry.event.kind == "gaussian_sum"]
    assert events[-2].noise_multiplier < events[1].noise_multiplier / 1.9


def test_aim_keeps_the_model_small():
    limit = 45 * 8 / 2**20
    models, _ = fitted_aim(0.9, megabytes=limit)
    sizes = [model.tree.megabytes for model in models]
    assert max(sizes) <= limit
    assert max(model.tree.megabytes for model in fitted_aim(0.9)[0]) > limit


@pytest.mark.parametrize(("rounds", "codec"), [(16, None), (1, None), (4, PaidBins(rounds=1, share=0.3))])
def test_a_label_is_paid_from_the_same_total(rounds, codec):
    curator, ledger = curator_of(codes_of(4_000), 3.0)
    sf.Aim(rounds=rounds, codec=codec, label="c3", labelled=0.9).fit(curator, layout_of(SCHEMA))
    paid = sum(rho_of(entry.event) for entry in ledger.entries if entry.prepaid)
    total = Fraction(ledger.charges[-1].event.rho)
    assert total * (1 - Fraction(1, 2**45)) < paid <= total
    purposes = [entry.purpose for entry in ledger.entries]
    assert purposes.count("counts of the label") == purposes.count("counts of the label with each column") == 1
    assert purposes.count("counts of each column") == 1


def test_a_label_is_known_to_every_column_before_the_rounds():
    codes = codes_of(4_000)

    def apart(label):
        first, _ = fitted_aim(0.9, label=label)
        pairs = {pair: table for pair, table in Queried(first[0]).pairs().items() if 3 in pair}
        return max(np.abs(table - shares_of(codes, pair)).sum() / 2 for pair, table in pairs.items())

    assert apart("c3") < 0.1
    assert apart(None) > 0.3, "columns alone do not do"


def test_an_unknown_label_is_refused_before_anything_is_spent():
    parts = {"chain": sf.Chain(label="none"), "aim": sf.Aim(label="none")}
    autos = (sf.Auto(label="none"), *(sf.Auto(**{name: part}) for name, part in parts.items()))
    for method in (*parts.values(), *autos):
        curator, ledger = curator_of(codes_of(100), 3.0)
        with pytest.raises(sf.ArgumentError, match="none"):
            method.fit(curator, layout_of(SCHEMA))
        assert not ledger.entries and not ledger.charges


@pytest.mark.parametrize("rows", [100, 100_000])
def test_auto_takes_the_label_of_its_parts_and_refuses_two(rows):
    ledger = Ledger(Budget(epsilon=3.0, delta=1e-6), Adjacency())
    cells = {"low": np.zeros((1, 5), np.float32), "width": np.ones((1, 5), np.float32)}
    curator = Curator(cells, ledger=ledger, randomness=Randomness.from_seed(0), public_size=rows)
    for method in (sf.Auto(label="c3"), sf.Auto(aim=sf.Aim(label="c3")), sf.Auto(chain=sf.Chain(label="c3"))):
        chosen = method.chosen(curator, layout_of(SCHEMA))
        assert (chosen.label, chosen.name) == ("c3", "aim" if rows == 100 else "chain")
    for other in ({"aim": sf.Aim(label="c1")}, {"chain": sf.Chain(label="c1")}):
        with pytest.raises(sf.ArgumentError, match="c1"):
            sf.Auto(label="c3", **other)


def test_dependence_reaches_the_synthetic_rows():
    table = pa.table({f"c{place}": codes_of(4_000)[:, place] for place in range(len(SIZES))})
    agreement = {}
    for method in (sf.Independent(), sf.Mst(), sf.Aim()):
        release = sf.fit(table, SCHEMA, method=method, epsilon=1.0, delta=1e-6, seed=0)
        rows = release.sample(4_000, seed=1)
        agreement[method.name] = np.mean(np.array(rows["c1"]) % 3 == np.array(rows["c3"]))
    truth = np.mean(codes_of(4_000)[:, 1] % 3 == codes_of(4_000)[:, 3])
    assert abs(agreement["mst"] - truth) < 0.05 and abs(agreement["aim"] - truth) < 0.05
    assert abs(agreement["independent"] - truth) > 0.3


def test_estimates_agree_with_those_of_mbi():
    """At next to no noise there is one answer, and the reference implementation of the paper finds it, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it warns about 32 bits and about caches when it is imported
        mbi = pytest.importorskip("mbi")
    codes = codes_of(4_000)
    groups = [(0, 1), (1, 3), (0, 3)]
    tables = [4_000 * shares_of(codes, group) for group in groups]
    model = estimate(
        SIZES, [Measurement(columns=g, counts=t, deviation=0.1) for g, t in zip(groups, tables, strict=True)]
    )
    names = [str(column) for column in range(len(SIZES))]
    measured = [
        mbi.LinearMeasurement(jnp.asarray(table.ravel()), tuple(names[c] for c in group), stddev=0.1)
        for group, table in zip(groups, tables, strict=True)
    ]
    other = mbi.estimation.MirrorDescent().estimate(mbi.Domain(names, SIZES), measured, iters=2_000)
    for pair, table in Queried(model).pairs().items():
        theirs = np.asarray(other.project(tuple(names[c] for c in pair)).datavector()).reshape(table.shape)
        assert np.abs(table - theirs / theirs.sum()).sum() / 2 < 0.01, pair
