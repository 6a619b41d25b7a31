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

REAL = ("lifesci", "power")


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


def _synthetic(name: str, draw: Callable[[np.random.Generator, int], np.ndarray]) -> Callable[[Path], DensityData]:
    def make(_: Path) -> DensityData:
        units = draw(np.random.default_rng(1), 1_000_000)  # the generator's own constants, not the rows'
        rows = (draw(np.random.default_rng(2021), 30_000) - units.mean(axis=0)) / units.std(axis=0)
        return DensityData(
            name=name, rows=rows, lower=-6.0, upper=6.0, note="standardised with the generator's constants"
        )

    return make


_LOADERS: dict[str, Callable[[Path], DensityData]] = {
    "lifesci": _lifesci,
    "power": _power,
    "half_moons": _synthetic("half_moons", _half_moons),
    "gaussians": _synthetic("gaussians", _gaussians),
    "pinwheel": _synthetic("pinwheel", _pinwheel),
}


def pack(target: Path) -> None:
    """Write the real data sets as NumPy files, for machines without Arrow."""
    target.mkdir(parents=True, exist_ok=True)
    for name in REAL:
        np.savez_compressed(target / f"{name}.npz", **_raw(name, data_folder(None)))


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
