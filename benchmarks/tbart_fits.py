"""Fits of the DP-TBART benchmark: methods by label, a fit with what it cost, and its synthetic rows.

NumPy, JAX, Equinox, Optax and dp-accounting are all that is needed here.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import Packed, levels_of, pack
from benchmarks.hflow_fits import draw, fit, labelled, versions, write_packed
from benchmarks.tbart_data import DYCK, TARGETS, load

DYCK_ROWS = 20_000
REAL = "real"
"""The label of real training rows in the place of synthetic ones: the ceiling."""

BINNED = "real in 100 bins"
"""The label of real training rows whose numbers were put in even bins and read back as the middles of these, as the
paper says of its AIM and DP-TBART, with no noise at all: the ceiling of what is decoded so."""

EVEN_BINS = 100
UNFITTED = (REAL, BINNED)
"""Labels that nothing is fitted for."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of the registry by its name, from a preset of it where one is named, with some settings replaced."""

    name: str
    preset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


METHODS: dict[str, Method] = {
    "auto": Method(name="auto"),
    "auto (label)": Method(name="auto"),
    "dp-tbart": Method(name="tbart"),
    "dp-tbart (paper)": Method(name="tbart", preset="paper"),
    "chain": Method(name="chain"),
    "chain (shared codes)": Method(
        name="chain", settings={"shared": True, "width": 16, "warm": None, "optimiser": {"learning_rate": 0.01}}
    ),
    "aim": Method(name="aim"),
    "aim (100 bins)": Method(name="aim", settings={"even_bins": 100}),
    "mst": Method(name="mst"),
    "independent": Method(name="independent"),
    "hflow": Method(name="hflow"),
    "maf": Method(name="maf"),
    "dp-merf": Method(name="merf"),
    "dp-merf (paper)": Method(name="merf", preset="paper"),
    "dp-ntk": Method(name="ntk"),
    "dp-ntk (paper)": Method(name="ntk", preset="paper"),
    "dpgan": Method(name="dpgan"),
    "dpgan (paper)": Method(name="dpgan", preset="paper"),
    "dp-cgan": Method(name="dp-cgan"),
    "dp-cgan (paper)": Method(name="dp-cgan", preset="paper"),
    "dp-ctgan": Method(name="dp-ctgan"),
    "dp-ctgan (paper)": Method(name="dp-ctgan", preset="paper"),
    "gs-wgan": Method(name="gs-wgan"),
    "gs-wgan (paper)": Method(name="gs-wgan", preset="paper"),
    "pate-gan": Method(name="pate-gan"),
    "pate-gan (paper)": Method(name="pate-gan", preset="paper"),
    "pate-ctgan": Method(name="pate-ctgan"),
}
"""What is compared, by label."""


UNLABELLED = ("auto", "chain", "chain (shared codes)", "aim", "aim (100 bins)")
"""Labels of methods that are not told which column is predicted, though they could be."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One fit of one data set; the repeat is called its seed, which seeds what judges it and never its noise."""

    label: str
    data: str
    seed: int
    epsilon: float = 1.0

    @property
    def stem(self) -> str:
        """The name of its files.

        >>> Job(label="dp-tbart (paper)", data="adult_pgm", seed=0).stem
        'dp-tbart-paper__adult_pgm__1__0'
        """
        return f"{slug(self.label)}__{self.data}__{self.epsilon:g}__{self.seed}"


def slug(label: str) -> str:
    """A label as part of a file name."""
    return re.sub(r"[^a-z0-9-]+", "-", label.lower()).strip("-")


def built(label: str, settings: dict[str, Any]) -> Any:
    """The method of a label, with further settings; one that is a group of settings takes a JSON object.

    >>> built("hflow", {"steps": 10, "size": {"width": 8}}).size.width
    8
    """
    from sfumato.synthesizers import method_named

    method = METHODS[label]
    kind: Any = method_named(method.name)
    base = getattr(kind, method.preset)() if method.preset else kind()

    def value(name: str, given: Any) -> Any:
        group = getattr(base, name)
        in_part = isinstance(given, dict) and dataclasses.is_dataclass(group)
        return dataclasses.replace(group, **given) if in_part else given  # type: ignore[type-var]

    return dataclasses.replace(
        base, **{name: value(name, given) for name, given in (method.settings | settings).items()}
    )


def do(job: Job, *, folder: Path, out: Path, delta: float, settings: dict[str, Any], processes: int) -> str:
    """One fit and its synthetic rows, with what it took and what it cost; a line that tells of it."""
    from benchmarks.machine import describe_machine

    data, target = load(folder, job.data), out / f"{job.stem}.npz"
    if job.label in UNFITTED:
        points, facts = real_rows(data) if job.label == REAL else binned_rows(data)
    else:
        points, facts = fitted(job, data, delta, settings)
    write_rows(target, points, data)
    about = {"label": job.label, "data": job.data, "seed": job.seed, "epsilon": job.epsilon, "rows": len(points)}
    about |= {"training_rows": len(data.low), "finite": bool(np.isfinite(points).all())} | facts
    about |= {"processes": processes, "machine": describe_machine(), "versions": versions(), "source": source()}
    target.with_suffix(".json").write_text(json.dumps(about) + "\n")
    told = f"{facts['seconds']:.1f} s + {facts['sample_seconds']:.1f} s, epsilon {facts['certified_epsilon']}"
    return f"{job.stem}: {told}{'' if about['finite'] else ', NOT FINITE'}"


def fitted(job: Job, data: Packed, delta: float, settings: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """A fit through the doors, and as many points as there are training rows."""
    method = built(job.label, settings)
    if job.data in TARGETS and job.label not in UNLABELLED:
        method = labelled(method, data.schema, TARGETS[job.data])
    first = is_first((job.label, job.data))
    reset_peak()
    model, facts = fit(data, method, epsilon=job.epsilon, delta=delta)
    start = time.perf_counter()
    points = draw(model, DYCK_ROWS if job.data == DYCK else len(data.low), levels_of(data))
    facts |= {
        "sample_seconds": round(time.perf_counter() - start, 2),
        "peak_mb": peak(),
        "device_peak_mb": device_peak(),
    }
    return points, facts | {"compiled_before": not first, "method": method.name, "settings": method.settings()}


def real_rows(data: Packed) -> tuple[np.ndarray, dict[str, Any]]:
    """The training rows themselves."""
    facts = {"seconds": 0.0, "sample_seconds": 0.0, "certified_epsilon": "infinity", "delta": 0.0, "settings": {}}
    return data.low.astype(np.float64) + data.width / 2, facts


def binned_rows(data: Packed) -> tuple[np.ndarray, dict[str, Any]]:
    """The training rows as codes of even bins over public bounds, each number read back as the middle of its bin."""
    import jax
    import jax.numpy as jnp

    from sfumato.encoding.layout import layout_of
    from sfumato.fitting.codecs import even_codec

    codec = even_codec(layout_of(data.schema), EVEN_BINS)
    codes = np.asarray(jax.vmap(codec.codes)(jnp.asarray(data.low), jnp.asarray(data.width)))
    nowhere = np.zeros(len(codes))  # every code has one bin here, so no number is needed to find it
    bins = np.stack([each.draw(codes[:, at], nowhere) for at, each in enumerate(codec.columns())], axis=1)
    return codec.points(codes, bins, np.full(codes.shape, 0.5), levels_of(data)), real_rows(data)[1]


def write_rows(target: Path, points: np.ndarray, data: Packed) -> None:
    """Write synthetic rows as places on the grid of each feature."""
    from sfumato.encoding.layout import layout_of

    write_packed(target, pack(np.clip(np.nan_to_num(points, nan=0.5), 0, 1), layout_of(data.schema)))


_SEEN: set[tuple[str, str]] = set()


def is_first(what: tuple[str, str]) -> bool:
    """Whether this process has not fitted it before, so that its time holds that of compiling."""
    found = what not in _SEEN
    _SEEN.add(what)
    return found


def reset_peak() -> None:
    """Begin anew to watch for the most memory of this process, where the system can."""
    with contextlib.suppress(OSError):  # the peak then is that of the process since its start
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """The most memory of this process in MB since it was reset, what it already held included."""
    import resource

    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    kilobytes = int(found.group(1)) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(kilobytes / 1024)


def device_peak() -> int | None:
    """The most memory in MB that this process has used on a GPU since it started; None without one."""
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    return round(stats["peak_bytes_in_use"] / 2**20) if "peak_bytes_in_use" in stats else None


def source() -> str:
    """A short digest of the library's source, so that fits of different code are not taken for repeats."""
    import sfumato

    root = Path(sfumato.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]
