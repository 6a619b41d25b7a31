"""Release: a model, its schema and its certificate. All one can do with it needs no private data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.encoding.features import decode_features, encode_features
from sfumato.encoding.layout import layout_of
from sfumato.errors import ArgumentError, TableError
from sfumato.models.cells import weighted_point
from sfumato.models.model import CellModel, DensityModel, LevelModel, Model
from sfumato.privacy import Certificate, Randomness
from sfumato.progress import Progress, quiet
from sfumato.release.anomalies import Separation, threshold_of_labels, threshold_of_share
from sfumato.schema import Schema
from sfumato.table import Kind, check_columns, from_arrow, to_arrow

_ROWS_AT_ONCE, _FEW_ROWS = 16_384, 1_024


@dataclass(frozen=True, kw_only=True)
class Release:
    """What may leave the house: synthetic rows, likelihoods, and the certificate.

    Privacy: everything here is post-processing of the certified model, at no further cost. Scores of rows that
    were *trained on* say something about those rows to whoever sees the scores together with the rows; only
    the release itself is certified.

    >>> release = sf.fit(table, schema, epsilon=1.0, delta=1e-6)            # doctest: +SKIP
    >>> release.sample(1_000).to_csv("synthetic.csv")                       # doctest: +SKIP
    """

    model: Model
    schema: Schema
    certificate: Certificate
    kind: Kind = "arrow"

    @property
    def abilities(self) -> tuple[str, ...]:
        """What the release can do: "sample", and "log_prob" where its model has a likelihood."""
        return ("sample", "log_prob") if isinstance(self.model, DensityModel) else ("sample",)

    def density(self) -> DensityModel:
        """The model as one with a likelihood, or an ``ArgumentError`` that says that it has none."""
        if isinstance(self.model, DensityModel):
            return self.model
        method = self.certificate.public.get("method", "this model")
        raise ArgumentError(
            f"{method!r} gives rows and no likelihood: fit another method to score rows, such as 'auto', 'maf' or "
            "'hflow' ('sfumato methods' says which can log_prob)."
        )

    def sample(
        self, num_rows: int, *, kind: Kind | None = None, seed: int | None = None, progress: Progress = quiet
    ) -> Any:
        """Synthetic rows as the kind of frame that came in, or as ``kind``.

        Guarantees: every value lies in the domain of the schema. A ``seed`` repeats the same rows; it has no
        bearing on privacy, since sampling never touches private rows.
        """
        return from_arrow(self.sample_arrow(num_rows, seed=seed, progress=progress), kind or self.kind)

    def sample_arrow(self, num_rows: int, *, seed: int | None = None, progress: Progress = quiet) -> pa.Table:
        """Synthetic rows as an Arrow table."""
        whole(0, num_rows=num_rows)
        source = Randomness.from_os() if seed is None else Randomness.from_seed(seed)
        key = jax.random.wrap_key_data(source.key[:2])
        levels = tuple(feature.size for feature in layout_of(self.schema).features)
        points = sample_points(self.model, key, num_rows, levels, progress=progress)
        generator = None if seed is None else np.random.default_rng(seed)
        return decode_features(points, self.schema, generator=generator)

    def likelihood(self, draws: int = 32) -> str:
        """What ``log_prob`` gives for this table: the exact density, or an estimate at so many draws.

        >>> release.likelihood()                                            # doctest: +SKIP
        'an importance-weighted estimate from 32 fixed points of the cells of discrete values; more tighten it'
        """
        model = self.density()
        if all(feature.size is None for feature in layout_of(self.schema).features):
            return "the exact log density"
        if isinstance(model, CellModel) and model.exact:
            return "the exact log-likelihood"
        points = f"{draws} fixed points of the cells of discrete values"
        return f"an importance-weighted estimate from {points}; more tighten it"

    def log_prob(self, rows: Any, *, draws: int = 32, progress: Progress = quiet) -> Float[np.ndarray, " row"]:
        """The log-likelihood of each row in nats, in the units of the table.

        ``likelihood`` says which it is. For tables of continuous columns without declared decimals it is the exact
        log density, and models of codes are exact for every table. With other models discrete values contribute the
        log of a probability, estimated by importance sampling at ``draws`` fixed points of the row's cell. Over random
        points its mean is a lower bound (Burda, Grosse, Salakhutdinov 2016); at fixed ones it may stand a little above
        or below, the less the more draws.
        A release whose model has no likelihood (``abilities``) refuses before it reads anything.
        Values outside the schema are scored as the schema reads them (clamped, "other", or missing). Identifier
        columns need not be there.
        """
        model = self.density()
        whole(1, draws=draws)
        table, _ = to_arrow(rows)
        faults = check_columns(table, self.schema, identifiers=False)
        if faults:
            raise TableError("; ".join(faults))
        cells = encode_features(table, self.schema)
        scores = np.empty(table.num_rows)
        points = _lattice(draws if np.any(cells.width) else 1, cells.low.shape[1])
        step = max(1, _room(table.num_rows * points.shape[0]) // points.shape[0])
        for start in range(0, table.num_rows, step):
            stop = min(start + step, table.num_rows)
            progress("scoring", start, table.num_rows)
            low, width = (_padded(part[start:stop], step) for part in (cells.low, cells.width))
            scores[start:stop] = np.asarray(_score(model, low, width, points))[: stop - start]
        progress("scoring", table.num_rows, table.num_rows)
        return scores + cells.log_unit

    def anomaly_scores(self, rows: Any, *, draws: int = 32, progress: Progress = quiet) -> Float[np.ndarray, " row"]:
        """How unlikely each row is: minus its log-likelihood in nats. High scores are anomalies.

        Privacy: the release and every threshold drawn from it are certified. The scores tell of the rows that are
        scored. Flags of rows that were trained on are about as much of a secret as the rows: the certificate bounds
        what the *model* says of them, and not what a score and the row together say.

        >>> release.anomaly_scores(new_rows) > release.anomaly_threshold(0.01)     # doctest: +SKIP
        """
        return -self.log_prob(rows, draws=draws, progress=progress)

    def anomaly_threshold(
        self,
        share: float = 0.01,
        *,
        samples: int = 10_000,
        draws: int = 32,
        seed: int | None = None,
        progress: Progress = quiet,
    ) -> float:
        """The score that this share of the release's own rows lies above.

        Privacy: no cost. It is computed from rows that are drawn from the release, and never from private ones.
        """
        self.density()
        whole(100, samples=samples)
        if not 0 < share < 1 or share * samples < 1:
            raise ArgumentError(f"Expected share={share!r} above {1 / samples:g} and below 1; more samples allow less.")
        drawn = self.sample_arrow(samples, seed=seed, progress=progress)
        return threshold_of_share(self.anomaly_scores(drawn, draws=draws, progress=progress), share)

    def anomaly_threshold_from(
        self, rows: Any, labels: Any, *, draws: int = 32, progress: Progress = quiet
    ) -> Separation:
        """The threshold that best tells labelled rows apart, with its true and false positive rates on them.

        Privacy: rows and labels must be public, as the threshold depends on them without noise. To learn it from
        private rows is outside of the certificate.
        """
        scores = self.anomaly_scores(rows, draws=draws, progress=progress)
        return threshold_of_labels(scores, np.asarray(labels, np.bool_))

    def save(self, path: str | Path) -> None:
        """Write the release as one ``.safetensors`` file, atomically."""
        from sfumato.release.store import save

        save(self, path)


def sample_points(
    model: Model, key: Array, num_rows: int, levels: tuple[int | None, ...], *, progress: Progress = quiet
) -> Float[np.ndarray, "row feature"]:
    """So many points of the unit cube drawn from a model of features with so many levels each."""
    points, room = np.empty((num_rows, len(levels))), _room(num_rows)
    for start in range(0, num_rows, room):
        stop = min(start + room, num_rows)
        progress("sampling", start, num_rows)
        points[start:stop] = _some_points(model, jax.random.fold_in(key, start), stop - start, levels, room)
    progress("sampling", num_rows, num_rows)
    return points


def _some_points(
    model: Model, key: Array, num_rows: int, levels: tuple[int | None, ...], room: int
) -> Float[np.ndarray, "row feature"]:
    if isinstance(model, LevelModel):
        return model.points(model.draw_rows(key, num_rows, room), levels)
    return np.asarray(_sample_points(model, key, room))[:num_rows]


def _room(num_rows: int) -> int:
    """How many rows a program is made for, of which what is not needed is cut off: one for few rows, one for many."""
    return _FEW_ROWS if num_rows <= _FEW_ROWS else _ROWS_AT_ONCE


@eqx.filter_jit
def _sample_points(model: Model, key: Array, room: int) -> Float[Array, "row feature"]:
    return ndtr(jax.vmap(model.sample)(jax.random.split(key, room)))


@eqx.filter_jit
def _score(
    model: DensityModel,
    low: Float[Array, "row feature"],
    width: Float[Array, "row feature"],
    points: Float[Array, "draw feature"],
) -> Float[Array, " row"]:
    """The log of the mean density on the unit cube over the points of each row's cells."""

    if isinstance(model, CellModel):
        return jax.vmap(model.log_mean_density, (0, 0, None))(low, width, points)
    wide = jnp.arange(points.shape[0]) % 4 == 3
    share = jnp.mean(wide.astype(low.dtype))

    def at(low: Array, width: Array, point: Array, is_wide: Array) -> Array:
        features, log_weight = weighted_point(low, width, point, is_wide, share)
        return model.log_prob(features) + log_weight

    over_points = jax.vmap(at, (None, None, 0, 0))
    densities = jax.vmap(over_points, (0, 0, None, None))(low, width, points, wide)
    return logsumexp(densities, axis=1) - jnp.log(points.shape[0])


def _lattice(draws: int, num_features: int) -> Float[Array, "draw feature"]:
    """Fixed, evenly spread points of the unit cube: a Kronecker sequence of the generalised golden ratio.

    The same points for every row, so that a score can be repeated; better spread than random ones.
    Reference: Roberts 2018, "The unreasonable effectiveness of quasirandom sequences".
    """
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (num_features + 1))
    steps = ratio ** -np.arange(1.0, num_features + 1)
    return jnp.asarray((0.5 + np.arange(draws)[:, None] * steps) % 1.0, jnp.float32)


def _padded(part: np.ndarray, num_rows: int) -> Float[Array, "row feature"]:
    # Padding the last stretch keeps its shape, so that nothing is compiled twice.
    return jnp.asarray(np.pad(part, [(0, num_rows - len(part)), (0, 0)], constant_values=0.5), jnp.float32)
