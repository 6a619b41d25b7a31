"""Metrics: writes the table of metrics in docs/evaluation.md from what the metrics declare, for ``make results``."""

from pathlib import Path

from sfumato.evaluation import CATALOGUE, Measurement, Metric

PAGE = Path("docs/evaluation.md")
HEAD = "| group | metric | better | range | looks at | most rows | follows |"


def table() -> str:
    """One line a metric."""
    lines = [HEAD, "|" + " --- |" * 7]
    for group, measurements in CATALOGUE.items():
        for measurement in measurements:
            lines += [_line(group, measurement, metric) for metric in measurement.metrics]
    return "\n".join(lines)


def _line(group: str, measurement: Measurement, metric: Metric) -> str:
    low, high = ("-∞" if end == float("-inf") else "∞" if end == float("inf") else f"{end:g}" for end in metric.range)
    cap = "all" if measurement.cap is None else f"{measurement.cap:,}"
    name = f"`{metric.name}`: {metric.title}"
    return f"| {group} | {name} | {metric.direction} | {low} to {high} | {metric.scope} | {cap} | {metric.reference} |"


def with_table(text: str) -> str:
    """The page with its table of metrics made anew."""
    before, _, rest = text.partition("## The metrics\n\n")
    after = rest[rest.index("\n\n") :]
    return f"{before}## The metrics\n\n{table()}{after}"


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text()))


if __name__ == "__main__":
    main()
