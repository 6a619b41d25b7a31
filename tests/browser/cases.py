"""Evaluations made by hand, so that the page is tested without any metric: ordinary, hostile, wide and failed ones."""

from dataclasses import replace
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa

from sfumato.evaluation.comparison import Comparison, sample_of
from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.metric import Metric, Part, Score
from sfumato.schema import Boolean, Categorical, Continuous, Date, Datetime, Integer, Schema

ROWS = 400

HOSTILE_NAMES = (
    "<script>window.hurt = 1</script>",
    '"><img src=x onerror="window.hurt = 2">',
    "' onmouseover='window.hurt = 3",
    "</style></script><svg onload=window.hurt=4>",
    "עמודה מימין לשמאל",
    "👩‍👩‍👧 family",
    "two\nlines\x00\x1b[2J",
    "a\u202egnp.exe",
    "x" * 200,
    "&amp;lt;",
)


def metric(name, scope="table", *, direction="higher", span=(0.0, 1.0), ideal=None):
    return Metric(
        name=name,
        title=name.replace("_", " ").capitalize(),
        direction=direction,
        range=span,
        scope=scope,
        reference="Made by hand",
        about=f"What {name} tells. More of it.",
        ideal=ideal,
    )


def ordinary():
    """One column of each kind, and a column whose values are mostly zero."""
    columns = {
        "age": Integer(lower=0, upper=120),
        "gain": Integer(lower=0, upper=100_000),
        "weight": Continuous(lower=0, upper=300, decimals=1, nullable=True),
        "height": Continuous(lower=0, upper=3),
        "born": Date(lower=date(1950, 1, 1), upper=date(2020, 12, 31)),
        "seen": Datetime(lower=datetime(2024, 1, 1), upper=datetime(2024, 6, 1), resolution="hour"),
        "smokes": Boolean(nullable=True),
        "region": Categorical(levels=tuple(f"region {place}" for place in range(40))),
        "grade": Categorical(levels=("low", "middle", "high"), ordered=True),
    }
    return evaluation_of(Schema(columns=columns), _ordinary_rows)


def _ordinary_rows(seed):
    random = np.random.default_rng(seed)
    start = date(1950, 1, 1)
    return pa.table(
        {
            "age": random.integers(18, 90, ROWS),
            "gain": np.where(random.random(ROWS) < 0.9, 0, random.integers(1, 20_000, ROWS)),
            "weight": [None if random.random() < 0.1 else round(random.normal(75, 12), 1) for _ in range(ROWS)],
            "height": np.clip(random.normal(1.7, 0.1, ROWS), 0, 3),
            "born": [start + timedelta(days=int(day)) for day in random.integers(0, 25_000, ROWS)],
            "seen": [datetime(2024, 1, 1) + timedelta(hours=int(hour)) for hour in random.integers(0, 3_600, ROWS)],
            "smokes": [None if share < 0.2 else bool(share > 0.6) for share in random.random(ROWS)],
            "region": [f"region {min(place, 39)}" for place in random.geometric(0.1, ROWS)],
            "grade": random.choice(["low", "middle", "high"], ROWS).tolist(),
        }
    )


def hostile():
    """Names and levels that would run, break or turn a page that trusts them."""
    columns = {name: Categorical(levels=HOSTILE_NAMES, nullable=True) for name in HOSTILE_NAMES}

    def rows(seed):
        random = np.random.default_rng(seed)
        levels = [*HOSTILE_NAMES, None]
        return pa.table({name: [levels[place] for place in random.integers(0, 11, ROWS)] for name in HOSTILE_NAMES})

    made = evaluation_of(Schema(columns=columns), rows)
    return replace(made, comparison=replace(made.comparison, names={"real": HOSTILE_NAMES[0]}))


def wide(width=70):
    """More columns than a map can show."""
    columns = {f"measure {place}": Integer(lower=0, upper=9) for place in range(width)}

    def rows(seed):
        return pa.table({name: np.random.default_rng(seed).integers(0, 10, 60) for name in columns})

    return evaluation_of(Schema(columns=columns), rows)


def evaluation_of(schema, rows):
    """An evaluation with scores of every scope: some parts failed, some metrics do not apply, some were sampled."""
    real, synthetic, holdout = (sample_of(rows(seed), schema) for seed in (1, 2, 3))
    comparison = Comparison(schema=schema, real=real, synthetic=synthetic, holdout=holdout)
    names = [name for name, _ in schema.modelled]
    pairs = [(left, right) for place, right in enumerate(names) for left in names[:place]]
    groups = {
        "columns": (
            Score(metric=metric("tv_binned", "column", direction="lower"), parts=_column_parts(names)),
            Score(metric=metric("missing_similarity", "column"), parts=()),
        ),
        "pairs": (
            Score(metric=metric("correlation", "pair", direction="lower", span=(0, 2)), parts=_pair_parts(pairs)),
        ),
        "detection": (
            Score(
                metric=metric("detection"),
                parts=tuple(
                    Part(of=(f"fold {n}",), value=0.4 + n / 50, detail={"auroc": 0.8 - n / 100}) for n in range(3)
                ),
                rows="sampled: 10 of 400 real rows",
            ),
        ),
        "utility": (
            Score(metric=metric("macro_f1"), parts=_classifiers()),
            Score(metric=metric("r2", span=(-np.inf, 1.0)), parts=(Part(of=("table",), failure="LinAlgError"),)),
        ),
        "membership": (
            Score(
                metric=metric("closest", direction="lower", ideal=0.5), parts=(Part(of=("rows",), value=0.51),), rows=""
            ),
        ),
    }
    return Evaluation(comparison=comparison, groups=groups)


def _column_parts(names):
    values = [Part(of=(name,), value=0.01 * (7 * place % 11)) for place, name in enumerate(names[:-1])]
    return (*values, Part(of=(names[-1],), failure="constant column"))


def _pair_parts(pairs):
    parts = []
    for place, pair in enumerate(pairs):
        real = np.sin(place)
        synthetic = 0.8 * real
        detail = {"real": float(real), "synthetic": float(synthetic)}
        parts.append(Part(of=pair, value=float(abs(real - synthetic)), detail=detail))
    return tuple(parts)


def _classifiers():
    found = {"logistic regression": (0.71, 0.78), "decision tree": (0.63, 0.75), "boosted trees": (0.8, 0.79)}
    return tuple(Part(of=(name,), value=value, detail={"real": real}) for name, (value, real) in found.items())
