"""Figures 4 and 5 of the DP-HFlow paper: ways of clipping, sparsity and dequantisation, all on Adult.

    python -m benchmarks.hflow_figures prepare FOLDER    # training rows and scored rows, packed
    python -m benchmarks.hflow_figures fit FOLDER OUT    # fits, log-likelihoods, 20,000 synthetic rows of each
    python -m benchmarks.hflow_figures score OUT         # benchmarks/results/hflow_figures.json and both pictures
    python -m benchmarks.hflow_figures picture           # the pictures again, from the JSON alone
    python -m benchmarks.hflow_figures all FOLDER OUT

Settings are the method's defaults but for what a figure varies; the runs on clipping take 1,000 steps, since two of its
ways are slow. Every clipping bound that was run is shown. Every phase skips what is there already.

Reference: Lee, Kim, Jeong, Ro 2022, "Differentially Private Normalizing Flows for Synthetic Tabular Data Generation".
"""

import argparse
import json
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import SPLIT_SEED, levels_of, load, pack, parts, prepare, schema_of, unpack
from benchmarks.hflow_fits import draw, fit, log_densities, method_of, versions, write_packed
from benchmarks.hflow_paper import AUROC, F1
from benchmarks.workers import finished

DATA = "adult"
DRAWN = 20_000
"""Synthetic rows of each fit."""
SCORED = 4_000
"""Held-out rows whose likelihood is taken at most, and how many points of their cells it takes."""
DRAWS = 16
DELTA = 1e-5
CLIPPING_STEPS = 1_000
BOUNDS = (2.0, 0.5)
SPARSITIES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
REPEATS = {"clipping": 2, "sparsity": 2, "dequantisation": 2}
RESULT = Path("benchmarks/results/hflow_figures.json")
SEEDS = (
    f"one random split of seed {SPLIT_SEED}, which also chose the scored held-out rows; a fit's randomness comes from "
    "the operating system; the repeat's number seeds the sample of rows that classifiers see and the classifiers"
)
VALUES = ("log_likelihood", "macro_f1", "auroc", "seconds")
"""What a figure shows of a run."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One fit: the part of the figures that it belongs to, what varies there, and what that sets."""

    part: str
    point: dict[str, Any]
    repeat: int
    epsilon: float = 1.0
    settings: dict[str, Any] = field(default_factory=dict)
    turn: tuple[int, ...] = (0,)

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"{DATA}_{self.part}-{'-'.join(str(value) for value in self.point.values())}_{self.repeat}"


def jobs_of(given: argparse.Namespace) -> list[Job]:
    """Every fit in its turn: repeat by repeat, the slow ones first; sparsity at further bounds comes last."""
    jobs = []
    for part in given.parts:
        for repeat in range(REPEATS[part] if given.repeats is None else given.repeats):
            jobs += {"clipping": _clipping, "sparsity": _sparsity, "dequantisation": _dequantisation}[part](repeat)
    return sorted(jobs, key=lambda job: job.turn)


def _clipping(repeat: int) -> list[Job]:
    slow = {"sparse": -3, "unit": -2, "layer": 0, "flat": 0}
    return [
        Job(
            part="clipping",
            point={"kind": kind, "bound": bound},
            repeat=repeat,
            settings={"steps": CLIPPING_STEPS, "clipping": {"kind": kind, "bound": bound, "sparsity": 0.5}},
            turn=(0, repeat, slow[kind]),
        )
        for kind in slow
        for bound in BOUNDS
    ]


def _sparsity(repeat: int) -> list[Job]:
    return [
        Job(
            part="sparsity",
            point={"sparsity": sparsity, "bound": bound},
            repeat=repeat,
            settings={"steps": CLIPPING_STEPS, "clipping": {"kind": "sparse", "bound": bound, "sparsity": sparsity}},
            turn=(1 + place, repeat, 0),
        )
        for place, bound in enumerate(BOUNDS)
        for sparsity in SPARSITIES
    ]


def _dequantisation(repeat: int) -> list[Job]:
    return [
        Job(
            part="dequantisation",
            point={"kind": kind, "epsilon": epsilon},
            repeat=repeat,
            epsilon=epsilon,
            settings={"dequantisation": {"kind": kind}},
            turn=(0, repeat, -1),
        )
        for kind in ("variational", "copula", "uniform")
        for epsilon in EPSILONS
    ]


def prepare_all(folder: Path) -> None:
    """The training rows, and the held-out rows whose likelihood is taken, with what turns densities into masses."""
    from sfumato.encoding.features import encode_features
    from sfumato.encoding.layout import layout_of

    prepare(folder, [DATA])
    schema, test = schema_of(DATA), parts(DATA)[1]
    places = np.sort(np.random.default_rng(SPLIT_SEED).permutation(test.num_rows)[:SCORED])
    cells = encode_features(test.take(places), schema)
    packed = pack(cells.low, layout_of(schema), cells.width)
    write_packed(folder / f"{DATA}_test.npz", packed | {"log_unit": cells.log_unit})
    print(f"{DATA}: {len(places):,} held-out rows to score", flush=True)


def do(job: Job, given: argparse.Namespace) -> str:
    """One fit, its likelihood and its synthetic rows, written down; a line that tells of it."""
    from benchmarks.machine import describe_machine
    from sfumato.encoding.layout import layout_of

    data, target = load(given.folder, DATA), given.out / f"{job.stem}.npz"
    method = method_of(job.settings | given.settings)
    model, facts = fit(data, method, epsilon=job.epsilon, delta=DELTA)
    facts |= likelihood(model, given.folder, layout_of(data.schema))
    start = time.perf_counter()
    points = draw(model, DRAWN, levels_of(data))
    facts |= {"draw_seconds": round(time.perf_counter() - start, 1), "finite": bool(np.isfinite(points).all())}
    write_packed(target, pack(np.nan_to_num(points, nan=0.5), layout_of(data.schema)))
    line = json.dumps(
        {"part": job.part, "point": job.point, "repeat": job.repeat, "epsilon": job.epsilon, "rows": DRAWN}
        | facts
        | {"processes": given.processes, "settings": method.settings()}
        | {"machine": describe_machine(), "versions": versions()}
    )
    target.with_suffix(".json").write_text(line + "\n")
    return f"{job.stem}: {facts['seconds']:.0f} s, {facts['log_likelihood']} nats, all numbers {facts['finite']}"


def likelihood(model: Any, folder: Path, layout: Any) -> dict[str, Any]:
    """The log-likelihood of the scored rows, in nats a row; None where it is no number."""
    low, width = unpack(folder / f"{DATA}_test.npz", layout)
    with np.load(folder / f"{DATA}_test.npz") as arrays:
        log_unit = arrays["log_unit"]
    start = time.perf_counter()
    found = log_densities(model, low, width, DRAWS) + log_unit
    known = bool(np.isfinite(found).all())
    return {
        "log_likelihood": float(found.mean()) if known else None,
        "median_log_likelihood": float(np.median(found)) if known else None,
        "not_finite": int((~np.isfinite(found)).sum()),
        "scored_rows": len(found),
        "likelihood_seconds": round(time.perf_counter() - start, 1),
    }


def fit_all(given: argparse.Namespace) -> None:
    """Fit what is not there yet, until the time is up."""
    given.out.mkdir(parents=True, exist_ok=True)
    files = {job.stem: given.out / f"{job.stem}.npz" for job in jobs_of(given)}
    done = {stem for stem, path in files.items() if path.exists() and path.with_suffix(".json").exists()}
    todo = [job for job in jobs_of(given) if job.stem not in done]
    work = partial(do, given=given)
    for line in finished(work, todo, processes=given.processes, time_limit=given.time_limit):
        print(line, flush=True)


def write_result(out: Path, target: Path) -> None:
    """Sum up every fit that was scored."""
    from benchmarks.hflow_scores import read_run
    from benchmarks.machine import describe_machine

    runs = [shown(read_run(path)) for path in sorted(out.glob(f"{DATA}_*_*.score.json"))]
    result = {
        "machine": describe_machine(),
        "seeds": SEEDS,
        "data": DATA,
        "delta": DELTA,
        "clipping_steps": sorted({run["settings"]["steps"] for run in runs if run["part"] != "dequantisation"}),
        "synthetic_rows": DRAWN,
        "likelihood": f"log of masses in nats a row, importance-weighted over {DRAWS} points of a row's cells",
        "seconds": "of a fit with its compilation, while as many fits as 'processes' says shared the machine",
        "summary": summarise(runs),
        "runs": runs,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {target}: {len(runs)} runs", flush=True)


def shown(run: dict[str, Any]) -> dict[str, Any]:
    """A run with the means over classifiers beside its other figures."""
    scores = run.pop("scores")
    means = {"macro_f1": scores[F1], "auroc": scores[AUROC]}
    return run | {
        **{name: score["value"] for name, score in means.items()},
        "classifiers": {
            name: {of: part["value"] for of, part in score["parts"].items()} for name, score in means.items()
        },
        "failed": sum(score["failed"] for score in means.values()),
        "sampled": means["macro_f1"]["sampled"],
    }


def summarise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a point of a figure: mean and deviation over repeats of each value."""
    rows = []
    for part, point in sorted({(run["part"], json.dumps(run["point"])) for run in runs}):
        mine = [run for run in runs if run["part"] == part and run["point"] == json.loads(point)]
        row: dict[str, Any] = {"part": part, "point": json.loads(point), "repeats": len(mine)}
        for name in VALUES:
            known = [run[name] for run in mine if run[name] is not None]
            row[name] = {
                "mean": float(np.mean(known)) if known else None,
                "deviation": float(np.std(known)) if known else None,
                "missing": len(mine) - len(known),
            }
        rows.append(row)
    return rows


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    phases = top.add_subparsers(dest="phase", required=True)
    for phase in ("prepare", "fit", "score", "picture", "all"):
        one = phases.add_parser(phase)
        if phase in ("prepare", "fit", "all"):
            one.add_argument("folder", type=Path)
        if phase in ("fit", "score", "all"):
            one.add_argument("out", type=Path)
            one.add_argument("--processes", type=int, default=1, help="how many fits, or files to score, at once")
        if phase in ("score", "picture", "all"):
            one.add_argument("--output", type=Path, default=RESULT, help="the JSON of the result")
            one.add_argument("--images", type=Path, default=Path("docs/images"), help="the folder of the pictures")
        if phase in ("fit", "all"):
            one.add_argument("--parts", nargs="*", choices=list(REPEATS), default=list(REPEATS))
            one.add_argument("--repeats", type=int, help=f"of each part; otherwise {REPEATS}")
            one.add_argument(
                "--settings", type=json.loads, default={}, help="JSON fields of HFlow, over the figure's own"
            )
            one.add_argument("--time-limit", type=float, help="seconds after which no further fit is begun")
    return top


def main() -> None:
    """Run one phase, or all of them."""
    given = parser().parse_args()
    if given.phase in ("prepare", "all"):
        prepare_all(given.folder)
    if given.phase in ("fit", "all"):
        fit_all(given)
    if given.phase in ("score", "all"):
        from benchmarks.hflow_scores import score_files

        score_files(given.out, [DATA], given.processes)
        write_result(given.out, given.output)
    if given.phase in ("score", "picture", "all"):
        from benchmarks.hflow_pictures import draw_pictures

        draw_pictures(given.output, given.images)


if __name__ == "__main__":
    main()
