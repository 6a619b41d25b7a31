"""Definitions: how to read the page, and what each metric is."""

from collections.abc import Iterable

from sfumato.evaluation.metric import Metric
from sfumato.evaluation.report.markup import element, paragraphs, text
from sfumato.evaluation.report.numbers import better_text, range_text
from sfumato.evaluation.report.overview import metric_name

_READING = (
    "Hatched or a hollow square is real, an outline or a solid dot is synthetic, on every drawing.",
    "A score is the mean of its parts: columns, pairs, folds or classifiers. A part that could not be computed is "
    "counted as failed, left out of the mean, and always told.",
    "Large tables are sampled for the costly metrics. Where that was done, the number of rows stands beside the score.",
    "Random samples and models of the metrics follow the stated seed, so that the same tables give the same page.",
    "Noise that protects people also moves these figures. How far is acceptable depends on what the rows are for.",
)


def definitions_section(metrics: Iterable[Metric]) -> str:
    """Advice on reading, then each metric in words with where it comes from."""
    reading = element("ul", *(element("li", text(line)) for line in _READING))
    entries = "".join(
        element("div", element("dt", metric_name(metric), id=f"about-{metric.name}"), element("dd", _entry(metric)))
        for metric in metrics
    )
    return reading + element("h3", "Metrics") + element("dl", entries, class_="definitions")


def _entry(metric: Metric) -> str:
    source = f" Reference: {metric.reference}." if metric.reference else ""
    words = f"Range {range_text(metric)}; {better_text(metric)}.{source}"
    return paragraphs(metric.about) + element("p", text(words), class_="note")
