"""The pure parts of the DP-TBART benchmark: its tables, its made-up data, its sums, its page."""

import argparse
import doctest
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks import tbart, tbart_data, tbart_fits, tbart_results, tbart_schemas, tbart_scores, tbart_summary
from benchmarks.tbart_paper import PAPER

from sfumato.evaluation import Comparison, sample_of
from sfumato.schema import Categorical, Integer, Schema

MODULES = (tbart_data, tbart_fits, tbart_results, tbart_schemas, tbart_summary)

# Categorical and numeric columns of the paper's table 1; its Loan has the number of the row among the numeric ones.
TABLE_1 = {
    "adult_pgm": (9, 5),
    "king": (7, 13),
    "insurance": (4, 3),
    "loan": (7, 7 - 1),
    "credit": (1, 30),
    "bank": (10, 7),
    "census": (35, 6),
    "car": (7, 0),
    "mushroom": (23, 0),
    "poker": (11, 0),
}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_in_the_docstrings(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_the_ten_data_sets_have_the_kinds_of_table_1() -> None:
    found = {}
    for name in tbart_data.AVERAGED:
        columns = dict(tbart_data.schema_of(name).modelled)
        categories = sum(isinstance(column, Categorical) for column in columns.values())
        found[name] = (categories, len(columns) - categories)
        assert tbart_data.TARGETS[name] in columns
    assert found == TABLE_1


def test_dyck_words_are_a_catalan_number_of_distinct_valid_strings() -> None:
    words = tbart_data.dyck_words(20)
    assert len(np.unique(words, axis=0)) == 16_796
    for word in words[::997]:
        text = "".join("()"[bracket] for bracket in word)
        while "()" in text:
            text = text.replace("()", "")
        assert text == ""


@pytest.mark.parametrize("word", ["())(", "((((", "()()(("])
def test_badly_matched_brackets_are_not_valid(word: str) -> None:
    assert not tbart_data.valid(np.array([["()".index(bracket) for bracket in word]]))[0]


def comparison_of(real: np.ndarray, synthetic: np.ndarray) -> Comparison:
    schema = Schema(columns={"amount": Integer(lower=0, upper=199), "level": Categorical(levels=(0, 1))})
    sides = [
        sample_of(pa.table({"amount": values, "level": np.arange(len(values)) % 2}), schema)
        for values in (real, synthetic)
    ]
    return Comparison(schema=schema, real=sides[0], synthetic=sides[1], holdout=sides[0], target="level")


def test_binned_detection_is_blind_to_how_numbers_are_written() -> None:
    # Round numbers against odd ones of the same bins. 1,500 rows a side: by chance an AUROC is 0.011 off one half, so
    # that 0.06 is passed with a chance below 1e-6.
    random = np.random.default_rng(5)
    real, blurred = 10 * random.integers(0, 20, 1_500), random.integers(0, 200, 1_500)
    found = tbart_scores.detections(comparison_of(real, blurred), real=False)
    assert found["det"] is not None and found["det_binned"] is not None
    assert found["det"] < 0.15
    assert abs(found["det_binned"] - 0.5) < 0.06


def test_binned_detection_sees_a_wrong_model() -> None:
    random = np.random.default_rng(6)
    real, wrong = random.integers(0, 200, 1_500), random.integers(100, 200, 1_500)
    assert tbart_scores.undetected(tbart_scores.in_bins(comparison_of(real, wrong))) < 0.3


def run_of(label: str, data: str, seed: int, **scores: float) -> dict[str, Any]:
    return {
        "label": label,
        "data": data,
        "seed": seed,
        "epsilon": 1.0,
        "scores": scores,
        "settings": {},
        "seconds": 3.0,
        "sample_seconds": 0.5,
        "compiled_before": seed > 0,
        "peak_mb": 100,
        "device_peak_mb": None,
        "certified_epsilon": 0.99,
        "delta": 1e-9,
        "finite": True,
        "source": "abc",
        "processes": 1,
        "versions": {"jax": "0"},
        "machine": {"device": "cpu", "backend": "cpu", "cores": 2, "jax": "0", "python": "3"},
    }


def test_averages_run_over_the_ten_and_say_what_is_missing() -> None:
    runs = [
        run_of("aim", "car", 0, det=0.1),
        run_of("aim", "car", 1, det=0.3),
        run_of("aim", "king", 0, det=0.6),
        run_of("aim", "adult", 0, det=0.9),
        run_of("mst", "car", 0, det=0.5),
    ]
    found = {(row["label"], row["metric"]): row for row in tbart_summary.averages(runs)}
    assert found["aim", "det"]["mean"] == pytest.approx(0.4)  # raw Adult is not in it, and car counts once
    assert (found["aim", "det"]["sets"], found["aim", "det"]["of"]) == (2, 10)
    assert "(1/10)" in tbart_results.average(found["mst", "det"])


def test_seconds_are_those_of_fits_that_compiled() -> None:
    runs = [run_of("aim", "car", 0, det=0.1), run_of("aim", "car", 1, det=0.1) | {"seconds": 1.0}]
    assert tbart_summary.costs(runs)[0]["seconds"] == 3.0


def test_fits_of_different_settings_are_not_averaged() -> None:
    runs = [run_of("aim", "car", 0, det=0.1), run_of("aim", "car", 1, det=0.1) | {"settings": {"rounds": 3}}]
    with pytest.raises(SystemExit, match="2 different settings"):
        tbart_summary.settings_of(runs, "aim")


def given(**over: Any) -> argparse.Namespace:
    asked = {"methods": None, "datasets": ["car", "poker"], "seeds": 2, "epsilons": [1.0, 50.0]}
    return argparse.Namespace(**(asked | over))


def test_jobs_come_seed_by_seed_and_real_rows_have_no_epsilon() -> None:
    jobs = tbart.jobs_of(given(methods=["maf", "real"]), "fit")
    assert [(job.seed, job.data, job.label) for job in jobs[:5]] == [
        (0, "car", "maf"),
        (0, "car", "real"),
        (0, "poker", "maf"),
        (0, "poker", "real"),
        (1, "car", "maf"),
    ]
    swept = tbart.jobs_of(given(methods=["maf", "real"], seeds=1), "sweep")
    assert [(job.label, job.epsilon) for job in swept] == [("maf", 1.0), ("real", 1.0), ("maf", 50.0)]
    assert {job.data for job in tbart.jobs_of(given(), "dyck")} == {"dyck"}


def test_what_is_there_is_not_fitted_again(tmp_path: Path) -> None:
    # The rows of a made-up table go through `fit` and back: only what is missing is written anew.
    schema = tbart_data.schema_of("car")
    cells = np.zeros((4, 7), np.float32)
    np.savez(tmp_path / "car.npz", low=cells, width=cells + 0.25)
    (tmp_path / "car.json").write_text(json.dumps(schema.to_dict()))
    asked = given(methods=["real"], datasets=["car"], folder=tmp_path, out=tmp_path / "out", delta=1e-9)
    asked.settings, asked.processes, asked.time_limit = {}, 1, None
    tbart.fit_all(asked, tbart.jobs_of(asked, "fit"))
    first, second = (asked.out / f"real__car__1__{seed}.npz" for seed in (0, 1))
    assert tbart_scores.synthetic_table(first, "car").num_rows == 4
    first.write_bytes(b"kept")
    second.unlink()
    tbart.fit_all(asked, tbart.jobs_of(asked, "fit"))
    assert first.read_bytes() == b"kept"
    assert tbart_scores.synthetic_table(second, "car").num_rows == 4


def write_scored(folder: Path, runs: list[dict[str, Any]]) -> None:
    """Files of fits and of their scores, as the benchmark leaves them."""
    for run in runs:
        stem = folder / f"{run['label']}__{run['data']}__1__{run['seed']}"
        stem.with_suffix(".json").write_text(json.dumps(run))
        stem.with_suffix(".score.json").write_text(json.dumps({"scores": run["scores"], "scoring_seconds": 1.0}))


def test_runs_of_an_older_result_stay_unless_they_are_done_again(tmp_path: Path) -> None:
    target, older, newer = tmp_path / "tbart.json", tmp_path / "older", tmp_path / "newer"
    older.mkdir()
    newer.mkdir()
    write_scored(older, [run_of("aim", "car", 0, cs=0.1), run_of("aim", "king", 0, cs=0.2)])
    write_scored(newer, [run_of("aim", "car", 0, cs=0.3), run_of("maf", "car", 0, cs=0.4)])
    tbart_summary.write_result(older, target)
    tbart_summary.write_result(newer, target)
    result = json.loads(target.read_text())
    found = [(run["label"], run["data"], run["scores"]["cs"]) for run in result["runs"]]
    assert found == [("aim", "car", 0.3), ("aim", "king", 0.2), ("maf", "car", 0.4)]
    assert set(result["settings"]) == {"aim", "maf"}
    assert {(row["label"], row["data"]) for row in result["costs"]} == {row[:2] for row in found}


def test_the_page_has_our_rows_beside_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run_of("aim", "car", 0, det=0.25, cs=0.9), run_of("aim", "king", 0, ks=0.5, det=0.35)]
    runs += [run_of("aim", "dyck", 0, valid=0.75)]
    write_scored(tmp_path, runs)
    tbart_summary.write_result(tmp_path, tmp_path / "tbart.json")
    monkeypatch.setattr(tbart_results, "PATH", tmp_path / "tbart.json")
    page = tbart_results.tbart()
    assert any(line.startswith("| **aim** | 0.500 (1/7) | 0.900 (1/10) | 0.300 (2/10) | – |") for line in page)
    assert any(line.startswith("| AIM (paper) | 0.886 ± 0.001 |") for line in page)
    assert "| **aim** | 1 | 0.750 | 3.0 |" in page
    monkeypatch.setattr(tbart_results, "PATH", tmp_path / "absent.json")
    assert tbart_results.tbart() == []


def test_the_page_names_every_average_that_is_behind_the_paper_s() -> None:
    """Committed results of methods that the paper has, but for its anchor AIM and what is run on fewer tables."""
    found = json.loads(tbart.RESULT.read_text())
    same = {"hflow": "DP-HFlow", "dp-ntk": "DP-NTK", "dp-merf": "DP-MERF", "dp-ctgan": "DPCTGAN"}
    behind = {
        (row["label"], row["metric"])
        for row in found["averages"]
        if row["label"] in same and row["metric"] in PAPER[same[row["label"]]]
        if row["mean"] < float(PAPER[same[row["label"]]][row["metric"]].split()[0])
    }
    assert behind == {("hflow", "clf"), ("dp-ntk", "clf"), ("dp-ctgan", "clf")}
    assert "*hflow*, *dp-ntk* and *dp-ctgan* in ML (CLF)" in " ".join(tbart_results.BEHIND)
