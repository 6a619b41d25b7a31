"""Data sets of the DP-HFlow benchmark: how they are read, split, and carried to a machine without Arrow.

A packed table holds one array a feature: places on the feature's grid as small whole numbers, or float32 points where
it has no grid. Both training rows and synthetic rows travel so, and nothing is lost: a cell is all that a row or a
decoded point is.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import data_folder
from sfumato.encoding.layout import Layout, layout_of
from sfumato.schema import Schema

SPLIT_SEED = 2022
"""The seed of the one random split: four fifths to train on, the rest to test on."""

SCHEMAS = Path("benchmarks/schemas")
TARGETS = {"adult": "income", "census": "label", "covertype": "Cover_Type", "intrusion": "label"}

ATTACKS = {
    "dos": ("back", "land", "neptune", "pod", "smurf", "teardrop"),
    "probe": ("ipsweep", "nmap", "portsweep", "satan"),
    "r2l": ("ftp_write", "guess_passwd", "imap", "multihop", "phf", "spy", "warezclient", "warezmaster"),
    "u2r": ("buffer_overflow", "loadmodule", "perl", "rootkit"),
}
"""The groups of attacks. Reference: the list ``training_attack_types`` of KDD Cup 1999."""


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Training rows as a fit takes them, and their schema."""

    schema: Schema
    low: np.ndarray
    width: np.ndarray


def schema_of(name: str) -> Schema:
    """The public schema of a data set."""
    return Schema.load(SCHEMAS / f"{name}.toml")


def parts(name: str, folder: Path | None = None) -> tuple[Any, Any]:
    """The training rows and the test rows of a data set as Arrow tables, each in the order of the source."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table((folder or data_folder(None)) / f"{name}.parquet")
    if name == "intrusion":
        group = {attack: kind for kind, attacks in ATTACKS.items() for attack in attacks} | {"normal": "normal"}
        labels = pa.array([group[label] for label in table["label"].to_pylist()])
        table = table.set_column(table.column_names.index("label"), "label", labels)
    table = table.select(list(schema_of(name).columns))  # of Census this leaves out the weights
    order = np.random.default_rng(SPLIT_SEED).permutation(table.num_rows)
    cut = int(0.8 * len(order))
    train, test = (table.take(pa.array(np.sort(places))) for places in (order[:cut], order[cut:]))
    return train, test


def prepare(target: Path, names: list[str]) -> None:
    """Write the training rows of each data set as a packed table, beside its schema."""
    from sfumato.encoding.features import encode_features

    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        schema = schema_of(name)
        cells = encode_features(parts(name)[0], schema)
        np.savez_compressed(target / f"{name}.npz", **pack(cells.low, layout_of(schema), cells.width))
        (target / f"{name}.json").write_text(json.dumps(schema.to_dict()))
        size = (target / f"{name}.npz").stat().st_size
        print(f"{name}: {len(cells.low):,} training rows, {size / 2**20:.1f} MiB", flush=True)


def load(folder: Path, name: str) -> Packed:
    """The training rows that ``prepare`` wrote."""
    schema = Schema.from_dict(json.loads((folder / f"{name}.json").read_text()))
    low, width = unpack(folder / f"{name}.npz", layout_of(schema))
    return Packed(schema=schema, low=low.astype(np.float32), width=width.astype(np.float32))


def levels_of(data: Packed) -> tuple[int | None, ...]:
    """The number of levels of each feature; None where it has no grid."""
    return tuple(feature.size for feature in layout_of(data.schema).features)


def pack(points: np.ndarray, layout: Layout, width: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Points of the unit cube, or lower corners of cells, as one compact array a feature.

    A missing value, whose cell is the whole feature, has the place after the last one.
    """
    from sfumato.encoding.features import cell_of

    found = {}
    for place, feature in enumerate(layout.features):
        values = points[:, place].astype(np.float64)
        if feature.size is None:
            found[f"f{place}"] = values.astype(np.float32)
            continue
        codes = cell_of(values, feature.size)
        if width is not None:
            codes = np.where(width[:, place] >= 1, feature.size, codes)
        found[f"f{place}"] = codes.astype(np.min_scalar_type(feature.size))
    return found


def unpack(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Lower corners and widths of the cells in a packed table."""
    with np.load(path) as arrays:
        columns = [arrays[f"f{place}"] for place in range(layout.num_features)]
    low = np.zeros((len(columns[0]), layout.num_features))
    width = np.zeros_like(low)
    for place, (feature, values) in enumerate(zip(layout.features, columns, strict=True)):
        if feature.size is None:
            low[:, place] = values
            continue
        missing = values == feature.size
        low[:, place] = np.where(missing, 0.0, values / feature.size)
        width[:, place] = np.where(missing, 1.0, 1.0 / feature.size)
    return low, width
