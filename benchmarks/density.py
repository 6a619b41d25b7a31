"""Density: average test log-likelihood of a method over random 90/10 splits, beside the published figures.

    python -m benchmarks.density                        # every task, ten splits, the default settings of `maf`
    python -m benchmarks.density --method hflow --tasks lifesci --splits 2 --epsilons 1

Settings are the method's defaults, fixed before the test rows were looked at; the noise comes from the operating
system, so a run repeats up to noise. Fits go through the same doors as ``sfumato.fit``. The result is written again
after each fit, so that a run that is cut off leaves what it found.
"""

import argparse
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import data_folder, load
from benchmarks.hflow_data import Packed
from benchmarks.hflow_fits import fit, method_of, versions
from benchmarks.machine import describe_machine
from benchmarks.workers import finished
from sfumato.schema import Continuous, Schema


@dataclass(frozen=True, kw_only=True)
class Task:
    """A data set with the deltas and epsilons of the DP-NF paper and the log-likelihoods that it reports."""

    delta: float
    published: dict[float, dict[str, float]]
    source: str


TASKS = {
    "lifesci": Task(
        delta=1.52e-5,
        source="Table 1",
        published={
            0.5: {"DP-NF (GDP)": 8.90, "DP-NF (MA)": 7.37, "DP-MoG (MA)": 2.30},
            1.0: {"DP-NF (GDP)": 9.41, "DP-NF (MA)": 8.67, "DP-MoG (MA)": 5.09},
            2.0: {"DP-NF (GDP)": 10.20, "DP-NF (MA)": 9.32, "DP-MoG (MA)": 8.87},
            4.0: {"DP-NF (GDP)": 10.77, "DP-NF (MA)": 10.09, "DP-MoG (MA)": 9.10},
        },
    ),
    "power": Task(
        delta=1.11e-5,
        source="Table 4",
        published={
            1.25: {"DP-NF (GDP)": -2.12, "DP-NF (MA)": -3.43, "DP-MoG (MA)": -2.88},
            1.75: {"DP-NF (MA)": -2.47, "DP-MoG (MA)": -2.87},
            2.25: {"DP-NF (MA)": -2.16, "DP-MoG (MA)": -2.86},
        },
    ),
    "half_moons": Task(
        delta=3.70e-5,
        source="Table 5",
        published={
            1.5: {"DP-NF (GDP)": -2.23, "DP-NF (MA)": -2.57, "DP-MoG (MA)": -2.59},
            2.25: {"DP-NF (MA)": -2.43, "DP-MoG (MA)": -2.58},
            3.0: {"DP-NF (MA)": -2.22, "DP-MoG (MA)": -2.58},
        },
    ),
    "gaussians": Task(
        delta=3.70e-5,
        source="Table 5",
        published={
            1.5: {"DP-NF (GDP)": -2.45, "DP-NF (MA)": -2.73, "DP-MoG (MA)": -2.44},
            2.25: {"DP-NF (MA)": -2.61, "DP-MoG (MA)": -2.45},
            3.0: {"DP-NF (MA)": -2.45, "DP-MoG (MA)": -2.45},
        },
    ),
    "pinwheel": Task(
        delta=3.70e-5,
        source="Table 2 (signs turned)",
        published={
            1.5: {"DP-NF": -2.80, "DP-NF, private mixture prior": -2.77, "DP-MoG, 5 components": -2.75},
            2.5: {"DP-NF": -2.78, "DP-NF, private mixture prior": -2.70, "DP-MoG, 5 components": -2.76},
            3.5: {"DP-NF": -2.74, "DP-NF, private mixture prior": -2.62, "DP-MoG, 5 components": -2.76},
            4.5: {"DP-NF": -2.63, "DP-NF, private mixture prior": -2.47, "DP-MoG, 5 components": -2.76},
        },
    ),
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One fit: a task, the number of its split, an epsilon."""

    task: str
    split: int
    epsilon: float


def do(job: Job, folder: Path, method: Any) -> dict[str, Any]:
    """One split: fit on nine tenths through the doors, mean log-likelihood of the rest."""
    return scored(job, folder, method, TASKS[job.task].delta)


def scored(job: Job, folder: Path, method: Any, delta: float) -> dict[str, Any]:
    """The same at a delta that is given."""
    data = load(job.task, folder)
    order = np.random.default_rng(1_000 + job.split).permutation(len(data.rows))
    cut = int(0.9 * len(order))
    low = np.clip((data.rows - data.lower) / (data.upper - data.lower), 0, 1).astype(np.float32)
    train, test = low[order[:cut]], low[order[cut:]]
    column = Continuous(lower=data.lower, upper=data.upper)
    schema = Schema(columns={f"x{i}": column for i in range(low.shape[1])}, rows=round(cut, -3))
    packed = Packed(schema=schema, low=train, width=np.zeros_like(train))
    model, facts = fit(packed, method, epsilon=job.epsilon, delta=delta)
    scores = log_densities(model, test)
    mean = float(scores.mean()) - low.shape[1] * float(np.log(data.upper - data.lower))
    return {
        "task": job.task,
        "split": job.split,
        "epsilon": job.epsilon,
        "certified_epsilon": facts["certified_epsilon"],
        "log_likelihood": mean if np.isfinite(mean) else None,
        "seconds": facts["seconds"],
        "machine": describe_machine(),
    }


def log_densities(model: Any, points: np.ndarray) -> np.ndarray:
    """The log density on the unit cube of each point."""
    import jax
    import jax.numpy as jnp

    from sfumato.models.cells import log_uniform_ratio, point_in_cell

    def score(point: Any) -> Any:
        features = point_in_cell(point, jnp.zeros_like(point), jnp.zeros_like(point))
        return model.log_prob(features) + log_uniform_ratio(features)

    return np.asarray(jax.jit(jax.vmap(score))(jnp.asarray(points)), np.float64)


def summarise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a task and epsilon: mean and standard deviation over splits, beside the published figures."""
    rows = []
    for name, epsilon in sorted({(run["task"], run["epsilon"]) for run in runs}):
        mine = [run["log_likelihood"] for run in runs if (run["task"], run["epsilon"]) == (name, epsilon)]
        values = [value for value in mine if value is not None]
        rows.append(
            {
                "task": name,
                "epsilon": epsilon,
                "delta": TASKS[name].delta,
                "splits": len(values),
                "not_finite": len(mine) - len(values),
                "mean": float(np.mean(values)) if values else None,
                "deviation": float(np.std(values)) if values else None,
                "published": TASKS[name].published.get(epsilon, {}),
                "source": TASKS[name].source,
            }
        )
    return rows


def write_result(target: Path, runs: list[dict[str, Any]], method: Any, given: argparse.Namespace) -> None:
    """Sum up what was found so far."""
    result = {
        "machine": runs[0]["machine"],
        "method": method.name,
        "settings": given.settings,
        "all_settings": method.settings(),
        "processes": given.processes,
        "seeds": "a split's number seeds the split; a fit's randomness comes from the operating system",
        "versions": versions(),
        "notes": {name: load(name, data_folder(given.data_dir)).note for name in given.tasks},
        "summary": summarise(runs),
        "runs": runs,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--method", choices=("maf", "hflow"), default="maf")
    top.add_argument("--data-dir")
    top.add_argument("--tasks", nargs="*", choices=sorted(TASKS), default=sorted(TASKS))
    top.add_argument("--epsilons", nargs="*", type=float)
    top.add_argument("--splits", type=int, default=10)
    top.add_argument("--processes", type=int, default=1)
    top.add_argument("--time-limit", type=float, help="seconds after which no further fit is begun")
    top.add_argument("--settings", type=json.loads, default={}, help="JSON fields of the method, over its defaults")
    top.add_argument("-o", "--output", type=Path, help="benchmarks/results/density.json, or density_METHOD.json")
    return top


def main() -> None:
    """Fit, score, and write the result."""
    given = parser().parse_args()
    folder, method = data_folder(given.data_dir), method_of(given.settings, given.method)
    own = "density.json" if given.method == "maf" else f"density_{given.method}.json"
    target = given.output or Path("benchmarks/results") / own
    jobs = [
        Job(task=name, split=split, epsilon=epsilon)
        for split in range(given.splits)
        for name in given.tasks
        for epsilon in (given.epsilons or TASKS[name].published)
    ]
    runs: list[dict[str, Any]] = []
    work = partial(do, folder=folder, method=method)
    for run in finished(work, jobs, processes=given.processes, time_limit=given.time_limit):
        runs.append(run)
        write_result(target, runs, method, given)
        print(json.dumps({name: value for name, value in run.items() if name != "machine"}), flush=True)
    for row in summarise(runs):
        found = "no finite value" if row["mean"] is None else f"{row['mean']:8.3f} ± {row['deviation']:.3f}"
        print(f"{row['task']:<11} epsilon {row['epsilon']:<5} {found}   {row['published']}")


if __name__ == "__main__":
    main()
