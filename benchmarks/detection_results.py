"""Sections of docs/results.md: accountants and anomaly detection, from their JSON files."""

import json
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path("benchmarks/results")


def machine_words(result: dict[str, Any]) -> str:
    """What a benchmark ran on."""
    found = result["machine"]
    return f"{found['device']} ({found['backend']}), {found['cores']} cores, JAX {found['jax']}"


def read(name: str) -> dict[str, Any] | None:
    """A result file, if it is there."""
    path = FOLDER / name
    return json.loads(path.read_text()) if path.exists() else None


def accountants() -> list[str]:
    """Figure 9: epsilon by iterations."""
    result = read("accountants.json")
    if result is None:
        return []
    names = list(result["epsilon"])
    lines = [
        "## Accountants: figure 9 of the DP-NF paper (`make bench-accountants`)",
        "",
        f"Rate 100/21384, noise {result['noise']}, delta {result['delta']:g}: the paper's setting on Life Science. Its",
        "figure shows RDP (its moments accountant) and CLT (its GDP). CLT is an approximation: below PLD everywhere,",
        "after many steps below what can be proven at all (PRV lower). PRV bounds lie 0.005 to both sides of an",
        "estimate. zCDP has no rule for sampling.",
        "",
        "| iterations | " + " | ".join(f"{name} ({result['says'][name]})" for name in names) + " |",
        "| --- " * (len(names) + 1) + "|",
    ]
    for place, steps in enumerate(result["steps"]):
        values = (result["epsilon"][name][place] for name in names)
        lines.append(f"| {steps:,} | " + " | ".join(f"{value:.4g}" for value in values) + " |")
    allowed = result["steps_within_epsilon_1"]
    words = " | ".join("none" if allowed[name] is None else f"{allowed[name]:,}" for name in names)
    lines.append(f"| **most within epsilon 1** | {words} |")
    return [*lines, "", "![Epsilon by iterations](images/accountants.png)", ""]


def detection() -> list[str]:
    """Figures 5 and 8, and the kills."""
    lines = [*roc(), *votes(), *kills()]
    return (
        ["## Anomaly detection: figures 5 and 8 of the DP-NF paper (`make bench-detection`)", "", *lines]
        if lines
        else []
    )


def roc() -> list[str]:
    """Areas under the curve of densities with and without privacy."""
    result = read("detection_roc.json")
    if result is None:
        return []
    runs = result["runs"]
    names = list(dict.fromkeys(run["name"] for run in runs))
    lines = [
        "Figure 5: a density is fitted to 80 % of Life Science; the other 20 % are normal, and as many anomalies are",
        "even between the 5th and 30th or 70th and 95th percentile of each dimension. The score is minus the log",
        f"density; delta {result['delta']:g}, PLD. The paper shows curves and neither areas nor its epsilon.",
        "",
        "| detector | splits | area under the curve |",
        "| --- | --- | --- |",
    ]
    for name in names:
        areas = [run["auc"] for run in runs if run["name"] == name]
        spread = f" ± {np.std(areas):.4f}" if len(areas) > 1 else ""
        lines.append(f"| {name} | {len(areas)} | {np.mean(areas):.4f}{spread} |")
    return [*lines, "", f"Run on {machine_words(result)}.", "", "![ROC curves](images/detection_roc.png)", ""]


def votes() -> list[str]:
    """Accuracy of DP-AD by the epsilon of one answer."""
    result = read("detection_votes.json")
    if result is None:
        return []
    runs = result["runs"]
    names = list(dict.fromkeys(run["members"] for run in runs))
    epsilons = list(runs[0]["accuracy"])
    lines = [
        f"Figure 8: DP-AD on Half-Moons, {result['points']:,} points in {result['parts']} parts, members without",
        "privacy, half of the questions anomalies that are even in a square. The chance of a right answer by the",
        "epsilon of **one** answer; the paper shows curves only.",
        "",
        "| members | " + " | ".join(epsilons) + " | no noise |",
        "| --- " * (len(epsilons) + 2) + "|",
    ]
    for name in names:
        mine = [run for run in runs if run["members"] == name]
        cells = [np.mean([run["accuracy"][epsilon] for run in mine]) for epsilon in epsilons]
        cells.append(np.mean([run["accuracy_without_noise"] for run in mine]))
        lines.append(f"| {name} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")
    return [
        *lines,
        "",
        f"Run on {machine_words(result)}.",
        "",
        "![Accuracy by epsilon](images/detection_votes.png)",
        "",
    ]


def kills() -> list[str]:
    """The allowance after kill -9."""
    result = read("detection_kills.json")
    if result is None:
        return []
    exact = "exact" if result["exact_after_every_kill"] and result["exact_at_the_end"] else "NOT EXACT"
    two = " and ".join(f"{number:,}" for number in result["answers_of_two_at_once"])
    return [
        f"The allowance: {result['kills']} processes stopped by kill -9 at random points, then two at once until both",
        f"were refused; {result['questions']:,} questions, {result['answers']:,} answered ({two} by the last two),",
        f"{result['charges_whose_answer_was_lost']:,} charged whose answer was lost, {result['spent']:,} spent: ledger",
        f"**{exact}** after every kill and at the end ({result['seconds']:.0f} s).",
        "",
    ]
