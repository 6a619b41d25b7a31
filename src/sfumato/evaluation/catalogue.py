"""Catalogue: every measurement there is, by group, and the one call that runs them."""

from collections.abc import Mapping
from typing import Any

from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import Comparison, Sample, sample_of
from sfumato.evaluation.evaluation import Evaluation, measure
from sfumato.evaluation.metric import Measurement
from sfumato.evaluation.metrics.columns import MEASUREMENTS as COLUMNS
from sfumato.evaluation.metrics.density import MEASUREMENTS as DENSITY
from sfumato.evaluation.metrics.detection import MEASUREMENTS as DETECTION
from sfumato.evaluation.metrics.membership import MEASUREMENTS as MEMBERSHIP
from sfumato.evaluation.metrics.pairs import MEASUREMENTS as PAIRS
from sfumato.evaluation.metrics.utility import MEASUREMENTS as UTILITY
from sfumato.evaluation.metrics.workload import MEASUREMENTS as WORKLOAD
from sfumato.progress import Progress, quiet
from sfumato.release import Release
from sfumato.schema import Schema

CATALOGUE: Mapping[str, tuple[Measurement, ...]] = {
    "columns": COLUMNS,
    "pairs": PAIRS,
    "workload": WORKLOAD,
    "detection": DETECTION,
    "utility": UTILITY,
    "density": DENSITY,
    "membership": MEMBERSHIP,
}
"""The groups of a report, in its order. A new metric is a line in its file."""


def evaluate(
    real: Any,
    synthetic: Any,
    schema: Schema,
    *,
    holdout: Any = None,
    anomalies: Any = None,
    release: Release | None = None,
    target: str | None = None,
    seed: int = 0,
    names: Mapping[str, str] | None = None,
    progress: Progress = quiet,
) -> Evaluation:
    """Measure how close a synthetic table is to the real one, and what it is good for.

    Tables are frames, Arrow tables or paths. ``real`` are the rows that the model was fitted to and ``holdout`` real
    rows that it never saw: utility and density are then told on rows that are new, and the membership smoke test
    needs them. ``anomalies`` are rows that a density should find unlikely. ``target`` is the column to predict, the
    last one of the schema by default. ``release`` adds the likelihoods and the certificate.

    Privacy: none. The result was computed on private rows without noise, and is as private as they are.

    >>> evaluation = evaluate("real.parquet", "synthetic.parquet", schema)      # doctest: +SKIP
    >>> evaluation.score("ks_complement").text                                  # doctest: +SKIP
    '0.971'
    """
    if release is not None and release.schema.columns != schema.columns:
        raise ArgumentError("The release was fitted with another schema; compare it under its own.")
    sides: dict[str, Sample | None] = {
        what: None if rows is None else sample_of(rows, schema, what=what)
        for what, rows in (("real", real), ("synthetic", synthetic), ("holdout", holdout), ("anomalies", anomalies))
    }
    if sides["real"] is None or sides["synthetic"] is None:
        raise ArgumentError("A comparison needs a real and a synthetic table.")
    if not schema.modelled:
        raise ArgumentError("The schema has no column that is modelled, so there is nothing to compare.")
    comparison = Comparison(
        schema=schema,
        real=sides["real"],
        synthetic=sides["synthetic"],
        holdout=sides["holdout"],
        anomalies=sides["anomalies"],
        release=release,
        target=schema.modelled[-1][0] if target is None else target,
        seed=seed,
        names=names or {},
    )
    return measure(comparison, CATALOGUE, progress)
