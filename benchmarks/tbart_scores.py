"""Scores of the DP-TBART benchmark: synthetic rows judged by the metrics of the evaluation room.

What was scored is kept beside the synthetic rows, so that a run can be cut off and taken up again.
"""

import json
import time
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import unpack
from benchmarks.tbart_data import DYCK, SPLIT_SEED, TARGETS, parts, schema_of, valid
from benchmarks.tbart_fits import REAL
from benchmarks.workers import finished

MOST_ROWS = 50_000
"""Of larger tables (Census) so many rows of each side are looked at, drawn once with the seed of the split."""

MOST_LEARNT = 20_000
"""Of such tables, models that judge learn from so many rows of each side, and are asked about as many."""

LARGE = ("census",)


@lru_cache(maxsize=2)
def sides(name: str) -> tuple[Any, Any]:
    """The training rows and the held-out rows of a data set, as the evaluation room reads them."""
    from sfumato.evaluation import sample_of

    schema = schema_of(name)
    train, test = (capped(sample_of(rows, schema), MOST_ROWS, SPLIT_SEED) for rows in parts(name))
    return train, test


def capped(sample: Any, most: int, seed: int) -> Any:
    """At most so many rows, drawn evenly."""
    if sample.num_rows <= most:
        return sample
    return sample.take(np.sort(np.random.default_rng(seed).permutation(sample.num_rows)[:most]))


def judge(name: str, synthetic: Any, seed: int, *, real: bool = False, brief: bool = False) -> dict[str, float | None]:
    """Every metric of synthetic rows; of real training rows those that look at training rows look at held-out ones.

    ``brief`` gives detection alone.
    """
    from sfumato.evaluation import Comparison

    train, test = sides(name)
    synthetic = capped(synthetic, MOST_ROWS, SPLIT_SEED)
    comparison = Comparison(
        schema=schema_of(name),
        real=test if real else train,
        synthetic=synthetic,
        holdout=test,
        target=TARGETS[name],
        seed=seed,
    )
    learnt = comparison.capped(MOST_LEARNT) if name in LARGE else comparison
    found = detections(learnt, real=real)
    return found if brief else marginals(comparison) | found | predictions(learnt)


def marginals(comparison: Any) -> dict[str, float | None]:
    """How like the columns are, and the pairs of columns."""
    names = {"ks": "ks_complement", "cs": "chi_square_p", "tv2": "tv2_binned"}
    return {short: mean_of(parts_of(comparison, metric)) for short, metric in names.items()}


def detections(comparison: Any, *, real: bool) -> dict[str, float | None]:
    """One minus the AUROC of the detector: as numbers are, and in bins; and against all training rows."""
    fewer = min(comparison.holdout.num_rows, comparison.synthetic.num_rows)
    test, synthetic = (capped(side, fewer, comparison.seed) for side in (comparison.holdout, comparison.synthetic))
    even = replace(comparison, real=test, synthetic=synthetic)
    found = {"det": undetected(even)}
    found["det_binned"] = undetected(in_bins(even)) if comparison.numeric else found["det"]
    return found | ({} if real else {"det_train": undetected(comparison)})


def undetected(comparison: Any) -> float:
    """The mean over folds of one minus the AUROC."""
    return float(np.mean([1 - part.detail["auroc"] for part in parts_of(comparison, "detection_xgboost")]))


def in_bins(comparison: Any) -> Any:
    """The same comparison with each number replaced by its bin of the public bounds."""
    from sfumato.evaluation.metrics.binning import bin_column

    cells = {name: bin_column(comparison, name) for name in comparison.numeric}
    real = {name: binned.real.astype(np.float64) for name, binned in cells.items()}
    synthetic = {name: binned.synthetic.astype(np.float64) for name, binned in cells.items()}
    return replace(
        comparison,
        real=replace(comparison.real, numbers=real),
        synthetic=replace(comparison.synthetic, numbers=synthetic),
    )


def predictions(comparison: Any) -> dict[str, float | None]:
    """What models trained on synthetic rows are worth on held-out rows."""
    if comparison.target in comparison.numeric:
        return {"reg": mean_of(parts_of(comparison, "linear_r2")), "r2": boosted_r2(comparison)}
    tree = parts_of(comparison, "tree_f1")[0]
    return {"clf": tree.detail.get("f1_rarer", tree.value), "auroc": boosted_auroc(comparison)}


def boosted_auroc(comparison: Any) -> float | None:
    """AUROC on held-out rows of XGBoost trained on synthetic rows."""
    from sfumato.evaluation.metrics.estimators import probabilities, seed_of, steady, xgboost_classifier
    from sfumato.evaluation.metrics.prediction import prediction_of
    from sfumato.evaluation.metrics.utility import _lesson, mean_auroc, positives

    rows = prediction_of(comparison, comparison.target)
    lesson, truth = _lesson(rows, rows.synthetic), rows.labels(rows.test)
    with steady():
        found = probabilities(
            lambda seed, _: xgboost_classifier(seed),
            lesson.train,
            rows.labels(rows.synthetic),
            lesson.test,
            num_classes=comparison.num_levels(comparison.target),
            seed=seed_of(comparison),
        )
    area = mean_auroc(truth, found, positives(truth))
    return None if isinstance(area, str) else area


def boosted_r2(comparison: Any) -> float:
    """R² on held-out rows of XGBoost trained on synthetic rows."""
    from sfumato.evaluation.metrics.estimators import REGRESSORS, seed_of, steady
    from sfumato.evaluation.metrics.prediction import prediction_of
    from sfumato.evaluation.metrics.utility import _lesson

    rows = prediction_of(comparison, comparison.target)
    lesson, truth = _lesson(rows, rows.synthetic), rows.amounts(rows.test)
    with steady():
        model = REGRESSORS["XGBoost"](seed_of(comparison), 1).fit(lesson.train, rows.amounts(rows.synthetic))
        errors = truth - model.predict(lesson.test)
    return float(1 - np.mean(errors**2) / np.var(truth))


def parts_of(comparison: Any, metric: str) -> list[Any]:
    """The parts of a metric on all rows; none where it does not apply."""
    from sfumato.evaluation import CATALOGUE

    for group in CATALOGUE.values():
        for measurement in group:
            if metric in {one.name for one in measurement.metrics}:
                return list(measurement.run(comparison).get(metric, ()))
    raise KeyError(metric)


def mean_of(found: list[Any]) -> float | None:
    """The mean of the parts; None where there is nothing to measure. A part that failed is an error here."""
    failed = [part.failure for part in found if part.value is None]
    if failed:
        raise ValueError(f"{len(failed)} parts of a metric failed: {failed[0]}")
    return float(np.mean([part.value for part in found])) if found else None


def synthetic_table(path: Path, name: str) -> Any:
    """The synthetic rows of a file as an Arrow table."""
    from sfumato.encoding.features import decode_features
    from sfumato.encoding.layout import layout_of

    schema = schema_of(name)
    low, width = unpack(path, layout_of(schema))
    return decode_features(low + width / 2, schema)


def score_file(path: Path, folder: Path) -> str:
    """Score one file of synthetic rows; a line that tells of it."""
    from sfumato.evaluation import sample_of

    facts = json.loads(path.with_suffix(".json").read_text())
    name, seed = facts["data"], facts["seed"]
    check_schema(folder, name)
    start = time.perf_counter()
    scores: dict[str, float | None]
    if name == DYCK:
        with np.load(path) as arrays:
            words = np.stack([arrays[f"f{place}"] for place in range(len(arrays.files))], axis=1)
        scores = {"valid": float(valid(words).mean())}
    else:
        rows = sample_of(synthetic_table(path, name), schema_of(name))
        scores = judge(name, rows, seed, real=facts["label"] == REAL, brief=facts["epsilon"] != 1)
    seconds = round(time.perf_counter() - start, 1)
    path.with_suffix(".score.json").write_text(json.dumps({"scores": scores, "scoring_seconds": seconds}))
    told = ", ".join(f"{metric} {value:.3f}" for metric, value in scores.items() if value is not None)
    return f"{path.stem}: {told} ({seconds:.0f} s)"


def check_schema(folder: Path, name: str) -> None:
    """Refuse rows whose packed schema is not that of the repository any more."""
    if json.loads((folder / f"{name}.json").read_text()) != schema_of(name).to_dict():
        raise SystemExit(f"{name}: the schema changed since `prepare`; prepare and fit again.")


def score_files(folder: Path, out: Path, names: list[str], processes: int = 1) -> None:
    """Score every file of synthetic rows that was not scored since it was written."""
    found = [path for name in names for path in sorted(out.glob(f"*__{name}__*__*.npz")) if ".part" not in path.name]
    todo = [path for path in found if path.with_suffix(".json").exists() and not is_scored(path)]
    for line in finished(partial(score_file, folder=folder), todo, processes=processes):
        print(line, flush=True)


def is_scored(path: Path) -> bool:
    """Whether a file was scored after it was written."""
    target = path.with_suffix(".score.json")
    return target.exists() and target.stat().st_mtime >= path.stat().st_mtime
