"""Details: the sections of the groups that look at the whole table, part by part."""

import math
from collections.abc import Sequence

from sfumato.errors import SfumatoError
from sfumato.evaluation.comparison import Comparison
from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.metric import Part, Score
from sfumato.evaluation.metrics.density import ANOMALY_AUROC, anomaly_curve
from sfumato.evaluation.report.charts.curve import curve_chart
from sfumato.evaluation.report.charts.dots import Dot, dots_chart
from sfumato.evaluation.report.charts.gauge import gauge_chart
from sfumato.evaluation.report.groups import group_of
from sfumato.evaluation.report.markup import brief_name, element, paragraphs, scrolling, text
from sfumato.evaluation.report.numbers import better_text, distance, score_text
from sfumato.evaluation.report.overview import failures, metric_name, value_text

_MOST_DOTS, _MOST_ROWS = 24, 15
_ACRONYMS = {"auroc": "AUROC", "mse": "MSE", "f1": "F1", "r2": "R²"}
_FLAGS = ("held_out",)
_TESTED = {
    True: "Real rows were held out for the test.",
    False: "No rows were held out, so the test rows are among those that the model was fitted to.",
}


def details_section(evaluation: Evaluation, key: str) -> str:
    """One block a score: value, words, and a dot for each part."""
    group = group_of(key)
    warning = element("p", text(group.warning), class_="warning") if group.warning else ""
    scores = evaluation.groups[key]
    need = "" if any(score.applies for score in scores) else group.need
    return paragraphs(group.question, need, class_="lead") + warning + _blocks(evaluation, scores)


def details_of(evaluation: Evaluation, key: str) -> str:
    """The same for the metrics of columns or of pairs that look at the whole table; empty where there are none."""
    scores = [score for score in evaluation.groups.get(key, ()) if score.metric.scope == "table"]
    return element("h3", "Over the whole table") + _blocks(evaluation, scores) if scores else ""


def _blocks(evaluation: Evaluation, scores: Sequence[Score]) -> str:
    drawn = element("div", *(_block(evaluation, score) for score in scores if score.applies), class_="blocks")
    silent = ", ".join(metric_name(score.metric) for score in scores if not score.applies)
    return drawn + (element("p", f"Does not apply to these tables: {silent}.", class_="note") if silent else "")


def _block(evaluation: Evaluation, score: Score) -> str:
    metric = score.metric
    parts = [part for part in score.parts if part.value is not None]
    head = element(
        "div",
        element("h3", metric_name(metric)),
        element("p", value_text(score), class_="value" if score.value is not None else "value absent"),
        gauge_chart(metric, score.value),
        class_="block-head",
    )
    said = paragraphs(metric.about, class_="about") + paragraphs(" ".join(_notes(score)), class_="note")
    failed = ""
    if score.failures:
        summary = element("summary", f"{len(score.failures):,} of {len(score.parts):,} failed")
        failed = element("details", summary, failures(score), class_="failed", open=True)
    curve = _curve(evaluation.comparison) if metric.name == ANOMALY_AUROC.name and parts else ""
    return element(
        "article", head, said, curve, _parts(score, parts), failed, class_="block", id=f"metric-{metric.name}"
    )


def _notes(score: Score) -> list[str]:
    """Direction, the same with real rows, rows used, rows tested on."""
    notes = [better_text(score.metric).capitalize() + "."]
    real = [part.detail["real"] for part in score.parts if part.value is not None and "real" in part.detail]
    if real:
        notes.append(f"Trained on real rows instead: {score_text(sum(real) / len(real))} on average.")
    tested = {part.detail["held_out"] for part in score.parts if "held_out" in part.detail}
    notes += [_TESTED[bool(held_out)] for held_out in sorted(tested)]
    return [*notes, score.rows.capitalize() + "."] if score.rows else notes


def _parts(score: Score, parts: list[Part]) -> str:
    if score.metric.scope != "table":
        where = {"column": "columns", "pair": "pairs"}[score.metric.scope]
        return element("p", "Drawn under ", element("a", where, href=f"#{where}"), ".", class_="note")
    if len(parts) < 2 and not any("real" in part.detail for part in parts):
        return _table(score, parts) if any(part.detail.keys() - set(_FLAGS) for part in parts) else ""
    if len(parts) > _MOST_DOTS:
        return _table(score, parts)
    dots = [
        Dot(name=" × ".join(part.of), value=part.value or 0.0, real=_finite(part.detail.get("real"))) for part in parts
    ]
    others = {key for part in parts for key in part.detail} - {"real", *_FLAGS}
    return element("figure", dots_chart(score.metric, dots)) + (_table(score, parts) if others else "")


def _curve(comparison: Comparison) -> str:
    try:
        found = anomaly_curve(comparison)
    except SfumatoError as error:
        return paragraphs(f"No curve: {error}", class_="note")
    points = list(zip(found.false_positive, found.true_positive, strict=True))
    return element("figure", curve_chart("Anomalies found against ordinary rows flagged, at every threshold.", points))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _head(key: str) -> str:
    """The name of a detail for a reader.

    >>> _head("auroc"), _head("real_mse"), _head("standard_error")
    ('AUROC', 'Real MSE', 'Standard error')
    """
    words = [_ACRONYMS.get(word, word) for word in key.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def _detail(value: float | None) -> str:
    """A number that goes with a value; a count has no decimals."""
    if value is not None and abs(value) > 1 and float(value).is_integer():
        return f"{value:,.0f}"
    return score_text(_finite(value))


def _table(score: Score, found: list[Part]) -> str:
    """Each part with its value and what else it tells; of many parts the worst."""
    many = len(found) > _MOST_DOTS
    worst = sorted(found, key=lambda part: -distance(score.metric, part.value or 0.0))
    parts = worst[:_MOST_ROWS] if many else found
    extra = list(dict.fromkeys(key for part in parts for key in part.detail if key not in _FLAGS))
    heads = ("Part", "Value", *(_head(word) for word in extra))
    head = "".join(
        element("th", text(word), scope="col", class_="number" if place else None) for place, word in enumerate(heads)
    )
    rows = [
        element(
            "tr",
            element("th", " × ".join(brief_name(of) for of in part.of), scope="row"),
            *(
                element("td", words, class_="number")
                for words in (score_text(part.value), *(_detail(part.detail.get(key)) for key in extra))
            ),
        )
        for part in parts
    ]
    cut = element("h4", f"The {len(parts)} worst of {len(found):,}") if many else ""
    table = element("table", element("thead", element("tr", head)), element("tbody", *rows), class_="parts")
    return cut + scrolling(table, f"{score.metric.title}: parts")
