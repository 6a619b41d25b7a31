"""Figure 3 of the DP-HFlow paper: histograms of real and of synthetic rows, one over the other."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import parts, schema_of
from benchmarks.hflow_scores import synthetic_table

TARGET = Path("docs/images/hflow_marginals.png")

COLUMNS = (
    ("covertype", "Aspect"),
    ("covertype", "Slope"),
    ("covertype", "Horizontal_Distance_To_Roadways"),
    ("adult", "education"),
    ("adult", "occupation"),
    ("adult", "marital-status"),
)
"""Aspect, which has two modes, is in the paper's figure too; which others are there its text does not say."""

_WORDS = {"private": "ε = 1", "open": "without privacy"}


def draw_figure(out: Path) -> None:
    """Draw the first private fit, and below it the first fit without privacy."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = sorted({name for name, _ in COLUMNS})
    kinds = [kind for kind in _WORDS if all((out / f"{name}_{kind}_0.npz").exists() for name in names)]
    if not kinds:
        raise SystemExit(f"{out} has no kind of fit for all of: {', '.join(names)}.")
    real = {name: parts(name)[0] for name in names}
    grid, axes = plt.subplots(
        len(kinds), len(COLUMNS), figsize=(15, 2.7 * len(kinds)), squeeze=False, layout="constrained"
    )
    for line, kind in zip(axes, kinds, strict=True):
        tables = {name: synthetic_table(out / f"{name}_{kind}_0.npz", name) for name in names}
        for axis, (name, column) in zip(line, COLUMNS, strict=True):
            overlay(axis, name, column, real[name], tables[name])
        line[0].set_ylabel(_WORDS[kind])
    axes[0][0].legend(fontsize=7)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    grid.savefig(TARGET, dpi=110)
    plt.close(grid)
    print(f"wrote {TARGET}")


def overlay(axis: Any, name: str, column: str, real: Any, synthetic: Any) -> None:
    """Both histograms of one column as shares of rows, in the same bins."""
    domain = schema_of(name).columns[column]
    levels = getattr(domain, "levels", None)
    for table, colour, label in ((real, "tab:blue", "real"), (synthetic, "tab:orange", "synthetic")):
        if levels is not None:
            place = {level: number for number, level in enumerate(levels)}
            values = np.array([place[value] for value in table[column].to_pylist()])
            bins = np.arange(len(levels) + 1) - 0.5
        else:
            values = table[column].to_numpy()
            step = -(-(domain.upper - domain.lower + 1) // 90)  # whole units a bin, or the bins themselves make a comb
            bins = np.arange(domain.lower, domain.upper + step + 1, step) - 0.5
        axis.hist(
            values, bins=bins, weights=np.full(len(values), 1 / len(values)), color=colour, alpha=0.55, label=label
        )
    axis.set_title(f"{name}: {column.replace('_', ' ')}", fontsize=8)
    axis.tick_params(labelsize=6)
    axis.set_yticks([])
    if levels is not None:
        axis.set_xticks(range(len(levels)), levels, rotation=90, fontsize=5)
