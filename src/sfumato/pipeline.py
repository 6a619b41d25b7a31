"""Pipeline: from a private table to a certified release, the whole story on one screen."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato.encoding.features import encode_features
from sfumato.encoding.layout import layout_of
from sfumato.encoding.texts import units_of
from sfumato.errors import TableError
from sfumato.fitting.learning import LEARNING, Learning, learn, unknown_rows, unknown_texts
from sfumato.fitting.public_table import public_rows, public_table, statement
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
from sfumato.privacy.budget import default_delta
from sfumato.privacy.certificate import certify
from sfumato.privacy.units import first_rows_of_units
from sfumato.privacy.unprotected import Unprotected
from sfumato.progress import Progress, quiet
from sfumato.release import Release
from sfumato.schema import Schema
from sfumato.synthesizers import Synthesizer, method_named
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
    table of this schema that nobody need protect, for a warm start; the certificate states the assumption.

    Guarantees: the release is (epsilon, delta)-differentially private for one row, or for one unit of the
    schema's unit column, given that the schema is public. A ``seed`` repeats the noise: such a release protects nobody.

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
    progress: Progress = quiet,
) -> Release:
    """NO PRIVACY: fit to exact sums and plain gradients, as a ceiling in benchmarks of private fits.

    Never hand out what this returns, nor rows drawn from it: either may repeat rows of the table. The certificate says
    so (epsilon infinite, "not for release"). This is no option of ``fit``: no switch turns privacy off.
    """
    method = method_named(method)() if isinstance(method, str) else method
    asked = Budget(epsilon=50.0, delta=default_delta(schema.rows))  # the form wants one; nothing is charged against it
    source = Randomness.from_os() if seed is None else Randomness.from_seed(seed)
    return fit_through(Unprotected, table, schema, method=method, budget=asked, randomness=source, progress=progress)


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
    """The fit through given doors; through any but the curator's own, the certificate says "not for release"."""
    unit: dict[str, Any] = {} if schema.unit is None else {"unit": schema.unit.column, "max_rows": schema.unit.max_rows}
    ledger = Ledger(budget, Adjacency(relation=method.relation, **unit))
    arrow, kind = to_arrow(table)
    if faults := check_columns(arrow, schema):
        raise TableError("; ".join(faults))
    open_table = public_table(public, schema, method)
    kept = first_rows(arrow, schema)
    given: dict[str, Any] = {"ledger": ledger, "randomness": randomness, "public_size": schema.rows}
    curator = doors(unknown_rows(kept, schema), texts=unknown_texts(kept, schema), progress=progress, **given)
    known = learn(curator, schema, learning, budget.delta)
    open_rows = public_rows(open_table, known)
    held = curator.holding(private_rows(kept, known), open_rows, units_of(kept, schema))
    model = method.fit(held, layout_of(known, learnt=schema.learnt))
    told = {"method": method.name, "settings": method.settings(), "declared_rows": schema.rows} | statement(open_rows)
    bought = {"learnt": list(schema.learnt), "learning": asdict(learning)} if schema.learnt else {}
    source = randomness if doors is Curator else replace(randomness, source="known")
    return Release(model=model, schema=known, certificate=certify(ledger, source, told | bought), kind=kind)


def private_rows(table: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
    """What the curator holds: the cells of each row, after the cap on rows of one unit."""
    cells = encode_features(first_rows(table, schema), schema)
    return {"low": cells.low.astype(np.float32), "width": cells.width.astype(np.float32)}


def first_rows(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows that the cap on rows of one unit keeps: all of them where there is no unit."""
    codes = units_of(table, schema)  # rows without an id count as one unit
    cap = 1 if schema.unit is None else schema.unit.max_rows
    return table if codes is None else table.filter(pa.array(first_rows_of_units(codes, cap)))
