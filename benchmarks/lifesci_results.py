"""The section of docs/results.md on figures 2, 3, 4 and 11 of the DP-NF paper. No figure is typed by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lifesci import EPSILONS, IN_CELLS, IN_HISTOGRAMS, PICTURED, REAL
from benchmarks.lifesci_counts import chance, counts_of, variation
from benchmarks.lifesci_pictures import ALL, ERRORS, NAMES, PLANES, SOME, run_of

PATH = Path("benchmarks/results/lifesci.json")
IMAGES = Path("docs/images")

Result = dict[str, Any]


def lifesci() -> list[str]:
    """Everything of the benchmark; nothing where it was not run."""
    if not PATH.exists():
        return []
    result = json.loads(PATH.read_text())
    return [*head(result), *errors(result), *shapes(result), *costs(result)]


def head(result: Result) -> list[str]:
    """What was measured, and how."""
    real = run_of(result, REAL, None)
    mixture = result["mixture_without_privacy"]
    return [
        "## Life Science: figures 2, 3, 4 and 11 of the DP-NF paper (`make bench-lifesci`)",
        "",
        f"*DP-NF* is `maf`, *DP-MoG* is `mog` with {result['settings']['mog']['components']} components; default",
        f"settings, delta {result['delta']:g}, PLD accounting under add-or-remove-one. Random 90/10",
        f"splits, those of `make bench-density`; each fit draws as many rows as it was given ({real['rows']:,}).",
        "Without privacy the flows have the same settings, exact sums and plain gradients; the mixture is that of",
        f"scikit-learn, {mixture['n_components']} components, the best of {mixture['n_init']} starts. Rows are "
        f"{result['data']}.",
        f"The paper shows pictures and no numbers. Seeds: {result['seeds']}.",
        "",
    ]


def errors(result: Result) -> list[str]:
    """Figure 2, and whether it says what the paper's does."""
    rows = {(row["method"], row["epsilon"]): row for row in result["summary"]}
    lines = [
        "Figure 2: mean squared error, in thousandths, on held-out rows of three nearest neighbours (the last column",
        "from the nine others) that were trained on synthetic rows; lower is better. Mean ± standard deviation over",
        "splits (their number).",
        "",
        "| trained on rows of | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " | no privacy |",
        "| --- " * (len(EPSILONS) + 2) + "|",
    ]
    for method, name in NAMES.items():
        cells = [cell(rows.get((method, epsilon))) for epsilon in (*EPSILONS, None)]
        if set(cells) != {"–"}:
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("| real rows (baseline) | " + "– | " * len(EPSILONS) + f"{cell(rows.get((REAL, None)))} |")
    means = [1_000 * run["mse_of_the_mean"] for run in result["runs"] if run["method"] == REAL]
    lines += ["", f"Who predicts the mean of the training labels for every row errs by {np.mean(means):.2f}.", ""]
    return [*lines, *verdict(rows), *picture(ERRORS, "Squared errors by epsilon, as in figure 2")]


def cell(row: dict[str, Any] | None) -> str:
    """One mean.

    >>> cell({"mean": 0.0021, "deviation": 0.0001, "splits": 3})
    '**2.10** ± 0.10 (3)'
    """
    if row is None:
        return "–"
    spread = f" ± {1_000 * row['deviation']:.2f}" if row["splits"] > 1 else ""
    return f"**{1_000 * row['mean']:.2f}**{spread} ({row['splits']})"


def verdict(rows: dict[tuple[str, float | None], dict[str, Any]]) -> list[str]:
    """Where the two claims of the paper hold here."""
    compared = [epsilon for epsilon in EPSILONS if {("maf", epsilon), ("mog", epsilon)} <= set(rows)]
    if not compared or ("mog", None) not in rows:
        return []
    lower = [epsilon for epsilon in compared if rows["maf", epsilon]["mean"] < rows["mog", epsilon]["mean"]]
    reached = [epsilon for epsilon in compared if rows["maf", epsilon]["mean"] <= rows["mog", None]["mean"]]
    splits = min(rows[method, epsilon]["splits"] for method in ("maf", "mog") for epsilon in compared)
    return [
        "The paper has DP-NF below DP-MoG at every epsilon: here this holds at "
        f"{listed(lower)} and fails at {listed([epsilon for epsilon in compared if epsilon not in lower])}.",
        "It has DP-NF reach the mixture without privacy at large epsilon: here DP-NF is at or below that mixture at "
        f"{listed(reached)}.",
        *(["One split shows no spread: small differences may be chance."] if splits == 1 else []),
        "",
    ]


def listed(epsilons: list[float]) -> str:
    """Epsilons in words.

    >>> listed([0.5, 1.0]), listed([])
    ('epsilon 0.5, 1', 'none')
    """
    return "epsilon " + ", ".join(f"{epsilon:g}" for epsilon in epsilons) if epsilons else "none"


def shapes(result: Result) -> list[str]:
    """Figures 3, 11 and 4, and how far their counts are from those of the real rows."""
    real = run_of(result, REAL, None)
    lines = [
        f"Figures 3 and 11 (epsilon {IN_HISTOGRAMS:g}; the paper's second says 0.5) and 4: synthetic rows of the first",
        "split beside the training rows. Which three features the paper shows it does not say; here it is the first",
        "three. Total variation between the counts that are drawn, 0 at best; of histograms the mean over features:",
        "",
        f"| method | histograms, epsilon {IN_HISTOGRAMS:g} | "
        + " | ".join(f"plane, epsilon {epsilon:g}" for epsilon in IN_CELLS)
        + " |",
        "| --- " * (len(IN_CELLS) + 2) + "|",
    ]
    table = {}
    for method in PICTURED:
        found = [far(run_of(result, method, IN_HISTOGRAMS), real, "histograms")]
        found += [far(run_of(result, method, epsilon), real, "cells") for epsilon in IN_CELLS]
        table[method] = found
        lines.append(f"| {NAMES[method]} | " + " | ".join(found) + " |")
    least = np.mean([chance(counts, real["rows"]) for counts in counts_of(real["histograms"])])
    plane = f" | {chance(counts_of(real['cells']), real['rows']):.3f}" * len(IN_CELLS)
    return [
        *lines,
        f"| two samples of the real rows' law | {least:.3f}{plane} |",
        "",
        *nearer(table),
        *picture(SOME, "Histograms of three features, as in figure 3"),
        *picture(ALL, "Histograms of all features, as in figure 11"),
        *picture(PLANES, "Densities on two principal components, as in figure 4"),
    ]


def nearer(table: dict[str, list[str]]) -> list[str]:
    """Whether DP-NF is nearer to the real rows than DP-MoG, as the paper finds by eye.

    >>> nearer({"maf": ["0.055", "0.167"], "mog": ["0.050", "0.187"]})[0].partition("here ")[2]
    'it is not in the histograms, and it is in 1 of 1 planes.'
    """
    pairs = list(zip(table["maf"], table["mog"], strict=True))
    if any("–" in pair for pair in pairs):
        return []
    won = [float(flow) < float(mixture) for flow, mixture in pairs]
    bars = "it is in the histograms" if won[0] else "it is not in the histograms"
    planes = f"it is in {sum(won[1:])} of {len(won) - 1} planes"
    return [
        f"The paper finds DP-NF nearer to the real rows than DP-MoG: by these numbers here {bars}, and {planes}.",
        "",
    ]


def far(run: dict[str, Any] | None, real: dict[str, Any], name: str) -> str:
    """The total variation between what is drawn of a run and of the real rows."""
    if run is None:
        return "–"
    mine, theirs = counts_of(run[name]), counts_of(real[name])
    if name == "cells":
        return f"{variation(mine, theirs, run['rows'], real['rows']):.3f}"
    pairs = zip(mine, theirs, strict=True)
    return f"{np.mean([variation(one, other, run['rows'], real['rows']) for one, other in pairs]):.3f}"


def costs(result: Result) -> list[str]:
    """Machines, seconds, and the largest share of the budget that was certified."""
    private = [run for run in result["runs"] if isinstance(run.get("certified_epsilon"), float)]
    over = [run for run in private if run["certified_epsilon"] > run["epsilon"]]
    seconds = {name: [run["seconds"] for run in result["runs"] if run["method"] == name] for name in result["settings"]}
    said = ", ".join(f"`{name}` {np.median(found):.0f} s" for name, found in seconds.items() if found)
    machine = result["machine"]
    return [
        f"Median seconds of a fit: {said}; {machine['device']} ({machine['backend']}), {machine['cores']} cores, JAX "
        f"{machine['jax']}, Python {machine['python']}, beside other work.",
        f"Certified epsilon is above the asked one in {len(over)} of {len(private)} private fits.",
        "",
    ]


def picture(name: str, words: str) -> list[str]:
    """A picture, if it was drawn."""
    return [f"![{words}](images/{name})", ""] if (IMAGES / name).exists() else []
