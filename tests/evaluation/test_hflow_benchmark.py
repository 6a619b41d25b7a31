"""The tables of DP-HFlow for other methods: labels, folders of one method, and the section of the results page."""

import json

import pytest
from benchmarks import results
from benchmarks.hflow_fits import labelled, method_of
from benchmarks.hflow_paper import AUROC, METRICS, OTHERS, PAPER
from benchmarks.hflow_scores import fits, method_in, settings_of, summarise

from sfumato.schema import Boolean, Continuous, Schema

SCHEMA = Schema(columns={"y": Boolean(), "x": Continuous(lower=0, upper=1)})


def run_of(label, *, method="merf", data="adult"):
    scored = {"value": 0.7, "failed": 0, "sampled": 9, "parts": {"one": {"value": 0.7, "real": 0.9}}}
    settings = method_of({}, method).settings() | ({} if label is None else {"label": label})
    given = {
        "certified_epsilon": 0.999,
        "delta": 1e-5,
        "finite": True,
        "seconds": 3.0,
        "training_rows": 10,
        "processes": 1,
    }
    machine = {"device": "cpu", "backend": "cpu", "cores": 2, "jax": "0.10", "python": "3.11"}
    named = {} if method == "hflow" else {"method": method}
    about = {"data": data, "kind": "private", "repeat": 0, "settings": settings, "machine": machine, "versions": {}}
    return about | named | given | {"scores": dict.fromkeys(METRICS[data], scored)}


def test_a_method_is_told_of_a_label_where_it_takes_one_and_the_column_has_levels():
    merf = method_of({"features": 10}, "merf", "paper")
    assert (merf.order, merf.features) == (None, 10)
    assert labelled(merf, SCHEMA, "y").label == "y"
    assert labelled(merf, SCHEMA, "x") == merf
    assert labelled(method_of({}), SCHEMA, "y") == method_of({})


def test_labels_may_differ_between_tables_and_nothing_else_may():
    runs = [run_of("income"), run_of("label", data="census")]
    assert "label" not in settings_of(runs, "private")
    with pytest.raises(SystemExit):
        settings_of([*runs, run_of("income") | {"settings": {"features": 1}}], "private")
    with pytest.raises(SystemExit):
        method_in([*runs, run_of(None, method="hflow")])
    assert method_in([run_of(None, method="hflow")]) == "hflow", "files of older runs name no method"


def test_the_page_shows_a_method_beside_its_own_printed_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert results.hflow_others() == []
    runs = [run_of("income")]
    elsewhere = {**runs[0]["machine"], "device": "where it was summed up"}
    made = {"method": "merf", "summary": summarise(runs, []), "fits": fits(runs), "runs": runs, "machine": elsewhere}
    (tmp_path / "hflow_tables_merf.json").write_text(json.dumps(made))
    page = results.hflow_others()
    assert any(line.startswith("Fits: ") for line in page) and not any("summed up" in line for line in page)
    line = next(line for line in page if AUROC.replace("_", " ") in line)
    assert line == "| adult | utility auroc | `merf` | private | 1 | 0.700 | 0.63±0.09 | 0.75±0.05 | 3 |"


def test_every_best_other_method_of_the_paper_is_among_the_others():
    for key, paper in PAPER.items():
        for kind in ("private", "open"):
            if kind in paper:
                value, name = paper[kind]["best other"].split(", ")
                assert OTHERS[name][key][kind] == value


def test_the_page_names_every_figure_that_is_behind_the_published_one():
    """Committed results: a method is behind where and only where the page gives a reason."""
    behind = set()
    for path in sorted(results.FOLDER.glob("hflow_tables_*.json")):
        found = json.loads(path.read_text())
        for row in found["summary"]:
            printed, sign = row["published"].get("same method"), -1 if "tau" in row["metric"] else 1
            if printed and sign * row["mean"] < sign * float(printed.split("±")[0]):
                behind.add((found["method"], row["kind"], row["data"]))
    open_ctgan = {("dp-ctgan", "open", data) for data in ("adult", "census", "intrusion")}
    assert behind == open_ctgan | {("gs-wgan", "private", "covertype")}
    told = " ".join(results.BEHIND)
    assert all(word in told for word in ("Adult, Census and Intrusion", "`gs-wgan`", "Covertype"))
