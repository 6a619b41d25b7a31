"""Pipeline: from a private table to a certified release, the whole story on one screen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato.encoding.features import encode_features
from sfumato.encoding.layout import layout_of
from sfumato.encoding.texts import unit_codes
from sfumato.errors import TableError
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
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
    progress: Progress = quiet,
) -> Release:
    """Fit a differentially private model of a table and return it as a release.

    ``table`` is a pandas or polars frame, an Arrow table, a DuckDB relation, or the path of a CSV, Parquet or
    Arrow file. ``delta`` defaults to a tenth of one over the declared rows, at most 1e-6.

    Guarantees: the release is (epsilon, delta)-differentially private for one row, or for one unit of the
    schema's unit column, given that the schema is public. A ``seed`` makes the noise repeatable and the release
    worthless as protection: the certificate then says "not for release".

    >>> release = fit("patients.parquet", Schema.load("schema.toml"), epsilon=1.0)  # doctest: +SKIP
    """
    method = method_named(method)() if isinstance(method, str) else method
    budget = Budget(epsilon=epsilon, delta=default_delta(schema) if delta is None else delta)
    randomness = Randomness.from_os() if seed is None else Randomness.from_seed(seed)
    return fit_through(Curator, table, schema, method=method, budget=budget, randomness=randomness, progress=progress)


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
    asked = Budget(epsilon=50.0, delta=default_delta(schema))  # as the form wants one; nothing is charged against it
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
    progress: Progress = quiet,
) -> Release:
    """The fit through given doors: the curator's own, or those of an audit that watches the same fit from inside.

    Guarantees: through any doors but the curator's own, the certificate says "not for release".
    """
    adjacency = adjacency_of(schema, method)
    arrow, kind = to_arrow(table)
    faults = check_columns(arrow, schema)
    if faults:
        raise TableError("; ".join(faults))

    ledger = Ledger(budget, adjacency)
    rows = private_rows(arrow, schema)
    curator = doors(rows, ledger=ledger, randomness=randomness, public_size=schema.rows, progress=progress)
    model = method.fit(curator, layout_of(schema))
    public = {"method": method.name, "settings": method.settings(), "declared_rows": schema.rows}
    source = randomness if doors is Curator else replace(randomness, source="known")
    return Release(model=model, schema=schema, certificate=certify(ledger, source, public), kind=kind)


def private_rows(table: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
    """What the curator holds: the cells of each row, after the cap on rows of one unit."""
    if schema.unit is not None:
        codes = unit_codes(table.column(schema.unit.column))  # rows without an id count as one unit
        table = table.filter(pa.array(first_rows_of_units(codes, schema.unit.max_rows)))
    cells = encode_features(table, schema)
    return {"low": cells.low.astype(np.float32), "width": cells.width.astype(np.float32)}


def adjacency_of(schema: Schema, method: Synthesizer) -> Adjacency:
    """The neighbours that a fit protects: of the schema's unit, under the method's relation."""
    if schema.unit is None:
        return Adjacency(relation=method.relation)
    return Adjacency(relation=method.relation, unit=schema.unit.column, max_rows=schema.unit.max_rows)


def default_delta(schema: Schema) -> float:
    """A tenth of one over the declared rows, at most 1e-6: from public numbers only."""
    if schema.rows is None:
        return 1e-6
    return min(1e-6, 0.1 / schema.rows)
