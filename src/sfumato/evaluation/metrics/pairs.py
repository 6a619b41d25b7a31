"""Pairs: whether columns go together in the synthetic table as they do in the real one, two at a time."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sfumato.evaluation.comparison import MISSING, Comparison, Floats, Sample
from sfumato.evaluation.metric import Measurement, Metric, Part
from sfumato.evaluation.metrics.binning import Binned, bin_column, bin_columns, count, join
from sfumato.evaluation.metrics.correlation import is_constant, kendall, pearson, product, ranks, spearman, unit
from sfumato.evaluation.metrics.divergence import cramers_v, total_variation
from sfumato.evaluation.metrics.subsets import choose_subsets
from sfumato.schema import Categorical

MOST_PAIRS = 5_000
"""A table with more pairs of columns is measured on so many, chosen by the seed."""

PEARSON_ROWS = 1_000_000
SPEARMAN_ROWS = 50_000
KENDALL_ROWS = 10_000

CORRELATION_SIMILARITY = Metric(
    name="correlation_similarity",
    title="Correlation similarity (Pearson)",
    direction="higher",
    range=(0, 1),
    scope="pair",
    reference="SDMetrics, CorrelationSimilarity",
    about="For pairs of numbers: one minus half the difference of the linear correlations; 1 means that they are as "
    "strong in both tables. Rows with a missing value of the pair do not count.",
)
SPEARMAN_SIMILARITY = Metric(
    name="spearman_similarity",
    title="Correlation similarity (Spearman)",
    direction="higher",
    range=(0, 1),
    scope="pair",
    reference="SDMetrics, CorrelationSimilarity with ranks",
    about="The same for correlations of ranks, which a few extreme values do not sway; 1 is best.",
)
KENDALL_TAU = Metric(
    name="kendall_tau",
    title="Difference of Kendall's tau",
    direction="lower",
    range=(0, 2),
    scope="pair",
    reference="Lee et al., DP-HFlow, table 1; Kendall's tau-b, Biometrika 33 (1945)",
    about="For pairs of numbers or ordered levels: how far apart the two tables are in how often both columns rise "
    "together; 0 is a perfect match.",
)
KENDALL_MAE = Metric(
    name="kendall_tau_mae",
    title="Kendall's tau matrices, mean absolute error",
    direction="lower",
    range=(0, 2),
    scope="table",
    reference="Lee et al., DP-HFlow, table 1, read as the mean over all entries, the diagonal included",
    about="The mean absolute difference of the two matrices of Kendall's tau between numeric columns, the diagonal of "
    "ones included; 0 is a perfect match.",
)
KENDALL_RMSE = Metric(
    name="kendall_tau_rmse",
    title="Kendall's tau matrices, root mean squared error",
    direction="lower",
    range=(0, 2),
    scope="table",
    reference="Lee et al., DP-HFlow, table 1, read as the mean over all entries, the diagonal included",
    about="The same matrices by the root of the mean squared difference, which minds a few large errors more; 0 is a "
    "perfect match.",
)
CRAMERS_V = Metric(
    name="cramers_v",
    title="Difference of Cramér's V",
    direction="lower",
    range=(0, 1),
    scope="pair",
    reference="Cramér, Mathematical Methods of Statistics (1946), section 21.9, without correction of bias",
    about="For pairs of levels: how far apart the two tables are in how much one column tells about the other; 0 is a "
    "perfect match. Rows with a missing value of the pair do not count.",
)
CONTINGENCY_SIMILARITY = Metric(
    name="contingency_similarity",
    title="Contingency similarity",
    direction="higher",
    range=(0, 1),
    scope="pair",
    reference="SDMetrics, ContingencySimilarity",
    about="For pairs of levels: the share of rows that need not move for the two cross tables to be equal, missing "
    "being one more level; 1 means equal.",
)
TV2_BINNED = Metric(
    name="tv2_binned",
    title="Two-way total variation",
    direction="lower",
    range=(0, 1),
    scope="pair",
    reference="Zhang et al., PrivBayes, ACM TODS 42 (2017), with 20 equal-width public bins",
    about="The share of rows that would have to move for the cross table of two columns to be equal, numbers in 20 "
    "bins of the public bounds, missing being one more cell; 0 is a perfect match.",
)

Coefficient = Callable[[Floats, Floats], float | None]
Units = Mapping[str, Floats]


def _values(rows: Sample, name: str) -> Floats:
    if name in rows.numbers:
        return rows.numbers[name]
    return np.where(rows.codes[name] == MISSING, np.nan, rows.codes[name].astype(np.float64))


def _sides(comparison: Comparison) -> tuple[tuple[str, Sample], ...]:
    return (("real", comparison.real), ("synthetic", comparison.synthetic))


def _coefficient(side: str, rows: Sample, pair: Sequence[str], coefficient: Coefficient) -> float | str:
    """The coefficient of the rows that have both values, or the reason why there is none."""
    left, right = (_values(rows, name) for name in pair)
    present = ~(np.isnan(left) | np.isnan(right))
    left, right = left[present], right[present]
    if len(left) < 2:
        return f"fewer than two rows of the {side} table have both values"
    for name, values in zip(pair, (left, right), strict=True):
        if is_constant(values):
            return f"{name!r} is constant in the {side} table where both values are present"
    value = coefficient(left, right)
    return value if value is not None and math.isfinite(value) else f"no finite coefficient in the {side} table"


def _gap(detail: Mapping[str, float]) -> float:
    return abs(detail["real"] - detail["synthetic"])


def _chosen(comparison: Comparison, names: Sequence[str]) -> tuple[tuple[tuple[str, ...], ...], list[Part]]:
    """The pairs to look at, and a part that says so where these are not all."""
    pairs = choose_subsets(names, 2, MOST_PAIRS, comparison.seed)
    total = math.comb(len(names), 2)
    if len(pairs) == total:
        return pairs, []
    return pairs, [Part(of=("table",), failure=f"only {len(pairs):,} of {total:,} pairs were measured")]


def _part(pair: tuple[str, ...], found: Mapping[str, float | str], score: Callable[[float], float]) -> Part:
    """What a pair comes to, from its coefficients or the reasons why it has none."""
    reasons = [reason for reason in found.values() if isinstance(reason, str)]
    if reasons:
        return Part(of=pair, failure=reasons[0])
    detail = {side: value for side, value in found.items() if not isinstance(value, str)}
    return Part(of=pair, value=score(_gap(detail)), detail=detail)


def _units(rows: Sample, names: Sequence[str], prepare: Callable[[Floats], Floats]) -> Units:
    """The columns that miss nothing and vary, prepared once: then a pair costs no more than a product."""
    whole = (name for name in names if not rows.missing(name).any())
    units = {name: unit(prepare(rows.numbers[name])) for name in whole}
    return {name: values for name, values in units.items() if values is not None}


def _similarities(
    metric: Metric, coefficient: Coefficient, prepare: Callable[[Floats], Floats]
) -> Callable[[Comparison], Mapping[str, Sequence[Part]]]:
    def run(comparison: Comparison) -> Mapping[str, Sequence[Part]]:
        units = {side: _units(rows, comparison.numeric, prepare) for side, rows in _sides(comparison)}

        def found(side: str, rows: Sample, pair: tuple[str, ...]) -> float | str:
            if all(name in units[side] for name in pair):
                return product(*(units[side][name] for name in pair))
            return _coefficient(side, rows, pair, coefficient)

        pairs, parts = _chosen(comparison, comparison.numeric)
        for pair in pairs:
            values = {side: found(side, rows, pair) for side, rows in _sides(comparison)}
            parts.append(_part(pair, values, lambda gap: 1 - gap / 2))
        return {metric.name: parts}

    return run


def _kendall(comparison: Comparison) -> Mapping[str, Sequence[Part]]:
    ordered = [
        name
        for name, column in comparison.schema.modelled
        if name in comparison.real.numbers or (isinstance(column, Categorical) and column.ordered)
    ]
    pairs, parts = _chosen(comparison, ordered)
    for pair in pairs:
        values = {side: _coefficient(side, rows, pair, kendall) for side, rows in _sides(comparison)}
        parts.append(_part(pair, values, lambda gap: gap))
    numeric = [part for part in parts if len(part.of) == 2 and set(part.of) <= set(comparison.numeric)]
    return {KENDALL_TAU.name: parts, **_matrices(numeric)}


def _matrices(parts: Sequence[Part]) -> Mapping[str, Sequence[Part]]:
    """Mean and root mean squared difference over the entries of both matrices that exist.

    Every pair stands twice in a matrix, and every column of such a pair once on the diagonal, where nothing differs.
    """
    if not parts:
        return {}
    gaps = np.array([part.value for part in parts if part.value is not None])
    if not len(gaps):
        failed = [Part(of=("table",), failure="no pair of numeric columns has a tau in both tables")]
        return {KENDALL_MAE.name: failed, KENDALL_RMSE.name: failed}
    columns = {name for part in parts if part.value is not None for name in part.of}
    entries = 2 * len(gaps) + len(columns)
    failed = [part for part in parts if part.value is None]  # so that the table's figure shows what it lacks
    detail = {"pairs": float(len(gaps)), "pairs without tau": float(len(failed))}
    mean, square = 2 * float(gaps.sum()) / entries, 2 * float((gaps**2).sum()) / entries
    return {
        KENDALL_MAE.name: [Part(of=("table",), value=mean, detail=detail), *failed],
        KENDALL_RMSE.name: [Part(of=("table",), value=math.sqrt(square), detail=detail), *failed],
    }


def _associations(comparison: Comparison) -> Mapping[str, Sequence[Part]]:
    pairs, parts = _chosen(comparison, comparison.discrete)
    return {CRAMERS_V.name: [*parts, *(_association(comparison, pair) for pair in pairs)]}


def _association(comparison: Comparison, pair: tuple[str, ...]) -> Part:
    found: dict[str, float] = {}
    for side, rows in _sides(comparison):
        left, right = (rows.codes[name] for name in pair)
        present = (left != MISSING) & (right != MISSING)
        left, right = left[present], right[present]
        value = cramers_v(left, right)
        if value is None:
            name = pair[0] if is_constant(left) else pair[1]
            return Part(
                of=pair, failure=f"{name!r} has fewer than two levels in the {side} table where both are present"
            )
        found[side] = value
    return Part(of=pair, value=_gap(found), detail=found)


def _two_way(cells: Mapping[str, Binned], pair: tuple[str, ...]) -> float:
    return total_variation(*count(join(*(cells[name] for name in pair))))


def _contingencies(comparison: Comparison) -> Mapping[str, Sequence[Part]]:
    pairs, parts = _chosen(comparison, comparison.discrete)
    cells = {name: bin_column(comparison, name) for name in comparison.discrete}
    parts += [Part(of=pair, value=1 - _two_way(cells, pair)) for pair in pairs]
    return {CONTINGENCY_SIMILARITY.name: parts}


def _tv2_binned(comparison: Comparison) -> Mapping[str, Sequence[Part]]:
    pairs, parts = _chosen(comparison, [name for name, _ in comparison.schema.modelled])
    cells = bin_columns(comparison)
    parts += [Part(of=pair, value=_two_way(cells, pair)) for pair in pairs]
    return {TV2_BINNED.name: parts}


MEASUREMENTS: tuple[Measurement, ...] = (
    Measurement(
        metrics=(CORRELATION_SIMILARITY,),
        run=_similarities(CORRELATION_SIMILARITY, pearson, lambda values: values),
        cap=PEARSON_ROWS,
    ),
    Measurement(
        metrics=(SPEARMAN_SIMILARITY,),
        run=_similarities(SPEARMAN_SIMILARITY, spearman, ranks),
        cap=SPEARMAN_ROWS,
    ),
    Measurement(
        metrics=(KENDALL_TAU, KENDALL_MAE, KENDALL_RMSE),
        run=_kendall,
        cap=KENDALL_ROWS,
    ),
    Measurement(metrics=(CRAMERS_V,), run=_associations),
    Measurement(metrics=(CONTINGENCY_SIMILARITY,), run=_contingencies),
    Measurement(metrics=(TV2_BINNED,), run=_tv2_binned),
)
"""What is measured of pairs. Correlations look at a sample of a large table, cross tables at all rows."""
