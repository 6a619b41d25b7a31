"""Schemas: the commands that propose a schema and check a table against it."""

import sys
from pathlib import Path

import sfumato
from sfumato.cli.app import app
from sfumato.cli.console import fail, plain, print_json, say, watched
from sfumato.cli.options import Data, Force, Json, Output, SchemaFile
from sfumato.cli.outputs import check_output, name_of, write_bytes
from sfumato.errors import SchemaError, TableError
from sfumato.schema import Schema, is_unreviewed
from sfumato.table import check_columns, read_file


@app.command()
def draft(data: Data, *, output: Output = None, force: Force = False, json: Json = False) -> None:
    """Propose a schema from the rows, for a person to review.

    What it holds was read from private rows without noise: no guarantee covers it until every guess has been
    replaced by what is public anyway.
    """
    check_output(output, force=force, suffixes=(".toml",))
    with watched("reading the rows", total_is_public=False):
        proposal = sfumato.draft(read_file(data))
    text = proposal.to_toml()
    say("DRAFT: read from private rows. Review every guess before any fit:")
    for guess in proposal.guesses:
        say(f"  {plain(guess)}")
    if output is not None:
        write_bytes(text.encode(), output)
    if json:
        fields = {"schema": proposal.schema.to_dict(), "guesses": list(proposal.guesses), "status": "unreviewed draft"}
        print_json({**fields, "written": name_of(output)})
    elif output is None:
        sys.stdout.write(text)
    else:
        say(f"Written to {output}. Next: review it, then 'sfumato check {data} --schema {output}'.")


@app.command()
def check(data: Data, *, schema: SchemaFile, json: Json = False) -> int:
    """List every fault of a schema and of the form of a file.

    Rows are not judged: a value that the schema does not know is read as the schema says (clamped, other, or
    missing), and neither refused nor counted.
    """
    with watched("checking", total_is_public=False):
        faults = _faults(data, schema)
    if json:
        print_json({"ok": not faults, "faults": faults})
    elif not faults:
        sys.stdout.write("no faults\n")
    else:
        sys.stdout.write("".join(f"{plain(fault)}\n" for fault in faults))
    warn_of_draft(schema)
    if faults:
        fail(f"{len(faults)} fault{'s' if len(faults) > 1 else ''} in {data} against {schema}: mend and check again")
    return 2 if faults else 0


def _faults(data: Path, schema: Path) -> list[str]:
    faults: list[str] = []
    declared = table = None
    try:
        declared = Schema.load(schema)
    except SchemaError as error:
        faults += error.faults
    try:
        table = read_file(data)
    except TableError as error:
        faults.append(str(error))
    if declared is not None and table is not None:
        faults += check_columns(table, declared)
    return faults


def warn_of_draft(schema: Path) -> None:
    """Say so where a schema is still as it was drafted."""
    if is_unreviewed(schema):
        say(
            f"WARNING: {schema} still has the heading of a draft, so it was read from private rows, and a certificate "
            "would assume that it was not. Review it, then remove the heading."
        )
