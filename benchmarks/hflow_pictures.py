"""Pictures of figures 4 and 5 of the DP-HFlow paper, drawn from their JSON: runs are dots, means are lines."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CLIPPING = "hflow_clipping.png"
DEQUANTISATION = "hflow_dequantisation.png"

Run = dict[str, Any]

_VALUES = {
    "log_likelihood": "held-out log-likelihood,\nnats a row",
    "macro_f1": "macro-F1,\nmean of nine classifiers",
    "auroc": "AUROC,\nmean of nine classifiers",
}
_KINDS = ("flat", "layer", "unit", "sparse")
_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red")


def draw_pictures(source: Path, folder: Path) -> None:
    """Draw what the JSON has runs for."""
    import matplotlib as mpl

    mpl.use("Agg")
    runs = json.loads(source.read_text())["runs"]
    if any(run["part"] != "dequantisation" for run in runs):
        draw_clipping([run for run in runs if run["part"] != "dequantisation"], folder / CLIPPING)
    if any(run["part"] == "dequantisation" for run in runs):
        draw_dequantisation([run for run in runs if run["part"] == "dequantisation"], folder / DEQUANTISATION)


def draw_clipping(runs: list[Run], target: Path) -> None:
    """Figure 4: by way of clipping on the left, by sparsity on the right, each bound in its own colour."""
    from matplotlib import pyplot as plt

    grid, axes = plt.subplots(3, 2, figsize=(9.5, 8), sharex="col", layout="constrained")
    sparse = [run for run in runs if run["settings"]["clipping"]["kind"] == "sparse"]
    by_kind = [run for run in runs if run["part"] == "clipping"]
    bounds = sorted({bound_of(run) for run in runs})
    for line, (value, label) in zip(axes, _VALUES.items(), strict=True):
        line[0].set_ylabel(label)
        for number, bound in enumerate(bounds):
            style = {"colour": _COLOURS[number], "label": f"bound {bound:g}"}
            aside = 0.18 * (number - (len(bounds) - 1) / 2)
            ways = [run for run in by_kind if bound_of(run) == bound]
            place = lambda run, aside=aside: _KINDS.index(run["point"]["kind"]) + aside
            plot(line[0], ways, value, place, joined=False, **style)
            levels = [run for run in sparse if bound_of(run) == bound]
            plot(line[1], levels, value, lambda run: run["settings"]["clipping"]["sparsity"], joined=True, **style)
    axes[-1][0].set_xticks(range(len(_KINDS)), ["flat", "by layer", "by unit", "sparse (0.5)"])
    axes[-1][0].set_xlim(-0.5, len(_KINDS) - 0.5)
    axes[-1][0].set_xlabel("way of clipping")
    axes[-1][1].set_xlabel("sparsity, of sparse clipping")
    finish(grid, axes, f"Adult, ε = 1, {steps_of(runs)} steps", target)


def draw_dequantisation(runs: list[Run], target: Path) -> None:
    """Figure 5: ways of dequantisation by epsilon."""
    from matplotlib import pyplot as plt

    grid, axes = plt.subplots(1, 3, figsize=(12, 3.8), squeeze=False, layout="constrained")
    for axis, (value, label) in zip(axes[0], _VALUES.items(), strict=True):
        for number, kind in enumerate(("uniform", "variational", "copula")):
            mine = [run for run in runs if run["point"]["kind"] == kind]
            plot(axis, mine, value, lambda run: run["epsilon"], colour=_COLOURS[number], label=kind, joined=True)
        epsilons = sorted({run["epsilon"] for run in runs})
        axis.set_xscale("log", base=2)
        axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axis.set_xlabel("ε")
        axis.set_ylabel(label)
    finish(grid, axes, f"Adult, {steps_of(runs)} steps: dequantisation", target)


def plot(
    axis: Any, runs: list[Run], value: str, place: Callable[[Run], float], *, colour: str, label: str, joined: bool
) -> None:
    """Runs as dots, and their means: joined by a line, or each a short one of its own."""
    known = [(place(run), run[value]) for run in runs if run[value] is not None]
    if not known:
        return
    places = sorted({x for x, _ in known})
    means = [float(np.mean([y for x, y in known if x == at])) for at in places]
    axis.plot(*zip(*known, strict=True), "o", color=colour, alpha=0.55, markersize=4, label=f"{label}: runs")
    if joined:
        axis.plot(places, means, "-", color=colour, linewidth=1.5, label=f"{label}: mean")
    else:
        left, right = ([at + side for at in places] for side in (-0.09, 0.09))
        axis.hlines(means, left, right, color=colour, linewidth=2, label=f"{label}: mean")


def bound_of(run: Run) -> float:
    """The clipping bound of a run."""
    return run["settings"]["clipping"]["bound"]


def steps_of(runs: list[Run]) -> str:
    """How many steps the runs took."""
    return ", ".join(f"{steps:,}" for steps in sorted({run["settings"]["steps"] for run in runs}))


def finish(grid: Any, axes: Any, title: str, target: Path) -> None:
    """The same title, lines and legend for every picture, and the file."""
    from matplotlib import pyplot as plt

    for axis in axes.flat:
        axis.grid(alpha=0.3)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    grid.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    grid.suptitle(title, fontsize=11)
    target.parent.mkdir(parents=True, exist_ok=True)
    grid.savefig(target, dpi=110)
    plt.close(grid)
    print(f"wrote {target}")
