"""Sampling speed of the DP-TBART benchmark: rows a minute of a release fitted to raw Adult."""

import argparse
import json
import time
from typing import Any, cast

from benchmarks.hflow_data import levels_of
from benchmarks.hflow_fits import draw, fit
from benchmarks.tbart_data import load
from benchmarks.tbart_fits import Job, built, slug, source

DATA = "adult"
DEFAULT = ("auto",)


def time_all(given: argparse.Namespace) -> None:
    """Fit each method once, and time its sampling."""
    given.out.mkdir(parents=True, exist_ok=True)
    for label in given.methods or DEFAULT:
        found = timed(Job(label=label, data=DATA, seed=0), given)
        target = given.out / f"sampling__{slug(label)}__{found['machine']['backend']}.json"
        target.write_text(json.dumps(found) + "\n")
        print(f"{label}: {found['rows_a_minute']:,} rows a minute as {found['as']}", flush=True)


def timed(job: Job, given: argparse.Namespace) -> dict[str, Any]:
    """Rows a minute, once all is compiled, and the seconds of the first batch, which compiles.

    Through ``Release.sample_arrow`` where Arrow is there, else points of the unit cube alone.
    """
    from benchmarks.machine import describe_machine
    from sfumato.release import Release

    data = load(given.folder, job.data)
    model, facts = fit(data, built(job.label, given.settings), epsilon=job.epsilon, delta=given.delta)
    release = Release(model=model, schema=data.schema, certificate=cast(Any, None))  # sampling needs no certificate
    levels, arrow = levels_of(data), has_arrow()

    def sample(num_rows: int) -> float:
        start = time.perf_counter()
        _ = release.sample_arrow(num_rows) if arrow else draw(model, num_rows, levels)
        return time.perf_counter() - start

    first, seconds = sample(1), sample(given.rows)
    return {
        "label": job.label,
        "data": job.data,
        "rows": given.rows,
        "first_seconds": round(first, 2),
        "seconds": round(seconds, 2),
        "rows_a_minute": round(60 * given.rows / seconds),
        "as": "an Arrow table" if arrow else "points of the unit cube",
        "fit_seconds": facts["seconds"],
        "machine": describe_machine(),
        "source": source(),
    }


def has_arrow() -> bool:
    """Whether Arrow can make tables here."""
    try:
        import pyarrow as pa
    except ImportError:
        return False
    return hasattr(pa, "table")
