"""Detections: the commands that flag unlikely rows, with a released density or by asking a private detector."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

import sfumato
from sfumato.checks import between
from sfumato.cli.app import app
from sfumato.cli.console import facts, print_json, print_rich, say, setting_text, watched
from sfumato.cli.options import Data, Force, Json, Model, Output, SchemaFile
from sfumato.cli.outputs import check_table_output, put_table
from sfumato.cli.schemas import warn_of_draft
from sfumato.encoding.texts import texts_of
from sfumato.errors import ArgumentError, TableError
from sfumato.progress import Progress
from sfumato.release import Release
from sfumato.schema import Schema
from sfumato.table import read_file

_SURE, _ROWS_A_MEMBER = 0.9, 50
"""Below these a new detector is warned of: both are public, from the settings and the declared size."""
_TRUE, _FALSE = ("true", "1", "yes", "anomaly"), ("false", "0", "no", "normal")


@app.command()
def detect(
    model: Model,
    data: Data,
    *,
    threshold: Annotated[float | None, typer.Option("--threshold", help="Flag rows whose score is above.")] = None,
    share: Annotated[
        float | None, typer.Option("--share", help="Flag as the least likely share of the release's own rows.")
    ] = None,
    labelled: Annotated[
        Path | None, typer.Option("--labelled", help="PUBLIC rows with labels, to find the threshold on.")
    ] = None,
    labels: Annotated[str, typer.Option("--labels", help="The column of labels in the labelled rows.")] = "anomaly",
    output: Output = None,
    draws: Annotated[int, typer.Option("--draws", help="Points averaged over the cell of a discrete row.")] = 32,
    force: Force = False,
    json: Json = False,
) -> None:
    """Flag unlikely rows: columns score (minus the log-likelihood) and anomaly (score above the threshold).

    The threshold is given, or from rows drawn from the release (--share, default 0.01), or from public labelled
    rows. Scores and flags tell of the rows that are scored. The certificate does not cover them.
    """
    if sum(given is not None for given in (threshold, share, labelled)) > 1:
        raise ArgumentError("detect: give one of --threshold, --share and --labelled.")
    if threshold is not None:
        between(-1e300, 1e300, threshold=threshold)
    check_table_output(output, force=force)
    release = sfumato.load(model)
    with watched("scoring", total_is_public=False) as progress:
        if labelled is not None:
            threshold = _from_labels(release, labelled, labels, draws, progress)
        elif threshold is None:
            share = 0.01 if share is None else share
            threshold = release.anomaly_threshold(share, draws=draws, progress=progress)
        scores = release.anomaly_scores(data, draws=draws, progress=progress)
    say("Scores and flags tell of the rows that were scored; the certificate does not cover them.")
    say(f"Rows with a score above {threshold:.6g} are flagged.")
    flags = ~(scores <= threshold)  # what is no number is flagged
    table = pa.table({"score": pa.array(scores, pa.float64()), "anomaly": pa.array(flags)})
    put_table(table, output, json=json, escape_formulas=True, fields={"threshold": threshold})


def _from_labels(release: Release, path: Path, column: str, draws: int, progress: Progress) -> float:
    rows, labels = labelled_rows(read_file(path), release.schema, column)
    found = release.anomaly_threshold_from(rows, labels, draws=draws, progress=progress)
    say(
        f"On the public labelled rows it catches {found.true_positives:.1%} of anomalies "
        f"and flags {found.false_positives:.1%} of normal rows."
    )
    return found.threshold


def labelled_rows(table: pa.Table, schema: Schema, column: str) -> tuple[pa.Table, Any]:
    """The rows without the column of labels, unless the schema has it, and the labels."""
    if column not in table.column_names:
        raise TableError(f"column {column!r}: missing from the labelled rows; name the column of labels with --labels")
    fault = f"column {column!r}: labels must be true or false, 1 or 0, yes or no, anomaly or normal"
    texts = texts_of(table.column(column))
    if texts is None:
        raise TableError(fault)
    words = pc.utf8_lower(texts)
    if not pc.all(pc.fill_null(pc.is_in(words, pa.array([*_TRUE, *_FALSE], words.type)), False)).as_py():
        raise TableError(fault)
    flags = pc.is_in(words, pa.array(list(_TRUE), words.type))
    rows = table if column in schema.columns else table.drop_columns([column])
    return rows, np.asarray(flags.to_numpy(zero_copy_only=False), np.bool_)


@app.command("build-detector")
def build_detector(
    data: Data,
    *,
    schema: SchemaFile,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The budget of all answers together.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A new folder, for its owner alone.")],
    delta: Annotated[float | None, typer.Option("--delta", help="Default: from the declared rows.")] = None,
    charges: Annotated[
        int, typer.Option("--charges", help="Into how many the budget is cut: questions, or anomalies found.")
    ] = 1_000,
    way: Annotated[
        str, typer.Option("--way", help="vote: every question is charged; sparse: every anomaly that is found.")
    ] = "vote",
    members: Annotated[int, typer.Option("--members", help="Members that vote, each on its own part.")] = 100,
    kind: Annotated[str, typer.Option("--kind", help="What members are: mixture or flow.")] = "mixture",
    components: Annotated[int, typer.Option("--components", help="Of each mixture.")] = 8,
    share: Annotated[
        float | None, typer.Option("--share", help="Of its own rows that a member calls anomalies; 0.01 unless given.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="A public score above which rows are anomalies.")
    ] = None,
    json: Json = False,
) -> None:
    """Train members on disjoint parts of a table: a detector whose noisy answers are private (DP-AD).

    Members are trained without privacy: the folder is as private as the rows and is never a release. Only answers of
    'sfumato ask-detector' may leave, all of them together within the budget.
    """
    from sfumato.detection import Detector, FlowMembers, MixtureMembers

    if kind not in ("mixture", "flow"):
        raise ArgumentError(f"Expected kind={kind!r} to be 'mixture' or 'flow'.")
    if way not in ("vote", "sparse"):
        raise ArgumentError(f"Expected way={way!r} to be 'vote' or 'sparse'.")
    declared = Schema.load(schema)
    warn_of_draft(schema)
    given: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "charges": charges,
        "way": way,
        "members": members,
        "training": MixtureMembers(components=components) if kind == "mixture" else FlowMembers(),
        "share": share,
        "threshold": threshold,
    }
    with watched("reading", total_is_public=True) as progress:
        detector = Detector.fit(data, declared, output, **given, progress=progress)
    _tell(detector, output, json=json)
    if detector.sureness() < _SURE:
        say("Noise will often turn answers round: raise --epsilon or --members, or take fewer --charges.")
    if declared.rows is not None and declared.rows < _ROWS_A_MEMBER * members:
        say(f"Members see fewer than {_ROWS_A_MEMBER} of the declared rows each and may call most rows anomalies.")
    say(f"Written to {output}. It holds private members: never pass it on, copy it or restore it from a backup.")


@app.command("ask-detector")
def ask_detector(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="As 'sfumato build-detector' wrote it.")],
    data: Annotated[Path | None, typer.Argument(metavar="ROWS", help="Rows to ask about; default: none.")] = None,
    *,
    output: Output = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Ask a detector about rows: column anomaly, empty where nothing was left. Without rows, say what is left.

    The charge is on the disk before an answer is given. The rows that are asked about are not protected.
    """
    from sfumato.detection import Detector

    check_table_output(output, force=force)
    detector = Detector.load(folder)
    if data is None:
        _tell(detector, folder, json=json)
        return
    rows = read_file(data)
    answers = detector.ask(rows)
    if answers.refused:
        say("The budget is spent: the last rows got no answer.")
    say(f"Charges left: {answers.left:,}.")
    table = pa.table({"anomaly": pa.array(answers.flags, pa.bool_())})
    fields = {"left": answers.left, "refused": answers.refused}
    put_table(table, output, json=json, escape_formulas=True, fields=fields)


def _tell(detector: Any, folder: Path, *, json: bool) -> None:
    found = detector.facts()
    if json:
        print_json({"detector": str(folder), **found})
    else:
        words = {name.replace("_", " "): setting_text(value) for name, value in found.items()}
        print_rich(facts("Detector", words))
