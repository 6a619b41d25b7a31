"""Options: the arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path, typer.Argument(metavar="DATA", help="A table: .csv, .tsv (also .gz), .parquet or .arrow.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A release, as 'sfumato fit' wrote it.")]
SchemaFile = Annotated[Path, typer.Option("--schema", help="The public schema: .toml or .json.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; default: standard output.")]
