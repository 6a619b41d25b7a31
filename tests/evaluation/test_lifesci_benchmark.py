"""The pure parts of the Life Science benchmark: its jobs, its counts, its sums, its page, a run that is taken up."""

import argparse
import doctest
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import lifesci, lifesci_counts, lifesci_results


@pytest.mark.parametrize("module", [lifesci, lifesci_counts, lifesci_results], ids=lambda module: module.__name__)
def test_examples_in_the_docstrings(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def made_up_rows(num: int, seed: int) -> np.ndarray:
    """Ten columns inside the unit ball; the first has most of the variance and the second most of the rest."""
    random = np.random.default_rng(seed)
    return 0.05 * random.normal(size=(num, 10)) * np.array([3.0, 2.0, *[1.0] * 8])


def test_the_frame_finds_the_directions_of_most_variance() -> None:
    frame = lifesci_counts.frame_of(made_up_rows(4_000, 1))
    assert frame.directions[0, 0] < -0.99
    assert frame.directions[1, 1] < -0.99


def test_counts_come_back_from_their_lines_and_lie_where_the_rows_are() -> None:
    rows = made_up_rows(2_000, 2)
    frame = lifesci_counts.frame_of(rows)
    one = np.tile(frame.centre, (7, 1)) + 0.1 * frame.directions[0] - 0.05 * frame.directions[1]
    cells = lifesci_counts.counts_of(frame.cells(one))
    line, column = np.argwhere(cells == 7)[0]
    assert cells.sum() == 7
    assert frame.borders[0][column] <= 0.1 < frame.borders[0][column + 1]
    assert frame.borders[1][line] <= -0.05 < frame.borders[1][line + 1]
    bars = lifesci_counts.counts_of(frame.histograms(rows))
    assert bars.shape == (10, lifesci_counts.BINS)
    assert (bars.sum(axis=1) > 0.99 * len(rows)).all()


def test_total_variation_counts_rows_outside_the_bins() -> None:
    inside, outside = np.array([5, 5]), np.array([0, 0])
    assert lifesci_counts.variation(inside, inside, 10, 10) == 0.0
    assert lifesci_counts.variation(inside, outside, 10, 10) == 1.0


def test_jobs_come_split_by_split_and_real_rows_have_no_epsilon() -> None:
    jobs = lifesci.jobs_of(2, ["maf", "hflow"])
    assert [job.split for job in jobs] == [0] * 15 + [1] * 15
    assert [(job.method, job.epsilon) for job in jobs[:8]] == [
        ("real", None),
        *(("maf", epsilon) for epsilon in (0.5, 0.6, 1.0, 2.0, 4.0, 6.0, None)),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a small table in the place of Life Science."""
    rows = made_up_rows(600, 3)
    np.savez(tmp_path / "lifesci.npz", **{f"x{i + 1}": rows[:, i] for i in range(10)})
    return tmp_path


def test_a_run_is_taken_up_and_becomes_a_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []

    def noise_in_their_place(job: lifesci.Job, split: lifesci.Split) -> tuple[np.ndarray, dict[str, Any]]:
        if job.method == "real":
            return split.train, {}
        fitted.append(job)
        told = "infinity" if job.epsilon is None else 0.99 * job.epsilon
        wider = 1.0 if job.epsilon is None else 1 + (2.0 if job.method == "mog" else 1.0) / job.epsilon
        return split.train * wider, {"seconds": 1.0, "certified_epsilon": told, "delta": None}

    monkeypatch.setattr(lifesci, "rows_of", noise_in_their_place)
    target = folder / "lifesci.json"
    given = argparse.Namespace(data_dir=str(folder), output=target, splits=1, methods=["maf", "mog"], time_limit=None)
    lifesci.fit_all(given)
    assert len(fitted) == 14
    lifesci.fit_all(given)
    assert len(fitted) == 14
    given.splits = 2
    lifesci.fit_all(given)
    assert {job.split for job in fitted[14:]} == {1}

    result = json.loads(target.read_text())
    assert {(run["method"], run["epsilon"]) for run in result["runs"] if "cells" in run} == {
        ("real", None),
        *((method, epsilon) for method in ("maf", "mog") for epsilon in (2.0, 4.0, 6.0)),
    }
    monkeypatch.setattr(lifesci_results, "PATH", target)
    page = "\n".join(lifesci_results.lifesci())
    assert "this holds at epsilon 0.5, 0.6, 1, 2, 4, 6 and fails at none." in page
    assert "in 0 of 24 private fits" in page
    monkeypatch.setattr(lifesci_results, "PATH", folder / "absent.json")
    assert lifesci_results.lifesci() == []


def test_the_page_says_where_the_paper_is_contradicted() -> None:
    flows, low, high = ({"mean": mean, "splits": 1} for mean in (0.003, 0.002, 0.004))
    rows = {("maf", e): flows for e in lifesci.EPSILONS} | {("mog", e): low for e in (0.5, 0.6, 1.0)}
    rows |= {("mog", e): high for e in (2.0, 4.0, 6.0, None)}
    said = " ".join(lifesci_results.verdict(rows))
    assert "holds at epsilon 2, 4, 6 and fails at epsilon 0.5, 0.6, 1." in said
    assert "at or below that mixture at epsilon 0.5, 0.6, 1, 2, 4, 6." in said
    assert "One split" in said


def test_the_real_rows_of_a_split_are_those_of_the_density_benchmark(folder: Path) -> None:
    split = lifesci.split_of(folder, 4)
    rows = lifesci.load("lifesci", folder).rows
    order = np.random.default_rng(1_004).permutation(600)
    assert np.array_equal(split.test, rows[order[540:]])
    assert len(split.train) == 540
