"""The section of docs/results.md on mixtures and priors, made from JSON. No figure is typed by hand."""

import json
from pathlib import Path
from typing import Any

from benchmarks.mixtures_paper import PAPER

FOLDER = Path("benchmarks/results")
PATH = FOLDER / "mixtures.json"

Row = dict[str, Any]


def mixtures() -> list[str]:
    """Everything of the benchmark; nothing where it was not run."""
    if not PATH.exists():
        return []
    result = json.loads(PATH.read_text())
    rows = [*result["summary"], *measured_before(result["summary"])]
    lines = [*head(result)]
    for task in PAPER:
        mine = [row for row in rows if row["task"] == task]
        if mine:
            lines += [*table(task, mine), ""]
            lines += [f"{task}: {result['notes'][task]}.", ""] if task in result["notes"] else []
    return lines


def measured_before(summary: list[Row]) -> list[Row]:
    """DP-NF with the standard base where `benchmarks.density` measured it, and this benchmark did not."""
    there = {(row["task"], row["method"], row["epsilon"]) for row in summary}
    results = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("density*.json"))]
    return [
        {**row, "method": "DP-NF", "before": True}
        for result in results
        for row in (result["summary"] if result.get("method", "maf") == "maf" else [])
        if row["mean"] is not None and (row["task"], "DP-NF", row["epsilon"]) not in there
    ]


def head(result: Row) -> list[str]:
    """What was measured, and how."""
    return [
        "## Mixtures and priors: tables 1, 2, 4 and 5 of the DP-NF paper (`make bench-mixtures`)",
        "",
        "Average test log-likelihood, higher is better; mean ± standard deviation over random 90/10 splits (their",
        "number). Ours with PLD accounting under add-or-remove-one. *DP-MoG, k* is `mog` with k components and *DP-NF*",
        "is `maf`, over mixtures of k components where a prior is named: private ones take a fifth of the budget,",
        "public ones come from fresh rows of the generator. Flows over mixtures have a clipping bound of their own,",
        "and smaller batches than the default, for time. Settings were fixed on fresh draws of the generators and on",
        "splits inside the training rows of the first split of Life Science and Power; of those two they are not",
        "independent of the rows scored in other splits. Cells marked \\* are from `make bench-density`. Published",
        "figures (*paper*) are those of Waites and Cummings 2021; GDP understates epsilon, MA is RDP. The paper does",
        "not give the parameters of its generators, so that those tables compare in kind.",
        "",
        f"Run on {machines(result['runs'])}, beside other work. Settings of each row are in the JSON. Seeds: "
        f"{result['seeds']}.",
        "",
    ]


def machines(runs: list[dict[str, Any]]) -> str:
    """The machines of all fits, each with how many it made."""
    told = [
        f"{each['device']} ({each['backend']}), {each['cores']} cores, JAX {each['jax']}, Python {each['python']}"
        for each in (run["machine"] for run in runs)
    ]
    return "; ".join(f"{text} ({told.count(text)} fits)" for text in dict.fromkeys(told))


def table(task: str, rows: list[Row]) -> list[str]:
    """One data set: our rows, then the printed ones."""
    printed = PAPER[task]
    epsilons = list(printed.published)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [
        f"**{task}**, delta {printed.delta:g} ({printed.source})",
        "",
        "| method | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |",
        "| --- " * (1 + len(epsilons)) + "|",
    ]
    for method in sorted(methods):
        cells = {row["epsilon"]: row for row in rows if row["method"] == method}
        lines.append(f"| **{method}** | " + " | ".join(cell(cells.get(epsilon)) for epsilon in epsilons) + " |")
    for name in dict.fromkeys(name for found in printed.published.values() for name in found):
        values = [printed.published[epsilon].get(name) for epsilon in epsilons]
        said = ["–" if value is None else f"{value:.2f}" for value in values]
        lines.append(f"| {name}, paper | " + " | ".join(said) + " |")
    return lines


def cell(row: Row | None) -> str:
    """One of our figures."""
    if row is None or row["mean"] is None:
        return "–"
    spread = f" ± {row['deviation']:.2f}" if row["splits"] > 1 else ""
    lost = f", {row['not_finite']} not finite" if row.get("not_finite") else ""
    mark = " \\*" if row.get("before") else ""
    return f"**{row['mean']:.2f}**{spread} ({row['splits']}{lost}){mark}"
