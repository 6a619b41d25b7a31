"""What each part of DP-GAN is worth on Adult: the plain game, and with groups, moving bounds, warm start, selection.

    python -m benchmarks.gan_ablation prepare FOLDER        # training rows, packed for a machine without Arrow
    python -m benchmarks.gan_ablation fit FOLDER OUT        # fits of `dpgan` and 50,000 synthetic rows of each
    python -m benchmarks.gan_ablation score OUT             # benchmarks/results/gan_ablation.json
    python -m benchmarks.gan_ablation all FOLDER OUT --repeats 1 --steps 200 --variants plain groups

Epsilon 1, delta 1e-5, the split of the DP-HFlow benchmark; nine classifiers trained on synthetic rows and judged on
held-out ones. For the warm start a fiftieth of the training rows is taken as public and left out of the private ones,
in every variant, so that all see the same rows. Noise comes from the operating system, so a run repeats up to noise.
Every phase skips what is there already. ``fit`` needs NumPy, JAX, Equinox, Optax and dp-accounting alone.
Reference: Boob et al. 2018; the share of public rows is that of Zhang, Ji, Wang 2018.
"""

import argparse
import json
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import TARGETS, Packed, levels_of, load, pack, prepare
from benchmarks.hflow_fits import draw, fit, versions, write_packed
from benchmarks.machine import describe_machine
from benchmarks.workers import finished

DATA, EPSILON, DELTA, DRAWN, PUBLIC = "adult", 1.0, 1e-5, 50_000, 50
TARGET = Path("benchmarks/results/gan_ablation.json")
VARIANTS = ("plain", "groups", "bounds", "warm start", "selection", "all")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One fit of one variant."""

    variant: str
    repeat: int

    @property
    def stem(self) -> str:
        """The name of its files, in the form that the scores of the DP-HFlow benchmark read.

        >>> Job(variant="warm start", repeat=1).stem
        'adult_warm-start_1'
        """
        return f"{DATA}_{self.variant.replace(' ', '-')}_{self.repeat}"


def method_of(variant: str, steps: int | None) -> Any:
    """The method with one part, or with all of them; settings are otherwise the defaults."""
    from sfumato.fitting.grouped_critic import Grouping
    from sfumato.fitting.selection import Selection
    from sfumato.synthesizers import DpGan

    plain = DpGan(label=TARGETS[DATA])
    plain = plain if steps is None else replace(plain, steps=steps)
    parts_of: dict[str, dict[str, Any]] = {
        "groups": {"grouping": Grouping(groups=4)},
        "bounds": {"grouping": Grouping(groups=1, follow="noisy")},
        "selection": {"selection": Selection(chosen=1)},
        "all": {"grouping": Grouping(groups=4, follow="noisy"), "selection": Selection(chosen=1)},
    }
    return replace(plain, **parts_of.get(variant, {}))


def split(data: Packed) -> tuple[Packed, dict[str, np.ndarray]]:
    """The private rows, and the cells of those that are taken as public."""
    is_open = np.random.default_rng(0).permutation(len(data.low)) < len(data.low) // PUBLIC
    public = {"low": data.low[is_open], "width": data.width[is_open]}
    return Packed(schema=data.schema, low=data.low[~is_open], width=data.width[~is_open]), public


def do(job: Job, given: argparse.Namespace) -> str:
    """One fit and its synthetic rows, with what it took and what it cost; a line that tells of it."""
    from sfumato.encoding.layout import layout_of

    data, public = split(load(given.folder, DATA))
    method, target = method_of(job.variant, given.steps), given.out / f"{job.stem}.npz"
    shown = public if job.variant in ("warm start", "all") else None
    model, facts = fit(data, method, epsilon=EPSILON, delta=DELTA, public=shown)
    start = time.perf_counter()
    points = draw(model, DRAWN, levels_of(data))
    facts |= {"draw_seconds": round(time.perf_counter() - start, 1), "finite": bool(np.isfinite(points).all())}
    write_packed(target, pack(np.nan_to_num(points, nan=0.5), layout_of(data.schema)))
    about = {"variant": job.variant, "repeat": job.repeat, "rows": DRAWN, "training_rows": len(data.low)}
    about |= facts | {"settings": method.settings(), "machine": describe_machine(), "versions": versions()}
    target.with_suffix(".json").write_text(json.dumps(about) + "\n")
    return f"{job.stem}: {facts['seconds']:.0f} s, epsilon {facts['certified_epsilon']}"


def fit_all(given: argparse.Namespace) -> None:
    """Fit what is not there yet: a repeat of everything before the next."""
    given.out.mkdir(parents=True, exist_ok=True)
    jobs = [Job(variant=variant, repeat=repeat) for repeat in range(given.repeats) for variant in given.variants]
    missing = [job for job in jobs if not (given.out / f"{job.stem}.json").exists()]
    for line in finished(partial(do, given=given), missing, processes=given.processes, time_limit=given.time_limit):
        print(line, flush=True)


def score_all(given: argparse.Namespace) -> None:
    """Score every file of synthetic rows there is, and write the result."""
    from benchmarks.hflow_scores import read_run, score_files

    score_files(given.out, [DATA], given.processes)
    runs = [read_run(path) for path in sorted(given.out.glob(f"{DATA}_*_*.score.json"))]
    result = {"machine": describe_machine(), "epsilon": EPSILON, "delta": DELTA, "summary": summary(runs), "runs": runs}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["summary"]:
        print(f"{row['variant']:<11} {row['metric']:<26} {row['mean']:.4f} ± {row['deviation']:.4f}")


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a variant and metric: mean and deviation over repeats, and how long a fit took."""
    rows = []
    for variant in VARIANTS:
        mine = [one for one in runs if one["variant"] == variant]
        for metric in mine[0]["scores"] if mine else ():
            values = [one["scores"][metric]["value"] for one in mine]
            values = [value for value in values if value is not None]
            if values:
                figures = {"mean": float(np.mean(values)), "deviation": float(np.std(values)), "repeats": len(values)}
                seconds = float(np.mean([one["seconds"] for one in mine]))
                rows.append({"variant": variant, "metric": metric, **figures, "seconds": seconds})
    return rows


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    phases = top.add_subparsers(dest="phase", required=True)
    for phase in ("prepare", "fit", "score", "all"):
        one = phases.add_parser(phase)
        if phase != "score":
            one.add_argument("folder", type=Path)
        if phase == "prepare":
            continue
        one.add_argument("out", type=Path)
        one.add_argument("--processes", type=int, default=1, help="how many fits, or files to score, at once")
        if phase != "score":
            one.add_argument("--repeats", type=int, default=3)
            one.add_argument("--steps", type=int)
            one.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
            one.add_argument("--time-limit", type=float, help="seconds after which no further fit is begun")
        if phase != "fit":
            one.add_argument("--output", type=Path, default=TARGET)
    return top


def main() -> None:
    """Run one phase, or all of them."""
    given = parser().parse_args()
    if given.phase in ("prepare", "all"):
        prepare(given.folder, [DATA])
    if given.phase in ("fit", "all"):
        fit_all(given)
    if given.phase in ("score", "all"):
        score_all(given)


if __name__ == "__main__":
    main()
