"""One contract for every method: it runs over the registry, so a new method adds a line to ``TINY`` and no test.

A method is fitted once to each small table; what the tests look at is shared, because compiling takes seconds.
"""

import json
from math import inf

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sfumato as sf
from contract.cases import (
    CASES,
    TINY,
    can_score,
    fitted,
    method_of,
    over_all,
    over_gradients,
    over_methods,
    over_sampling_alone,
    over_scoring,
    plain,
)
from sfumato.encoding import canonicalise
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.models.model import DensityModel, Model
from sfumato.pipeline import private_rows
from sfumato.privacy import Relation
from sfumato.privacy.queries import count_query
from sfumato.release import store
from sfumato.synthesizers import Synthesizer
from sfumato.table import to_arrow
from thorough import once_a_family

# --- the method itself ----------------------------------------------------------------------------------------


@over_methods
def test_a_method_says_what_it_is(name):
    kind = sf.REGISTRY[name]
    assert name in TINY, "give the contract tiny settings for the new method"
    method = method_of(name)
    assert isinstance(method, Synthesizer)
    assert kind.name == name
    assert all(isinstance(text, str) and text for text in (kind.title, kind.reference, *kind.can))
    assert {"sample"} <= set(kind.can) <= {"sample", "log_prob", "warm_start"}
    assert json.loads(json.dumps(method.settings())).keys() == method.settings().keys()
    assert method == method_of(name) and kind() == kind(), "a configuration is a value"


def test_a_method_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(sf.ArgumentError, match="maf"):
        sf.fit(CASES["one row"].table, CASES["one row"].schema, method="gan", epsilon=1.0)


# --- the certificate ------------------------------------------------------------------------------------------


@over_all
def test_the_certificate_keeps_the_budget_and_uses_it(name, case):
    certificate, budget = fitted(name, case).certificate, CASES[case]
    assert certificate.status == "for release"
    assert certificate.delta == budget.delta
    assert certificate.budget_epsilon == budget.epsilon
    assert 0.9 * budget.epsilon < certificate.epsilon <= budget.epsilon


@over_all
def test_the_certificate_can_be_derived_again_from_its_own_text(name, case):
    certificate = fitted(name, case).certificate
    read = sf.Certificate.from_dict(json.loads(plain(certificate)))
    assert read.rederive() == pytest.approx(certificate.epsilon, abs=1e-9)
    assert plain(read) == plain(certificate)


@over_all
def test_the_certificate_says_all_that_a_statement_must(name, case):
    stated = fitted(name, case).certificate.to_dict()
    schema = CASES[case].schema
    assert stated["relation"] == method_of(name).relation.value
    assert (stated["unit"], stated["max_rows"]) == (
        ("row", 1) if schema.unit is None else (schema.unit.column, schema.unit.max_rows)
    )
    assert stated["accountant"]["name"] in ("PLD", "RDP")
    assert stated["accountant"]["library"].startswith("dp-accounting 0.")
    assert stated["charges"] and all(charge["purpose"] and charge["event"]["kind"] for charge in stated["charges"])
    assert stated["randomness"]["hardened"] is True
    assert "entropy" in stated["randomness"]["source"]
    assert stated["public"]["method"] == name
    assert stated["public"]["settings"] == json.loads(json.dumps(method_of(name).settings()))
    assert stated["public"]["declared_rows"] == schema.rows
    assert len(stated["assumptions"]) >= 4
    assert {"sfumato", "jax", "numpy", "dp-accounting", "python"} <= stated["versions"].keys()
    for key in ("epsilon_rdp", "epsilon_clt_approximation_may_understate"):
        assert key in stated


@over_gradients
def test_the_certificate_of_gradients_names_their_sampler_and_their_steps(name):
    events = [charge["event"] for charge in fitted(name, "mixed").certificate.to_dict()["charges"]]
    assert events[-1]["kind"] == "poisson_gaussian"
    assert events[-1]["steps"] == TINY[name]["steps"]
    assert 0 < events[-1]["rate"] <= 1 and events[-1]["noise_multiplier"] > 0


@pytest.mark.parametrize("name", once_a_family(sorted(sf.REGISTRY)))
def test_an_undeclared_size_is_bought_where_it_is_needed(name):
    """Gradients and bought bins need it, to make a mean of a sum; counts add up to it, and need not ask."""
    charges = fitted(name, "undeclared rows").certificate.charges
    assert [purpose for purpose, _ in charges].count("row count") == (
        name not in ("aim", "independent", "mog", "mst", "ntk")
    )
    assert "row count" not in [purpose for purpose, _ in fitted(name, "all continuous").certificate.charges]


@over_methods
def test_one_row_more_changes_nothing_in_the_certificate(name):
    """An empty table and that of one row are neighbours; ninety rows say no more."""
    without, one, ninety = (plain(fitted(name, case).certificate) for case in ("empty", "one row", "all continuous"))
    assert one == without and ninety == without


@over_all
def test_the_number_of_rows_is_nowhere_in_the_release(name, case):
    """Numbers of the header are compared whole; a count that is a declared or set number by chance is left out."""
    count = CASES[case].table.num_rows
    if count < 50:
        pytest.skip("too small a number to look for")
    texts = store._texts(fitted(name, case))
    numbers = set()

    def gather(value):
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                gather(inner)
        elif isinstance(value, int | float):
            numbers.add(value)

    for part in ("schema", "model", "certificate"):
        gather(json.loads(texts[part]))
    assert count not in numbers
    assert len(numbers) > 5, "there was something to look through"


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([7] * 12),
        pa.array(["a"] * 12),
        pa.array([None] * 12, pa.string()),
        pa.nulls(12),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2] * 4), pa.array(["a", "a", "a"])),
        pa.chunked_array([pa.array(["a"] * 6).dictionary_encode(), pa.array(["a"] * 6).dictionary_encode()]),
        pa.array(["a"] * 12, pa.string_view()),
    ],
    ids=lambda ids: str(ids.type),
)
def test_no_form_of_an_id_lets_a_unit_past_its_cap(ids):
    schema = CASES["unit"].schema
    table, _ = to_arrow(pa.table({"who": ids, "u": np.zeros(12), "v": np.zeros(12)}))
    kept = private_rows(table, schema)
    assert {len(part) for part in kept.values()} == {schema.unit.max_rows}


# --- the model ------------------------------------------------------------------------------------------------


@over_all
def test_rows_can_be_drawn_and_lie_in_the_schema(name, case):
    release, schema = fitted(name, case), CASES[case].schema
    assert isinstance(release.model, Model)
    assert isinstance(release.model, DensityModel) == can_score(name)
    assert set(release.abilities) == set(sf.REGISTRY[name].can) - {"warm_start"}
    sample = release.sample(50)
    assert sample.num_rows == 50
    kept = [key for key, column in schema.columns.items() if getattr(column, "regenerate", "") != "drop"]
    assert sample.column_names == kept
    modelled = sample.select([key for key, _ in schema.modelled])
    assert canonicalise(modelled, schema).equals(modelled), "types and domains are those of the schema"
    assert release.sample(0).schema == sample.schema


@over_sampling_alone
def test_a_method_without_a_likelihood_refuses_to_score_before_it_reads_anything(name):
    release = fitted(name, "all categorical")
    for refused in (
        lambda: release.log_prob("no such file"),
        lambda: release.anomaly_scores("no such file"),
        lambda: release.anomaly_threshold(0.01, progress=lambda *_: pytest.fail("rows were drawn")),
        lambda: release.anomaly_threshold_from("no such file", []),
        release.likelihood,
    ):
        with pytest.raises(sf.ArgumentError, match=f"'{name}' gives rows and no likelihood.*maf"):
            refused()


@over_scoring
def test_rows_can_be_scored(name, case):
    release = fitted(name, case)
    scores = release.log_prob(CASES[case].table)
    assert scores.shape == (CASES[case].table.num_rows,)
    assert np.all(np.isfinite(scores))
    drawn = release.log_prob(release.sample(20))
    assert drawn.shape == (20,) and np.all(np.isfinite(drawn))


@over_all
def test_a_release_survives_its_file(name, case, tmp_path):
    release = fitted(name, case)
    release.save(tmp_path / "model.safetensors")
    again = sf.load(tmp_path / "model.safetensors")
    if can_score(name):
        assert np.array_equal(again.log_prob(CASES[case].table), release.log_prob(CASES[case].table))
    assert again.sample(30, seed=5).equals(release.sample(30, seed=5))
    assert again.schema == release.schema and again.kind == release.kind
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("name", "label"), [("merf", "smokes"), ("ntk", "town")])
def test_a_label_keeps_the_contract(name, label, tmp_path):
    """A label that can be missing and one that cannot; and what is no column of few values."""
    chosen = CASES["mixed"]
    given = {"epsilon": chosen.epsilon, "delta": chosen.delta}
    release = sf.fit(chosen.table, chosen.schema, method=method_of(name, label=label), **given)
    assert release.certificate.public["settings"]["label"] == label
    assert release.certificate.charges[-1][0] == "mean embedding of the rows"
    release.save(tmp_path / "m.safetensors")
    again = sf.load(tmp_path / "m.safetensors")
    assert again.sample(40, seed=1).equals(release.sample(40, seed=1))
    for wrong in ("weight", "who", "nobody"):
        with pytest.raises(sf.ArgumentError, match=f"label '{wrong}'"):
            sf.fit(chosen.table, chosen.schema, method=method_of(name, label=wrong), **given)


@pytest.mark.parametrize("case", ["all continuous", "unit"])
def test_laplace_noise_keeps_the_contract(case, tmp_path):
    """Other noise goes through another door and another rule of accounting."""
    chosen, method = CASES[case], method_of("mog", rounds=1, scaling=None, noise="laplace")
    release = sf.fit(chosen.table, chosen.schema, method=method, epsilon=chosen.epsilon, delta=chosen.delta)
    certificate = release.certificate
    assert certificate.status == "for release"
    assert 0.99 * chosen.epsilon < certificate.epsilon <= chosen.epsilon
    release.save(tmp_path / "model.safetensors")
    again = sf.load(tmp_path / "model.safetensors")
    assert again.certificate.rederive() == pytest.approx(certificate.epsilon, abs=1e-9)
    assert [event.kind for _, event in again.certificate.charges] == ["laplace_sum"]
    assert again.certificate.public["settings"]["noise"] == "laplace"
    assert np.all(np.isfinite(again.log_prob(again.sample(20))))


# --- kinds of tables ------------------------------------------------------------------------------------------

FRAMES = {
    "arrow": (pa.Table, lambda table: table),
    "pandas": (pd.DataFrame, lambda table: table.to_pandas()),
    "polars": (pl.DataFrame, pl.from_arrow),
    "duckdb": (duckdb.DuckDBPyRelation, duckdb.from_arrow),
}


class Untrained:
    """A method that asks for one sum and trains nothing: all that the table edge needs, and quick."""

    name, title, paper, can = "untrained", "a flow as it starts", "none", ("sample", "log_prob")
    relation = Relation.ADD_OR_REMOVE_ONE

    def settings(self):
        return {}

    def fit(self, curator, layout):
        curator.noisy_sum(count_query(), share=0.5)
        return MaskedAutoregressiveFlow.start(MafShape(layout.num_features, 1, 4, 1, False), key=curator.start_key())


@pytest.mark.parametrize("kind", FRAMES)
def test_the_kind_of_table_that_comes_in_goes_out(kind, tmp_path):
    """The table edge is the same for every method, so one that is quick will do, and need not be in the registry."""
    case = CASES["all categorical"]
    expected, make = FRAMES[kind]
    release = sf.fit(make(case.table), case.schema, method=Untrained(), epsilon=case.epsilon, delta=case.delta)
    release.save(tmp_path / "m.safetensors")
    for origin in (release, sf.load(tmp_path / "m.safetensors")):
        assert isinstance(origin.sample(7), expected)
        assert to_arrow(origin.sample(7))[0].num_rows == 7
    for other, (shape, _) in FRAMES.items():
        assert isinstance(release.sample(3, kind=other), shape)
    scores = release.log_prob(make(case.table))
    np.testing.assert_allclose(scores, release.log_prob(case.table), atol=1e-6)


def test_few_rows_are_drawn_and_scored_as_many_are():
    """Programs are made for few rows or for many; which one it is shows nowhere."""
    case, num = CASES["all continuous"], 1_100
    release = sf.fit(case.table, case.schema, method=Untrained(), epsilon=case.epsilon, delta=case.delta)
    many = release.sample(num, seed=3)
    assert many.num_rows == num
    assert release.sample(9, seed=3).equals(many.slice(0, 9))
    np.testing.assert_allclose(release.log_prob(many.slice(0, 9)), release.log_prob(many)[:9], rtol=1e-4, atol=1e-4)


# --- seeds ----------------------------------------------------------------------------------------------------

SEED = 987_654_321


@over_methods
def test_a_seed_makes_the_release_worthless_and_says_so(name, tmp_path):
    case = CASES["all continuous"]
    releases = [
        sf.fit(case.table, case.schema, method=method_of(name), epsilon=case.epsilon, delta=case.delta, seed=SEED)
        for _ in "ab"
    ]
    certificate = releases[0].certificate
    assert certificate.status == "not for release"
    assert certificate.epsilon == certificate.rederive() == inf
    assert certificate.to_dict()["epsilon"] == "infinity"
    assert certificate.randomness["source"] == "seed"
    releases[0].save(tmp_path / "m.safetensors")
    content = (tmp_path / "m.safetensors").read_bytes()
    assert str(SEED).encode() not in content and SEED.to_bytes(4, "little") not in content
    assert sf.load(tmp_path / "m.safetensors").certificate.status == "not for release"
    assert store.to_bytes(releases[1]) == content, "a seed repeats the fit"


@over_methods
def test_without_a_seed_no_two_fits_are_the_same(name):
    first, second = fitted(name, "all continuous"), fitted(name, "empty")
    case = CASES["all continuous"]
    again = sf.fit(case.table, case.schema, method=method_of(name), epsilon=case.epsilon, delta=case.delta)
    files = {store.to_bytes(release) for release in (first, second, again)}
    assert len(files) == 3


# --- refusals, before any budget is spent ---------------------------------------------------------------------


@over_methods
@pytest.mark.parametrize(
    "arguments",
    [{"epsilon": 0}, {"epsilon": -1}, {"epsilon": inf}, {"epsilon": 1.0, "delta": 0}, {"epsilon": 1.0, "delta": 1.0}],
)
def test_a_budget_that_protects_nothing_is_refused(name, arguments):
    case = CASES["one row"]
    with pytest.raises(sf.ArgumentError):
        sf.fit(case.table, case.schema, method=method_of(name), **arguments)


@over_methods
def test_a_table_of_another_form_is_refused_without_naming_a_value(name):
    case = CASES["one row"]
    with pytest.raises(sf.TableError) as caught:
        sf.fit(pa.table({"u": [0.777]}), case.schema, method=method_of(name), epsilon=1.0)
    assert "'v'" in str(caught.value) and "0.777" not in str(caught.value)
