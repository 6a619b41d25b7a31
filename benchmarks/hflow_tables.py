"""Tables 1 to 3 and Figure 3 of the DP-HFlow paper: fits with and without privacy, judged by nine classifiers.

    python -m benchmarks.hflow_tables prepare FOLDER        # training rows, packed for a machine without Arrow
    python -m benchmarks.hflow_tables fit FOLDER OUT        # fits of `hflow` and 50,000 synthetic rows of each
    python -m benchmarks.hflow_tables score OUT             # benchmarks/results/hflow_tables.json
    python -m benchmarks.hflow_tables figure OUT            # docs/images/hflow_marginals.png
    python -m benchmarks.hflow_tables all FOLDER OUT

Settings are the method's defaults, fixed without these four data sets; the split is fixed by a seed, the noise comes
from the operating system, so a run repeats up to noise. Fits go through the same doors as ``sfumato.fit`` (private) and
``sfumato.fit_without_privacy`` (open). Every phase skips what is there already.

Reference: Lee, Kim, Jeong, Ro 2022, "Differentially Private Normalizing Flows for Synthetic Tabular Data Generation".
"""

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import TARGETS, Packed, load, pack, prepare

DRAWN = 50_000
"""Synthetic rows of each fit."""

KINDS = ("private", "open")
_AT_ONCE = 12_500


def method_of(settings: dict[str, Any]) -> Any:
    """HFlow with some fields replaced; a field that is a group of settings takes a JSON object."""
    from sfumato.synthesizers.hflow import HFlow

    base = HFlow()

    def value(name: str, given: Any) -> Any:
        default = getattr(base, name)
        if isinstance(given, dict) and dataclasses.is_dataclass(default):
            return dataclasses.replace(default, **given)  # type: ignore[type-var]
        return given

    return dataclasses.replace(base, **{name: value(name, given) for name, given in settings.items()})


def fit_one(data: Packed, kind: str, method: Any, epsilon: float, delta: float) -> tuple[np.ndarray, dict[str, Any]]:
    """One fit and its synthetic points, with what it took and what it cost."""
    from sfumato.encoding.layout import layout_of
    from sfumato.privacy import Budget, Curator, Ledger, Randomness
    from sfumato.privacy.accounting import headline
    from sfumato.privacy.adjacency import Adjacency
    from sfumato.privacy.unprotected import Unprotected

    ledger = Ledger(Budget(epsilon=epsilon, delta=delta), Adjacency(relation=method.relation))
    doors = Curator if kind == "private" else Unprotected
    rows = {"low": data.low, "width": data.width}
    start = time.perf_counter()
    curator = doors(rows, ledger=ledger, randomness=Randomness.from_os(), public_size=data.schema.rows)
    model = method.fit(curator, layout_of(data.schema))
    fitted = time.perf_counter()
    points = draw(model, DRAWN)
    stated = headline(ledger.events, ledger.adjacency, delta).epsilon
    return points, {
        "seconds": round(fitted - start, 1),
        "draw_seconds": round(time.perf_counter() - fitted, 1),
        "certified_epsilon": stated if np.isfinite(stated) else "infinity",
        "delta": delta,
        "finite": bool(np.isfinite(points).all()),
    }


def draw(model: Any, num_rows: int) -> np.ndarray:
    """So many points of the unit cube from a model."""
    import jax

    from sfumato.privacy import Randomness
    from sfumato.release.release import _sample_points

    key = jax.random.wrap_key_data(Randomness.from_os().key[:2])
    starts = range(0, num_rows, _AT_ONCE)
    found = [np.asarray(_sample_points(model, jax.random.fold_in(key, start), _AT_ONCE)) for start in starts]
    return np.concatenate(found)[:num_rows]


def fit_all(given: argparse.Namespace) -> None:
    """Fit what is not there yet, until the time is up."""
    from benchmarks.machine import describe_machine
    from sfumato.encoding.layout import layout_of

    method = method_of(given.settings)
    given.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    packed = {name: load(given.folder, name) for name in given.data}
    jobs = [(repeat, name, kind) for repeat in range(given.repeats) for name in given.data for kind in kinds_of(given)]
    for repeat, name, kind in jobs:
        target = given.out / f"{name}_{kind}_{repeat}.npz"
        if target.exists() and target.with_suffix(".json").exists():
            continue
        if given.time_limit is not None and time.monotonic() - begun > given.time_limit:
            print("time is up", flush=True)
            return
        data = packed[name]
        points, facts = fit_one(data, kind, method, given.epsilon, given.delta)
        write_packed(target, pack(np.nan_to_num(points, nan=0.5), layout_of(data.schema)))
        line = json.dumps(
            {"data": name, "kind": kind, "repeat": repeat, "rows": DRAWN, "training_rows": len(data.low)}
            | facts
            | {"settings": method.settings(), "machine": describe_machine(), "versions": versions()}
        )
        target.with_suffix(".json").write_text(line + "\n")
        told = f"{facts['seconds']:.0f} s + {facts['draw_seconds']:.0f} s, epsilon {facts['certified_epsilon']}"
        print(f"{name} {kind} {repeat}: {told}{'' if facts['finite'] else ', NOT FINITE'}", flush=True)


def kinds_of(given: argparse.Namespace) -> list[str]:
    """The kinds of fit asked for: both unless one is named."""
    asked = [kind for kind in KINDS if getattr(given, kind)]
    return asked or list(KINDS)


def write_packed(target: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write in full or not at all, so that a run that was cut off is not taken for a result."""
    partial = target.with_suffix(".part.npz")
    np.savez_compressed(partial, **arrays)
    os.replace(partial, target)  # noqa: PTH105


def versions() -> dict[str, str]:
    """The versions that a fit rests on."""
    from importlib.metadata import version

    return {name: version(name) for name in ("sfumato", "jax", "numpy", "equinox", "optax", "dp-accounting")}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    phases = top.add_subparsers(dest="phase", required=True)
    for phase in ("prepare", "fit", "score", "figure", "all"):
        one = phases.add_parser(phase)
        if phase in ("prepare", "fit", "all"):
            one.add_argument("folder", type=Path)
        if phase != "prepare":
            one.add_argument("out", type=Path)
        one.add_argument("--data", nargs="*", choices=list(TARGETS), default=list(TARGETS))
        if phase in ("score", "all"):
            one.add_argument("--processes", type=int, default=1, help="how many files to score at once")
        if phase in ("fit", "all"):
            one.add_argument("--repeats", type=int, default=5)
            one.add_argument("--epsilon", type=float, default=1.0)
            one.add_argument("--delta", type=float, default=1e-5)
            one.add_argument("--private", action="store_true", help="only the private fits")
            one.add_argument("--open", action="store_true", help="only the fits without privacy")
            one.add_argument("--settings", type=json.loads, default={}, help="JSON fields of HFlow")
            one.add_argument("--time-limit", type=float, help="seconds after which no further fit is begun")
    return top


def main() -> None:
    """Run one phase, or all of them."""
    given = parser().parse_args()
    if given.phase in ("prepare", "all"):
        prepare(given.folder, given.data)
    if given.phase in ("fit", "all"):
        fit_all(given)
    if given.phase in ("score", "all"):
        from benchmarks.hflow_scores import score_all

        score_all(given.out, given.data, given.processes)
    if given.phase in ("figure", "all"):
        from benchmarks.hflow_figure import draw_figure

        draw_figure(given.out)


if __name__ == "__main__":
    main()
