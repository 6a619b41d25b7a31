"""Membership: a smoke test for gross leaks of training rows. It proves nothing about privacy.

Both tests ask whether synthetic rows lie nearer to the training rows than to held-out rows of the same population.
They find a synthesizer that copies rows. One that passes may leak all the same: the statement about privacy is the
certificate of a release, not this.
References: Ganev, De Cristofaro, arXiv 2312.05114 (ReconSyn rebuilds training rows from tables that pass such tests);
van Breugel, Sun, Qian, van der Schaar 2023 (DOMIAS: the ratio of densities); SDMetrics, ``DCROverfittingProtection``
(the same question on another scale: it takes ranges from the data, gives ties to the held-out rows, and reports
2 min(1 - share, 0.5)).
"""

from collections.abc import Mapping

import numpy as np
from scipy.stats import norm

from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import Comparison, Floats, Sample
from sfumato.evaluation.metric import Measurement, Metric, Part
from sfumato.evaluation.metrics.mixed_distance import MixedRows, distance_blocks, mixed_rows, nearest
from sfumato.evaluation.metrics.roc import auroc, null_error

MOST_ROWS = 40_000
"""Most rows of each table that are looked at: among few of many rows, a copy would hardly meet its original."""

MOST_QUERIES = 3_000
"""Most synthetic rows whose closest record is sought; the details say how many there were."""

MOST_CANDIDATES = 1_500
"""Most training rows that the attack ranks, as many held-out rows, and as many for the reference density."""

MOST_POOL = 15_000
"""Most training rows, and as many held-out rows, among which the closest is sought."""

MOST_WORK = 10**9
"""Most pairs of cells to compare in one search: wide tables get fewer queries and candidates, but at least 300."""

LEAST_ROWS = 20
"""Fewest rows of each table that say anything."""

NEIGHBOURS = 3
"""Neighbours that a density is estimated from."""

_SMOKE = (
    "A smoke test: it finds gross leaks and proves nothing. By chance alone, one table in a thousand lies more than "
    "3.1 standard errors (in the detail) above 0.5."
)

CLOSEST_RECORD_SHARE = Metric(
    name="closest_record_share",
    title="Smoke test: closest record",
    direction="lower",
    range=(0, 1),
    scope="table",
    reference="SDMetrics DCR (another scale); critique: Ganev, De Cristofaro, arXiv 2312.05114",
    about=f"The share of synthetic rows that lie closer to a training row than to any of as many held-out rows; 0.5 "
    f"where training rows are nothing special. {_SMOKE}",
    ideal=0.5,
)
DENSITY_RATIO_AUROC = Metric(
    name="density_ratio_auroc",
    title="Smoke test: density ratio attack",
    direction="lower",
    range=(0, 1),
    scope="table",
    reference="van Breugel et al. 2023, DOMIAS, with nearest neighbours as densities",
    about=f"The chance that an attack, asking where synthetic rows are denser than other people's rows, ranks a "
    f"training row above a held-out row; a coin has 0.5. {_SMOKE}",
    ideal=0.5,
)


def _closest(comparison: Comparison) -> dict[str, list[Part]]:
    if comparison.holdout is None:
        return {}
    training, held_out, synthetic = _rows(comparison, comparison.real, comparison.holdout, comparison.synthetic)
    size = min(len(training), len(held_out), MOST_POOL)
    random = np.random.default_rng(comparison.seed)
    pool = _joined(_drawn(training, size, random), _drawn(held_out, size, random))
    queries = _drawn(synthetic, _affordable(MOST_QUERIES, pool), random)
    hits = _hits(queries, pool)
    counts = {"synthetic_rows": len(queries), "rows_of_each_side": size}
    return {CLOSEST_RECORD_SHARE.name: [_part("synthetic rows", float(hits[:size].sum()), _spread(hits), counts)]}


def _hits(synthetic: MixedRows, pool: MixedRows) -> Floats:
    """The share of synthetic rows that each row of the pool is closest to; rows that tie have equal parts."""
    hits = np.zeros(len(pool))
    for _, away in distance_blocks(synthetic, pool):
        closest = away == away.min(axis=1, keepdims=True)
        hits += (closest / closest.sum(axis=1, keepdims=True)).sum(axis=0)
    return hits / len(synthetic)


def _spread(hits: Floats) -> float:
    """The standard error of the share of one half of the pool, if the halves had been drawn by lot.

    Rows that are closest to many synthetic rows make it larger than that of independent throws, so the binomial
    error would raise false alarms. Reference: the variance of a sum drawn without replacement (Cochran 1977).
    """
    half = len(hits) / 2
    return float(np.sqrt(half / 2 * hits.var(ddof=1)))


def _ratio(comparison: Comparison) -> dict[str, list[Part]]:
    if comparison.holdout is None:
        return {}
    training, held_out, synthetic = _rows(comparison, comparison.real, comparison.holdout, comparison.synthetic)
    random = np.random.default_rng(comparison.seed)
    shuffled, half = _drawn(held_out, len(held_out), random), len(held_out) // 2
    most = _affordable(MOST_CANDIDATES, synthetic)
    others, reference = (shuffled.take(side).take(slice(most)) for side in (slice(half), slice(half, None)))
    candidates = _drawn(training, most, random), others
    members, strangers = (_log_ratio(rows, synthetic, reference) for rows in candidates)
    counts = {"members": len(members), "strangers": len(strangers), "reference_rows": len(reference)}
    error = null_error(len(members), len(strangers))
    return {DENSITY_RATIO_AUROC.name: [_part("training rows", auroc(members, strangers), error, counts)]}


def _log_ratio(rows: MixedRows, synthetic: MixedRows, reference: MixedRows) -> Floats:
    """The logarithm of synthetic density over reference density, up to scale and shift.

    The density of k-th neighbours is a power of their distance; the mean logarithm over the nearest few is steadier
    than one of them. The floor keeps a copied row (distance zero) finite.
    """
    floor = 1e-3 / (rows.numbers.shape[1] + rows.codes.shape[1])
    logs = [np.log(nearest(rows, cloud, NEIGHBOURS) + floor).mean(axis=1) for cloud in (synthetic, reference)]
    return np.asarray(logs[1] - logs[0])


def _part(of: str, value: float, error: float, counts: Mapping[str, float]) -> Part:
    # Where every training row ties with every held-out row, the value is one half and the error is none.
    chance = float(norm.sf((value - 0.5) / error)) if error > 0 else 0.5
    return Part(of=(of,), value=value, detail={"standard_error": error, "p_value": chance, **counts})


def _rows(comparison: Comparison, *samples: Sample) -> list[MixedRows]:
    if min(sample.num_rows for sample in samples) < LEAST_ROWS:
        raise ArgumentError(f"The smoke test needs at least {LEAST_ROWS} rows of each table.")
    return [mixed_rows(sample, comparison.schema) for sample in samples]


def _affordable(most: int, others: MixedRows) -> int:
    cells = others.numbers.size + others.codes.size
    return min(most, max(300, MOST_WORK // max(1, cells)))


def _drawn(rows: MixedRows, most: int, random: np.random.Generator) -> MixedRows:
    return rows.take(random.permutation(len(rows))[:most])


def _joined(first: MixedRows, second: MixedRows) -> MixedRows:
    return MixedRows(
        numbers=np.concatenate([first.numbers, second.numbers]), codes=np.concatenate([first.codes, second.codes])
    )


MEASUREMENTS = (
    Measurement(metrics=(CLOSEST_RECORD_SHARE,), run=_closest, cap=MOST_ROWS),
    Measurement(metrics=(DENSITY_RATIO_AUROC,), run=_ratio, cap=MOST_ROWS),
)
"""The measurements of this group."""
