"""Tables 1 to 3 and Figure 3 of the DP-HFlow paper: fits with and without privacy, judged by nine classifiers.

    python -m benchmarks.hflow_tables prepare FOLDER        # training rows, packed for a machine without Arrow
    python -m benchmarks.hflow_tables fit FOLDER OUT        # fits of `hflow` and 50,000 synthetic rows of each
    python -m benchmarks.hflow_tables score OUT             # benchmarks/results/hflow_tables.json
    python -m benchmarks.hflow_tables figure OUT            # docs/images/hflow_marginals.png
    python -m benchmarks.hflow_tables all FOLDER OUT
    python -m benchmarks.hflow_tables all FOLDER OUT_OF_MERF --method merf     # another method, in a folder of its own
    python -m benchmarks.hflow_tables all FOLDER OUT_OF_CTGAN --method dp-ctgan --open     # CTGAN, without privacy

Settings are the method's defaults, fixed without these four data sets; the split is fixed by a seed, the noise comes
from the operating system, so a run repeats up to noise. Fits go through the same doors as ``sfumato.fit`` (private) and
``sfumato.fit_without_privacy`` (open). Every phase skips what is there already.

Reference: Lee, Kim, Jeong, Ro 2022, "Differentially Private Normalizing Flows for Synthetic Tabular Data Generation".
"""

import argparse
import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import TARGETS, levels_of, load, pack, prepare
from benchmarks.hflow_fits import draw, fit, labelled, method_of, versions, write_packed
from benchmarks.workers import finished

DRAWN = 50_000
"""Synthetic rows of each fit."""

KINDS = ("private", "open")


OPEN: dict[str, dict[str, Any]] = {
    "hflow": {"steps": 4_000, "size": {"width": 128}, "dequantisation": {"draws": 1}},
    "dp-ctgan": {"steps": 3_000, "game": {"learning_rate": 1e-3}},
}
"""Settings of fits without privacy, in place of the defaults: without noise a wider network and more steps pay off.

Those of `dp-ctgan` without privacy are CTGAN."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One fit of one data set."""

    data: str
    kind: str
    repeat: int

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"{self.data}_{self.kind}_{self.repeat}"


def do(job: Job, given: argparse.Namespace) -> str:
    """One fit and its synthetic rows, with what it took and what it cost; a line that tells of it."""
    from benchmarks.machine import describe_machine
    from sfumato.encoding.layout import layout_of

    data, target = load(given.folder, job.data), given.out / f"{job.stem}.npz"
    settings = (OPEN.get(given.method, {}) if job.kind == "open" else {}) | given.settings
    method = labelled(method_of(settings, given.method, given.preset), data.schema, TARGETS[job.data])
    model, facts = fit(data, method, epsilon=given.epsilon, delta=given.delta, private=job.kind == "private")
    start = time.perf_counter()
    points = draw(model, DRAWN, levels_of(data))
    facts |= {"draw_seconds": round(time.perf_counter() - start, 1), "finite": bool(np.isfinite(points).all())}
    write_packed(target, pack(np.nan_to_num(points, nan=0.5), layout_of(data.schema)))
    line = json.dumps(
        {"data": job.data, "kind": job.kind, "repeat": job.repeat, "rows": DRAWN, "training_rows": len(data.low)}
        | facts
        | {"processes": given.processes, "method": method.name, "settings": method.settings()}
        | {"machine": describe_machine(), "versions": versions()}
    )
    target.with_suffix(".json").write_text(line + "\n")
    told = f"{facts['seconds']:.0f} s + {facts['draw_seconds']:.0f} s, epsilon {facts['certified_epsilon']}"
    return f"{job.stem}: {told}{'' if facts['finite'] else ', NOT FINITE'}"


def fit_all(given: argparse.Namespace) -> None:
    """Fit what is not there yet, until the time is up."""
    given.out.mkdir(parents=True, exist_ok=True)
    for line in finished(
        partial(do, given=given), jobs_of(given), processes=given.processes, time_limit=given.time_limit
    ):
        print(line, flush=True)


def jobs_of(given: argparse.Namespace) -> list[Job]:
    """What is not there yet: a repeat of everything before the next, and the widest tables first.

    Those take longest, above all to compile, so that no worker is left alone with one at the end.
    """
    repeats = {"private": given.repeats, "open": given.repeats if given.repeats_open is None else given.repeats_open}
    width = {name: len(json.loads((given.folder / f"{name}.json").read_text())["columns"]) for name in given.data}
    jobs = [
        Job(data=name, kind=kind, repeat=repeat)
        for repeat in range(max(repeats.values()))
        for name in sorted(given.data, key=lambda name: -width[name])
        for kind in kinds_of(given)
        if repeat < repeats[kind]
    ]
    files = {job: given.out / f"{job.stem}.npz" for job in jobs}
    return [job for job, path in files.items() if not (path.exists() and path.with_suffix(".json").exists())]


def kinds_of(given: argparse.Namespace) -> list[str]:
    """The kinds of fit asked for: where none is named both of `hflow`, and the private one of other methods."""
    asked = [kind for kind in KINDS if getattr(given, kind)]
    return asked or (list(KINDS) if given.method == "hflow" else ["private"])


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    phases = top.add_subparsers(dest="phase", required=True)
    for phase in ("prepare", "fit", "score", "figure", "all"):
        one = phases.add_parser(phase)
        if phase in ("prepare", "fit", "all"):
            one.add_argument("folder", type=Path)
        if phase != "prepare":
            one.add_argument("out", type=Path)
        one.add_argument("--data", nargs="*", choices=list(TARGETS), default=list(TARGETS))
        if phase in ("fit", "score", "all"):
            one.add_argument("--processes", type=int, default=1, help="how many fits, or files to score, at once")
        if phase in ("score", "all"):
            one.add_argument("--output", type=Path, help="where the result goes, if not to benchmarks/results")
        if phase in ("fit", "all"):
            one.add_argument("--repeats", type=int, default=5)
            one.add_argument("--repeats-open", type=int, help="of the fits without privacy, if not --repeats")
            one.add_argument("--epsilon", type=float, default=1.0)
            one.add_argument("--delta", type=float, default=1e-5)
            one.add_argument("--private", action="store_true", help="only the private fits")
            one.add_argument("--open", action="store_true", help="only the fits without privacy")
            one.add_argument("--settings", type=json.loads, default={}, help="JSON fields of the method")
            one.add_argument("--method", default="hflow", help="a method of the registry; one folder OUT for each")
            one.add_argument("--preset", help="a preset of the method in place of its defaults, such as paper")
            one.add_argument("--time-limit", type=float, help="seconds after which no further fit is begun")
    return top


def main() -> None:
    """Run one phase, or all of them."""
    given = parser().parse_args()
    if given.phase in ("prepare", "all"):
        prepare(given.folder, given.data)
    if given.phase in ("fit", "all"):
        fit_all(given)
    if given.phase in ("score", "all"):
        from benchmarks.hflow_scores import score_all

        score_all(given.out, given.data, given.processes, given.output)
    if given.phase == "figure" or (given.phase == "all" and given.method == "hflow"):
        from benchmarks.hflow_figure import draw_figure

        draw_figure(given.out)


if __name__ == "__main__":
    main()
