"""The benchmark of the DP-TBART paper: ten data sets, epsilon 1, delta 1e-9; Dyck-20; detection by epsilon.

    python -m benchmarks.tbart prepare FOLDER          # cells of all tables, for a machine without Arrow
    python -m benchmarks.tbart fit FOLDER OUT          # fits, and as many synthetic rows of each as were trained on
    python -m benchmarks.tbart dyck FOLDER OUT         # fits to all 16,796 strings of 20 well-matched brackets
    python -m benchmarks.tbart sweep FOLDER OUT        # fits to `adult_pgm` by epsilon
    python -m benchmarks.tbart sampling FOLDER OUT     # rows a minute of a release
    python -m benchmarks.tbart score FOLDER OUT        # benchmarks/results/tbart.json
    python -m benchmarks.tbart figure                  # docs/images/tbart_sweep.png, from the JSON
    python -m benchmarks.tbart all FOLDER OUT          # all of these in turn

The split is fixed by a seed and the noise comes from the operating system, so a run repeats up to noise. Fits go
through the same doors as ``sfumato.fit``. Every phase skips what is there already.

Reference: Castellon, Gopal, Bloniarz, Rosenberg 2023, "DP-TBART: A Transformer-based Autoregressive Model for
Differentially Private Tabular Data Generation".
"""

import argparse
import json
from functools import partial
from pathlib import Path

from benchmarks.tbart_data import DYCK, TARGETS, prepare
from benchmarks.tbart_fits import METHODS, UNFITTED, Job, do
from benchmarks.workers import finished

EPSILONS = (1.0, 5.0, 20.0, 100.0, 1_000.0)
"""Epsilons of the sweep, as far as the paper's figure goes."""

SWEPT = "adult_pgm"
COMPARED = ("auto", "dp-tbart", "dp-tbart (paper)", "chain", "aim")
SHARED = "chain (shared codes)"
"""For strings alone, whose letters mean the same in every place; the paper shares its tokens there, too."""

TABLED = tuple(label for label in METHODS if label != SHARED)
RESULT = Path("benchmarks/results/tbart.json")


def fit_all(given: argparse.Namespace, jobs: list[Job]) -> None:
    """Fit what is not there yet, until the time is up."""
    given.out.mkdir(parents=True, exist_ok=True)
    files = {job: given.out / f"{job.stem}.npz" for job in jobs}
    todo = [job for job, path in files.items() if not (path.exists() and path.with_suffix(".json").exists())]
    work = partial(
        do,
        folder=given.folder,
        out=given.out,
        delta=given.delta,
        settings=given.settings,
        processes=given.processes,
    )
    for line in finished(work, todo, processes=given.processes, time_limit=given.time_limit):
        print(line, flush=True)


def jobs_of(given: argparse.Namespace, phase: str) -> list[Job]:
    """The fits of a phase in their turn: a seed of everything before the next, tables and methods as they were named.

    Real rows do not differ from one repeat to the next but by what judges them, and no epsilon applies to them.
    """
    labels = given.methods or {"fit": [*TABLED, *UNFITTED], "dyck": [SHARED, *COMPARED]}.get(phase, list(COMPARED))
    names = {"fit": given.datasets, "dyck": [DYCK], "sweep": [SWEPT]}[phase]
    epsilons = given.epsilons if phase == "sweep" else [1.0]
    return [
        Job(label=label, data=name, seed=seed, epsilon=epsilon)
        for seed in range(given.seeds)
        for name in names
        for epsilon in epsilons
        for label in labels
        if not (label in UNFITTED and (phase == "dyck" or epsilon != 1))
    ]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    phases = top.add_subparsers(dest="phase", required=True)
    for phase in ("prepare", "fit", "dyck", "sweep", "sampling", "score", "figure", "all"):
        one = phases.add_parser(phase)
        if phase == "figure":
            continue
        one.add_argument("folder", type=Path)
        one.add_argument("--datasets", nargs="*", choices=list(TARGETS), default=list(TARGETS))
        one.add_argument("--processes", type=int, default=1, help="how many fits, or files to score, at once")
        if phase != "prepare":
            one.add_argument("out", type=Path)
        if phase in ("score", "all"):
            one.add_argument("--output", type=Path, default=RESULT)
        if phase in ("fit", "dyck", "sweep", "sampling", "all"):
            one.add_argument(
                "--methods", nargs="*", choices=[*METHODS, *UNFITTED], help="labels; all that apply otherwise"
            )
            one.add_argument("--seeds", type=int, default=5, help="how many repeats")
            one.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS), help="of the sweep")
            one.add_argument("--delta", type=float, default=1e-9)
            one.add_argument("--settings", type=json.loads, default={}, help="JSON fields of the methods, for a trial")
            one.add_argument("--rows", type=int, default=1_000_000, help="rows to sample, for the phase sampling")
            one.add_argument("--time-limit", type=float, help="seconds after which no further fit is begun")
    return top


def run(phase: str, given: argparse.Namespace) -> None:
    """Run one phase."""
    if phase == "prepare":
        prepare(given.folder, given.datasets)
    elif phase in ("fit", "dyck", "sweep"):
        fit_all(given, jobs_of(given, phase))
    elif phase == "sampling":
        from benchmarks.tbart_sampling import time_all

        time_all(given)
    elif phase == "score":
        from benchmarks.tbart_scores import score_files
        from benchmarks.tbart_summary import write_result

        score_files(given.folder, given.out, [*given.datasets, DYCK], given.processes)
        write_result(given.out, given.output)
    else:
        from benchmarks.tbart_figure import draw_figure

        draw_figure(RESULT)


def main() -> None:
    """Run one phase, or all of them."""
    given = parser().parse_args()
    each = ("prepare", "fit", "dyck", "sweep", "sampling", "score", "figure")
    for phase in each if given.phase == "all" else (given.phase,):
        run(phase, given)


if __name__ == "__main__":
    main()
