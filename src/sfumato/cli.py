"""The command line: parses, calls, prints.

Exit codes: 0 done; 2 something a user can mend (arguments, schema, the form of a file), said in one line on
standard error; 70 a fault of sfumato; 130 stopped by the user. No traceback is ever shown unless the
environment variable SFUMATO_TRACEBACK is set, since a traceback can hold private values.
"""

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

import sfumato
from sfumato import demo as demonstration
from sfumato.console import (
    brief_certificate,
    certificate_parts,
    fail,
    listing,
    plain,
    print_json,
    print_rich,
    same,
    say,
    setting_text,
    watched,
)
from sfumato.errors import ArgumentError, SchemaError, SfumatoError, TableError
from sfumato.outputs import check_output, check_table_output, name_of, put_table, write_bytes
from sfumato.schema import Schema, is_unreviewed
from sfumato.settings import configured
from sfumato.table import check_columns, read_file

app = typer.Typer(
    name="sfumato",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A private table in, a certified generative model out.",
)

# Click lives inside Typer since 0.20 and beside it before; its usage error is the base of this one in both.
_USAGE: Any = typer.BadParameter.__mro__[2]

Data = Annotated[Path, typer.Argument(metavar="DATA", help="A table: .csv, .tsv (also .gz), .parquet or .arrow.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A release, as 'sfumato fit' wrote it.")]
SchemaFile = Annotated[Path, typer.Option("--schema", help="The public schema: .toml or .json.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; default: standard output.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    wants_traceback = bool(os.environ.get("SFUMATO_TRACEBACK"))
    with warnings.catch_warnings():
        # Warnings and logs of other libraries may quote cells.
        if not wants_traceback:
            warnings.simplefilter("ignore")
            logging.disable(logging.CRITICAL)
        try:
            return _run(arguments)
        except Exception as error:
            if wants_traceback:
                traceback.print_exc()
            fail(_last_words(error))
            return 70
        finally:
            logging.disable(logging.NOTSET)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="sfumato", standalone_mode=False)
    except SfumatoError as error:
        fail(str(error))
        return 2
    except _USAGE as error:
        fail(f"{error.format_message()} See '{_path_of(error)} --help'.")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    if code == 130:
        fail("stopped")
    return code if isinstance(code, int) else 0


def _path_of(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return "sfumato" if context is None else str(context.command_path)


def _last_words(error: Exception) -> str:
    # The type only: the message of a foreign error may hold a private value.
    if isinstance(error, MemoryError):
        return "not enough memory; use fewer rows, or a larger machine"
    return (
        f"unexpected {type(error).__name__}; this is a fault of sfumato, please report it "
        "(set SFUMATO_TRACEBACK=1 to see where, but a traceback can hold private values)"
    )


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        sys.stdout.write(f"sfumato {sfumato.__version__}\n")
    elif context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


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
    _warn_of_draft(schema)
    if faults:
        fail(f"{len(faults)} fault{'s' if len(faults) > 1 else ''} in {data} against {schema}: mend and check again")
    return 2 if faults else 0


def _warn_of_draft(schema: Path) -> None:
    if is_unreviewed(schema):
        say(
            f"WARNING: {schema} still has the heading of a draft, so it was read from private rows, and a certificate "
            "would assume that it was not. Review it, then remove the heading."
        )


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


@app.command()
def fit(
    data: Data,
    *,
    schema: SchemaFile,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The privacy budget.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write: a .safetensors file.")],
    delta: Annotated[
        float | None,
        typer.Option("--delta", help="The other half of the budget; default: from the declared rows, at most 1e-6."),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="See 'sfumato methods'.")] = "maf",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; repeatable.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="For tests only: the release will be marked 'not for release'.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Fit a differentially private model of a table and write it as a release."""
    check_output(output, force=force, suffixes=(".safetensors",))
    declared, config = Schema.load(schema), configured(method, settings or [])
    _warn_of_draft(schema)
    if seed is not None:
        say("WARNING: --seed makes the noise repeatable, so nobody is protected: this release is not for release.")
    with watched("reading, accounting and compiling", total_is_public=True) as progress:
        release = sfumato.fit(data, declared, method=config, epsilon=epsilon, delta=delta, seed=seed, progress=progress)
    release.save(output)
    if json:
        print_json({"model": str(output), "certificate": release.certificate.to_dict()})
    else:
        print_rich(brief_certificate(release.certificate))
        say(f"Written to {output}. Next: 'sfumato sample {output}', 'sfumato show {output}'.")


@app.command()
def sample(
    model: Model,
    *,
    rows: Annotated[
        int | None, typer.Option("--rows", "-n", help="How many; default: the rows declared in the schema.")
    ] = None,
    output: Output = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Draw the same rows each time.")] = None,
    raw_csv: Annotated[
        bool, typer.Option("--raw-csv", help="In CSV, leave cells that a spreadsheet would run as formulas.")
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Draw synthetic rows from a release. Needs no private data."""
    check_table_output(output, force=force)
    release = sfumato.load(model)
    count = release.schema.rows if rows is None else rows
    if count is None:
        raise ArgumentError("The schema declares no number of rows: say how many with -n.")
    with watched("sampling", total_is_public=True) as progress:
        table = release.sample_arrow(count, seed=seed, progress=progress)
    put_table(table, output, json=json, escape_formulas=not raw_csv, fields={"rows": count})


@app.command()
def score(
    model: Model,
    data: Data,
    *,
    output: Output = None,
    draws: Annotated[int, typer.Option("--draws", help="Points averaged over the cell of a discrete row.")] = 32,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write the log-likelihood of each row, in nats and in the units of the table, as column log_prob.

    Scores tell of the rows that are scored. The certificate does not cover them.
    """
    check_table_output(output, force=force)
    release = sfumato.load(model)
    with watched("scoring", total_is_public=False) as progress:
        scores = release.log_prob(data, draws=draws, progress=progress)
    say("Scores tell of the rows that were scored; the certificate does not cover them.")
    table = pa.table({"log_prob": pa.array(scores, pa.float64())})
    put_table(table, output, json=json, escape_formulas=True, fields={"unit": "nats"})


@app.command()
def show(model: Model, *, json: Json = False) -> int:
    """Show the certificate of a release, and derive its epsilon anew from what was charged."""
    release = sfumato.load(model)
    certificate = release.certificate
    with watched("accounting anew", total_is_public=True):
        rederived = certificate.rederive()
    protects = rederived < float("inf")
    agrees = same(rederived, certificate.epsilon)
    if json:
        stated = certificate.to_dict()
        found = {"rederived_epsilon": rederived if protects else "infinity", "agrees": agrees}
        print_json({"certificate": stated, **found, "schema": release.schema.to_dict()})
    else:
        print_rich(*certificate_parts(certificate, rederived))
    if not agrees:
        fail("the stated epsilon is not what its charges add up to: do not trust this release")
    return 0 if agrees else 2


@app.command()
def methods(*, json: Json = False) -> None:
    """List the methods: name, paper, what each can do, and its defaults."""
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "title": method.title,
            "paper": method.paper,
            "can": list(method.can),
            "relation": method().relation.value,
            "defaults": method().settings(),
        }
        for name, method in sorted(sfumato.REGISTRY.items())
    ]
    if json:
        print_json({"methods": found})
        return
    for entry in found:
        heading = f"{entry['name']}: {entry['title']}\n{entry['paper']}; can {', '.join(entry['can'])}"
        defaults = [(name, setting_text(value)) for name, value in entry["defaults"].items()]
        print_rich(listing(heading, ("setting", "default"), defaults))


@app.command()
def demo(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the results.")] = Path("demo-output"),
    json: Json = False,
) -> None:
    """Run the whole way on a public table: the RAND health insurance experiment, 20,190 rows."""
    with watched("starting", total_is_public=True) as progress:
        results = demonstration.run(output, progress)
    if json:
        print_json(results.to_dict())
    else:
        print_rich(*results.parts())
        say(results.next_steps())


if __name__ == "__main__":
    sys.exit(main())
