"""Releases: the commands that fit, sample, score and show, and the demonstration."""

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

import sfumato
from sfumato.cli import demo as demonstration
from sfumato.cli.app import app
from sfumato.cli.console import (
    brief_certificate,
    certificate_parts,
    fail,
    listing,
    place_parts,
    print_json,
    print_rich,
    same,
    say,
    setting_text,
    watched,
)
from sfumato.cli.options import Data, Force, Json, Model, Output, SchemaFile
from sfumato.cli.outputs import check_output, check_table_output, put_table
from sfumato.cli.schemas import warn_of_draft
from sfumato.cli.settings import configured
from sfumato.errors import ArgumentError
from sfumato.schema import Schema


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
    method: Annotated[str, typer.Option("--method", help="See 'sfumato methods'.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; repeatable.")
    ] = None,
    learn_share: Annotated[
        float, typer.Option("--learn-share", help="The share of the budget for columns with learn = true, together.")
    ] = sfumato.Learning().share,
    public: Annotated[
        Path | None,
        typer.Option("--public", help="A table with the same schema that nobody need protect, to start from."),
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
    learning = sfumato.Learning(share=learn_share)
    warn_of_draft(schema)
    if seed is not None:
        say("WARNING: --seed makes the noise repeatable, so nobody is protected: this release is not for release.")
    with watched("reading, accounting and compiling", total_is_public=True) as progress:
        given: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "seed": seed,
            "public": public,
            "progress": progress,
        }
        release = sfumato.fit(data, declared, method=config, learning=learning, **given)
    release.save(output)
    if json:
        print_json({"model": str(output), "certificate": release.certificate.to_dict()})
    else:
        print_rich(brief_certificate(release.certificate))
        say(f"Written to {output}. Next: 'sfumato show {output}', 'sfumato sample {output} -o synthetic.parquet'.")


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
    say(f"Each is {release.likelihood(draws)}.")
    table = pa.table({"log_prob": pa.array(scores, pa.float64())})
    put_table(
        table, output, json=json, escape_formulas=True, fields={"unit": "nats", "likelihood": release.likelihood(draws)}
    )


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
        print_rich(*certificate_parts(certificate, rederived), *place_parts(release.schema))
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
            "paper": method.reference,
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
