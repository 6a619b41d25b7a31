"""Tables of every kind of column, with and without missing cells, for the tests of the metrics."""

from datetime import date, datetime

import numpy as np
import pyarrow as pa

from sfumato.evaluation.comparison import Comparison, sample_of
from sfumato.schema import Boolean, Categorical, Continuous, Date, Datetime, Integer, Schema

SCHEMA = Schema(
    columns={
        "age": Integer(lower=0, upper=100, nullable=True),
        "income": Continuous(lower=-1e4, upper=1e6, nullable=True),
        "day": Date(lower=date(2020, 1, 1), upper=date(2023, 12, 31), nullable=True),
        "seen": Datetime(lower=datetime(2020, 1, 1), upper=datetime(2021, 1, 1), resolution="minute"),
        "colour": Categorical(levels=("red", "green", "blue", "grey", "pink"), nullable=True),
        "grade": Categorical(levels=(1, 2, 3, 4), ordered=True),
        "on": Boolean(nullable=True),
        "kind": Categorical(levels=("only", "never")),
    }
)


def rows(num: int, seed: int, *, tilt: float = 0.0, missing: float = 0.1, unused: str = "pink") -> pa.Table:
    """Rows of the schema above; ``tilt`` moves the columns and what binds them; one colour does not occur."""
    random = np.random.default_rng(seed)
    base = random.normal(size=num)
    age = np.clip(45 + 15 * base + 10 * tilt, 0, 100).round()
    income = np.clip(2e4 * (1 - 0.5 * tilt) * np.exp((0.8 - tilt) * base + random.normal(size=num)), -1e4, 1e6)
    days = np.clip(700 + 300 * random.normal(size=num) - 200 * tilt * base, 0, 1460).astype(np.int64)
    minutes = (random.beta(2 + tilt, 2, size=num) * 500_000).astype(np.int64)
    colours = [name for name in ("red", "green", "blue", "grey", "pink") if name != unused]
    grade = np.clip(np.digitize(base + random.normal(size=num) * (0.5 + tilt), [-1, 0, 1]) + 1, 1, 3 if tilt else 4)
    colour = np.array(colours)[np.clip((base > 0) + random.integers(0, 3, num), 0, 3)]
    on = random.random(num) < 0.3 + 0.4 * (base > 0) - 0.2 * tilt

    def holes(values: np.ndarray) -> pa.Array:
        return pa.array(values, mask=random.random(num) < missing)

    return pa.table(
        {
            "age": holes(age),
            "income": holes(income),
            "day": holes(np.datetime64("2020-01-01") + days),
            "seen": pa.array(np.datetime64("2020-01-01", "s") + minutes * 60),
            "colour": holes(colour),
            "grade": pa.array(grade),
            "on": holes(on),
            "kind": pa.array(["only"] * num),
        }
    )


def compare(real: pa.Table, synthetic: pa.Table, schema: Schema = SCHEMA, seed: int = 0) -> Comparison:
    """Two tables read by one schema."""
    return Comparison(schema=schema, real=sample_of(real, schema), synthetic=sample_of(synthetic, schema), seed=seed)


def mixed(num_real: int = 500, num_synthetic: int = 400) -> Comparison:
    """Two tables that differ in every column: each has a colour that the other has not."""
    return compare(rows(num_real, 1), rows(num_synthetic, 2, tilt=0.6, missing=0.2, unused="grey"))
