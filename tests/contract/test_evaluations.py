"""The commands that look at private rows: what they write, for whom, and that nothing of it reaches the terminal."""

import json
import re
import stat
import sys

import pytest

import sfumato
from contract.corpus import HEADER, SCHEMA, csv, row
from contract.test_no_leaks import CANARIES, canary_rows
from sfumato.audit import AuditResult, Finding, PlayResult
from sfumato.cli import main
from sfumato.evaluation import CATALOGUE, evaluate

TINY = ["--method", "maf", "--set", "steps=2", "--set", "width=4", "--set", "blocks=1", "--set", "scaling.rounds=1"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Real rows with canaries among them, a schema, two releases and synthetic rows."""
    folder = tmp_path_factory.mktemp("home")
    rows = [row(place, id=f"p{place}", age=str(20 + place % 70)) for place in range(160)]
    (folder / "real.csv").write_text("\n".join([HEADER, *rows[:120], *canary_rows(), ""]), encoding="utf-8")
    (folder / "holdout.csv").write_bytes(csv(*rows[120:]))
    (folder / "schema.toml").write_text(SCHEMA)
    for name, epsilon in (("one", "1"), ("four", "4")):
        model = folder / f"{name}.safetensors"
        fit = ["fit", str(folder / "real.csv"), "--schema", str(folder / "schema.toml"), "--epsilon", epsilon]
        assert main([*fit, *TINY, "-o", str(model)]) == 0
    assert main(["sample", str(folder / "one.safetensors"), "-n", "150", "-o", str(folder / "synthetic.csv")]) == 0
    return folder


def report(home, output, *more):
    tables = ["--real", str(home / "real.csv"), "--synthetic", str(home / "synthetic.csv")]
    return ["report", *tables, "--schema", str(home / "schema.toml"), "-o", str(output), *more]


def refused(arguments, capsys):
    capsys.readouterr()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_a_report_is_its_owners_and_says_so(home, name, tmp_path, capsys):
    output = tmp_path / name
    output.write_text("was there, readable by all")
    output.chmod(0o644)
    capsys.readouterr()
    given = report(home, output, "--holdout", str(home / "holdout.csv"), "--model", str(home / "one.safetensors"))
    assert main([*given, "--force", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"written": str(output), "private": True}
    assert "private rows" in err and "Do not publish" in err
    assert mode(output) == 0o600
    assert list(tmp_path.iterdir()) == [output], "no other file is left behind"
    text = output.read_text(encoding="utf-8")
    assert "computed on private rows" in text
    for group in CATALOGUE.values():
        for metric in (metric for measurement in group for metric in measurement.metrics):
            assert metric.name in text


def test_nothing_measured_reaches_the_terminal(home, tmp_path, capsys):
    """Neither a cell, nor a count, nor a score: the terminal shows file names and fixed words only."""
    for command in (report(home, tmp_path / "a.html"), report(home, tmp_path / "b.json")):
        assert main(command) == 0
        out, err = capsys.readouterr()
        assert out == ""
        assert [canary for canary in CANARIES if canary in err] == []
        assert re.findall(r"\d", err.replace(str(tmp_path), "")) == []


def test_a_page_holds_no_cell_outside_the_schema(home, tmp_path):
    """Even the private page shows cells as the schema reads them, so no name or number outside it."""
    assert main(report(home, tmp_path / "a.html", "--model", str(home / "one.safetensors"))) == 0
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert [canary for canary in CANARIES if canary in text] == []


def test_a_report_never_touches_the_release(home, tmp_path, capsys):
    before = (home / "one.safetensors").read_bytes()
    assert main(report(home, tmp_path / "a.html", "--model", str(home / "one.safetensors"))) == 0
    assert (home / "one.safetensors").read_bytes() == before
    assert ".html or .json" in refused(report(home, home / "one.safetensors", "--force"), capsys)


def test_a_report_is_the_same_each_time(home, tmp_path):
    for name in ("a.html", "b.html"):
        assert main(report(home, tmp_path / name)) == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_what_cannot_be_reported_is_refused_in_one_line(home, tmp_path, capsys):
    (tmp_path / "empty.csv").write_text(HEADER + "\n")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    there = tmp_path / "there.html"
    there.write_text("x")
    assert "is there already" in refused(report(home, there), capsys)
    assert "no such column" in refused(report(home, tmp_path / "r.html", "--target", "nowhere"), capsys)
    empty = ["--real", str(tmp_path / "empty.csv"), "--synthetic", str(home / "synthetic.csv")]
    schema = ["--schema", str(home / "schema.toml"), "-o", str(tmp_path / "r.html")]
    assert "nothing to compare" in refused(["report", *empty, *schema], capsys)
    other = ["--real", str(home / "real.csv"), "--synthetic", str(tmp_path / "other.csv")]
    assert "synthetic" in refused(["report", *other, *schema], capsys)
    no_schema = report(home, tmp_path / "r.html")
    place = no_schema.index("--schema")
    assert "--schema" in refused([*no_schema[:place], *no_schema[place + 2 :]], capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.csv", "other.csv", "there.html"]


def test_releases_side_by_side_without_rows(home, capsys):
    models = [str(home / "one.safetensors"), str(home / "four.safetensors")]
    capsys.readouterr()
    assert main(["compare", *models]) == 0
    out = capsys.readouterr().out
    assert "one" in out and "four" in out and "0.99" in out and "3.99" in out
    assert main(["compare", *models, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"one", "four"}
    assert "twice" in refused(["compare", models[0], models[0]], capsys)
    assert "go together" in refused(["compare", *models, "--real", str(home / "real.csv")], capsys)


def test_releases_side_by_side_on_rows(home, tmp_path, capsys):
    models = [str(home / "one.safetensors"), str(home / "four.safetensors")]
    given = ["--real", str(home / "real.csv"), "-n", "100"]
    for name in ("c.html", "c.json"):
        assert main(["compare", *models, *given, "-o", str(tmp_path / name)]) == 0
        assert capsys.readouterr().out == ""
        assert mode(tmp_path / name) == 0o600
    found = json.loads((tmp_path / "c.json").read_text())
    assert set(found) == {"warning", "releases"}
    assert set(found["releases"]) == {"one", "four"}
    assert found["releases"]["one"].keys() == CATALOGUE.keys()
    text = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "one" in text and "four" in text and "computed on private rows" in text


def test_evaluate_in_python(home):
    schema = sfumato.Schema.load(home / "schema.toml")
    found = evaluate(home / "real.csv", home / "synthetic.csv", schema)
    assert found.score("tv_binned").value is not None
    for thing in (found, found.comparison, found.comparison.real):
        assert "private" in repr(thing) and len(repr(thing)) < 100, "a notebook prints what stands last"
    with pytest.raises(sfumato.ArgumentError, match="Unknown metric"):
        found.score("nothing")


def test_extreme_numbers_change_no_exit_code(tmp_path, capsys):
    """A row near the ends of very wide public bounds overflows some figures; that is a failed part and no more."""
    columns = "".join(f'[columns.{name}]\nkind = "continuous"\nlower = -8e307\nupper = 8e307\n' for name in "xy")
    (tmp_path / "schema.toml").write_text("rows = 50\n" + columns)
    rows = [f"{place}.5,{place % 7}" for place in range(40)]
    for name, more in (("plain", []), ("wide", ["8e307,-8e307"])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *rows, *more, ""]))
        tables = ["--real", str(tmp_path / f"{name}.csv"), "--synthetic", str(tmp_path / "plain.csv")]
        given = ["report", *tables, "--schema", str(tmp_path / "schema.toml")]
        assert main([*given, "-o", str(tmp_path / f"{name}.json")]) == 0
        assert main([*given, "-o", str(tmp_path / f"{name}.html")]) == 0


def test_a_report_says_before_measuring_what_it_needs(home, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)  # as where it is not installed
    assert "sfumato[report]" in refused(report(home, tmp_path / "r.html"), capsys)
    models = [str(home / "one.safetensors"), str(home / "four.safetensors")]
    given = ["--real", str(home / "real.csv"), "-o", str(tmp_path / "c.html")]
    assert "sfumato[report]" in refused(["compare", *models, *given], capsys)
    assert list(tmp_path.iterdir()) == []


def _audited(lower):
    given = {"name": "white box", "certified": 4.0, "delta": 1e-5, "confidence": 0.999, "observations": 100}
    return AuditResult(
        method="maf", settings={}, findings=(Finding(**given, lower=lower),), play=PlayResult(pairs=3, skipped=1)
    )


def test_an_audit_shows_what_it_found_and_fails_where_it_refutes(capsys, monkeypatch):
    asked = {}
    monkeypatch.setattr("sfumato.audit.audit", lambda config, **given: asked.update(given) or _audited(3.5))
    assert main(["audit", "maf", "--epsilon", "4", "--canaries", "500"]) == 0
    out, err = capsys.readouterr()
    assert "not refuted" in out and "0.88" in out and "proves" in err
    assert asked["epsilon"] == 4.0 and asked["canaries"] == 500
    assert main(["audit", "maf", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["verdict"] == "not refuted"
    monkeypatch.setattr("sfumato.audit.audit", lambda config, **given: _audited(4.5))
    assert main(["audit", "maf"]) == 70
    out, err = capsys.readouterr()
    assert "REFUTED" in out and "refuted: white box" in err and "again" in err
    assert main(["audit", "nothing"]) == 2
