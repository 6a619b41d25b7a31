"""Data sets of the DP-TBART benchmark: how they are read, split, and carried to a machine without Arrow.

``prepare`` writes ``NAME.npz`` with the cells of the training rows (``low``, ``width``) and of the held-out rows
(``test_low``, ``test_width``) as float32, and ``NAME.json`` with the schema.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import data_folder
from benchmarks.hflow_data import Packed
from sfumato.schema import Categorical, Schema

SPLIT_SEED = 2023
"""The seed of the one random split: four fifths to train on, the rest to test on."""

SCHEMAS = Path("benchmarks/schemas/tbart")

TARGETS = {
    "adult_pgm": "income>50K",
    "king": "price",
    "insurance": "charges",
    "loan": "Personal Loan",
    "credit": "Class",
    "bank": "y",
    "census": "label",
    "car": "class",
    "mushroom": "type",
    "poker": "CLASS",
    "adult": "income",
}
"""What is predicted in each data set."""

AVERAGED = tuple(name for name in TARGETS if name != "adult")
"""The paper's ten data sets, over which its averages run; raw Adult is reported apart."""

DYCK = "dyck"
"""The made-up data set of bracket strings."""

DYCK_LENGTH = 20


def schema_of(name: str) -> Schema:
    """The public schema of a data set."""
    if name == DYCK:
        columns = {f"c{place:02d}": Categorical(levels=("(", ")")) for place in range(DYCK_LENGTH)}
        return Schema(columns=columns, rows=17_000)
    return Schema.load(SCHEMAS / f"{name}.toml")


def parts(name: str, folder: Path | None = None) -> tuple[Any, Any]:
    """The training rows and the test rows of a data set as Arrow tables, each in the order of the source."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table((folder or data_folder(None)) / f"{name}.parquet").select(list(schema_of(name).columns))
    order = np.random.default_rng(SPLIT_SEED).permutation(table.num_rows)
    cut = int(0.8 * len(order))
    train, test = (table.take(pa.array(np.sort(places))) for places in (order[:cut], order[cut:]))
    return train, test


def prepare(target: Path, names: list[str]) -> None:
    """Write the cells of each data set beside its schema, and those of the bracket strings."""
    from sfumato.encoding.features import encode_features

    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        schema = schema_of(name)
        train, test = (encode_features(rows, schema) for rows in parts(name))
        cells = {"low": train.low, "width": train.width, "test_low": test.low, "test_width": test.width}
        _write(target, name, schema, cells)
    brackets = dyck_words(DYCK_LENGTH)
    _write(target, DYCK, schema_of(DYCK), {"low": brackets / 2, "width": np.full(brackets.shape, 0.5)})


def _write(target: Path, name: str, schema: Schema, cells: dict[str, np.ndarray]) -> None:
    path = target / f"{name}.npz"
    np.savez_compressed(path, **{key: values.astype(np.float32) for key, values in cells.items()})
    (target / f"{name}.json").write_text(json.dumps(schema.to_dict()))
    print(f"{name}: {len(cells['low']):,} training rows, {path.stat().st_size / 2**20:.2f} MiB", flush=True)


def load(folder: Path, name: str) -> Packed:
    """The training rows that ``prepare`` wrote."""
    schema = Schema.from_dict(json.loads((folder / f"{name}.json").read_text()))
    with np.load(folder / f"{name}.npz") as arrays:
        return Packed(schema=schema, low=arrays["low"], width=arrays["width"])


def dyck_words(length: int) -> np.ndarray:
    """All strings of well-matched brackets, one a row: 0 opens, 1 closes.

    Reference: DP-TBART, section 4.4.2. Of length 20 there are 16,796, a Catalan number.

    >>> dyck_words(4).tolist()
    [[0, 0, 1, 1], [0, 1, 0, 1]]
    """
    words = np.zeros((1, 0), np.int64)
    for left in range(length - 1, -1, -1):
        ends = np.tile([[0], [1]], (len(words), 1))
        words = np.hstack([np.repeat(words, 2, axis=0), ends])
        depth = (1 - 2 * words).sum(axis=1)
        words = words[(depth >= 0) & (depth <= left)]  # what can still be closed
    return words


def valid(words: np.ndarray) -> np.ndarray:
    """Which rows of 0 (opens) and 1 (closes) are well-matched.

    >>> valid(np.array([[0, 1], [1, 0], [0, 0]])).tolist()
    [True, False, False]
    """
    depth = np.cumsum(1 - 2 * words.astype(np.int64), axis=1)
    return (depth >= 0).all(axis=1) & (depth[:, -1] == 0)
