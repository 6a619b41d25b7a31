"""Schemas of the DP-TBART benchmark: writes ``benchmarks/schemas/tbart`` from the published files.

    python -m benchmarks.tbart_schemas

As in the paper, the kind of each column, the levels of categories and the bounds of numbers are public and are taken
from the whole published file. A data owner would write such a schema by hand; nobody should draft one from private
rows and call it public. Which columns are numeric follows the paper's Table 1 by its counts; the seven categories of
King are those of the CTAB-GAN+ project, whose file the paper uses.

Reference: Castellon, Gopal, Bloniarz, Rosenberg 2023, "DP-TBART: A Transformer-based Autoregressive Model for
Differentially Private Tabular Data Generation", section 3.1, table 1 and appendix B.
"""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import data_folder
from sfumato.schema import Categorical, Continuous, Integer, Schema
from sfumato.schema.columns import Modelled

FOLDER = Path("benchmarks/schemas/tbart")

MOST_DECIMALS = 6
"""A number with more decimals than this has no grid."""

NUMERIC: dict[str, tuple[str, ...]] = {
    "adult": ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
    "adult_pgm": ("age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week"),
    "king": (
        *("date", "bathrooms", "sqft_living", "sqft_lot", "sqft_above", "sqft_basement", "yr_built", "yr_renovated"),
        *("lat", "long", "sqft_living15", "sqft_lot15", "price"),
    ),
    "insurance": ("age", "bmi", "charges"),
    "loan": ("Age", "Experience", "Income", "ZIP Code", "CCAvg", "Mortgage"),
    "credit": ("Time", *(f"V{number}" for number in range(1, 29)), "Amount"),
    "bank": ("age", "balance", "day", "duration", "campaign", "pdays", "previous"),
    "census": (
        *("age", "wage per hour", "capital gains", "capital losses", "dividends from stocks", "weeks worked in year"),
    ),
    "car": (),
    "mushroom": (),
    "poker": (),
}
"""The numeric columns of each data set; all others are categories."""

DROPPED = {"loan": ("ID",), "census": ("instance weight",)}
"""Columns left out: a number of the row, and weights that the data set's description says not to use."""

NOTES = {
    "adult": "Adult, the census extract of 1994 (UCI Machine Learning Repository, CC BY 4.0), raw.",
    "adult_pgm": "Adult as the Private-PGM project cut it in bins, which is the paper's form (Apache-2.0).",
    "king": "House sales in King County (Kaggle, CC0), in the CTAB-GAN+ project's copy: 'date' is a day number.",
    "insurance": "Medical Cost Personal Dataset (Kaggle, DbCL 1.0).",
    "loan": "Bank Personal Loan Modelling (Kaggle, CC0). The paper kept 'ID', a number of the row; it is left out.",
    "credit": "Credit Card Fraud Detection (Worldline and ULB, DbCL 1.0). SUBSET of 5,486 of 284,807 rows.",
    "bank": "Bank Marketing, bank-full (UCI Machine Learning Repository, CC BY 4.0).",
    "census": "Census-Income (KDD) (UCI Machine Learning Repository, CC BY 4.0) without 'instance weight'.",
    "car": "Car Evaluation (UCI Machine Learning Repository, CC BY 4.0).",
    "mushroom": "Mushroom (UCI Machine Learning Repository, CC BY 4.0). 'veil_type' has one level.",
    "poker": "Poker Hand, training file (UCI Machine Learning Repository, CC BY 4.0).",
}

HEAD = """# {note}
# Levels and bounds are those of the whole published file, taken as public as in the paper; 'rows' is the size of the
# training part (80 %), rounded. Written by `python -m benchmarks.tbart_schemas`.

"""


def column_of(values: np.ndarray, *, numeric: bool) -> Modelled:
    """The public domain of a column.

    >>> column_of(np.array([0.5, 2.25]), numeric=True)
    Continuous(lower=0.5, upper=2.25, decimals=2, nullable=False)
    >>> column_of(np.array([3, 1, 3]), numeric=False).levels
    (1, 3)
    """
    if not numeric:
        return Categorical(levels=levels_of(values))
    if np.array_equal(np.rint(values), values):
        return Integer(lower=int(values.min()), upper=int(values.max()))
    decimals = decimals_of(values)
    lower, upper = float(values.min()), float(values.max())
    if decimals is not None:
        lower, upper = round(lower, decimals), round(upper, decimals)
    return Continuous(lower=lower, upper=upper, decimals=decimals)


def levels_of(values: np.ndarray) -> tuple[Any, ...]:
    """The levels of a category in order: whole numbers, else text."""
    found = np.unique(values).tolist()
    if all(isinstance(level, int | float) and float(level).is_integer() for level in found):
        return tuple(int(level) for level in found)
    return tuple(str(level) for level in found)


def decimals_of(values: np.ndarray) -> int | None:
    """How many decimals the numbers have at most; None for more than ``MOST_DECIMALS``.

    >>> decimals_of(np.array([0.1, 2.25])), decimals_of(np.array([1 / 3]))
    (2, None)
    """
    numbers = values.astype(np.float64)
    fits = (places for places in range(MOST_DECIMALS + 1) if np.allclose(np.round(numbers, places), numbers, 0, 1e-9))
    return next(fits, None)


def rounded_rows(rows: int) -> int:
    """A public order of magnitude: thousands of a large table, hundreds of a small one.

    >>> rounded_rows(39_073), rounded_rows(1_382)
    (39000, 1400)
    """
    unit = 1_000 if rows >= 10_000 else 100
    return unit * round(rows / unit)


def make(name: str) -> str:
    """The schema of a data set as the text of its file."""
    import pyarrow.parquet as pq

    table = pq.read_table(data_folder(None) / f"{name}.parquet").drop_columns(list(DROPPED.get(name, ())))
    columns = {
        column: column_of(np.array(table[column].to_pylist()), numeric=column in NUMERIC[name])
        for column in table.column_names
    }
    schema = Schema(columns=columns, rows=rounded_rows(int(0.8 * table.num_rows)))
    return HEAD.format(note=NOTES[name]) + schema.to_toml()


def main() -> None:
    """Write all schemas."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in NUMERIC:
        (FOLDER / f"{name}.toml").write_text(make(name))


if __name__ == "__main__":
    main()
