"""Figure 1 of the DP-TBART paper: detection by epsilon."""

import json
from pathlib import Path

TARGET = Path("docs/images/tbart_sweep.png")


def draw_figure(result: Path) -> None:
    """Draw a line for each method, with a bar of one standard deviation over repeats."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = [row for row in json.loads(result.read_text())["sweep"] if row["metric"] == "det"]
    labels = list(dict.fromkeys(row["label"] for row in rows))
    swept = [label for label in labels if len([row for row in rows if row["label"] == label]) > 1]
    if not swept:
        print("no method was fitted at several epsilons: no figure")
        return
    figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for label in swept:
        mine = [row for row in rows if row["label"] == label]
        axis.errorbar(
            [row["epsilon"] for row in mine],
            [row["mean"] for row in mine],
            [row["deviation"] or 0.0 for row in mine],
            marker="o",
            capsize=2,
            label=label,
        )
    axis.set(xscale="log", xlabel="epsilon", ylabel="DET (0.5 is best)", ylim=(0, 0.55))
    axis.axhline(0.5, color="grey", linewidth=0.8, linestyle="--")
    axis.legend(fontsize=8)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(TARGET, dpi=110)
    plt.close(figure)
    print(f"wrote {TARGET}")
