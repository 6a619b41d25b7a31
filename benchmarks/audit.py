"""Audit at full size: how much of the certified epsilon attacks can show, and how silent they are on pure noise.

    python -m benchmarks.audit                                     # about a quarter of an hour on two cores
    python -m benchmarks.audit --canaries 10000 --pairs 100 --nulls 50 --planned 10000

White box: canaries through the real doors, in runs of 10,000 whose scores are pooled, since each canary has a
coordinate of its own. At low epsilons the two laws lie so close that more canaries are needed: below 2 their number
grows with one over epsilon squared. Record-play: random pairs of neighbours. Null: the bounds on scores without a
signal.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine
from sfumato.audit.audit import pooled
from sfumato.audit.bounds import gaussian_bound, one_run_bound, threshold_bound
from sfumato.audit.neighbours import random_neighbours
from sfumato.audit.one_run import one_run
from sfumato.audit.playback import PlayResult, play
from sfumato.privacy import Budget
from sfumato.synthesizers import method_named

DELTA, CONFIDENCE = 1e-5, 0.999


def white_box(method: Any, epsilon: float, canaries: int, participation: Any) -> dict[str, Any]:
    """One finding, with how long it took."""
    start = time.perf_counter()
    seen = pooled(method, Budget(epsilon=epsilon, delta=DELTA), canaries, participation, np.random.default_rng())
    finding = seen.finding(CONFIDENCE)
    row = {**finding.to_dict(), "seconds": round(time.perf_counter() - start, 1)}
    shown = f"{finding.name}: certified {finding.certified:.4f}, lower {finding.lower:.4f}, ratio {finding.ratio:.3f}"
    print(f"{shown}, {finding.observations:,} canaries, {row['seconds']} s", flush=True)
    return row


def random_pairs(method: Any, pairs: int, random: np.random.Generator) -> dict[str, Any]:
    """Record-play of so many random pairs, over every trial of the method and every table that it takes."""
    start, result, trials = time.perf_counter(), PlayResult(), type(method).trials()
    while result.pairs < pairs:
        for trial in trials:
            changes = random_neighbours(trial.relation, -(-pairs // (4 * len(trials))), random)
            result += play(trial, changes=changes, seed=int(random.integers(2**31)))
    seconds = round(time.perf_counter() - start, 1)
    print(f"record-play: {result.pairs:,} pairs, {len(result.violations)} violations, {seconds} s", flush=True)
    return {"pairs": result.pairs, "violations": list(result.violations), "seconds": seconds}


def nulls(runs: int, random: np.random.Generator) -> list[dict[str, Any]]:
    """How many runs on pure noise each bound is silent in, by the number of canaries."""
    rows = []
    for num in (1_000, 10_000, 100_000):
        silent = {"gaussian": 0, "threshold": 0, "one_run": 0}
        for _ in range(runs):
            inside, outside = random.normal(size=num // 2), random.normal(size=num // 2)
            silent["gaussian"] += gaussian_bound(inside, outside, DELTA, CONFIDENCE) == 0
            silent["threshold"] += threshold_bound(inside, outside, DELTA, CONFIDENCE) == 0
            right = int(random.binomial(num // 5, 0.5))
            silent["one_run"] += one_run_bound(num, num // 5, right, DELTA, CONFIDENCE) == 0
        rows.append({"canaries": num, "runs": runs, "silent": silent})
        print(f"null, {num:,} canaries, {runs:,} runs: silent {silent}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="maf")
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--canaries", type=int, default=100_000)
    parser.add_argument("--planned", type=int, default=20_000, help="canaries under the method's own plan")
    parser.add_argument("--pairs", type=int, default=2_000)
    parser.add_argument("--nulls", type=int, default=1_000)
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/results/audit.json"))
    given = parser.parse_args()
    method, random = method_named(given.method)(), np.random.default_rng()
    result: dict[str, Any] = {"machine": describe_machine(), "method": given.method, "settings": method.settings()}
    result["null"] = nulls(given.nulls, random)
    sizes = {epsilon: round(given.canaries * max(1.0, 2 / epsilon) ** 2) for epsilon in given.epsilons}
    result["full_participation"] = [white_box(method, epsilon, num, "full") for epsilon, num in sizes.items()]
    result["as_planned"] = [white_box(method, 4.0, given.planned, "planned")]
    budget = Budget(epsilon=4.0, delta=DELTA)
    result["one_run"] = one_run(method, budget=budget, canaries=2_000, plain=10_000, random=random).to_dict()
    result["record_play"] = random_pairs(method, given.pairs, random)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
