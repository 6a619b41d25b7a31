"""What each part of DP-GAN is worth on Adult: the plain game, and with groups, moving bounds, warm start, selection.

    python -m benchmarks.gan_ablation                       # benchmarks/results/gan_ablation.json
    python -m benchmarks.gan_ablation --repeats 1 --steps 200 --variants plain groups

Epsilon 1, delta 1e-5, the split of the DP-HFlow benchmark; nine classifiers trained on 50,000 synthetic rows and judged
on held-out ones. For the warm start a fiftieth of the training rows is taken as public and left out of the private
ones, in every variant, so that all see the same rows. Noise comes from the operating system, so a run
repeats up to noise. What is there already is kept, so that a run can be cut off and taken up again.
Reference: Boob et al. 2018; the share of public rows is that of Zhang, Ji, Wang 2018.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import TARGETS, parts, schema_of
from benchmarks.hflow_scores import judge
from benchmarks.machine import describe_machine

DATA, EPSILON, DELTA, DRAWN, PUBLIC = "adult", 1.0, 1e-5, 50_000, 50
TARGET = Path("benchmarks/results/gan_ablation.json")
VARIANTS = ("plain", "groups", "bounds", "warm start", "selection", "all")


def method_of(variant: str, steps: int | None) -> Any:
    """The method with one part, or with all of them; settings are otherwise the defaults."""
    from sfumato.fitting.grouped_critic import Grouping
    from sfumato.fitting.selection import Selection
    from sfumato.synthesizers import DpGan

    plain = DpGan(label=TARGETS[DATA])
    plain = plain if steps is None else replace(plain, steps=steps)
    parts_of = {
        "groups": {"grouping": Grouping(groups=4)},
        "bounds": {"grouping": Grouping(groups=1, follow="noisy")},
        "selection": {"selection": Selection(chosen=1)},
        "all": {"grouping": Grouping(groups=4, follow="noisy"), "selection": Selection(chosen=1)},
    }
    return replace(plain, **parts_of.get(variant, {}))


def run(variant: str, repeat: int, steps: int | None) -> dict[str, Any]:
    """One fit, its synthetic rows, and what nine classifiers make of them."""
    import sfumato as sf
    from sfumato.evaluation import sample_of

    schema, rows = schema_of(DATA), parts(DATA)[0]
    open_rows = np.random.default_rng(0).permutation(rows.num_rows) < rows.num_rows // PUBLIC
    public = rows.filter(open_rows) if variant in ("warm start", "all") else None
    method, start = method_of(variant, steps), time.perf_counter()
    release = sf.fit(rows.filter(~open_rows), schema, method=method, epsilon=EPSILON, delta=DELTA, public=public)
    seconds = time.perf_counter() - start
    found = judge(DATA, sample_of(release.sample_arrow(DRAWN), schema), repeat)
    return {
        "variant": variant,
        "repeat": repeat,
        "seconds": round(seconds, 1),
        "certified_epsilon": release.certificate.epsilon,
        "settings": method.settings(),
        **found,
    }


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a variant and metric: mean and deviation over repeats."""
    rows = []
    for variant in VARIANTS:
        mine = [one for one in runs if one["variant"] == variant]
        for metric in mine[0]["scores"] if mine else ():
            values = [one["scores"][metric]["value"] for one in mine]
            values = [value for value in values if value is not None]
            if values:
                figures = {"mean": float(np.mean(values)), "deviation": float(np.std(values)), "repeats": len(values)}
                rows.append({"variant": variant, "metric": metric, **figures})
    return rows


def main() -> None:
    """Run what is missing, and write after each fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--output", type=Path, default=TARGET)
    given = parser.parse_args()
    runs = json.loads(given.output.read_text())["runs"] if given.output.exists() else []
    done = {(one["variant"], one["repeat"]) for one in runs}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    for repeat in range(given.repeats):
        for variant in given.variants:
            if (variant, repeat) in done:
                continue
            runs.append(run(variant, repeat, given.steps))
            result = {"machine": describe_machine(), "epsilon": EPSILON, "delta": DELTA, "summary": summary(runs)}
            given.output.write_text(json.dumps(result | {"runs": runs}, indent=1) + "\n")
            told = ", ".join(f"{name} {score['value']:.3f}" for name, score in runs[-1]["scores"].items())
            print(f"{variant}, repeat {repeat}: {told} ({runs[-1]['seconds']:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
