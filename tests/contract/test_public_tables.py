"""Warm starts from a public table: every method that can, what the certificate says of it, and what is refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import sfumato as sf
from contract.cases import CASES, TINY, method_of, plain
from sfumato.cli import app
from sfumato.release import store
from sfumato.schema import Continuous, Schema

ABLE = sorted(name for name, kind in sf.REGISTRY.items() if "warm_start" in kind.can)
CASE = CASES["all continuous"]
OTHER = pa.table({"u": np.linspace(0.2, 0.4, 30), "v": np.linspace(1, 2, 30)})


def fitted(name, public, **settings):
    given = {"method": method_of(name, **settings), "epsilon": CASE.epsilon, "delta": CASE.delta}
    return sf.fit(CASE.table, CASE.schema, public=public, seed=5, **given)


def test_there_are_methods_that_can():
    assert {"chain", "hflow", "maf", "tbart"} <= set(ABLE)
    assert all("steps" in TINY[name] for name in ABLE)


@pytest.mark.parametrize("name", ABLE)
def test_a_public_table_changes_the_model_and_is_stated(name):
    with_it, without = fitted(name, OTHER), fitted(name, None)
    assert store.to_bytes(with_it) != store.to_bytes(without)
    stated = with_it.certificate.to_dict()
    told = stated["public"]["public_table"]
    assert told["rows"] == 30 and len(told["sha256"]) == 64
    assert any(told["sha256"] in text and "is public" in text for text in stated["assumptions"])
    assert sf.Certificate.from_dict(json.loads(plain(with_it.certificate))).assumptions == tuple(stated["assumptions"])
    assert "public_table" not in without.certificate.public
    assert not any("SHA-256" in text for text in without.certificate.assumptions)
    charges = [release.certificate.to_dict()["charges"] for release in (with_it, without)]
    assert charges[0] == charges[1], "it costs nothing, and nothing of the private fit becomes cheaper"


def test_the_digest_names_the_table():
    moved = OTHER.set_column(0, "u", pa.array(np.linspace(0.2, 0.41, 30)))
    digests = [fitted("maf", table).certificate.public["public_table"]["sha256"] for table in (OTHER, OTHER, moved)]
    assert digests[0] == digests[1] != digests[2]


def test_public_rows_teach():
    """At a budget that teaches next to nothing the model knows what the public table says: rows lie along a line."""
    random = np.random.default_rng(0)
    draw = random.uniform(-1, 1, 2_000)
    line = pa.table({"u": draw, "v": 0.8 * draw + random.normal(0, 0.1, 2_000)})
    schema = Schema(columns={"u": Continuous(lower=-1, upper=1), "v": Continuous(lower=-1, upper=1)}, rows=2_000)
    method = sf.Maf(steps=300, blocks=2, width=8, scaling=None, optimiser=sf.Optimiser(learning_rate=2e-3))
    given = {"method": method, "epsilon": 0.1, "delta": 1e-6, "seed": 1}
    with_it = sf.fit(line, schema, public=line.slice(0, 500), **given).log_prob(line).mean()
    without = sf.fit(line, schema, **given).log_prob(line).mean()
    assert with_it > without + 0.5


def test_what_cannot_be_used_is_refused():
    given = {"epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(sf.ArgumentError, match="with warm_start"):
        sf.fit(CASE.table, CASE.schema, method=method_of("mog"), public=OTHER, **given)
    with pytest.raises(sf.TableError, match="public table does not fit"):
        sf.fit(CASE.table, CASE.schema, method=method_of("maf"), public=OTHER.select(["u"]), **given)
    with pytest.raises(sf.TableError, match="no rows"):
        sf.fit(CASE.table, CASE.schema, method=method_of("maf"), public=OTHER.slice(0, 0), **given)


def test_the_command_line_takes_a_public_table(tmp_path):
    CASE.schema.save(tmp_path / "schema.toml")
    pq.write_table(CASE.table, tmp_path / "rows.parquet")
    pq.write_table(OTHER, tmp_path / "other.parquet")
    tiny = ["--set", "steps=2", "--set", "blocks=1", "--set", "width=4"]
    paths = [
        "--schema",
        tmp_path / "schema.toml",
        "--public",
        tmp_path / "other.parquet",
        "-o",
        tmp_path / "m.safetensors",
    ]
    arguments = ["fit", tmp_path / "rows.parquet", *paths, "--epsilon", 0.1, "--delta", 1e-5, "--method", "maf", *tiny]
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["certificate"]["public"]["public_table"]["rows"] == 30
