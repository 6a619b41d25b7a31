"""Summary of the DP-TBART benchmark: every scored fit, and means over repeats and over data sets, as one JSON file."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_fits import without_label
from benchmarks.tbart_data import AVERAGED, DYCK, SPLIT_SEED, TARGETS, schema_of
from benchmarks.tbart_fits import METHODS, UNFITTED
from benchmarks.tbart_paper import METRICS
from benchmarks.tbart_scores import MOST_LEARNT, MOST_ROWS
from sfumato.schema import Categorical

SEEDS = (
    f"one random split of seed {SPLIT_SEED}, the same for all repeats; a fit's randomness comes from the operating "
    "system; the repeat's number seeds the models that judge it and the rows that they are shown"
)
SAMPLED = (
    f"Census is scored on {MOST_ROWS:,} rows of each side, by models on {MOST_LEARNT:,}; all others on all their rows"
)
SWEPT = "adult_pgm"

Run = dict[str, Any]


def write_result(out: Path, target: Path) -> None:
    """Sum up everything that was scored so far, with what the file of results already holds of other fits."""
    from benchmarks.machine import describe_machine

    old = json.loads(target.read_text()) if target.exists() else {"runs": [], "sampling": []}
    runs = with_kept([read_run(path) for path in sorted(out.glob("*.score.json"))], old)
    sampled = [*old["sampling"], *map(read_json, sorted(out.glob("sampling__*.json")))]
    sampling = {(row["label"], row["machine"]["backend"]): row for row in sampled}
    result = {
        "machine": describe_machine(),
        "seeds": SEEDS,
        "sampled": SAMPLED,
        "settings": {label: settings_of(runs, label) for label in labels_of(runs) if label not in UNFITTED},
        "averages": averages(runs),
        "by_data": by_data(runs),
        "costs": costs(runs),
        "dyck": dyck(runs),
        "sweep": sweep(runs),
        "sampling": list(sampling.values()),
        "runs": [shortened(run) for run in runs],
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {target}: {len(runs)} runs", flush=True)


def read_run(scored: Path) -> Run:
    """What was written about one fit: by the fit, and by the scoring."""
    facts = scored.with_name(scored.name.replace(".score.json", ".json"))
    return json.loads(facts.read_text()) | json.loads(scored.read_text())


def read_json(path: Path) -> Any:
    """What a file holds."""
    return json.loads(path.read_text())


def shortened(run: Run) -> Run:
    """A run without what is the same for all runs of its label, and without versions but those of its machine."""
    return {name: value for name, value in run.items() if name not in ("settings", "versions")}


def with_kept(runs: list[Run], old: Run) -> list[Run]:
    """The runs, and those of an older result that they do not do again: fits of other days stay in the table."""
    which = lambda run: (run["label"], run["data"], run["epsilon"], run["seed"])
    new = {which(run) for run in runs}
    kept = [run | {"settings": old["settings"].get(run["label"], {})} for run in old["runs"] if which(run) not in new]
    return sorted([*runs, *kept], key=which)


def settings_of(runs: list[Run], label: str) -> Run:
    """The settings of all fits of a label, which must be the same."""
    found = {json.dumps(without_label(run["settings"]), sort_keys=True) for run in runs if run["label"] == label}
    if len(found) > 1:
        raise SystemExit(f"There are fits of {label!r} with {len(found)} different settings: keep one folder for each.")
    return json.loads(found.pop())


def labels_of(runs: Iterable[Run]) -> list[str]:
    """The labels that were run, in the order of the table."""
    seen = {run["label"] for run in runs}
    return [label for label in (*METHODS, *UNFITTED) if label in seen]


def tabled(runs: list[Run]) -> list[Run]:
    """The runs of the paper's table 2: epsilon 1, real tables."""
    return [run for run in runs if run["data"] != DYCK and run["epsilon"] == 1]


def spread(values: list[float]) -> dict[str, Any]:
    """Mean, standard deviation over repeats (None of a single one) and their number.

    >>> spread([1.0, 3.0])
    {'mean': 2.0, 'deviation': 1.4142135623730951, 'repeats': 2}
    """
    several = len(values) > 1
    return {
        "mean": float(np.mean(values)),
        "deviation": float(np.std(values, ddof=1)) if several else None,
        "repeats": len(values),
    }


def by_data(runs: list[Run]) -> list[Run]:
    """One row a data set, label and metric: mean and standard deviation over repeats."""
    rows = []
    for name in TARGETS:
        for label in labels_of(runs):
            mine = [run["scores"] for run in tabled(runs) if (run["label"], run["data"]) == (label, name)]
            for metric in METRICS:
                values = [scores[metric] for scores in mine if scores.get(metric) is not None]
                if values:
                    rows.append({"data": name, "label": label, "metric": metric} | spread(values))
    return rows


def averages(runs: list[Run]) -> list[Run]:
    """One row a label and metric: the mean over the paper's data sets of means over repeats, and its standard error.

    ``sets`` says how many data sets are in it, ``of`` in how many the metric applies; a label that was not run on all
    is not to be compared with one that was.
    """
    cells = by_data(runs)
    applies = {metric: sum(has(name, metric) for name in AVERAGED) for metric in METRICS}
    rows = []
    for label in labels_of(runs):
        for metric in METRICS:
            mine = [
                row for row in cells if (row["label"], row["metric"]) == (label, metric) and row["data"] in AVERAGED
            ]
            if mine:
                rows.append({"label": label, "metric": metric} | mean_of(mine) | {"of": applies[metric]})
    return rows


def has(name: str, metric: str) -> bool:
    """Whether a metric applies to a data set.

    >>> has("car", "ks"), has("king", "reg"), has("king", "auroc")
    (False, True, False)
    """
    columns = dict(schema_of(name).modelled)
    numeric = {column for column, kind in columns.items() if not isinstance(kind, Categorical)}
    needs = {"ks": bool(numeric), "cs": len(numeric) < len(columns)}
    needs |= dict.fromkeys(("reg", "r2"), TARGETS[name] in numeric)
    needs |= dict.fromkeys(("clf", "auroc"), TARGETS[name] not in numeric)
    return needs.get(metric, True)


def mean_of(cells: list[Run]) -> Run:
    """The mean of means, and the standard error that the repeats give it; None where a data set has a single one.

    >>> mean_of([{"mean": 1.0, "deviation": 0.2, "repeats": 4}, {"mean": 2.0, "deviation": 0.0, "repeats": 4}])
    {'mean': 1.5, 'error': 0.05, 'sets': 2}
    """
    squares = [cell["deviation"] ** 2 / cell["repeats"] for cell in cells if cell["deviation"] is not None]
    error = float(np.sqrt(sum(squares)) / len(cells)) if len(squares) == len(cells) else None
    return {"mean": float(np.mean([cell["mean"] for cell in cells])), "error": error, "sets": len(cells)}


def costs(runs: list[Run]) -> list[Run]:
    """One row a label, data set and machine: seconds, memory, and the largest epsilon certified.

    Seconds are those of fits that had to compile, where there are some.
    """
    rows = []
    fits = [run for run in tabled(runs) if run["label"] not in UNFITTED]
    keys = dict.fromkeys((run["label"], run["data"], json.dumps(run["machine"]), run["processes"]) for run in fits)
    for label, name, machine, processes in keys:
        mine = [
            run
            for run in fits
            if (run["label"], run["data"], json.dumps(run["machine"]), run["processes"])
            == (label, name, machine, processes)
        ]
        compiled = [run for run in mine if not run["compiled_before"]]
        timed = compiled or mine
        on_device = [run["device_peak_mb"] for run in mine if run["device_peak_mb"] is not None]
        rows.append(
            {
                "label": label,
                "data": name,
                "repeats": len(mine),
                "seconds": float(np.mean([run["seconds"] for run in timed])),
                "with_compilation": bool(compiled),
                "sample_seconds": float(np.mean([run["sample_seconds"] for run in timed])),
                "peak_mb": max(run["peak_mb"] for run in mine),
                "device_peak_mb": max(on_device) if on_device else None,
                "certified_epsilon": max(run["certified_epsilon"] for run in mine),
                "delta": mine[0]["delta"],
                "all_finite": all(run["finite"] for run in mine),
                "sources": sorted({run["source"] for run in mine}),
                "processes": processes,
                "machine": json.loads(machine),
            }
        )
    return rows


def dyck(runs: list[Run]) -> list[Run]:
    """One row a label: the share of valid strings, over repeats."""
    rows = []
    for label in labels_of(runs):
        mine = [run for run in runs if (run["label"], run["data"]) == (label, DYCK)]
        if mine:
            seconds = float(np.mean([run["seconds"] for run in mine]))
            rows.append({"label": label, "seconds": seconds} | spread([run["scores"]["valid"] for run in mine]))
    return rows


def sweep(runs: list[Run]) -> list[Run]:
    """One row a label, epsilon and kind of detection on the swept data set."""
    swept = [run for run in runs if run["data"] == SWEPT and run["label"] not in UNFITTED]
    return [
        {"label": label, "epsilon": epsilon, "metric": metric}
        | spread([run["scores"][metric] for run in swept if (run["label"], run["epsilon"]) == (label, epsilon)])
        for label in labels_of(swept)
        for epsilon in sorted({run["epsilon"] for run in swept if run["label"] == label})
        for metric in ("det", "det_binned", "det_train")
    ]
