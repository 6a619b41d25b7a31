"""Demo: the whole way from a table to synthetic rows, on data that are public.

The RAND health insurance experiment ships inside the statsmodels package. Only because it is public may this
file print statistics of the real rows, and use a drafted schema that no person has reviewed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato.cli.console import brief_certificate, listing, say
from sfumato.cli.outputs import write_bytes
from sfumato.encoding.places import canonicalise
from sfumato.errors import ArgumentError
from sfumato.pipeline import fit
from sfumato.progress import Progress
from sfumato.release import Release
from sfumato.schema import Schema, draft
from sfumato.table import read_file, write_file

NAMES = {
    "data": "randhie.csv",
    "schema": "randhie-schema.toml",
    "model": "randhie-model.safetensors",
    "synthetic": "randhie-synthetic.csv",
    "scores": "randhie-scores.csv",
}
_EPSILON = 1.0
_NUM_SCORED = 5


@dataclass(frozen=True, kw_only=True)
class Results:
    """What the demo made, and where it lies."""

    files: dict[str, Path]
    release: Release
    means: tuple[tuple[str, float, float], ...]
    scores: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe fields."""
        return {
            "files": {name: str(path) for name, path in self.files.items()},
            "certificate": self.release.certificate.to_dict(),
            "means": [{"column": name, "real": real, "synthetic": made} for name, real, made in self.means],
            "scores": list(self.scores),
        }

    def parts(self) -> list[Any]:
        """Tables for a person."""
        means = [(name, f"{real:.3f}", f"{made:.3f}") for name, real, made in self.means]
        title = "Column means (the real ones may be shown because these data are public)"
        files = [(name, path) for name, path in self.files.items()]
        return [
            listing(title, ("column", "real", "synthetic"), means),
            brief_certificate(self.release.certificate),
            listing("Results", ("what", "where"), files),
        ]

    def next_steps(self) -> str:
        """What to do with a table of one's own."""
        return (
            "Rare levels and far tails are the weak side of every private method. See docs/sharp_edges.md.\n"
            f"Next: 'sfumato show {self.files['model']}' shows the whole certificate. For a table of your own:\n"
            "  sfumato draft DATA -o schema.toml      then review every guess by hand\n"
            "  sfumato check DATA --schema schema.toml\n"
            "  sfumato fit DATA --schema schema.toml --epsilon 1 -o model.safetensors\n"
            "  sfumato sample model.safetensors -o synthetic.parquet\n"
            "  sfumato report --real DATA --synthetic synthetic.parquet --model model.safetensors -o report.html"
        )


def run(folder: Path, progress: Progress) -> Results:
    """Take the table, draft, fit, sample and score, telling each step."""
    table = _health_insurance()
    files = {name: folder / file for name, file in NAMES.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"output {str(folder)!r}: {(error.strerror or 'cannot be created').lower()}") from None
    say("1. The RAND health insurance experiment, 20,190 rows, a public table.")
    write_file(table, files["data"])
    say("2. A schema, drafted from the rows. This demo uses the draft unreviewed, because the table is public:")
    say("   a real run must not; a person replaces every guess by what is known without the rows.")
    schema = _drafted(files)
    say(f"3. A fit at epsilon {_EPSILON:g}. This is the part that takes a minute or two.")
    release = fit(files["data"], schema, epsilon=_EPSILON, progress=progress)
    release.save(files["model"])
    say("4. Synthetic rows, as many as the schema declares, and the likelihood of a few real ones.")
    synthetic = release.sample_arrow(schema.rows or 1_000, progress=progress)
    write_file(synthetic, files["synthetic"])
    scores = release.log_prob(table.slice(0, _NUM_SCORED))
    write_file(pa.table({"log_prob": scores}), files["scores"])
    means = _means(canonicalise(table, schema), synthetic)
    return Results(files=files, release=release, means=means, scores=tuple(float(score) for score in scores))


def _health_insurance() -> pa.Table:
    try:
        from statsmodels.datasets import randhie
    except ImportError:
        raise ArgumentError("The demo's table is in statsmodels: pip install 'sfumato[demo]'.") from None
    frame = randhie.load_pandas().data
    return pa.table({str(name): pa.array(frame[name].to_numpy()) for name in frame.columns})


def _drafted(files: dict[str, Path]) -> Schema:
    proposal = draft(read_file(files["data"]))
    write_bytes(proposal.to_toml().encode(), files["schema"])
    return proposal.schema


def _means(real: pa.Table, synthetic: pa.Table) -> tuple[tuple[str, float, float], ...]:
    rows = []
    for field in synthetic.schema:
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            pair = (np.nanmean(side.column(field.name).to_numpy().astype(float)) for side in (real, synthetic))
            rows.append((field.name, *(float(mean) for mean in pair)))
    return tuple(rows)
