"""Columns: how like the real ones the synthetic columns are, each looked at alone."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sfumato.evaluation.comparison import Comparison
from sfumato.evaluation.metric import Measurement, Metric, Part
from sfumato.evaluation.metrics.binning import bin_column, count
from sfumato.evaluation.metrics.divergence import (
    frequency_test,
    homogeneity_test,
    jensen_shannon,
    kolmogorov_smirnov,
    total_variation,
)

KS_COMPLEMENT = Metric(
    name="ks_complement",
    title="Kolmogorov-Smirnov complement",
    direction="higher",
    range=(0, 1),
    scope="column",
    reference="SDMetrics, KSComplement; Massey, J. Am. Stat. Assoc. 46 (1951)",
    about="For numbers and dates: one minus the largest gap between the two cumulative curves; 1 means that the "
    "present values are spread alike, 0 that the tables share no range of values.",
)
RANGE_COVERAGE = Metric(
    name="range_coverage",
    title="Range coverage",
    direction="higher",
    range=(0, 1),
    scope="column",
    reference="SDMetrics, RangeCoverage",
    about="How much of the span from the least to the largest real number the synthetic numbers reach; 1 is all of it, "
    "but a private copy has good reason not to reach the extreme rows.",
)
CHI_SQUARE_P = Metric(
    name="chi_square_p",
    title="Chi-square p-value on frequencies",
    direction="higher",
    range=(0, 1),
    scope="column",
    reference="SDMetrics, CSTest",
    about="A chi-square figure of levels that published tables report; it runs on frequencies and not on counts, so it "
    "is near 1 for nearly every method and hardly tells them apart.",
)
CHI_SQUARE_COUNTS_P = Metric(
    name="chi_square_counts_p",
    title="Chi-square p-value on counts",
    direction="higher",
    range=(0, 1),
    scope="column",
    reference="Agresti, Categorical Data Analysis (2013), section 3.2",
    about="The two-sample chi-square test of levels: how likely a gap as large as this is if both tables came from one "
    "source; near 0 means that they differ, and with many rows the smallest difference suffices for that.",
)
TV_COMPLEMENT = Metric(
    name="tv_complement",
    title="Total variation complement",
    direction="higher",
    range=(0, 1),
    scope="column",
    reference="SDMetrics, TVComplement",
    about="For levels: the share of present rows that need not change their level for the two tables to have the same "
    "shares; 1 means equal shares.",
)
CATEGORY_COVERAGE = Metric(
    name="category_coverage",
    title="Category coverage",
    direction="higher",
    range=(0, 1),
    scope="column",
    reference="SDMetrics, CategoryCoverage",
    about="Of the levels that occur in the real rows, the share that synthetic rows have too; 1 is all of them.",
)
TV_BINNED = Metric(
    name="tv_binned",
    title="One-way total variation",
    direction="lower",
    range=(0, 1),
    scope="column",
    reference="Zhang et al., PrivBayes, ACM TODS 42 (2017), with 20 equal-width public bins",
    about="The share of rows that would have to move for the column to be spread alike, on levels or on 20 bins of "
    "the public bounds, missing being one more cell; 0 is a perfect match.",
)
JENSEN_SHANNON = Metric(
    name="jensen_shannon",
    title="Jensen-Shannon distance",
    direction="lower",
    range=(0, 1),
    scope="column",
    reference="Endres, Schindelin, IEEE Trans. Inf. Theory 49 (2003): square root of the divergence in bits",
    about="How well one row could tell the two tables apart, on the same cells as the total variation; 0 means not at "
    "all, 1 always. It minds rare cells more than the total variation does.",
)
MISSING_SIMILARITY = Metric(
    name="missing_similarity",
    title="Missing value similarity",
    direction="higher",
    range=(0, 1),
    scope="column",
    reference="SDMetrics, MissingValueSimilarity",
    about="For columns that may be empty: one minus the difference of the shares of missing cells; 1 means that "
    "as many are missing.",
)


def _ks_complement(comparison: Comparison, name: str) -> Part:
    real, synthetic = (side.numbers[name] for side in (comparison.real, comparison.synthetic))
    distance = kolmogorov_smirnov(real[~np.isnan(real)], synthetic[~np.isnan(synthetic)])
    return Part(of=(name,), value=1 - distance)


def _range_coverage(comparison: Comparison, name: str) -> Part:
    real, synthetic = (side.numbers[name] for side in (comparison.real, comparison.synthetic))
    low, high = float(np.nanmin(real)), float(np.nanmax(real))
    if low == high:
        return Part(of=(name,), failure="constant column in the real table, so that it has no span")
    short = max(float(np.nanmin(synthetic)) - low, 0.0) / (high - low)
    short += max(high - float(np.nanmax(synthetic)), 0.0) / (high - low)
    return Part(of=(name,), value=max(1 - short, 0.0))


def _chi_square_p(comparison: Comparison, name: str) -> Part:
    return Part(of=(name,), value=frequency_test(*count(bin_column(comparison, name))))


def _chi_square_counts_p(comparison: Comparison, name: str) -> Part:
    return Part(of=(name,), value=homogeneity_test(*count(bin_column(comparison, name))))


def _tv_complement(comparison: Comparison, name: str) -> Part:
    real, synthetic = count(bin_column(comparison, name))
    return Part(of=(name,), value=1 - total_variation(real[:-1], synthetic[:-1]))


def _category_coverage(comparison: Comparison, name: str) -> Part:
    real, synthetic = (cells[:-1] > 0 for cells in count(bin_column(comparison, name)))
    return Part(of=(name,), value=float((real & synthetic).sum() / real.sum()))


def _tv_binned(comparison: Comparison, name: str) -> Part:
    return Part(of=(name,), value=total_variation(*count(bin_column(comparison, name))))


def _jensen_shannon(comparison: Comparison, name: str) -> Part:
    return Part(of=(name,), value=jensen_shannon(*count(bin_column(comparison, name))))


def _missing_similarity(comparison: Comparison, name: str) -> Part:
    real, synthetic = (float(side.missing(name).mean()) for side in (comparison.real, comparison.synthetic))
    return Part(of=(name,), value=1 - abs(real - synthetic), detail={"real": real, "synthetic": synthetic})


Figure = Callable[[Comparison, str], Part]


def _present(figure: Figure, *, sides: Sequence[str] = ("real", "synthetic")) -> Figure:
    """The same figure, with a plain failure where a table has no present value in the column."""

    def guarded(comparison: Comparison, name: str) -> Part:
        for side in sides:
            if getattr(comparison, side).missing(name).all():
                return Part(of=(name,), failure=f"no present value in the {side} table")
        return figure(comparison, name)

    return guarded


Columns = Callable[[Comparison], Sequence[str]]


def _measurement(columns: Columns, figures: Sequence[tuple[Metric, Figure]]) -> Measurement:
    def run(comparison: Comparison) -> Mapping[str, Sequence[Part]]:
        names = columns(comparison)
        return {metric.name: [figure(comparison, name) for name in names] for metric, figure in figures}

    return Measurement(metrics=tuple(metric for metric, _ in figures), run=run)


def _all(comparison: Comparison) -> Sequence[str]:
    return [name for name, _ in comparison.schema.modelled]


def _nullable(comparison: Comparison) -> Sequence[str]:
    return [name for name, column in comparison.schema.modelled if column.nullable]


MEASUREMENTS: tuple[Measurement, ...] = (
    _measurement(
        lambda comparison: comparison.numeric,
        ((KS_COMPLEMENT, _present(_ks_complement)), (RANGE_COVERAGE, _present(_range_coverage))),
    ),
    _measurement(
        lambda comparison: comparison.discrete,
        (
            (TV_COMPLEMENT, _present(_tv_complement)),
            (CHI_SQUARE_P, _chi_square_p),
            (CHI_SQUARE_COUNTS_P, _chi_square_counts_p),
            # No synthetic level at all covers nothing, which is a value and no failure.
            (CATEGORY_COVERAGE, _present(_category_coverage, sides=("real",))),
        ),
    ),
    _measurement(_all, ((TV_BINNED, _tv_binned), (JENSEN_SHANNON, _jensen_shannon))),
    _measurement(_nullable, ((MISSING_SIMILARITY, _missing_similarity),)),
)
"""What is measured of single columns. All rows are looked at."""
