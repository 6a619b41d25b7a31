"""Mixtures: tables 1, 2, 4 and 5 of the DP-NF paper with `mog`, `maf`, and `maf` over each prior.

    python -m benchmarks.mixtures                                       # everything, ten splits: hours on two cores
    python -m benchmarks.mixtures --tasks pinwheel --methods DP-MoG --splits 2

Test log-likelihood over random 90/10 splits, the splits of ``benchmarks.density``. Settings are the methods' defaults
but for the number of components, which is the paper's; they were fixed before any test rows were looked at, on splits
inside the training rows of the first split and on fresh draws of the generators. What the result file holds already is
not fitted again, so that a run that was cut off can be taken up.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import data_folder, load
from benchmarks.density import Job, scored
from benchmarks.hflow_fits import versions
from benchmarks.mixtures_paper import COMPONENTS, PAPER, PRIORS, PUBLIC_PRIORS
from benchmarks.workers import finished

TARGET = Path("benchmarks/results/mixtures.json")
KINDS = ("DP-MoG", "DP-NF, private prior", "DP-NF, public prior", "DP-NF")
OVER_MIXTURES = {"clip": 150.0, "batch": 1_024, "steps": 600}
"""Settings of flows over mixtures: narrow components make for long gradients; small batches take less time."""
_PUBLIC_ROWS = 100_000


def labels(task: str) -> list[str]:
    """The rows of a data set's table."""
    counts = (COMPONENTS, PRIORS, PUBLIC_PRIORS)
    found = [f"{kind}, {num}" for kind, given in zip(KINDS, counts, strict=False) for num in given.get(task, ())]
    return [*found, "DP-NF"]


def kind_of(label: str) -> str:
    """The kind of method that a label names."""
    return label if label == "DP-NF" else label.rpartition(",")[0]


def method_of(label: str, task: str) -> Any:
    """The method behind a label: default settings but for components, and those of flows over mixtures."""
    from sfumato.fitting.priors import MixturePrior
    from sfumato.synthesizers import Maf, Mog

    kind = kind_of(label)
    if kind == "DP-NF":
        return Maf()
    components = int(label.rpartition(" ")[2])
    if kind == "DP-MoG":
        return Mog(components=components)
    if kind == "DP-NF, private prior":
        return Maf(prior=MixturePrior(components=components), **OVER_MIXTURES)
    return Maf(prior=public_prior(task, components), **OVER_MIXTURES)


def public_prior(task: str, components: int) -> Any:
    """A mixture fitted without privacy to fresh rows of the generator, which stand for public ones."""
    from scipy.special import ndtri
    from sklearn.mixture import GaussianMixture

    from benchmarks.datasets import fresh
    from sfumato.fitting.priors import PublicMixture

    data = fresh(task, seed=4_242, num=_PUBLIC_ROWS)
    features = ndtri((data.rows - data.lower) / (data.upper - data.lower))
    fitted = GaussianMixture(components, random_state=0, n_init=3).fit(features)
    return PublicMixture(
        weights=tuple(fitted.weights_.tolist()),
        means=tuple(map(tuple, fitted.means_.tolist())),
        covariances=tuple(tuple(map(tuple, matrix)) for matrix in fitted.covariances_.tolist()),
    )


def do(planned: tuple[str, Job], folder: Path) -> dict[str, Any]:
    """One fit and its score."""
    label, job = planned
    return {"method": label, **scored(job, folder, method_of(label, job.task), PAPER[job.task].delta)}


def plan(given: argparse.Namespace, done: list[dict[str, Any]]) -> list[tuple[str, Job]]:
    """What is still to be fitted: kinds as given, and in each equal budgets together, which are accounted once."""
    there = {(run["method"], run["task"], run["split"], run["epsilon"]) for run in done}
    jobs = [
        (label, Job(task=task, split=split, epsilon=epsilon))
        for kind in given.methods
        for task in given.tasks
        for label in labels(task)
        if kind_of(label) == kind
        for epsilon in (given.epsilons or PAPER[task].published)
        for split in range(given.splits)
    ]
    deltas = [task.delta for task in PAPER.values()]
    jobs.sort(
        key=lambda one: (given.methods.index(kind_of(one[0])), deltas.index(PAPER[one[1].task].delta), one[1].epsilon)
    )
    return [(label, job) for label, job in jobs if (label, job.task, job.split, job.epsilon) not in there]


def summarise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a data set, method and epsilon."""
    rows = []
    for task in PAPER:
        for label in labels(task):
            for epsilon, printed in PAPER[task].published.items():
                mine = [run for run in runs if (run["task"], run["method"], run["epsilon"]) == (task, label, epsilon)]
                values = [run["log_likelihood"] for run in mine if run["log_likelihood"] is not None]
                if not mine:
                    continue
                rows.append(
                    {
                        "task": task,
                        "method": label,
                        "epsilon": epsilon,
                        "delta": PAPER[task].delta,
                        "splits": len(values),
                        "not_finite": len(mine) - len(values),
                        "mean": float(np.mean(values)) if values else None,
                        "deviation": float(np.std(values)) if values else None,
                        "seconds": float(np.median([run["seconds"] for run in mine])),
                        "published": printed,
                        "source": PAPER[task].source,
                    }
                )
    return rows


def write(target: Path, runs: list[dict[str, Any]], folder: Path) -> None:
    """Sum up what was found so far."""
    tasks = sorted({run["task"] for run in runs})
    result = {
        "machine": runs[0]["machine"],
        "settings": {f"{task}: {label}": _stated(label, task) for task in tasks for label in labels(task)},
        "seeds": "a split's number seeds the split; a fit's randomness comes from the operating system",
        "versions": versions(),
        "notes": {name: load(name, folder).note for name in tasks},
        "summary": summarise(runs),
        "runs": runs,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")


def _stated(label: str, task: str) -> Any:
    if kind_of(label) == "DP-NF, public prior":
        return {**OVER_MIXTURES, "prior": f"from {_PUBLIC_ROWS:,} fresh rows, by scikit-learn"}
    return method_of(label, task).settings()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--data-dir")
    top.add_argument("--tasks", nargs="*", choices=sorted(PAPER), default=list(PAPER))
    top.add_argument("--methods", nargs="*", choices=KINDS, default=list(KINDS))
    top.add_argument("--epsilons", nargs="*", type=float)
    top.add_argument("--splits", type=int, default=10)
    top.add_argument("--processes", type=int, default=1)
    top.add_argument("--time-limit", type=float, help="seconds after which no further fit is begun")
    top.add_argument("-o", "--output", type=Path, default=TARGET)
    return top


def main() -> None:
    """Fit, score, and write the result."""
    given = parser().parse_args()
    folder = data_folder(given.data_dir)
    runs = json.loads(given.output.read_text())["runs"] if given.output.exists() else []
    work = partial(do, folder=folder)
    for run in finished(work, plan(given, runs), processes=given.processes, time_limit=given.time_limit):
        runs.append(run)
        write(given.output, runs, folder)
        print(json.dumps({name: value for name, value in run.items() if name != "machine"}), flush=True)


if __name__ == "__main__":
    main()
