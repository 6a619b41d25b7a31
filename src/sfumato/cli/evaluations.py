"""Evaluations: the commands that look at private rows to judge synthetic ones, and the audit, which needs no rows.

What is measured on private rows goes into a file that its owner alone can read, and never to the terminal.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import sfumato
from sfumato.cli.app import app
from sfumato.cli.console import fail, listing, print_json, print_rich, same, say, setting_text, watched
from sfumato.cli.options import Force, Json
from sfumato.cli.outputs import check_output
from sfumato.cli.settings import configured
from sfumato.errors import ArgumentError, ReleaseError
from sfumato.evaluation import Evaluation, evaluate, save_report
from sfumato.evaluation.report import NOT_PRIVATE, SUFFIXES
from sfumato.release import Release
from sfumato.release.wording import number, protected_words
from sfumato.schema import Schema
from sfumato.table import read_file

Page = Annotated[Path, typer.Option("--output", "-o", help="Where to write: .html for people, .json for programs.")]
Holdout = Annotated[
    Path | None, typer.Option("--holdout", help="Real rows that no model was fitted to: for utility and likelihood.")
]
Anomalies = Annotated[Path | None, typer.Option("--anomalies", help="Rows that a density should find unlikely.")]
Target = Annotated[
    str | None, typer.Option("--target", help="The column that utility predicts; default: the last of the schema.")
]


@app.command()
def report(
    *,
    real: Annotated[Path, typer.Option("--real", help="The rows that the model was fitted to.")],
    synthetic: Annotated[Path, typer.Option("--synthetic", help="Synthetic rows, as 'sfumato sample' wrote them.")],
    output: Page,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="The public schema; default: that of the release.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="The release: adds its certificate and its likelihoods.")
    ] = None,
    holdout: Holdout = None,
    anomalies: Anomalies = None,
    target: Target = None,
    seed: Annotated[int, typer.Option("--seed", help="Fixes samples and models of the metrics.")] = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write one page that shows how good a synthetic table is.

    The page is computed on private rows without noise: it is for whoever may see the rows, is readable by its
    owner alone (mode 0600), and is no part of the release.
    """
    check_output(output, force=force, suffixes=SUFFIXES)
    _check_extra()
    release = None if model is None else _load(model)
    declared = _schema(schema, release)
    tables = {"real": real, "synthetic": synthetic, "holdout": holdout, "anomalies": anomalies}
    names = {what: path.name for what, path in tables.items() if path is not None}
    with watched("reading", total_is_public=True) as progress:
        evaluation = evaluate(
            real,
            synthetic,
            declared,
            holdout=holdout,
            anomalies=anomalies,
            release=release,
            target=target,
            seed=seed,
            names=names,
            progress=progress,
        )
        progress("drawing the page", 0, 1)
        save_report(evaluation, output)
    _tell(output, json=json)


@app.command()
def compare(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Releases, as 'sfumato fit' wrote them.")],
    *,
    real: Annotated[
        Path | None, typer.Option("--real", help="Private rows to judge each release by; needs -o.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write: .html for people, .json for programs.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", "-n", help="Rows to draw from each; default: the declared rows.")
    ] = None,
    holdout: Holdout = None,
    target: Target = None,
    seed: Annotated[int, typer.Option("--seed", help="Fixes the rows drawn and the models of the metrics.")] = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Set several releases side by side.

    Without --real, their certificates, on the terminal: this needs no private rows. With --real, every metric of each
    on rows drawn from it, in a file that is as private as those rows.
    """
    if (real is None) != (output is None):
        raise ArgumentError("compare: --real and --output go together: what is measured on rows goes into a file.")
    check_output(output, force=force, suffixes=SUFFIXES)
    releases = _releases(models)
    if real is None or output is None:
        _show_certificates(releases, json=json)
        return
    _check_extra()
    with watched("reading", total_is_public=True) as progress:
        found: dict[str, Evaluation] = {}
        rows_real, rows_new = read_file(real), None if holdout is None else read_file(holdout)
        for name, release in releases.items():
            synthetic = release.sample_arrow(_rows(release, rows), seed=seed, progress=progress)
            given: dict[str, Any] = {"holdout": rows_new, "release": release, "target": target, "seed": seed}
            found[name] = evaluate(rows_real, synthetic, release.schema, **given, progress=progress)
    save_report(found, output)
    _tell(output, json=json)


@app.command()
def audit(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="See 'sfumato methods'.")],
    *,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The budget that is certified and attacked.")] = 4.0,
    delta: Annotated[float, typer.Option("--delta", help="The other half of the budget.")] = 1e-5,
    canaries: Annotated[int, typer.Option("--canaries", help="Canaries of each white-box attack.")] = 10_000,
    confidence: Annotated[float, typer.Option("--confidence", help="Of the whole audit.")] = 0.999,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; repeatable.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="More canaries and more pairs; takes long.")] = False,
    json: Json = False,
) -> int:
    """Attack a method and print a lower bound on its epsilon beside the certified one. Needs no data."""
    from sfumato.audit import audit as attack

    config = configured(method, settings or [])
    with watched("planting canaries", total_is_public=True) as progress:
        result = attack(
            config,
            epsilon=epsilon,
            delta=delta,
            canaries=canaries,
            confidence=confidence,
            full=full,
            progress=progress,
        )
    if json:
        print_json(result.to_dict())
    else:
        print_rich(*_findings(result))
        say(f"Confidence of the whole audit: {confidence:.3%}. That an attack does not refute a certificate proves")
        say("nothing; docs/audit.md says what each one can show.")
    if result.violated:
        fail(
            f"refuted: {'; '.join(_alarms(result))}. Run the audit again: an honest one alarms with probability "
            f"{1 - confidence:.2g}. If it alarms twice, do not release what this method made, and please report it"
        )
    return 70 if result.violated else 0


def _check_extra() -> None:
    """Say before anything is measured what detection and utility need."""
    try:
        import sklearn  # noqa: F401
        import xgboost  # noqa: F401
    except ImportError:
        raise ArgumentError(
            "A report needs scikit-learn and XGBoost: pip install 'sfumato[report]' (or '.[report]' in a checkout)."
        ) from None


def _schema(path: Path | None, release: Release | None) -> Schema:
    if path is not None:
        return Schema.load(path)
    if release is None:
        raise ArgumentError("Say how to read the tables: --schema SCHEMA, or --model MODEL to use its schema.")
    return release.schema


def _releases(models: list[Path]) -> dict[str, Release]:
    """Releases by the shortest names that tell them apart."""
    short = [path.stem for path in models]
    names = short if len(set(short)) == len(short) else [str(path) for path in models]
    if len(set(names)) < len(names):
        raise ArgumentError("compare: a release was named twice")
    return {name: _load(path) for name, path in zip(names, models, strict=True)}


def _load(path: Path) -> Release:
    """A release whose stated epsilon is what its charges add up to: no page repeats one that is not."""
    release = sfumato.load(path)
    if not same(release.certificate.rederive(), release.certificate.epsilon):
        raise ReleaseError(f"{str(path)!r}: the stated epsilon is not what its charges add up to; do not trust it")
    return release


def _rows(release: Release, rows: int | None) -> int:
    count = release.schema.rows if rows is None else rows
    if count is None:
        raise ArgumentError("A schema declares no number of rows: say how many with -n.")
    return count


def _tell(output: Path, *, json: bool) -> None:
    say(f"Written to {output}. {NOT_PRIVATE}")
    if json:
        print_json({"written": str(output), "private": True})


def _show_certificates(releases: Mapping[str, Release], *, json: bool) -> None:
    if json:
        print_json({name: release.certificate.to_dict() for name, release in releases.items()})
        return
    facts = {name: _facts(release) for name, release in releases.items()}
    labels = list(dict.fromkeys(label for found in facts.values() for label in found))
    rows = [(label, *(found.get(label, "") for found in facts.values())) for label in labels]
    print_rich(listing("Releases", ("", *facts), rows))


def _facts(release: Release) -> dict[str, str]:
    certificate = release.certificate
    public = certificate.public
    settings = public.get("settings")
    stated = {f"setting {name}": setting_text(value) for name, value in settings.items()} if settings else {}
    return {
        "status": certificate.status,
        "method": str(public.get("method")),
        "epsilon": number(certificate.epsilon),
        "delta": f"{certificate.delta:g}",
        "protected": protected_words(certificate),
        "columns": str(len(release.schema.columns)),
        "declared rows": setting_text(release.schema.rows),
        **stated,
    }


def _alarms(result: Any) -> list[str]:
    found = [finding.name.strip() for finding in result.findings if finding.violated]
    return [*found, *result.faults, *(["record-play"] if result.play.violations else [])]


def _findings(result: Any) -> list[Any]:
    rows = [
        (
            finding.name,
            number(finding.certified),
            f"{finding.lower:.3f}",
            f"{finding.ratio:.2f}",
            finding.verdict,
        )
        for finding in result.findings
    ]
    heads = ("attack", "certified", "shown", "ratio", "verdict")
    play = result.play
    checks = [
        ("record-play: pairs of neighbours", play.pairs),
        ("record-play: pairs skipped", play.skipped),
        ("record-play: violations", len(play.violations)),
        *(("record-play", violation) for violation in play.violations),
        ("doors: faults of charges or noise", len(result.faults)),
        *(("doors", fault) for fault in result.faults),
    ]
    return [
        listing("Canaries: what was shown beside what is certified", heads, rows),
        listing("Checks", ("what", "found"), checks),
    ]
