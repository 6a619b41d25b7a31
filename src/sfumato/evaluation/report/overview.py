"""Overview: what was compared, one tile a group, and the table of all metrics."""

from sfumato.evaluation.comparison import Comparison
from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.metric import Metric, Score
from sfumato.evaluation.report.certificate import status
from sfumato.evaluation.report.charts.gauge import gauge_chart
from sfumato.evaluation.report.groups import group_of, headline, ordered
from sfumato.evaluation.report.markup import brief_name, element, first_sentence, name, paragraphs, scrolling, text
from sfumato.evaluation.report.numbers import better_text, range_text, score_text
from sfumato.release import Certificate
from sfumato.release.wording import number

_SCOPES = {"column": "columns", "pair": "pairs", "table": "table"}


def overview(evaluation: Evaluation, certificate: Certificate | None) -> str:
    """The first section of the page."""
    alarm = status(certificate) if certificate is not None and certificate.status == "not for release" else ""
    tiles = "".join(_tile(key, scores) for key, scores in ordered(evaluation))
    return (
        alarm
        + _compared(evaluation.comparison, certificate)
        + element("h3", "At a glance")
        + element("p", "One figure of each group; all of them are in the table below.", class_="lead")
        + element("div", tiles, class_="tiles")
        + element("h3", "All metrics")
        + metric_table(evaluation)
        + _failed(evaluation)
    )


def _compared(comparison: Comparison, certificate: Certificate | None) -> str:
    numeric, discrete = len(comparison.numeric), len(comparison.discrete)
    facts = [
        ("Real rows", _side(comparison, "real", "that the model was fitted to")),
        ("Synthetic rows", _side(comparison, "synthetic", "that are judged")),
        ("Held-out rows", _side(comparison, "holdout", "real, and never seen by the model")),
        ("Anomalies", _side(comparison, "anomalies", "that a density should find unlikely")),
        ("Columns", f"{numeric + discrete:,}: {numeric:,} of numbers or dates, {discrete:,} of levels"),
        ("Target of prediction", name(comparison.target) if comparison.target else "none"),
        ("Certificate", _certified(certificate)),
        ("Seed of the metrics", f"{comparison.seed}"),
    ]
    pairs = "".join(element("div", element("dt", term) + element("dd", said)) for term, said in facts if said)
    return element("dl", pairs, class_="facts")


def _certified(certificate: Certificate | None) -> str:
    if certificate is None:
        return "none: no release was given"
    stated = text(f"epsilon {number(certificate.epsilon)}, delta {certificate.delta:g}; {certificate.status}")
    return element("a", stated, href="#certificate")


def _side(comparison: Comparison, which: str, role: str) -> str:
    side = getattr(comparison, which)
    if side is None:
        return "none were given" if which == "holdout" else ""
    file = comparison.names.get(which)
    return f"{side.num_rows:,} {role}" + (f", from {name(file)}" if file else "")


def _tile(key: str, scores: tuple[Score, ...]) -> str:
    group, score = group_of(key), headline(key, scores)
    more = len(scores) - 1
    need = group.need if not any(score.applies for score in scores) else ""
    parts = [
        element("h4", element("a", text(group.title), href=f"#{key}")),
        element("p", text(score.metric.title), class_="metric-title"),
        element("p", value_text(score), class_="value" if score.value is not None else "value absent"),
        gauge_chart(score.metric, score.value),
        element("p", text(first_sentence(score.metric.about) or better_text(score.metric)), class_="about"),
        paragraphs(first_sentence(group.warning), need, class_="more"),
        element("p", failure_text(scores), class_="failed") if failure_text(scores) else "",
        element("p", f"and {more} more in this group", class_="more") if more else "",
    ]
    return element("article", *parts, class_="tile", id=f"tile-{key}")


def value_text(score: Score) -> str:
    """The mean of a score, or that there is none."""
    return score_text(score.value) if score.value is not None else text(score.text)


def failure_text(scores: tuple[Score, ...]) -> str:
    """How many parts of a group failed; empty where none did.

    >>> failure_text(())
    ''
    """
    failed = sum(len(score.failures) for score in scores)
    return f"{failed:,} of {sum(len(score.parts) for score in scores):,} failed" if failed else ""


def metric_table(evaluation: Evaluation) -> str:
    """Every metric with its value, its direction, its range, what it looks at and which rows it used."""
    heads = ("Metric", "Value", "Better", "Range", "Looks at", "Parts", "Rows")
    head = "".join(
        element("th", word, scope="col", class_="number" if word in ("Value", "Parts") else None) for word in heads
    )
    bodies = []
    for key, scores in ordered(evaluation):
        title = element("th", text(group_of(key).title), scope="rowgroup", colspan=len(heads))
        rows = "".join(_row(score) for score in scores)
        bodies.append(element("tbody", element("tr", title, class_="group") + rows))
    table = element("table", element("thead", element("tr", head)), *bodies, class_="metrics")
    return scrolling(table, "All metrics")


def _row(score: Score) -> str:
    metric = score.metric
    cells = [
        element("th", metric_name(metric), scope="row"),
        element("td", value_text(score), class_="number"),
        element("td", text(better_text(metric))),
        element("td", range_text(metric), class_="keep"),
        element("td", _SCOPES[metric.scope]),
        element("td", _parts(score), class_="number quiet"),
        element("td", text(score.rows or "all rows") if score.applies else "–"),
    ]
    return element("tr", *cells, class_=None if score.value is not None else "absent")


def _parts(score: Score) -> str:
    if not score.applies:
        return "none"
    failed = len(score.failures)
    if not failed:
        return f"{len(score.parts):,}"
    return element(
        "a", f"{failed:,} of {len(score.parts):,} failed", href=f"#failed-{score.metric.name}", class_="failed"
    )


def _failed(evaluation: Evaluation) -> str:
    """Every failure with its reason, metric by metric."""
    failed = [score for score in evaluation.scores if score.failures]
    folds = [
        element(
            "details",
            element("summary", metric_name(score.metric), f" {len(score.failures):,} of {len(score.parts):,}"),
            failures(score),
            id=f"failed-{score.metric.name}",
        )
        for score in failed
    ]
    return element("h3", "What failed") + "".join(folds) if folds else ""


def failures(score: Score, most: int = 50) -> str:
    """What failed and why; a long list is cut, and says so."""
    shown = [
        f"{' and '.join(brief_name(of) for of in part.of)}: {text(part.failure)}" for part in score.failures[:most]
    ]
    if len(score.failures) > most:
        shown.append(f"and {len(score.failures) - most:,} more")
    return element("ul", *(element("li", line) for line in shown))


def metric_name(metric: Metric) -> str:
    """The title of a metric with the name that programs use."""
    return f"{text(metric.title)} {element('code', text(metric.name))}"
