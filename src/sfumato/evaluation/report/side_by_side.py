"""Side by side: several releases judged on the same real rows, on one page."""

import math
from collections.abc import Mapping, Sequence

from sfumato.errors import ArgumentError
from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.metric import Metric, Score
from sfumato.evaluation.report.certificate import promised, status
from sfumato.evaluation.report.definitions import definitions_section
from sfumato.evaluation.report.groups import group_of, ordered
from sfumato.evaluation.report.markup import brief_name, element, name, paragraphs, scrolling, text
from sfumato.evaluation.report.numbers import better_text, distance, range_text, score_text
from sfumato.evaluation.report.overview import metric_name, value_text
from sfumato.evaluation.report.page import Section, whole_page

_BEST = element("span", "★ best", class_="best")


def comparison_page(
    evaluations: Mapping[str, Evaluation],
    *,
    title: str = "Synthetic tables side by side",
    made_at: str | None = None,
) -> str:
    """Metrics as rows and releases as columns; the best of each row is marked with a star and a word.

    Privacy: none, as of a report: the page is for whoever may see the real rows.

    >>> page = comparison_page({"epsilon 1": first, "epsilon 4": second})       # doctest: +SKIP
    """
    if not evaluations:
        raise ArgumentError("A comparison page needs at least one evaluation.")
    _check_same_rows(evaluations)
    metrics = [score.metric for score in _union(evaluations)]
    sections: list[Section] = [
        ("overview", "Overview", _compared(evaluations) + _table(evaluations)),
        ("columns", "Columns", _by_column(evaluations)),
        ("certificates", "Certificates", _certificates(evaluations)),
        ("reading", "How to read", definitions_section(metrics)),
    ]
    return whole_page(title, sections, made_at=made_at)


def _check_same_rows(evaluations: Mapping[str, Evaluation]) -> None:
    shapes = {
        (evaluation.comparison.real.num_rows, tuple(evaluation.comparison.real.table.column_names))
        for evaluation in evaluations.values()
    }
    if len(shapes) > 1:
        raise ArgumentError("A comparison page needs the same real rows and columns in every evaluation.")


def _union(evaluations: Mapping[str, Evaluation]) -> list[Score]:
    """The first score of each metric, over all evaluations."""
    found: dict[str, Score] = {}
    for evaluation in evaluations.values():
        for score in evaluation.scores:
            found.setdefault(score.metric.name, score)
    return list(found.values())


def _compared(evaluations: Mapping[str, Evaluation]) -> str:
    comparison = next(iter(evaluations.values())).comparison
    words = f"{comparison.real.num_rows:,} real rows, {len(comparison.schema.modelled):,} columns. "
    words += "The best value of each line is marked with a star and the word; where all read the same, none is."
    first = comparison.real.table
    other = [each for each, evaluation in evaluations.items() if not evaluation.comparison.real.table.equals(first)]
    said = [element("p", text(words), class_="lead")]
    if other:
        listed = ", ".join(name(each) for each in other)
        said.append(
            element("p", f"Their schemas read the real rows differently from the first: {listed}.", class_="warning")
        )
    return "".join(said)


def best(metric: Metric, values: Sequence[float | None]) -> set[int]:
    """The places of the values nearest to a perfect copy; none where there is nothing to choose from.

    >>> metric = Metric(name="x", title="X", direction="higher", range=(0, 1), scope="table", reference="")
    >>> best(metric, [0.5, 0.9, None]), best(metric, [0.5, 0.5]), best(metric, [0.5])
    ({1}, set(), set())
    """
    # As precise as it is shown: what reads the same is the same.
    far = {place: distance(metric, round(value, 3)) for place, value in enumerate(values) if value is not None}
    least = min(far.values(), default=math.inf)
    chosen = {place for place, gap in far.items() if gap <= least}
    return chosen if len(far) > 1 and len(chosen) < len(far) else set()


def _head(first: Sequence[str], evaluations: Mapping[str, Evaluation]) -> str:
    words = [element("th", word, scope="col") for word in first]
    releases = [element("th", name(each), scope="col", class_="number") for each in evaluations]
    return element("thead", element("tr", *words, *releases))


def _table(evaluations: Mapping[str, Evaluation]) -> str:
    keys = list(dict.fromkeys(key for evaluation in evaluations.values() for key, _ in ordered(evaluation)))
    bodies = []
    for key in keys:
        listed = [score for each in evaluations.values() for score in each.groups.get(key, ())]
        metrics = {score.metric.name: score.metric for score in listed}
        title = element("th", text(group_of(key).title), scope="rowgroup", colspan=3 + len(evaluations))
        rows = "".join(_row(metric, evaluations) for metric in metrics.values())
        bodies.append(element("tbody", element("tr", title, class_="group") + rows))
    table = element("table", _head(("Metric", "Better", "Range"), evaluations), *bodies, class_="metrics")
    return scrolling(table, "All metrics of all releases")


def _row(metric: Metric, evaluations: Mapping[str, Evaluation]) -> str:
    found = [_found(evaluation, metric.name) for evaluation in evaluations.values()]
    marked = best(metric, [None if score is None else score.value for score in found])
    used = {score.rows for score in found if score is not None and score.applies}
    shared = next(iter(used)) if len(used) == 1 else ""
    cells = [
        element("th", metric_name(metric), _note(shared), scope="row"),
        element("td", text(better_text(metric)), class_="better"),
        element("td", range_text(metric), class_="keep"),
    ]
    for place, score in enumerate(found):
        star = _BEST + " " if place in marked else ""
        cells.append(_cell(score, star, rows=len(used) > 1))
    return element("tr", *cells)


def _cell(score: Score | None, star: str, *, rows: bool) -> str:
    if score is None or score.value is None:
        return element("td", "not measured" if score is None else value_text(score), class_="number quiet")
    failed = f"{len(score.failures)} of {len(score.parts)} failed" if score.failures else ""
    return element("td", star, value_text(score), _note(failed), _note(score.rows if rows else ""), class_="number")


def _note(words: str) -> str:
    return element("span", text(words), class_="cell-note") if words else ""


def _found(evaluation: Evaluation, metric: str) -> Score | None:
    return next((score for score in evaluation.scores if score.metric.name == metric), None)


def _by_column(evaluations: Mapping[str, Evaluation]) -> str:
    """For each metric of columns, the value of each column in each release."""
    tables: list[str] = []
    for metric in (score.metric for score in _union(evaluations) if score.metric.scope == "column"):
        values = []
        for evaluation in evaluations.values():
            score = _found(evaluation, metric.name)
            values.append({part.of[0]: part.value for part in score.parts if len(part.of) == 1} if score else {})
        columns = [name_ for name_, _ in next(iter(evaluations.values())).comparison.schema.modelled]
        rows = [
            _column_row(metric, column, [found.get(column) for found in values])
            for column in columns
            if any(column in found for found in values)
        ]
        table = element("table", _head(("Column",), evaluations), element("tbody", *rows), class_="metrics")
        summary = element("summary", metric_name(metric), " ", text(f"({better_text(metric)})"))
        tables.append(
            element("details", summary, scrolling(table, f"{metric.title} by column"), open=not tables or None)
        )
    return "".join(tables) if tables else paragraphs("No metric of single columns was computed.")


def _column_row(metric: Metric, column: str, values: Sequence[float | None]) -> str:
    marked = best(metric, values)
    cells = [
        element("td", _BEST + " " if place in marked else "", score_text(value), class_="number")
        for place, value in enumerate(values)
    ]
    return element("tr", element("th", brief_name(column), scope="row"), *cells)


def _certificates(evaluations: Mapping[str, Evaluation]) -> str:
    """The promises side by side, and loudly each that is none."""
    releases = {each: evaluation.comparison.release for each, evaluation in evaluations.items()}
    promises = {each: promised(release.certificate) if release else {} for each, release in releases.items()}
    labels = list(dict.fromkeys(label for found in promises.values() for label in found))
    if not labels:
        return paragraphs("No release was given, so there are no certificates to show.")
    loud = "".join(
        element("h3", name(each)) + status(release.certificate)
        for each, release in releases.items()
        if release and release.certificate.status == "not for release"
    )
    rows = "".join(
        element(
            "tr",
            element("th", label, scope="row"),
            *(element("td", text(found.get(label, "no release was given"))) for found in promises.values()),
        )
        for label in labels
    )
    heads = [
        element("th", element("span", "Fact", class_="unseen"), scope="col"),
        *(element("th", name(each), scope="col") for each in evaluations),
    ]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", rows), class_="plain wide")
    return loud + scrolling(table, "Certificates")
