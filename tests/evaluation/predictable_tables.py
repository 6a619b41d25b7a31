"""A table whose columns predict each other, for the tests of metrics that fit models, and Adult where it is at hand."""

import os
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato
from sfumato.evaluation.comparison import Comparison, sample_of
from sfumato.schema import Boolean, Categorical, Continuous, Date, Integer, Schema

SCHEMA = Schema(
    columns={
        "age": Integer(lower=0, upper=100, nullable=True),
        "dose": Continuous(lower=-10, upper=10),
        "since": Date(lower=date(2000, 1, 1), upper=date(2020, 12, 31), nullable=True),
        "town": Categorical(levels=("Ulm", "Graz", "Bern", "Oz"), nullable=True),
        "smokes": Boolean(nullable=True),
        "cost": Continuous(lower=-100, upper=100, nullable=True),
        "ill": Categorical(levels=("no", "yes"), nullable=True),
        "grade": Categorical(levels=("low", "mid", "high")),
    }
)


def rows(num: int, seed: int, *, noise: float = 1.0, missing: float = 0.1) -> pa.Table:
    """Rows in which all columns hang on one hidden number, the less the more noise there is."""
    random = np.random.default_rng(seed)
    hidden = random.normal(size=num)

    def near(spread: float) -> np.ndarray:
        return hidden + noise * spread * random.normal(size=num)

    def holes(values: np.ndarray) -> pa.Array:
        return pa.array(values, mask=random.random(num) < missing)

    return pa.table(
        {
            "age": holes(np.clip(50 + 15 * near(0.5), 0, 100).round()),
            "dose": pa.array(np.clip(near(0.5), -10, 10)),
            "since": holes(np.datetime64("2010-01-01") + np.clip(700 * near(1.0), -3000, 3000).astype(np.int64)),
            "town": holes(np.array(["Ulm", "Graz", "Bern", "Oz"])[np.digitize(near(1.0), [-1, 0, 1])]),
            "smokes": holes(near(1.0) > 0.5),
            "cost": pa.array(np.clip(20 * near(0.3), -100, 100)),
            "ill": pa.array(np.where(near(0.3) > 0.7, "yes", "no")),
            "grade": pa.array(np.array(["low", "mid", "high"])[np.digitize(near(0.3), [-0.5, 0.8])]),
        }
    )


def compare(real: pa.Table, synthetic: pa.Table, schema: Schema = SCHEMA, **rest: object) -> Comparison:
    """A comparison of tables; ``holdout`` and ``anomalies`` are tables too."""
    sides = {name: sample_of(rest.pop(name), schema) for name in ("holdout", "anomalies") if name in rest}
    return Comparison(
        schema=schema, real=sample_of(real, schema), synthetic=sample_of(synthetic, schema), **sides, **rest
    )


def adult(seed: int = 0) -> Comparison:
    """Adult: four fifths real, one fifth held out; synthetic are real rows with three cells of ten shuffled, and fewer
    young people."""
    default = Path(sfumato.__file__).parents[2] / "../shared/data"
    path = Path(os.environ.get("SFUMATO_DATA", default)) / "adult.parquet"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: set SFUMATO_DATA")
    table = pq.read_table(path)
    random = np.random.default_rng(seed)
    order = random.permutation(table.num_rows)
    cut = table.num_rows * 4 // 5
    real, holdout = table.take(pa.array(order[:cut])), table.take(pa.array(order[cut:]))
    places = np.arange(cut)
    shuffled = {
        name: real[name].take(pa.array(np.where(random.random(cut) < 0.3, random.permutation(cut), places)))
        for name in real.column_names
    }
    kept = (real["age"].to_numpy() > 35) | (random.random(cut) < 0.7)
    synthetic = pa.table(shuffled).filter(pa.array(kept))
    return compare(real, synthetic, _adult_schema(table), holdout=holdout, target="income", seed=seed)


def _adult_schema(table: pa.Table) -> Schema:
    columns = {}
    for name in table.column_names:
        values = table[name].to_pandas()
        if pa.types.is_dictionary(table[name].type):
            columns[name] = Categorical(levels=tuple(values.cat.categories))
        else:
            columns[name] = Integer(lower=int(values.min()), upper=int(values.max()))
    return Schema(columns=columns)
