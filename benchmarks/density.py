"""Density: average test log-likelihood of a method over random 90/10 splits, beside the published figures.

    python -m benchmarks.density                        # every task, ten splits, the default settings of `maf`
    python -m benchmarks.density --tasks lifesci --splits 2 --epsilons 1

Settings are the method's defaults, fixed before the test rows were looked at; the noise comes from the operating
system, so a run repeats up to noise. Fits go through the same doors as ``sfumato.fit``.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import DensityData, data_folder, load
from benchmarks.machine import describe_machine


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


def fit_and_score(
    data: DensityData, split: int, epsilon: float, delta: float, settings: dict[str, Any]
) -> dict[str, Any]:
    """One split: fit on nine tenths through the doors, mean log-likelihood of the rest."""
    import jax
    import jax.numpy as jnp

    from sfumato.encoding.layout import layout_of
    from sfumato.models.cells import log_uniform_ratio, point_in_cell
    from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
    from sfumato.schema import Continuous, Schema
    from sfumato.synthesizers import Maf

    order = np.random.default_rng(1_000 + split).permutation(len(data.rows))
    cut = int(0.9 * len(order))
    low = np.clip((data.rows - data.lower) / (data.upper - data.lower), 0, 1).astype(np.float32)
    train, test = low[order[:cut]], low[order[cut:]]
    column = Continuous(lower=data.lower, upper=data.upper)
    schema = Schema(columns={f"x{i}": column for i in range(low.shape[1])}, rows=round(cut, -3))

    ledger = Ledger(Budget(epsilon=epsilon, delta=delta), Adjacency())
    curator = Curator(
        {"low": train, "width": np.zeros_like(train)},
        ledger=ledger,
        randomness=Randomness.from_os(),
        public_size=schema.rows,
    )
    start = time.perf_counter()
    model = Maf(**settings).fit(curator, layout_of(schema))
    seconds = time.perf_counter() - start

    def score(point: Any) -> Any:
        features = point_in_cell(point, jnp.zeros_like(point), jnp.zeros_like(point))
        return model.log_prob(features) + log_uniform_ratio(features)

    scores = np.asarray(jax.jit(jax.vmap(score))(jnp.asarray(test)), np.float64)
    mean = float(scores.mean()) - low.shape[1] * float(np.log(data.upper - data.lower))
    return {"split": split, "epsilon": epsilon, "log_likelihood": mean, "seconds": round(seconds, 2)}


def _job(job: tuple[str, int, float], folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    name, split, epsilon = job
    return {"task": name, **fit_and_score(load(name, folder), split, epsilon, TASKS[name].delta, settings)}


def summarise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a task and epsilon: mean and standard deviation over splits, beside the published figures."""
    rows = []
    for name, epsilon in sorted({(run["task"], run["epsilon"]) for run in runs}):
        values = [run["log_likelihood"] for run in runs if (run["task"], run["epsilon"]) == (name, epsilon)]
        rows.append(
            {
                "task": name,
                "epsilon": epsilon,
                "delta": TASKS[name].delta,
                "splits": len(values),
                "mean": float(np.mean(values)),
                "deviation": float(np.std(values)),
                "published": TASKS[name].published.get(epsilon, {}),
                "source": TASKS[name].source,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--tasks", nargs="*", choices=sorted(TASKS), default=sorted(TASKS))
    parser.add_argument("--epsilons", nargs="*", type=float)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON fields of Maf, in place of its defaults")
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/results/density.json"))
    given = parser.parse_args()
    folder = data_folder(given.data_dir)
    jobs = [
        (name, split, epsilon)
        for split in range(given.splits)
        for name in given.tasks
        for epsilon in (given.epsilons or TASKS[name].published)
    ]
    runs = []
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        for run in pool.map(partial(_job, folder=folder, settings=given.settings), jobs):
            runs.append(run)
            print(json.dumps(run), flush=True)
    rows = summarise(runs)
    notes = {name: load(name, folder).note for name in given.tasks}
    result = {"machine": describe_machine(), "settings": given.settings, "notes": notes, "summary": rows, "runs": runs}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        found = f"{row['mean']:8.3f} ± {row['deviation']:.3f}"
        print(f"{row['task']:<11} epsilon {row['epsilon']:<5} {found}   {row['published']}")


if __name__ == "__main__":
    main()
