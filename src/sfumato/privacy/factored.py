"""Factored: the clipped sum of a batch from factors, one backward pass for all rows, on the grid of whole numbers.

How the sensitivity is kept. Let v be the exact sum of factors of a row (float32 numbers) times its clipping factor (a
float64 number): its norm is at most bound * (1 - slack). The sum over a chunk of rows is made in float64; one entry
of it is off by at most

    (rows * uses + 4) * 2**-53 * rows * CANCEL * bound,

since no row's products add up to more than CANCEL * bound in any entry (rows whose products nearly cancel are scaled
down until that holds). Chunks are added as whole numbers of 2**-40 bounds, exactly, and the total is rounded to
the grid of 2**-20 bounds. So if neighbours' exact sums differ by at most bound * (1 - slack), their rounded ones differ
in every entry by at most one grid step more, plus the errors above for every chunk on both sides. ``slack`` is the
Euclidean norm of that excess over all entries, for as many rows as a step may draw.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int64

from sfumato.errors import ArgumentError
from sfumato.privacy.clipping import GRID, FlatClip
from sfumato.privacy.factors import FactoredLoss, Rule, Weights

CANCEL = 16.0
"""By how much the products of one row may exceed their sum before the row is scaled down."""

MOST_DRAWN = 2**20
"""Rows that one step may draw; the slack covers so many."""

_FINE = 2**40
_UNIT = 2.0**-53


def chunk_rows() -> int:
    """Rows whose factors are held at once: few on a CPU, where they must fit its cache; more on a GPU."""
    return 256 if jax.default_backend() == "cpu" else 1024


def slack_of(num_entries: int, num_uses: int, rows: int) -> float:
    """The share of the bound that rounding may use up (module docstring)."""
    each = (rows * num_uses + 4) * _UNIT * rows * CANCEL + 1 / _FINE
    excess = 1 / GRID + 2 * math.ceil(MOST_DRAWN / rows) * each
    return 1.001 * math.sqrt(num_entries) * excess + 1e-9  # the last for the roundings of the norm, made in float64


def factored_sum(
    loss: FactoredLoss, weights: Weights, clip: FlatClip, batch: Any, keys: Array, valid: Bool[Array, " row"]
) -> dict[str, Int64[Array, "..."]]:
    """The clipped sum over the valid rows of a chunk, in steps of 2**-40 bounds."""
    rules = loss.rules
    if set(rules) != set(weights):
        raise ArgumentError("Expected one rule for each weight.")
    num_rows = valid.shape[0]
    taps = {name: jnp.zeros((num_rows, *shape), jnp.float32) for name, shape in loss.taps().items()}

    def total(taps: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        values, notes = jax.vmap(loss.row, (None, 0, 0, 0))(weights, batch, keys, taps)
        return jnp.sum(values), notes

    backs, notes = jax.grad(total, has_aux=True)(taps)
    # The norm and the sum must see the same numbers: without the barrier they may be computed twice.
    notes, backs = jax.lax.optimization_barrier((_float32(notes), _float32(backs)))
    entries = sum(weight.size for weight in weights.values())
    slack = slack_of(entries, _most_uses(loss), num_rows)
    shared = {name: weights[name] for name in loss.common_names}
    common = jax.grad(lambda shared: loss.common({**weights, **shared}))(shared)
    factor = _factors(rules, clip, notes, backs, common, valid, slack)
    usable = factor > 0
    notes, backs = _without(notes, usable), _without(backs, usable)
    sums = {name: rule.total(factor, notes, backs) for name, rule in rules.items()}
    for name, part in common.items():
        sums[name] = sums[name] + jnp.sum(factor) * jnp.where(jnp.isfinite(part), part, 0.0).astype(jnp.float64)
    return {name: jnp.round(value * (_FINE / clip.bound)).astype(jnp.int64) for name, value in sums.items()}


def to_grid(fine: Mapping[str, Int64[Array, "..."]]) -> dict[str, Int64[Array, "..."]]:
    """Sums of chunks on the grid that the noise is added on, rounded to the nearest step."""
    step = _FINE // GRID
    return {name: (value + step // 2) // step for name, value in fine.items()}


def _factors(
    rules: Mapping[str, Rule],
    clip: FlatClip,
    notes: Mapping[str, Array],
    backs: Mapping[str, Array],
    common: Mapping[str, Array],
    valid: Bool[Array, " row"],
    slack: float,
) -> Array:
    found = [rule.squares(notes, backs, common.get(name)) for name, rule in rules.items()]
    norm = jnp.sqrt(jnp.maximum(sum(squares for squares, _ in found), 0.0))
    for _, reach in found:
        norm = jnp.maximum(norm, reach / CANCEL)
    scale = jnp.minimum(1.0, clip.bound / norm) * (1 - slack)
    return jnp.where(valid & jnp.isfinite(norm), scale, 0.0)


def _most_uses(loss: FactoredLoss) -> int:
    return max(draws * blocks for draws, blocks, _ in loss.taps().values())


def _float32(values: Mapping[str, Array]) -> dict[str, Array]:
    return {name: value.astype(jnp.float32) for name, value in values.items()}


def _without(values: Mapping[str, Array], usable: Bool[Array, " row"]) -> dict[str, Array]:
    """A NaN times a factor of zero is NaN, so rows that do not count are cut out and not only weighted."""
    return {name: jnp.where(usable[:, None, None, None], value, 0.0) for name, value in values.items()}
