"""Data sets of the density benchmark: rows, a public box, and the units in which likelihoods are reported.

Real data are read from a folder (``--data-dir``, else ``SFUMATO_DATA``, else ``../shared/data``): ``NAME.npz`` where
there is one (``python -m benchmarks.datasets FOLDER`` makes them, for machines without Arrow), else ``NAME.parquet``.
Synthetic sets are drawn from their generators with a fixed seed. ``benchmarks/README.md`` says where each comes from.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

REAL = ("lifesci", "power", "gowalla_grid")


@dataclass(frozen=True, kw_only=True)
class DensityData:
    """Rows inside a public box, all in the units that the log-likelihood is stated in."""

    name: str
    rows: np.ndarray
    lower: float
    upper: float
    note: str


def data_folder(given: str | None) -> Path:
    return Path(given or os.environ.get("SFUMATO_DATA") or "../shared/data")


def load(name: str, folder: Path) -> DensityData:
    """A data set by its name."""
    return _LOADERS[name](folder)


def _raw(name: str, folder: Path) -> dict[str, np.ndarray]:
    packed = folder / f"{name}.npz"
    if packed.exists():
        with np.load(packed) as arrays:
            return {key: arrays[key] for key in arrays.files}
    import pyarrow.parquet as pq

    table = pq.read_table(folder / f"{name}.parquet")
    if name == "power":
        minutes = table["datetime"].to_numpy().astype("datetime64[m]").astype(np.int64) % 1440
        columns = ("Global_active_power", "Voltage", "Sub_metering_1", "Sub_metering_2", "Sub_metering_3")
        return {"minute": minutes, **{column: table[column].to_numpy().astype(np.float64) for column in columns}}
    if name == "gowalla_grid":
        return {column: table[column].to_numpy().astype(np.float64) for column in ("lat_bin", "lon_bin", "count")}
    return {f"x{i}": table[f"x{i}"].to_numpy().astype(np.float64) for i in range(1, 11)}


def _lifesci(folder: Path) -> DensityData:
    raw = _raw("lifesci", folder)
    rows = np.stack([raw[f"x{i}"] for i in range(1, 11)], axis=1)
    rows = rows / np.linalg.norm(rows, axis=1).max()
    return DensityData(
        name="lifesci", rows=rows, lower=-1.0, upper=1.0, note="divided by the largest row norm, taken as public"
    )


def _power(folder: Path) -> DensityData:
    # The six features of Papamakarios et al. 2017: spread over their measuring steps, then standardised.
    raw = _raw("power", folder)
    spread = np.random.default_rng(2017)
    steps = {
        "minute": 1.0,
        "Global_active_power": 0.001,
        "Voltage": 0.01,
        "Sub_metering_1": 1.0,
        "Sub_metering_2": 1.0,
        "Sub_metering_3": 1.0,
    }
    rows = np.stack([raw[name] + step * spread.random(raw[name].shape) for name, step in steps.items()], axis=1)
    rows = rows[np.isfinite(rows).all(axis=1)]
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    note = "SUBSET: the first 47,960 minutes of the source; standardised with constants taken as public"
    return DensityData(name="power", rows=rows, lower=-10.0, upper=10.0, note=note)


def _gowalla(folder: Path) -> DensityData:
    # A sample as large as the paper's, from the published histogram of all check-ins: each spread over its cell.
    raw = _raw("gowalla_grid", folder)
    draw = np.random.default_rng(2011)
    places = draw.choice(raw["count"].size, 100_000, p=raw["count"] / raw["count"].sum())
    cells = np.stack([raw["lat_bin"][places], raw["lon_bin"][places]], axis=1)
    rows = cells + draw.random(cells.shape)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    note = (
        "100,000 check-ins drawn from a published histogram of all of them (256 x 256 cells of the world), each spread "
        "evenly over its cell, which the paper's were not; standardised with constants taken as public"
    )
    return DensityData(name="gowalla", rows=rows, lower=-8.0, upper=8.0, note=note)


def _half_moons(random: np.random.Generator, num: int) -> np.ndarray:
    angle = np.pi * random.random(num)
    upper = random.random(num) < 0.5
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle))
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle))
    return np.stack([x, y], axis=1) + 0.05 * random.normal(size=(num, 2))


def _gaussians(random: np.random.Generator, num: int) -> np.ndarray:
    angle = random.integers(0, 8, num) * np.pi / 4
    centre = 4 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return (centre + 0.5 * random.normal(size=(num, 2))) / np.sqrt(2)


def _pinwheel(random: np.random.Generator, num: int) -> np.ndarray:
    arm = random.integers(0, 5, num)
    radial = 1 + 0.3 * random.normal(size=num)
    tangential = 0.1 * random.normal(size=num)
    angle = 2 * np.pi * arm / 5 + 0.25 * np.exp(radial)
    cos, sin = np.cos(angle), np.sin(angle)
    return 2 * np.stack([radial * cos - tangential * sin, radial * sin + tangential * cos], axis=1)


def fresh(name: str, *, seed: int, num: int) -> DensityData:
    """Rows of a synthetic set from another seed than the benchmark's."""
    units = _DRAWS[name](np.random.default_rng(1), 1_000_000)  # the generator's own constants, not the rows'
    rows = (_DRAWS[name](np.random.default_rng(seed), num) - units.mean(axis=0)) / units.std(axis=0)
    return DensityData(name=name, rows=rows, lower=-6.0, upper=6.0, note="standardised with the generator's constants")


def _synthetic(name: str) -> Callable[[Path], DensityData]:
    return lambda _: fresh(name, seed=2021, num=30_000)


_DRAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "half_moons": _half_moons,
    "gaussians": _gaussians,
    "pinwheel": _pinwheel,
}

_LOADERS: dict[str, Callable[[Path], DensityData]] = {
    "lifesci": _lifesci,
    "power": _power,
    "gowalla": _gowalla,
    "half_moons": _synthetic("half_moons"),
    "gaussians": _synthetic("gaussians"),
    "pinwheel": _synthetic("pinwheel"),
}


def pack(target: Path) -> None:
    """Write the real data sets as NumPy files, for machines without Arrow."""
    target.mkdir(parents=True, exist_ok=True)
    for name in REAL:
        np.savez_compressed(target / f"{name}.npz", **_raw(name, data_folder(None)))


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
