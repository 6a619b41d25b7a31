"""Detection: figures 5 and 8 of the DP-NF paper.

    python -m benchmarks.detection figure5    # ROC curves of private and non-private densities on Life Science
    python -m benchmarks.detection figure8    # accuracy of DP-AD by epsilon on Half-Moons, mixtures and flows
    python -m benchmarks.detection pictures   # both again from their JSON; matplotlib: pip install ".[bench]"

Figure 5: a random 80 % of Life Science is fitted, the rest is normal, and as many anomalies are drawn: in every
dimension evenly between the 5th and 30th or the 70th and 95th percentile of the test rows. Scores are minus the log
density. Methods that are not registered are left out.

Figure 8: 30,000 points in 10 parts; 5,000 new points are normal and as many anomalies are even in the square from -3 to
3 (in the generator's deviations; some fall onto the moons, which no detector can tell). The threshold is the one that
is best on other such points. The chance of a right answer is computed from the votes, not drawn.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.datasets import data_folder, load
from benchmarks.machine import describe_machine
from sfumato.detection import FlowMembers, MixtureMembers
from sfumato.detection.ensemble import train
from sfumato.pipeline import fit, fit_without_privacy
from sfumato.release.anomalies import roc_area, roc_curve
from sfumato.schema import Continuous, Schema
from sfumato.synthesizers import REGISTRY, Maf

RESULTS, IMAGES = Path("benchmarks/results"), Path("docs/images")
DELTA = 1.52e-5
NAMES = {"maf": "DP-NF (maf)", "mog": "DP-MoG (mog)"}
EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)


def table_of(rows: np.ndarray) -> pa.Table:
    """Rows as a table of columns x0, x1, ..."""
    return pa.table({f"x{i}": rows[:, i] for i in range(rows.shape[1])})


def schema_of(data: Any, num_rows: int) -> Schema:
    """The public box of a data set."""
    column = Continuous(lower=data.lower, upper=data.upper)
    return Schema(columns={f"x{i}": column for i in range(data.rows.shape[1])}, rows=round(num_rows, -3))


def tails_of(rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """As many anomalies as rows: in each dimension between the 5th and 30th, or the 70th and 95th percentile."""
    marks = np.percentile(rows, [5, 30, 70, 95], axis=0)
    upper = random.random(rows.shape) < 0.5
    low, high = np.where(upper, marks[2], marks[0]), np.where(upper, marks[3], marks[1])
    return low + (high - low) * random.random(rows.shape)


def split_of(folder: Path, seed: int) -> tuple[Schema, pa.Table, pa.Table, np.ndarray]:
    """The schema, training rows, test rows with anomalies, and which they are."""
    data = load("lifesci", folder)
    random = np.random.default_rng(5_000 + seed)
    order = random.permutation(len(data.rows))
    cut = int(0.8 * len(order))
    normal = data.rows[order[cut:]]
    asked = np.concatenate([normal, tails_of(normal, random)])
    labels = np.arange(len(asked)) >= len(normal)
    return schema_of(data, cut), table_of(data.rows[order[:cut]]), table_of(asked), labels


def detectors(epsilons: list[float], components: list[int]) -> list[dict[str, Any]]:
    """What is fitted: private methods at each epsilon, and without privacy."""
    found = [
        {"name": f"{NAMES[method]}, epsilon {epsilon:g}", "method": method, "epsilon": epsilon}
        for method in NAMES
        if method in REGISTRY
        for epsilon in epsilons
    ]
    found += [{"name": f"MoG of {number}, no privacy", "components": number} for number in components]
    return [*found, {"name": "NF (maf), no privacy", "method": "maf"}]


def scored(entry: dict[str, Any], schema: Schema, rows: pa.Table, asked: pa.Table) -> np.ndarray:
    """The anomaly scores of one detector."""
    if "components" in entry:
        training = MixtureMembers(components=entry["components"], rounds=300, starts=3)
        ensemble = train(rows, schema, training, members=1, share=0.01, threshold=None)
        return ensemble.scores(0, asked)
    if "epsilon" in entry:
        release = fit(rows, schema, method=entry["method"], epsilon=entry["epsilon"], delta=DELTA)
    else:
        release = fit_without_privacy(rows, schema, method=entry["method"])
    return release.anomaly_scores(asked)


def figure_5(given: argparse.Namespace) -> None:
    """Fit, score, and write what was found after every fit."""
    runs: list[dict[str, Any]] = []
    for seed in range(given.splits):
        schema, rows, asked, labels = split_of(data_folder(given.data_dir), seed)
        for entry in detectors(given.epsilons, given.components):
            start = time.perf_counter()
            scores = scored(entry, schema, rows, asked)
            found, alarms = roc_curve(scores, labels)
            kept = np.unique(np.searchsorted(alarms, np.linspace(0, 1, 201)).clip(0, len(alarms) - 1))
            runs.append(
                {
                    **entry,
                    "split": seed,
                    "auc": roc_area(scores, labels),
                    "true_positives": np.round(found[kept], 4).tolist(),
                    "false_positives": np.round(alarms[kept], 4).tolist(),
                    "seconds": round(time.perf_counter() - start, 1),
                }
            )
            print(entry["name"], f"{runs[-1]['auc']:.4f}", f"{runs[-1]['seconds']:.0f} s", flush=True)
            write("detection_roc.json", {"delta": DELTA, "data": "lifesci", "runs": runs})


def moons(folder: Path) -> tuple[Any, np.ndarray, np.ndarray]:
    """Half-Moons, new points of the same law, and the same number again."""
    from benchmarks.datasets import _half_moons

    data = load("half_moons", folder)
    units = _half_moons(np.random.default_rng(1), 1_000_000)
    fresh = _half_moons(np.random.default_rng(8), 10_000)
    fresh = (fresh - units.mean(axis=0)) / units.std(axis=0)
    return data, fresh[:5_000], fresh[5_000:]


def questions(normal: np.ndarray, seed: int) -> tuple[pa.Table, np.ndarray]:
    """Normal points and as many even ones, and which those are."""
    even = np.random.default_rng(seed).uniform(-3, 3, normal.shape)
    return table_of(np.concatenate([normal, even])), np.arange(2 * len(normal)) >= len(normal)


def accuracy(scores: np.ndarray, labels: np.ndarray, threshold: float, epsilon: float) -> float:
    """The mean chance of a right answer: the vote's own probability, from its log odds."""
    votes = (scores > threshold).sum(axis=0)
    log_odds = epsilon * (2 * votes - len(scores)) / 2
    return float((1 / (1 + np.exp(np.where(labels, -log_odds, log_odds)))).mean())


def figure_8(given: argparse.Namespace) -> None:
    """Train ten members of each kind, find the threshold on other points, and compute accuracies."""
    data, normal, other = moons(data_folder(given.data_dir))
    schema = schema_of(data, len(data.rows))
    (asked, labels), (tuned, tuned_labels) = questions(normal, 1), questions(other, 2)
    kinds: dict[str, Any] = {f"MoG of {number}": MixtureMembers(components=number) for number in given.components}
    kinds["NF"] = FlowMembers(method=Maf(steps=given.steps))
    runs = []
    for seed in range(given.splits):
        for name, training in kinds.items():
            start = time.perf_counter()
            share = {"members": given.members, "share": 0.01, "threshold": None}
            ensemble = train(table_of(data.rows), schema, training, **share)
            both = [
                np.stack([ensemble.scores(place, rows) for place in range(given.members)]) for rows in (tuned, asked)
            ]
            limits = np.quantile(both[0], np.linspace(0.02, 0.98, 97))
            best = max(limits, key=lambda limit, both=both: accuracy(both[0], tuned_labels, limit, 100.0))
            runs.append(
                {
                    "members": name,
                    "split": seed,
                    "threshold": float(best),
                    "accuracy": {str(e): accuracy(both[1], labels, best, e) for e in EPSILONS},
                    "accuracy_without_noise": accuracy(both[1], labels, best, 100.0),
                    "seconds": round(time.perf_counter() - start, 1),
                }
            )
            print(name, runs[-1], flush=True)
            facts = {"parts": given.members, "points": len(data.rows), "flow_steps": given.steps}
            write("detection_votes.json", {**facts, "runs": runs})


def write(name: str, result: dict[str, Any]) -> None:
    """One JSON file, with the machine."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / name).write_text(json.dumps({"machine": describe_machine(), **result}, indent=1) + "\n")


def pictures() -> None:
    """Draw both figures from what was found; of several splits the first curve, and mean accuracies."""
    from sfumato.cli.pictures import draw_curves

    roc = json.loads((RESULTS / "detection_roc.json").read_text())["runs"]
    first = [run for run in roc if run["split"] == 0]
    curves = {f"{run['name']} ({run['auc']:.3f})": (run["false_positives"], run["true_positives"]) for run in first}
    draw_curves(
        curves,
        IMAGES / "detection_roc.png",
        title="Life Science: anomalies by likelihood, area under the curve",
        labels=("false positive rate", "true positive rate"),
        dashed=[name for name in curves if "no privacy" in name],
        diagonal=True,
    )
    runs = json.loads((RESULTS / "detection_votes.json").read_text())["runs"]
    names = list(dict.fromkeys(run["members"] for run in runs))
    means = {name: [mean_accuracy(runs, name, epsilon) for epsilon in EPSILONS] for name in names}
    draw_curves(
        {name: (EPSILONS, heights) for name, heights in means.items()},
        IMAGES / "detection_votes.png",
        title="Half-Moons: a noisy vote of ten members",
        labels=("epsilon of one answer", "chance of a right answer"),
    )


def mean_accuracy(runs: list[dict[str, Any]], name: str, epsilon: float) -> float:
    """The mean over splits."""
    return float(np.mean([run["accuracy"][str(epsilon)] for run in runs if run["members"] == name]))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=("figure5", "figure8", "pictures"))
    parser.add_argument("--data-dir")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.5, 1.0, 2.0])
    parser.add_argument("--components", type=int, nargs="*", default=[3, 10])
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1_000, help="of each flow of figure 8")
    given = parser.parse_args()
    {"figure5": figure_5, "figure8": figure_8, "pictures": lambda _: pictures()}[given.phase](given)


if __name__ == "__main__":
    main()
