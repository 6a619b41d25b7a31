"""Columns that nobody knows, on the command line: check, fit, show and sample, and no word of a single row.

The noise is fresh in every run: an octave far out, or a text of one row, passes by noise alone in less than one run of
20,000.
"""

import json
import struct

import numpy as np
import pytest

import sfumato as sf
from sfumato.cli import main

SCHEMA = """\
rows = 5_000

[columns.town]
kind  = "categorical"
learn = true

[columns.income]
kind     = "continuous"
learn    = true
decimals = 2

[columns.smokes]
kind = "boolean"
"""

CANARIES = ("Anna-Zoe", "=cmd(Bjork)", "61803.39", "7734210899")


def lines(num):
    random = np.random.default_rng(0)
    towns, incomes = random.choice(["Ulm", "Graz", "Bern"], num), random.lognormal(7, 0.5, num)
    plain = [
        f"{town},{income:.2f},{place % 2}" for place, (town, income) in enumerate(zip(towns, incomes, strict=True))
    ]
    odd = [f"{CANARIES[0]},{CANARIES[2]},1", f"{CANARIES[1]},{CANARIES[3]},0", "Ulm,inf,1", ",nan,", "Graz,x,1"]
    return [*plain[:40], *odd, *plain[40:]]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "data.csv").write_text("\n".join(["town,income,smokes", *lines(5_000), ""]))
    return tmp_path


def fit(folder, *more):
    data, schema, model = (str(folder / name) for name in ("data.csv", "schema.toml", "model.safetensors"))
    method = ["--method", "independent", "--set", "even_bins=6"]
    return main(["fit", data, "--schema", schema, "--epsilon", "1", "--delta", "1e-5", *method, "-o", model, *more])


def test_what_was_learnt_is_released_and_nothing_of_a_single_row(folder, capfd):
    model, synthetic = str(folder / "model.safetensors"), str(folder / "synthetic.csv")
    assert main(["check", str(folder / "data.csv"), "--schema", str(folder / "schema.toml")]) == 0
    assert fit(folder, "--learn-share", "0.2") == 0
    assert main(["show", model]) == 0
    assert main(["show", model, "--json"]) == 0
    assert main(["sample", model, "-n", "500", "-o", synthetic]) == 0
    out, err = capfd.readouterr()
    told = out + err
    assert "a chance of at most 1e-06" in " ".join(told.replace("│", " ").split())
    shown = json.loads(out[out.index("\n{\n") :])
    assert shown["agrees"] and shown["schema"]["columns"]["town"]["levels"] == ["Bern", "Graz", "Ulm", "other"]
    assert [charge["event"]["kind"] for charge in shown["certificate"]["charges"][:3]] == [
        "gaussian_sum",
        "exposure",
        "gaussian_sum",
    ]
    assert shown["certificate"]["status"] == "for release"
    public = shown["certificate"]["public"]
    assert (public["learnt"], public["learning"]["share"]) == (["town", "income"], 0.2)
    release = sf.load(model)
    assert release.schema.columns["income"].upper < 61_803
    places = {"output": told.encode()}
    places |= {name: (folder / name).read_bytes() for name in ("model.safetensors", "synthetic.csv")}
    numbers = [struct.pack(kind, float(canary)) for canary in CANARIES[2:] for kind in ("<d", "<f")]
    found = [
        (canary, name) for name in places for canary in [*map(str.encode, CANARIES), *numbers] if canary in places[name]
    ]
    assert found == []


def test_a_table_too_small_to_learn_from_is_refused_in_one_line(folder, capfd):
    (folder / "data.csv").write_text("\n".join(["town,income,smokes", *lines(60), ""]))
    assert fit(folder) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "columns 'town', 'income'" in err and "raise epsilon" in err
    assert not any(word in err for word in (*CANARIES, "Ulm", "Graz", "60"))
    assert not (folder / "model.safetensors").exists()


def test_a_schema_to_be_learnt_judges_no_rows(folder, capfd):
    """A report needs domains: it says that those of the release are to be used."""
    data = str(folder / "data.csv")
    report = ["report", "--real", data, "--synthetic", data, "--schema", str(folder / "schema.toml")]
    assert main([*report, "-o", str(folder / "report.html")]) == 2
    assert "schema of its release" in capfd.readouterr().err
