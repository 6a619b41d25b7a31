"""Scores of the DP-HFlow benchmark: synthetic rows judged by the metrics of the evaluation room, and by nothing else.

What was scored is kept beside the synthetic rows, so that a run can be cut off and taken up again.
"""

import json
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import SPLIT_SEED, TARGETS, parts, schema_of, unpack
from benchmarks.hflow_fits import without_label
from benchmarks.hflow_paper import MAE, METRICS, NAMED, OTHERS, PAPER, RMSE
from benchmarks.machine import describe_machine
from benchmarks.workers import finished

RESULTS = Path("benchmarks/results")

SEEDS = (
    f"one random split of seed {SPLIT_SEED}, the same for all repeats; a fit's randomness comes from the operating "
    "system; the repeat's number seeds the sample of scored rows and the classifiers"
)


@lru_cache(maxsize=2)
def sides(name: str) -> tuple[Any, Any]:
    """The training rows and the test rows of a data set, as the evaluation room reads them."""
    from sfumato.evaluation import sample_of

    schema = schema_of(name)
    train, test = (sample_of(rows, schema) for rows in parts(name))
    return train, test


def synthetic_table(path: Path, name: str) -> Any:
    """The synthetic rows of a file as an Arrow table."""
    from sfumato.encoding.features import decode_features
    from sfumato.encoding.layout import layout_of

    schema = schema_of(name)
    low, width = unpack(path, layout_of(schema))
    return decode_features(low + width / 2, schema)


def measurements(name: str, *, utility: bool = True) -> dict[str, list[Any]]:
    """The measurements that the paper's tables need of a data set."""
    from sfumato.evaluation.metrics import pairs
    from sfumato.evaluation.metrics import utility as classifiers

    wanted = set(METRICS[name])
    groups = {"pairs": pairs.MEASUREMENTS, "utility": classifiers.MEASUREMENTS if utility else ()}
    return {
        group: [one for one in found if wanted & {metric.name for metric in one.metrics}]
        for group, found in groups.items()
    }


def judge(name: str, synthetic: Any, seed: int, *, utility: bool = True) -> dict[str, Any]:
    """The score of each metric: the mean, each classifier, and the same classifiers trained on real rows."""
    from sfumato.evaluation import Comparison
    from sfumato.evaluation.evaluation import measure

    train, test = sides(name)
    comparison = Comparison(
        schema=schema_of(name), real=train, synthetic=synthetic, holdout=test, target=TARGETS[name], seed=seed
    )
    start = time.perf_counter()
    scores = measure(comparison, measurements(name, utility=utility)).scores
    found = {
        score.metric.name: {
            "value": score.value,
            "failed": len(score.failures),
            "sampled": score.rows,
            "parts": {
                " ".join(part.of): {"value": part.value, "real": part.detail.get("real")} for part in score.parts
            },
        }
        for score in scores
        if score.metric.name in METRICS[name]
    }
    return {"scores": found, "scoring_seconds": round(time.perf_counter() - start, 1)}


def score_file(path: Path) -> None:
    """Score one file of synthetic rows, unless that was done after it was written."""
    from sfumato.evaluation import sample_of

    target = path.with_suffix(".score.json")
    if target.exists() and target.stat().st_mtime >= path.stat().st_mtime:
        return
    name, _, repeat = path.stem.split("_")
    rows = sample_of(synthetic_table(path, name), schema_of(name))
    found = judge(name, rows, int(repeat))
    target.write_text(json.dumps(found))
    told = ", ".join(f"{metric} {score['value']:.4f}" for metric, score in found["scores"].items())
    print(f"{path.stem}: {told} ({found['scoring_seconds']:.0f} s)", flush=True)


def score_floor(out: Path, repeat: int) -> dict[str, Any]:
    """Table 1 for real rows: the test rows in the place of synthetic ones. No synthesizer can do better but by luck."""
    target = out / f"covertype_real_{repeat}.score.json"
    if not target.exists():
        target.write_text(json.dumps(judge("covertype", sides("covertype")[1], repeat, utility=False)))
    return json.loads(target.read_text())


def score_files(out: Path, names: list[str], processes: int = 1) -> None:
    """Score every file of synthetic rows there is."""
    found = [path for name in names for path in sorted(out.glob(f"{name}_*_*.npz")) if ".part" not in path.name]
    for _ in finished(score_file, found, processes=processes):
        pass


def score_all(out: Path, names: list[str], processes: int, target: Path | None) -> None:
    """Score every file of synthetic rows there is, and write the result: by default to a file of the method."""
    score_files(out, names, processes)
    write_result(out, target)


def write_result(out: Path, target: Path | None) -> None:
    """Sum up everything that was scored so far, of whichever data set; all fits must be of one method.

    What the file of results already holds of other fits is kept.
    """
    scored = [path for name in TARGETS for path in sorted(out.glob(f"{name}_*_*.score.json"))]
    runs = [read_run(path) for path in scored if "_real_" not in path.name]
    method = method_in(runs)
    target = target or RESULTS / ("hflow_tables.json" if method == "hflow" else f"hflow_tables_{method}.json")
    runs = with_kept(runs, json.loads(target.read_text())["runs"] if target.exists() else [])
    settings = {kind: settings_of(runs, kind) for kind in ("private", "open")}
    repeats = sorted({run["repeat"] for run in runs if run["data"] == "covertype"})
    floors = [score_floor(out, repeat) for repeat in repeats]
    result = {
        "machine": describe_machine(),
        "seeds": SEEDS,
        "method": method,
        "settings": settings,
        "synthetic_rows": sorted({run["rows"] for run in runs}),
        "sampled": sorted({score["sampled"] for run in runs for score in run["scores"].values()}),
        "summary": summarise(runs, floors),
        "fits": fits(runs),
        "runs": runs,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["summary"]:
        ours = f"{row['mean']:.4f} ± {row['deviation']:.4f}"
        print(f"{row['data']:<10} {row['kind']:<8} {row['metric']:<26} {ours}   {row['published']}")


def with_kept(runs: list[dict[str, Any]], old: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs, and those of an older result that they do not do again."""
    which = lambda run: (list(TARGETS).index(run["data"]), run["kind"], run["repeat"])
    new = {which(run) for run in runs}
    return sorted([*runs, *(run for run in old if which(run) not in new)], key=which)


def settings_of(runs: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The settings of all fits of a kind, which must be the same."""
    found = {json.dumps(without_label(run["settings"]), sort_keys=True) for run in runs if run["kind"] == kind}
    if len(found) > 1:
        raise SystemExit(f"There are {kind} fits of {len(found)} different settings: keep one folder for each.")
    return json.loads(found.pop()) if found else {}


def method_in(runs: list[dict[str, Any]]) -> str:
    """The one method of all fits; files of older runs name none, and are of `hflow`."""
    found = {run.get("method", "hflow") for run in runs}
    if len(found) > 1:
        raise SystemExit(f"There are fits of {', '.join(sorted(found))}: keep one folder for each method.")
    return str(found.pop()) if found else "hflow"


def read_run(scored: Path) -> dict[str, Any]:
    """What was written about one fit: by the fit, and by the scoring."""
    facts = scored.with_name(scored.name.replace(".score.json", ".json"))
    return json.loads(facts.read_text()) | json.loads(scored.read_text())


def summarise(runs: list[dict[str, Any]], floors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a data set, kind and metric: mean and deviation over repeats, beside the paper's figures."""
    rows = []
    for name, metrics in METRICS.items():
        for kind in ("private", "open"):
            scored = [run["scores"] for run in runs if (run["data"], run["kind"]) == (name, kind)]
            rows += [
                {"data": name, "kind": kind} | _row(metric, [scores[metric] for scores in scored], floors)
                for metric in metrics
                if scored
            ]
    for row in rows:
        paper = PAPER[row["data"], row["metric"]]
        row["published"] = paper.get(row["kind"], {}) | ({"real rows": paper["real"]} if "real" in paper else {})
        printed = OTHERS.get(NAMED.get(method_in(runs), ""), {}).get((row["data"], row["metric"]), {})
        row["published"] |= {"same method": printed[row["kind"]]} if row["kind"] in printed else {}
    return rows


def _row(metric: str, scores: list[dict[str, Any]], floors: list[dict[str, Any]]) -> dict[str, Any]:
    values = [score["value"] for score in scores if score["value"] is not None]
    row: dict[str, Any] = {
        "metric": metric,
        "repeats": len(scores),
        "mean": float(np.mean(values)),
        "deviation": float(np.std(values)),
        "failed": sum(score["failed"] for score in scores),
    }
    if metric in (RMSE, MAE):
        return row | {"real": float(np.mean([floor["scores"][metric]["value"] for floor in floors]))}
    each = partial(_over_repeats, scores)
    row["classifiers"] = each("value")
    row["deviation_over_classifiers"] = float(np.std(list(row["classifiers"].values())))
    row["real"] = float(np.mean(list(each("real").values())))
    row["classifiers_on_real_rows"] = each("real")
    return row


def _over_repeats(scores: list[dict[str, Any]], side: str) -> dict[str, float]:
    """The mean over repeats of each classifier that has a value."""
    names = list(scores[0]["parts"])
    found = {name: [score["parts"][name][side] for score in scores if name in score["parts"]] for name in names}
    known = {name: [value for value in values if value is not None] for name, values in found.items()}
    return {name: float(np.mean(values)) for name, values in known.items() if values}


def fits(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a data set and kind: how long a fit took, where, and the epsilon it is certified for."""
    rows = []
    for name, kind in dict.fromkeys((run["data"], run["kind"]) for run in runs):
        mine = [run for run in runs if (run["data"], run["kind"]) == (name, kind)]
        stated = [run["certified_epsilon"] for run in mine]
        rows.append(
            {
                "data": name,
                "kind": kind,
                "repeats": len(mine),
                "training_rows": mine[0]["training_rows"],
                "seconds": float(np.mean([run["seconds"] for run in mine])),
                "certified_epsilon": "infinity" if "infinity" in stated else max(stated),
                "delta": mine[0]["delta"],
                "all_finite": all(run["finite"] for run in mine),
                "machine": mine[0]["machine"],
                "versions": mine[0]["versions"],
            }
        )
    return rows
