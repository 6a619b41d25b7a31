"""Workload: how well counting questions over several columns are answered by the synthetic rows.

Which questions are asked follows from the schema and the seed of the comparison, never from a row.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sfumato.checks import whole
from sfumato.evaluation.comparison import Comparison
from sfumato.evaluation.metric import Measurement, Metric, Part
from sfumato.evaluation.metrics.binning import bin_columns, count, join
from sfumato.evaluation.metrics.divergence import total_variation
from sfumato.evaluation.metrics.queries import answer, draw_query
from sfumato.evaluation.metrics.subsets import choose_subsets

SUBSETS = 64
SUBSET_BINS = 8
QUERIES = 200
MOST_COLUMNS = 3

RANGE_QUERY_ERROR = Metric(
    name="range_query_error",
    title="Error of random range queries",
    direction="lower",
    range=(0, 1),
    scope="table",
    reference="In the manner of Zhang et al., PrivSyn, USENIX Security 2021 (mean absolute error of random range "
    "queries); here of one to three columns, with ranges and sets drawn from the schema",
    about="Of random questions such as how many are aged 30 to 40 and married: how far the answer of the synthetic "
    "table is from the real one, as a share of all rows; 0 is a perfect match.",
)


def kway(k: int = 3) -> Measurement:
    """The mean total variation distance of k-way marginals over up to 64 sets of columns; numbers in 8 public bins.

    Total variation is half the L1 distance of the shares.

    >>> kway(3).metrics[0].title
    '3-way total variation'
    """
    whole(1, k=k)
    metric = Metric(
        name="kway_error",
        title=f"{k}-way total variation",
        direction="lower",
        range=(0, 1),
        scope="table",
        reference="Zhang et al., PrivBayes, ACM TODS 42 (2017); numbers in 8 equal-width public bins",
        about=f"The share of rows that would have to move for the cross table of {k} columns to be equal, on average "
        f"over up to {SUBSETS} sets of columns; 0 is a perfect match, and two samples of the same people are not quite "
        "at 0 either.",
    )

    def run(comparison: Comparison) -> Mapping[str, Sequence[Part]]:
        names = [name for name, _ in comparison.schema.modelled]
        subsets = choose_subsets(names, k, SUBSETS, comparison.seed)
        cells = bin_columns(comparison, SUBSET_BINS)
        tables = (join(*(cells[name] for name in subset)) for subset in subsets)
        distances = [total_variation(*count(table)) for table in tables]
        return {metric.name: [Part(of=of, value=value) for of, value in zip(subsets, distances, strict=True)]}

    return Measurement(metrics=(metric,), run=run)


def _range_queries(comparison: Comparison) -> Mapping[str, Sequence[Part]]:
    random = np.random.default_rng(comparison.seed)
    most = min(MOST_COLUMNS, len(comparison.schema.modelled))
    parts = [_family(comparison, size, random) for size in range(1, most + 1)]
    return {RANGE_QUERY_ERROR.name: parts}


def _family(comparison: Comparison, size: int, random: np.random.Generator) -> Part:
    """The mean error of the queries of so many columns, with the largest beside it."""
    queries = [draw_query(comparison.schema, size, random) for _ in range(QUERIES)]
    errors = [abs(answer(comparison.real, query) - answer(comparison.synthetic, query)) for query in queries]
    words = "1 column" if size == 1 else f"{size} columns"
    return Part(of=(words,), value=float(np.mean(errors)), detail={"largest": max(errors), "queries": float(QUERIES)})


MEASUREMENTS: tuple[Measurement, ...] = (
    kway(3),
    Measurement(metrics=(RANGE_QUERY_ERROR,), run=_range_queries),
)
"""What is measured of several columns together. All rows are looked at."""
