"""Life Science: figures 2, 3, 4 and 11 of the DP-NF paper.

    python -m benchmarks.lifesci fit --splits 3   # benchmarks/results/lifesci.json: hours on two cores
    python -m benchmarks.lifesci pictures         # docs/images/lifesci_*.png, from that file; pip install ".[bench]"

Figure 2: the squared error on held-out rows of three nearest neighbours that were trained on synthetic rows, as many as
there were training rows; the last column is the label. Splits are those of ``benchmarks.density``: a random tenth is
held out. Figures 3 and 11 (histograms) and 4 (densities on two principal components) are of the first split.

Settings are the methods' defaults, fixed in advance. What the result file holds already is not fitted again, so that a
run that was cut off can be taken up.
"""

import argparse
import json
import time
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import data_folder, load
from benchmarks.hflow_data import Packed
from benchmarks.hflow_fits import draw, fit, method_of, versions
from benchmarks.lifesci_counts import Frame, frame_of
from benchmarks.machine import describe_machine
from benchmarks.workers import finished
from sfumato.schema import Continuous, Schema

TARGET, IMAGES = Path("benchmarks/results/lifesci.json"), Path("docs/images")
DELTA = 1.52e-5
SETTINGS: dict[str, dict[str, Any]] = {"mog": {"components": 10}, "maf": {}, "hflow": {}}
"""Of each method over its defaults; in this order they are fitted, the cheap first."""
EPSILONS = (0.5, 0.6, 1.0, 2.0, 4.0, 6.0)
"""Those of figures 2, 3 and 4."""
PICTURED = ("maf", "mog")
IN_HISTOGRAMS, IN_CELLS = 0.6, (2.0, 4.0, 6.0)
REAL = "real"
OPEN_MIXTURE = {"n_components": 10, "n_init": 3, "max_iter": 300}
"""Of scikit-learn's GaussianMixture, which is the mixture without privacy; full covariances."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One fit and its score: a method, or the real rows; an epsilon, or none for no privacy; the number of a split."""

    method: str
    epsilon: float | None
    split: int


@dataclass(frozen=True, kw_only=True)
class Split:
    """Training rows, held-out rows, and the schema of both."""

    train: np.ndarray
    test: np.ndarray
    schema: Schema


def jobs_of(splits: int, methods: list[str]) -> list[Job]:
    """Everything that is asked for, split by split."""
    jobs = []
    for split in range(splits):
        jobs.append(Job(method=REAL, epsilon=None, split=split))
        jobs += [Job(method=name, epsilon=epsilon, split=split) for name in methods for epsilon in (*EPSILONS, None)]
    return jobs


@cache
def split_of(folder: Path, number: int) -> Split:
    """A random nine tenths and the rest, as in ``benchmarks.density``."""
    data = load("lifesci", folder)
    order = np.random.default_rng(1_000 + number).permutation(len(data.rows))
    cut = int(0.9 * len(order))
    column = Continuous(lower=data.lower, upper=data.upper)
    schema = Schema(columns={f"x{i}": column for i in range(data.rows.shape[1])}, rows=round(cut, -3))
    return Split(train=data.rows[order[:cut]], test=data.rows[order[cut:]], schema=schema)


@cache
def frame_in(folder: Path) -> Frame:
    """Bins and components of the first split's training rows."""
    return frame_of(split_of(folder, 0).train)


def do(job: Job, folder: Path) -> dict[str, Any]:
    """Fit, draw as many rows as were trained on, score them, and count those that a picture needs."""
    split = split_of(folder, job.split)
    rows, facts = rows_of(job, split)
    run = {
        "method": job.method,
        "epsilon": job.epsilon,
        "split": job.split,
        "rows": len(rows),
        "mse": neighbours_error(rows, split.test),
        **facts,
        "machine": describe_machine(),
    }
    if job.method == REAL:
        run["mse_of_the_mean"] = float(np.mean((split.test[:, -1] - rows[:, -1].mean()) ** 2))
    if job.split == 0 and (job.method == REAL or (job.method in PICTURED and job.epsilon == IN_HISTOGRAMS)):
        run["histograms"] = frame_in(folder).histograms(rows)
    if job.split == 0 and (job.method == REAL or (job.method in PICTURED and job.epsilon in IN_CELLS)):
        run["cells"] = frame_in(folder).cells(rows)
    return run


def rows_of(job: Job, split: Split) -> tuple[np.ndarray, dict[str, Any]]:
    """The rows that a job is about, and what they took and cost."""
    if job.method == REAL:
        return split.train, {}
    if job.method == "mog" and job.epsilon is None:
        return open_mixture(split.train)
    column = next(iter(split.schema.columns.values()))
    low = np.clip((split.train - column.lower) / (column.upper - column.lower), 0, 1).astype(np.float32)
    packed = Packed(schema=split.schema, low=low, width=np.zeros_like(low))
    private = job.epsilon is not None
    method = method_of(SETTINGS[job.method], job.method)
    model, facts = fit(packed, method, epsilon=job.epsilon or 50.0, delta=DELTA, private=private)
    points = draw(model, len(low)).astype(np.float64)
    return column.lower + (column.upper - column.lower) * points, facts | {"delta": DELTA if private else None}


def open_mixture(rows: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """As many rows from a mixture that was fitted without privacy."""
    from sklearn.mixture import GaussianMixture

    start = time.perf_counter()
    fitted = GaussianMixture(**OPEN_MIXTURE).fit(rows)  # no seed: as the flows, from the operating system
    seconds = round(time.perf_counter() - start, 1)
    drawn = np.random.default_rng().permutation(fitted.sample(len(rows))[0])
    return drawn, {"seconds": seconds, "certified_epsilon": "infinity", "delta": None}


def neighbours_error(rows: np.ndarray, test: np.ndarray) -> float:
    """The mean squared error of three nearest neighbours in predicting the last column from the others.

    >>> rows = np.array([[0.0, 1.0], [0.1, 2.0], [0.2, 3.0], [9.0, 50.0]])
    >>> neighbours_error(rows, np.array([[0.1, 4.0]]))
    4.0
    """
    from sklearn.neighbors import KNeighborsRegressor

    fitted = KNeighborsRegressor(n_neighbors=3).fit(rows[:, :-1], rows[:, -1])
    return float(np.mean((fitted.predict(test[:, :-1]) - test[:, -1]) ** 2))


def plan(jobs: list[Job], done: list[dict[str, Any]]) -> list[Job]:
    """What is still to be done."""
    there = {(run["method"], run["epsilon"], run["split"]) for run in done}
    return [job for job in jobs if (job.method, job.epsilon, job.split) not in there]


def summarise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Figure 2: one row a method and epsilon, over splits."""
    rows = []
    for method in (*SETTINGS, REAL):
        for epsilon in (*EPSILONS, None):
            mine = [run for run in runs if (run["method"], run["epsilon"]) == (method, epsilon)]
            if mine:
                errors = [run["mse"] for run in mine]
                row = {"method": method, "epsilon": epsilon, "splits": len(mine)}
                rows.append(row | {"mean": float(np.mean(errors)), "deviation": float(np.std(errors))})
    return rows


def write(target: Path, runs: list[dict[str, Any]], folder: Path) -> None:
    """Sum up what was found so far; in full or not at all."""
    result = {
        "machine": runs[0]["machine"],
        "data": load("lifesci", folder).note,
        "delta": DELTA,
        "settings": {name: method_of(given, name).settings() for name, given in SETTINGS.items()},
        "mixture_without_privacy": OPEN_MIXTURE,
        "seeds": "a split's number seeds the split; randomness of fits and draws comes from the operating system",
        "versions": versions() | {"scikit-learn": version("scikit-learn")},
        "frame": frame_in(folder).written(),
        "summary": summarise(runs),
        "runs": runs,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    partly = target.with_suffix(".part.json")
    partly.write_text(json.dumps(result, indent=1) + "\n")
    partly.replace(target)


def fit_all(given: argparse.Namespace) -> None:
    """Do what is missing, and write after each."""
    folder = data_folder(given.data_dir)
    runs = json.loads(given.output.read_text())["runs"] if given.output.exists() else []
    jobs = plan(jobs_of(given.splits, given.methods), runs)
    for run in finished(partial(do, folder=folder), jobs, time_limit=given.time_limit):
        runs.append(run)
        write(given.output, runs, folder)
        shown = ("method", "epsilon", "split", "mse", "certified_epsilon", "seconds")
        print(json.dumps({name: run[name] for name in shown if name in run}), flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("phase", choices=("fit", "pictures"))
    top.add_argument("--data-dir")
    top.add_argument("--splits", type=int, default=3)
    top.add_argument("--methods", nargs="*", choices=sorted(SETTINGS), default=list(SETTINGS))
    top.add_argument("--time-limit", type=float, help="seconds after which no further fit is begun")
    top.add_argument("-o", "--output", type=Path, default=TARGET)
    return top


def main() -> None:
    """Fit, or draw."""
    given = parser().parse_args()
    if given.phase == "fit":
        fit_all(given)
    else:
        from benchmarks.lifesci_pictures import draw_pictures

        draw_pictures(given.output, IMAGES)


if __name__ == "__main__":
    main()
