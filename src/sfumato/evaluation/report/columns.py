"""Columns: a card for each column, with its distributions, a summary and its metrics."""

import numpy as np

from sfumato.evaluation.comparison import Comparison, Sample
from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.metric import Part, Score
from sfumato.evaluation.report.charts.bars import bars_chart
from sfumato.evaluation.report.charts.histogram import histogram_chart
from sfumato.evaluation.report.charts.svg import swatch
from sfumato.evaluation.report.distribution import histogram_of, levels_of
from sfumato.evaluation.report.groups import group_of
from sfumato.evaluation.report.markup import element, name, short, text
from sfumato.evaluation.report.numbers import bounds, distance, quantity_text, score_text, share_text
from sfumato.schema import Modelled, kind_of

_TOOLS = """
<div class="tools" hidden>
<label>Find a column <input type="search" id="find-column" autocomplete="off" spellcheck="false"></label>
<label>Order <select id="order-columns">
<option value="order">as in the schema</option>
<option value="distance">worst first</option>
<option value="name">by name</option>
</select></label>
<p id="found-columns" role="status"></p>
</div>
"""


def columns_section(evaluation: Evaluation) -> str:
    """All cards, in the order of the schema; a script adds a search and other orders."""
    key = element("p", swatch("real"), "real rows", swatch("synthetic"), "synthetic rows", class_="key")
    said = "Shares of all present values. Numbers are drawn between the public bounds of the schema, or zoomed."
    by_column = _parts_by_column(evaluation)
    cards = "".join(
        _card(evaluation.comparison, place, column, spec, by_column.get(column, []))
        for place, (column, spec) in enumerate(evaluation.comparison.schema.modelled)
    )
    return element("p", said, class_="lead") + key + _TOOLS + element("div", cards, class_="cards", id="column-cards")


def _parts_by_column(evaluation: Evaluation) -> dict[str, list[tuple[Score, Part]]]:
    found: dict[str, list[tuple[Score, Part]]] = {}
    for score in evaluation.scores:
        if score.metric.scope == "column":
            for part in score.parts:
                if len(part.of) == 1:
                    found.setdefault(part.of[0], []).append((score, part))
    return found


def _card(comparison: Comparison, place: int, column: str, spec: Modelled, parts: list[tuple[Score, Part]]) -> str:
    drawn, notes = _drawing(comparison, column, spec)
    said = "".join(element("p", text(note)) for note in notes)
    figure = element("figure", drawn, element("figcaption", said) if said else "")
    return element(
        "article",
        element("h3", name(column), " ", element("span", text(_domain(comparison, column, spec)), class_="kind")),
        figure,
        _summary(comparison, column, spec),
        _metrics(parts),
        class_="card column",
        id=f"column-{place}",
        data_name=column,
        data_order=place,
        data_distance=f"{_badness(parts):.6f}",
    )


def _badness(parts: list[tuple[Score, Part]]) -> float:
    """How far a column is from a perfect copy: by the metric that stands for columns, else by the mean of all."""
    far = {score.metric.name: distance(score.metric, part.value) for score, part in parts if part.value is not None}
    chosen = far.get(group_of("columns").headline)
    return chosen if chosen is not None else sum(far.values()) / max(len(far), 1)


def _drawing(comparison: Comparison, column: str, spec: Modelled) -> tuple[str, list[str]]:
    title = short(column, 80)
    if column in comparison.discrete:
        return bars_chart(title, levels_of(comparison, column)), []
    return histogram_chart(title, spec, histogram_of(comparison, column))


def _domain(comparison: Comparison, column: str, spec: Modelled) -> str:
    if column in comparison.discrete:
        return f"{kind_of(spec)}, {comparison.num_levels(column):,} levels"
    low, high = (quantity_text(end, spec) for end in bounds(spec))
    return f"{kind_of(spec)}, {low} to {high}"


def _summary(comparison: Comparison, column: str, spec: Modelled) -> str:
    sides = (comparison.real, comparison.synthetic)
    if column in comparison.discrete:
        rows = [
            ("Levels in use", *(f"{len(np.unique(side.codes[column][side.codes[column] >= 0])):,}" for side in sides))
        ]
    else:
        found = [_quantiles(side, column, spec) for side in sides]
        rows = [(word, found[0][word], found[1][word]) for word in found[0]]
    if spec.nullable:
        rows.append(("Missing", *(share_text(float(np.mean(side.missing(column)))) for side in sides)))
    head = "".join(
        [
            element("th", element("span", "Summary", class_="unseen"), scope="col"),
            element("th", swatch("real"), "Real", scope="col", class_="number"),
            element("th", swatch("synthetic"), "Synthetic", scope="col", class_="number"),
        ]
    )
    body = "".join(
        element("tr", element("th", word, scope="row"), *(element("td", text(cell), class_="number") for cell in cells))
        for word, *cells in rows
    )
    return element("table", element("thead", element("tr", head)), element("tbody", body), class_="mini")


def _quantiles(side: Sample, column: str, spec: Modelled) -> dict[str, str]:
    values = side.numbers[column]
    present = values[~np.isnan(values)]
    words = ("5 % are below", "Median", "95 % are below")
    if not len(present):
        return dict.fromkeys(("Mean", *words), "–")
    found = np.quantile(present, [0.05, 0.5, 0.95], method="inverted_cdf")
    quantiles = {word: quantity_text(float(value), spec) for word, value in zip(words, found, strict=True)}
    # Scaled first: the sum of a few numbers near the end of the floats would be infinite.
    size = float(np.abs(present).max()) or 1.0
    return {"Mean": quantity_text(float((present / size).mean()) * size, spec), **quantiles}


def _value(score: Score, part: Part) -> tuple[str, ...]:
    if part.value is None:
        return (element("td", text(f"failed: {part.failure}"), class_="reason", colspan=2),)
    better = element("td", f"{score.metric.direction} is better", class_="soft")
    return element("td", score_text(part.value), class_="number"), better


def _metrics(parts: list[tuple[Score, Part]]) -> str:
    if not parts:
        return ""
    rows = "".join(
        element(
            "tr",
            element("th", text(score.metric.title), scope="row"),
            *_value(score, part),
        )
        for score, part in parts
    )
    head = "".join(
        element("th", element("span", word, class_="unseen"), scope="col") for word in ("Metric", "Value", "Better")
    )
    return element("table", element("thead", element("tr", head)), element("tbody", rows), class_="mini scores")
