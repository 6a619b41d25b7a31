"""Pipeline: from a private table to a certified release, the whole story on one screen."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato.encoding.features import encode_features
from sfumato.encoding.layout import layout_of
from sfumato.encoding.texts import unit_codes
from sfumato.errors import ArgumentError, TableError
from sfumato.fitting.learning import LEARNING, Learning, learn, unknown_rows, unknown_texts
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
from sfumato.privacy.budget import default_delta
from sfumato.privacy.certificate import certify
from sfumato.privacy.units import first_rows_of_units
from sfumato.privacy.unprotected import Unprotected
from sfumato.progress import Progress, quiet
from sfumato.release import Release
from sfumato.schema import Schema
from sfumato.synthesizers import REGISTRY, Synthesizer, method_named
from sfumato.table import check_columns, to_arrow


def fit(
    table: Any,
    schema: Schema,
    *,
    method: Synthesizer | str = "auto",
    epsilon: float,
    delta: float | None = None,
    seed: int | None = None,
    learning: Learning = LEARNING,
    public: Any = None,
    progress: Progress = quiet,
) -> Release:
    """Fit a differentially private model of a table and return it as a release.

    ``table`` is a pandas or polars frame, an Arrow table, a DuckDB relation, or the path of a CSV, Parquet or
    Arrow file. ``delta`` defaults to a tenth of one over the declared rows, at most 1e-6. ``learning`` says what the
    columns with ``learn = true`` may cost; the schema of the release has their levels and bounds. ``public`` is another
    table with the same schema that nobody need protect: methods that can warm-start are trained on it first, at no
    cost, and the certificate states the assumption with the table's digest.

    Guarantees: the release is (epsilon, delta)-differentially private for one row, or for one unit of the
    schema's unit column, given that the schema is public. A ``seed`` makes the noise repeatable and the release
    worthless as protection: the certificate then says "not for release".

    >>> release = fit("patients.parquet", Schema.load("schema.toml"), epsilon=1.0)  # doctest: +SKIP
    """
    method = method_named(method)() if isinstance(method, str) else method
    budget = Budget(epsilon=epsilon, delta=default_delta(schema.rows) if delta is None else delta)
    source = Randomness.from_os() if seed is None else Randomness.from_seed(seed)
    given: dict[str, Any] = {"randomness": source, "learning": learning, "public": public, "progress": progress}
    return fit_through(Curator, table, schema, method=method, budget=budget, **given)


def fit_without_privacy(
    table: Any,
    schema: Schema,
    *,
    method: Synthesizer | str = "hflow",
    seed: int | None = None,
    public: Any = None,
    progress: Progress = quiet,
) -> Release:
    """NO PRIVACY: fit to exact sums and plain gradients, as a ceiling in benchmarks of private fits.

    Never hand out what this returns, nor rows drawn from it: either may repeat rows of the table. The certificate says
    so (epsilon infinite, "not for release"). This is no option of ``fit``: no switch turns privacy off.
    """
    method = method_named(method)() if isinstance(method, str) else method
    asked = Budget(epsilon=50.0, delta=default_delta(schema.rows))  # the form wants one; nothing is charged against it
    source = Randomness.from_os() if seed is None else Randomness.from_seed(seed)
    given: dict[str, Any] = {"randomness": source, "public": public, "progress": progress}
    return fit_through(Unprotected, table, schema, method=method, budget=asked, **given)


def fit_through(
    doors: Callable[..., Curator],
    table: Any,
    schema: Schema,
    *,
    method: Synthesizer,
    budget: Budget,
    randomness: Randomness,
    learning: Learning = LEARNING,
    public: Any = None,
    progress: Progress = quiet,
) -> Release:
    """The fit through given doors: the curator's own, or those of an audit that watches the same fit from inside.

    Guarantees: through any doors but the curator's own, the certificate says "not for release".
    """
    unit: dict[str, Any] = {} if schema.unit is None else {"unit": schema.unit.column, "max_rows": schema.unit.max_rows}
    ledger = Ledger(budget, Adjacency(relation=method.relation, **unit))
    arrow, kind = to_arrow(table)
    if faults := check_columns(arrow, schema):
        raise TableError("; ".join(faults))
    open_table = _public_table(public, schema, method)

    kept = first_rows(arrow, schema)
    given: dict[str, Any] = {"ledger": ledger, "randomness": randomness, "public_size": schema.rows}
    curator = doors(unknown_rows(kept, schema), texts=unknown_texts(kept, schema), progress=progress, **given)
    known = learn(curator, schema, learning, budget.delta)
    open_rows = None if open_table is None else _cells(open_table, known)
    units = None if schema.unit is None else unit_codes(kept.column(schema.unit.column))
    held = curator.holding(private_rows(kept, known), open_rows, units)
    model = method.fit(held, layout_of(known, learnt=schema.learnt))
    told: dict[str, Any] = {"method": method.name, "settings": method.settings(), "declared_rows": schema.rows}
    if schema.learnt:
        told |= {"learnt": list(schema.learnt), "learning": asdict(learning)}
    if open_rows is not None:
        told["public_table"] = {"rows": len(open_rows["low"]), "sha256": _digest(open_rows)}
    source = randomness if doors is Curator else replace(randomness, source="known")
    return Release(model=model, schema=known, certificate=certify(ledger, source, told), kind=kind)


def private_rows(table: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
    """What the curator holds: the cells of each row, after the cap on rows of one unit."""
    return _cells(first_rows(table, schema), schema)


def _cells(table: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
    cells = encode_features(table, schema)
    return {"low": cells.low.astype(np.float32), "width": cells.width.astype(np.float32)}


def first_rows(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows that the cap on rows of one unit keeps: all of them where there is no unit."""
    if schema.unit is None:
        return table
    codes = unit_codes(table.column(schema.unit.column))  # rows without an id count as one unit
    return table.filter(pa.array(first_rows_of_units(codes, schema.unit.max_rows)))


def _public_table(table: Any, schema: Schema, method: Synthesizer) -> pa.Table | None:
    """A table that was declared public, in Arrow form; refused where the method has no use for it."""
    if table is None:
        return None
    if "warm_start" not in method.can:
        able = ", ".join(sorted(name for name, kind in REGISTRY.items() if "warm_start" in kind.can))
        raise ArgumentError(f"The method {method.name!r} cannot start from a public table; these can: {able}.")
    arrow, _ = to_arrow(table)
    if faults := check_columns(arrow, schema, identifiers=False):
        raise TableError("The public table does not fit the schema: " + "; ".join(faults))
    if not arrow.num_rows:
        raise TableError("The public table has no rows.")
    return arrow


def _digest(rows: dict[str, np.ndarray]) -> str:
    """What names a public table in a certificate: the SHA-256 of its encoded cells."""
    found = hashlib.sha256()
    for name in sorted(rows):
        found.update(np.ascontiguousarray(rows[name], "<f4").tobytes())
    return found.hexdigest()
