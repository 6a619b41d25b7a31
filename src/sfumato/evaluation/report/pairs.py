"""Pairs: heat maps of what is known of each pair of columns, and the pairs that differ most."""

from collections.abc import Sequence

from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.metric import Part, Score
from sfumato.evaluation.report.charts.heatmap import heat_map, scale
from sfumato.evaluation.report.charts.svg import round_up
from sfumato.evaluation.report.groups import group_of
from sfumato.evaluation.report.markup import brief_name, element, scrolling, text
from sfumato.evaluation.report.numbers import better_text, distance, score_text
from sfumato.evaluation.report.overview import failures, metric_name, value_text

_MOST_COLUMNS, _MOST_PAIRS = 60, 15


def pairs_section(evaluation: Evaluation) -> str:
    """For each metric of pairs: its maps, and its largest differences."""
    order = [column for column, _ in evaluation.comparison.schema.modelled]
    scores = [score for score in evaluation.scores if score.metric.scope == "pair"]
    scores.sort(key=lambda score: score.metric.name != group_of("pairs").headline)
    shown = [_pairs(score, order) for score in scores if score.value is not None]
    silent = [score for score in scores if score.value is None]
    said = "".join(element("p", f"{metric_name(score.metric)}: {text(score.text)}.") for score in silent)
    return "".join(shown) + said if scores else element("p", "No metric of pairs was computed.")


def _pairs(score: Score, order: Sequence[str]) -> str:
    metric = score.metric
    parts = [part for part in score.parts if part.value is not None and len(part.of) == 2]
    if not parts:
        return ""
    names, note = _chosen(score, parts, order)
    head = f"Mean {value_text(score)}; {better_text(metric)}. {metric.about}"
    worst = _worst(score, parts)
    return element(
        "div",
        element("h3", metric_name(metric)),
        element("p", text(head), class_="lead"),
        element("p", text(note), class_="note") if note else "",
        element("p", text(score.rows), class_="note") if score.rows else "",
        element("div", *(_maps(score, parts, names) if len(names) > 2 else []), worst, class_="maps"),
        element("details", element("summary", f"{len(score.failures):,} pairs failed"), failures(score))
        if score.failures
        else "",
        class_="pair-metric",
        id=f"pair-{metric.name}",
    )


def _chosen(score: Score, parts: Sequence[Part], order: Sequence[str]) -> tuple[list[str], str]:
    """The columns of the map: all that have pairs, or the worst of them where there are too many."""
    far: dict[str, list[float]] = {}
    for part in parts:
        for column in part.of:
            far.setdefault(column, []).append(distance(score.metric, part.value or 0.0))
    present = [column for column in order if column in far]
    if len(present) <= _MOST_COLUMNS:
        return present, ""
    rank = sorted(present, key=lambda column: -sum(far[column]) / len(far[column]))
    kept = set(rank[:_MOST_COLUMNS])
    note = f"The map shows {_MOST_COLUMNS} of {len(present):,} columns: those whose pairs are the worst on average."
    return [column for column in present if column in kept], note


def _maps(score: Score, parts: Sequence[Part], names: Sequence[str]) -> list[str]:
    kept = set(names)
    inside = [part for part in parts if set(part.of) <= kept]
    pairs = [(part.of[0], part.of[1]) for part in inside]
    both = [part for part in inside if {"real", "synthetic"} <= part.detail.keys()]
    if not both:
        values = {pair: part.value or 0.0 for pair, part in zip(pairs, inside, strict=True)}
        return [_map(score.metric.title, score.metric.title, names, values)]
    real = {(part.of[0], part.of[1]): part.detail["real"] for part in both}
    synthetic = {(part.of[0], part.of[1]): part.detail["synthetic"] for part in both}
    gap = {pair: synthetic[pair] - real[pair] for pair in real}
    most = round_up(max(abs(value) for value in (*real.values(), *synthetic.values())))
    title = score.metric.title
    return [
        _map("Real rows", f"{title} in the real rows", names, real, most),
        _map("Synthetic rows", f"{title} in the synthetic rows", names, synthetic, most),
        _map("Synthetic less real", f"{title}, synthetic less real", names, gap),
    ]


def _map(
    caption: str,
    words: str,
    names: Sequence[str],
    values: dict[tuple[str, str], float],
    most: float | None = None,
) -> str:
    top = most or round_up(max(abs(value) for value in values.values()))
    drawn = scrolling(heat_map(f"Heat map: {words}.", names, values, top), words)
    return element("figure", element("figcaption", text(caption), " ", scale(top)), drawn, class_="map")


def _worst(score: Score, parts: Sequence[Part]) -> str:
    metric = score.metric
    ranked = sorted(parts, key=lambda part: -distance(metric, part.value or 0.0))[:_MOST_PAIRS]
    both = all({"real", "synthetic"} <= part.detail.keys() for part in ranked)
    heads = ("Column", "Column", *(("Real", "Synthetic") if both else ()), "Value")
    rows = []
    for part in ranked:
        numbers = [part.detail["real"], part.detail["synthetic"]] if both else []
        cells = [element("th", brief_name(of), scope="row") for of in part.of]
        cells += [element("td", score_text(value), class_="number") for value in (*numbers, part.value)]
        rows.append(element("tr", *cells))
    head = "".join(element("th", word, scope="col", class_=None if word == "Column" else "number") for word in heads)
    table = element("table", element("thead", element("tr", head)), element("tbody", *rows), class_="worst")
    title = f"Largest differences ({len(ranked)} of {len(parts):,} pairs)"
    return element("div", element("h4", title), scrolling(table, f"{metric.title}: {title}"), class_="worst-box")
