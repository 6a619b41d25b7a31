"""Pictures of figures 2, 3, 4 and 11 of the DP-NF paper, drawn from their JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_pictures import finish, plot
from benchmarks.lifesci import EPSILONS, IN_CELLS, IN_HISTOGRAMS, PICTURED, REAL
from benchmarks.lifesci_counts import counts_of

Result = dict[str, Any]

NAMES = {"maf": "DP-NF (maf)", "mog": "DP-MoG (mog)", "hflow": "DP-HFlow (hflow)"}
ERRORS, SOME, ALL, PLANES = (f"lifesci_{name}.png" for name in ("errors", "histograms", "all_histograms", "planes"))
FIRST = 3
"""How many features figure 3 shows; which three the paper's are it does not say."""

_COLOURS = {"maf": "tab:blue", "mog": "tab:orange", "hflow": "tab:green"}
_OPEN = {"maf": "NF", "mog": "MoG", "hflow": "HFlow"}


def draw_pictures(source: Path, folder: Path) -> None:
    """Draw whatever the JSON has all runs for."""
    import matplotlib as mpl

    mpl.use("Agg")
    result = json.loads(source.read_text())
    draw_errors(result["runs"], folder / ERRORS)
    if all(run_of(result, name, IN_HISTOGRAMS) for name in PICTURED):
        draw_some(result, folder / SOME)
        draw_all(result, folder / ALL)
    if all(run_of(result, name, epsilon) for name in PICTURED for epsilon in IN_CELLS):
        draw_planes(result, folder / PLANES)


def run_of(result: Result, method: str, epsilon: float | None) -> dict[str, Any] | None:
    """The run of the first split, if there is one."""
    wanted = (method, epsilon, 0)
    return next((run for run in result["runs"] if (run["method"], run["epsilon"], run["split"]) == wanted), None)


def draw_errors(runs: list[dict[str, Any]], target: Path) -> None:
    """Figure 2: squared errors by epsilon; level lines where there is no privacy, means over splits."""
    from matplotlib import pyplot as plt

    grid, axes = plt.subplots(1, 1, figsize=(9.5, 5.6), squeeze=False, layout="constrained")
    axis = axes[0][0]
    shown = [{**run, "error": 1_000 * run["mse"]} for run in runs if run["epsilon"] in (*EPSILONS, None)]
    for method, name in NAMES.items():
        mine = [run for run in shown if run["method"] == method]
        private = [run for run in mine if run["epsilon"] is not None]
        place = lambda run: run["epsilon"]
        plot(axis, private, "error", place, colour=_COLOURS[method], label=name, joined=True)
        level(axis, [run for run in mine if run["epsilon"] is None], _COLOURS[method], f"{_OPEN[method]}, no privacy")
    level(axis, [run for run in shown if run["method"] == REAL], "black", "real rows (baseline)")
    axis.set_xscale("log", base=2)
    axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axis.set_ylim(bottom=0)
    axis.set_xlabel("ε")
    axis.set_ylabel("mean squared error on held-out rows, thousandths")
    finish(grid, axes, "Life Science: three nearest neighbours trained on synthetic rows", target)


def level(axis: Any, runs: list[dict[str, Any]], colour: str, label: str) -> None:
    """A dashed level line at the mean of runs without privacy."""
    if runs:
        mean = float(np.mean([run["error"] for run in runs]))
        axis.axhline(mean, color=colour, linestyle="--", linewidth=1.3, label=label)


def draw_some(result: Result, target: Path) -> None:
    """Figure 3: three features, DP-NF on the left and DP-MoG on the right."""
    from matplotlib import pyplot as plt

    grid, axes = plt.subplots(FIRST, 2, figsize=(9, 6.8), sharex="row", sharey="row", layout="constrained")
    for column, method in enumerate(PICTURED):
        axes[0][column].set_title(NAMES[method], fontsize=10)
        axes[-1][column].set_xlabel("value, in units of the largest row norm")
        for feature in range(FIRST):
            overlay(axes[feature][column], result, method, feature)
    for feature in range(FIRST):
        axes[feature][0].set_ylabel(f"feature {feature}\nshare of rows a bin")
    finish(grid, axes, f"Life Science, ε = {IN_HISTOGRAMS:g}: synthetic over real rows", target)


def draw_all(result: Result, target: Path) -> None:
    """Figure 11: all features, DP-NF above and DP-MoG below."""
    from matplotlib import pyplot as plt

    num = len(result["frame"]["histogram_ranges"])
    across = num // 2
    grid, axes = plt.subplots(4, across, figsize=(13, 8.2), layout="constrained")
    for half, method in enumerate(PICTURED):
        for feature in range(num):
            axis = axes[2 * half + feature // across][feature % across]
            overlay(axis, result, method, feature)
            axis.set_title(f"feature {feature}", fontsize=8)
            axis.set_yticks([])
            axis.tick_params(labelsize=7)
        for line in (2 * half, 2 * half + 1):
            axes[line][0].set_ylabel(f"{NAMES[method]}\nshare of rows", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("value", fontsize=8)
    finish(grid, axes, f"Life Science, ε = {IN_HISTOGRAMS:g}: synthetic over real rows, all ten features", target)


def overlay(axis: Any, result: Result, method: str, feature: int) -> None:
    """Both histograms of one feature as shares of rows, in the same bins."""
    frame = result["frame"]
    edges = np.linspace(*frame["histogram_ranges"][feature], frame["bins"] + 1)
    for run, colour, label in (
        (run_of(result, REAL, None), "tab:blue", "real"),
        (run_of(result, method, IN_HISTOGRAMS), "tab:orange", "synthetic"),
    ):
        shares = counts_of(run["histograms"])[feature] / run["rows"]
        axis.stairs(shares, edges, fill=True, color=colour, alpha=0.55, label=label)
    axis.set_xlim(edges[0], edges[-1])


def draw_planes(result: Result, target: Path) -> None:
    """Figure 4: rows on the first two principal components, DP-NF above, DP-MoG below, real rows right of both."""
    from matplotlib import pyplot as plt
    from matplotlib.colors import PowerNorm

    grid, axes = plt.subplots(2, len(IN_CELLS) + 1, figsize=(12, 5.6), sharex=True, sharey=True, layout="constrained")
    real = counts_of(run_of(result, REAL, None)["cells"])
    (left, right), (bottom, top) = result["frame"]["cell_ranges"]
    style = {"extent": (left, right, bottom, top), "origin": "lower", "norm": PowerNorm(0.5, 0, real.max())}
    for line, method in zip(axes, PICTURED, strict=True):
        for axis, epsilon in zip(line[:-1], IN_CELLS, strict=True):
            axis.imshow(counts_of(run_of(result, method, epsilon)["cells"]), **style)
            axis.set_title(f"{NAMES[method]}, ε = {epsilon:g}", fontsize=10)
        drawn = line[-1].imshow(real, **style)
        line[-1].set_title("real rows", fontsize=10)
        line[0].set_ylabel("second component")
    for axis in axes[-1]:
        axis.set_xlabel("first component")
    grid.colorbar(drawn, ax=axes, shrink=0.8, label="rows a cell (root scale)", extend="max")
    grid.suptitle("Life Science: densities on the first two principal components of the real rows", fontsize=11)
    target.parent.mkdir(parents=True, exist_ok=True)
    grid.savefig(target, dpi=110)
    plt.close(grid)
    print(f"wrote {target}")
