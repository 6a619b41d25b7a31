"""Accountants: figure 9 of the DP-NF paper, epsilon by iterations for every accountant. Needs no data; a minute.

    python -m benchmarks.accountants     # benchmarks/results/accountants.json, docs/images/accountants.png

The setting is that of Life Science in the paper: rate 100/21384, noise 2.1, delta 1e-4. The paper shows two curves, its
moments accountant (RDP here) and GDP (the central limit approximation, CLT here), and no numbers.
"""

import argparse
import json
import time
from pathlib import Path

from benchmarks.machine import describe_machine
from sfumato.cli.pictures import draw_curves
from sfumato.privacy.accountants import ACCOUNTANTS, accountant_named, curves, most_steps

RATE, NOISE, DELTA = 100 / 21384, 2.1, 1e-4
STEPS = (1, 10, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000)
RESULT, PICTURE = Path("benchmarks/results/accountants.json"), Path("docs/images/accountants.png")


def main() -> None:
    """Compute, write, draw."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    start = time.perf_counter()
    found = curves(rate=RATE, noise=NOISE, steps=STEPS, delta=DELTA)
    allowed = {
        one.name: most_steps(accountant_named(one.name), rate=RATE, noise=NOISE, epsilon=1.0, delta=DELTA)
        for one in ACCOUNTANTS
    }
    result = {
        "machine": describe_machine(),
        "rate": RATE,
        "noise": NOISE,
        "delta": DELTA,
        "steps": STEPS,
        "epsilon": found,
        "says": {one.name: one.says for one in ACCOUNTANTS},
        "steps_within_epsilon_1": allowed,
        "seconds": round(time.perf_counter() - start, 1),
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    shown = {name: (STEPS, heights) for name, heights in found.items() if name != "zCDP"}
    title = f"rate 100/21384, noise {NOISE}, delta {DELTA:g}"
    draw_curves(shown, PICTURE, title=title, labels=("iterations", "epsilon"), dashed=("CLT", "PRV lower"))


if __name__ == "__main__":
    main()
