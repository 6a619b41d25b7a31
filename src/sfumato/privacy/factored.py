"""Factored: the clipped sum of a batch from factors, one backward pass for all rows, on the grid of whole numbers.

How the sensitivity is kept. Let v be the exact sum of factors of a row (float32 numbers) times its clipping factors,
one float64 number for each layer: its norm is at most bound * (1 - slack). Sums over groups of A rows (``added_rows``)
are made in float64; one entry of such a sum is off by at most

    (A * uses + 4) * 2**-53 * A * CANCEL * bound,

since no row's products add up to more than CANCEL * bound in any entry (rows whose products nearly cancel are scaled
down until that holds). Groups are added as whole numbers of 2**-40 bounds, exactly, and the total is rounded to
the grid of 2**-20 bounds. So if neighbours' exact sums differ by at most bound * (1 - slack), their rounded ones differ
in every entry by at most one grid step more, plus the errors above for every group on both sides. ``slack`` is the
Euclidean norm of that excess over all entries, for as many rows as a step may draw (``most_drawn``). Norm and sum are
taken of the very same float32 numbers, which ``from_memory`` sees to: a compiler would compute them twice.

Neighbours' sums are of the same vectors but one only if the factors and the norm of a row do not depend on its place in
a chunk: a row that is left out moves all later ones up. On CPUs libraries work through rows in blocks, and what is left
over past the last block may be rounded otherwise. So chunks are multiples of 32 rows, for which
``tests/privacy/test_order_in_chunks.py`` finds the same bits at every place.
"""

import math
from collections.abc import Mapping, Set
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float32, Float64, Int64

from sfumato.errors import ArgumentError
from sfumato.privacy.clipping import GRID, FlatClip, from_memory
from sfumato.privacy.factors import ADDED, LEAST, FactoredLoss, MatrixRule, Rule, VectorRule, Weights

CANCEL = 16.0
"""By how much the products of one row may exceed their sum before the row is scaled down."""

MOST_DRAWN = 2**24
"""Rows that one step may draw. Plans that expect more than half of them are refused."""

LEAST_DRAWN = 2**17
"""Rows that the slack covers at least, however few are expected."""

MOST_SLACK = 0.05
"""Of the bound. Fast clipping is exact up to rounding errors, and where those have to be feared it does not pay."""

_FINE = 2**40
_UNIT = 2.0**-53
_BITS = (_FINE // GRID).bit_length() - 1  # a step of the grid is 2**_BITS fine ones
_WHOLE = 32  # chunks are multiples of it: the guarantee rests on that (module docstring)


def chunk_rows(expected_batch: float, draws: int = 1) -> int:
    """Rows whose factors are held at once, for a step that is expected to draw so many, at so many draws a row.

    What is padding in the last chunk is work for nothing. On a CPU a chunk must fit the cache, yet be large enough for
    all cores; on a GPU few large ones are best, which a step of the usual size should fill. There one more chunk costs
    as much as all before it, so that few steps may need one; and sizes of many factors cut into equal groups.
    """
    on_cpu = jax.default_backend() == "cpu"
    usual = expected_batch + (2.0 if on_cpu else 2.5) * math.sqrt(expected_batch)
    at_once = max(576.0, usual * draws / 8) if on_cpu else 16_384
    chunks = max(1, round(usual * draws / at_once))
    whole = _WHOLE
    while not on_cpu and whole < 8 * _WHOLE and 16 * whole <= usual / chunks:
        whole *= 2
    return whole * max(1, math.ceil(usual / chunks / whole))


def added_rows(drawn: int) -> int:
    """Rows that are added up as floats, in a step that may draw so many.

    More of them are less work, and a larger error of each sum: the slack has to cover that of all rows. On a GPU a few
    groups keep all of it busy.
    """
    return 3 * ADDED if drawn <= 2**20 else ADDED


def most_drawn(rate: float | None, expected_batch: float) -> int:
    """Rows that the slack covers in a step: what a table draws that is far larger than was declared.

    ``rate`` is that of a Poisson draw, whose number of rows follows from the true size of the table and not from the
    declared one. Covered are all tables of up to 2**20 rows, and larger ones of up to 64 times the declared size: they
    pass this number with a probability below 1e-100. A draw of a fixed size has no rate, and never draws more than
    ``expected_batch``.

    >>> most_drawn(0.01, 512.0), most_drawn(0.5, 512.0), most_drawn(0.1, 1e6), most_drawn(None, 512.0)
    (131072, 545915, 16777216, 131072)
    """
    twice = 2 ** math.ceil(math.log2(max(2.0, 2 * expected_batch)))
    table = 0.0 if rate is None else max(2.0**20, 64 * expected_batch / rate)
    of_table = math.ceil(1.01 * (rate or 0.0) * table) + 2**14
    return min(MOST_DRAWN, max(LEAST_DRAWN, of_table, twice))


def slack_of(num_entries: int, num_uses: int, drawn: int = MOST_DRAWN) -> float:
    """The share of the bound that rounding may use up (module docstring). Models that would waste much are refused.

    ``drawn`` rows are covered: as many as there can be, where nothing is said of them.
    """
    # Groups may hold fewer rows than ``added_rows``, down to one: this covers each way of cutting rows up.
    each = (added_rows(drawn) * num_uses + 4) * _UNIT * CANCEL + 1 / _FINE
    excess = 1 / GRID + 2 * drawn * each
    slack = 1.001 * math.sqrt(num_entries) * excess + 1e-9  # the last for the roundings of the norm, made in float64
    if slack > MOST_SLACK:
        raise ArgumentError(
            f"Too many weights ({num_entries:,}) or uses of one weight ({num_uses:,}) for fast clipping."
        )
    return slack


class Factors(eqx.Module):
    """What one backward pass gives: what went into each layer, what came back, and what all rows have in common."""

    notes: dict[str, Array]
    backs: dict[str, Array]
    common: dict[str, Array]

    def cut(self) -> "Factors":
        """Factors too small to count are zero, for the norm and for the sum (``LEAST``)."""
        large = lambda value: jnp.where(jnp.abs(value) < LEAST, 0.0, value)  # a NaN stays one, and the row is left out
        return Factors(jax.tree.map(large, self.notes), jax.tree.map(large, self.backs), self.common)

    def only(self, usable: Mapping[str, Bool[Array, " row"]], rule: Rule) -> tuple[dict[str, Array], dict[str, Array]]:
        """The factors of a rule, cut out for rows that do not count: a NaN times a factor of zero is NaN."""
        keep = usable[rule.target][:, None, None, None]
        notes = {} if rule.source is None else {rule.source: jnp.where(keep, self.notes[rule.source], 0.0)}
        return notes, {rule.target: jnp.where(keep, self.backs[rule.target], 0.0)}


def factors_of(loss: FactoredLoss, weights: Weights, batch: Any, keys: Array) -> Factors:
    """One forward and one backward pass over a chunk of rows."""
    if set(loss.rules) != set(weights):
        raise ArgumentError("Expected one rule for each weight.")
    num_rows = jax.tree.leaves(batch)[0].shape[0]
    taps = {name: jnp.zeros((num_rows, *shape), jnp.float32) for name, shape in loss.taps().items()}

    def total(taps: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        values, notes = jax.vmap(loss.row, (None, 0, 0, 0))(weights, batch, keys, taps)
        return jnp.sum(values), notes

    backs, notes = jax.grad(total, has_aux=True)(taps)
    _check_shapes(loss, weights, notes)
    shared = {name: weights[name] for name in loss.common_names}
    common = jax.grad(lambda shared: loss.common({**weights, **shared}))(shared)
    live = {name: loss.rules[name].live(part) for name, part in common.items()}
    return Factors(_float32(notes), _float32(backs), _float32(live))


def factored_sum(
    loss: FactoredLoss,
    weights: Weights,
    clip: FlatClip,
    factors: Factors,
    valid: Bool[Array, " row"],
    drawn: int = MOST_DRAWN,
) -> dict[str, Int64[Array, "..."]]:
    """The clipped sum over the valid rows of a chunk, in steps of 2**-40 bounds.

    ``drawn`` rows of the whole step are those whose roundings the slack must cover.
    """
    slack = slack_of(sum(weight.size for weight in weights.values()), _most_uses(loss), drawn)
    added = added_rows(drawn)
    _, unflatten = ravel_pytree({name: jnp.zeros(weight.shape, jnp.int64) for name, weight in weights.items()})

    def total(factors: Factors) -> Int64[Array, " entry"]:
        found = _factored_sum(loss, weights, clip, factors.cut(), valid, slack, added)
        return ravel_pytree(found)[0]  # what a loop carries is copied array by array

    return unflatten(from_memory(total, factors, jnp.any(valid)))


def _factored_sum(
    loss: FactoredLoss,
    weights: Weights,
    clip: FlatClip,
    factors: Factors,
    valid: Bool[Array, " row"],
    slack: float,
    added: int,
) -> dict[str, Int64[Array, "..."]]:
    scales = _scales(loss, weights, clip, factors, valid, slack)
    joined, found = _joined(loss.rules, set(factors.common)), {}
    for name, rule in loss.rules.items():
        if name in joined.values():
            continue  # its sum comes with that of its matrix
        scale = scales[rule.target]
        own = factors.only({rule.target: scale > 0}, rule)
        if name in joined and isinstance(rule, MatrixRule):
            found[name], found[joined[name]] = rule.total_with_bias(scale, *own, added)
            continue
        sums = rule.total(scale, *own, added)
        if name in factors.common:
            part = factors.common[name].astype(jnp.float64)
            shares = jnp.sum(scale.reshape(sums.shape[0], -1), axis=1)
            sums = sums + shares.reshape((-1,) + (1,) * part.ndim) * jnp.where(jnp.isfinite(part), part, 0.0)
        found[name] = sums
    to_fine = lambda sums: jnp.sum(jnp.round(sums * (_FINE / clip.bound)).astype(jnp.int64), axis=0)
    return {name: to_fine(found[name]) for name in loss.rules}


def shaped_sum(
    loss: FactoredLoss, weights: Weights, clip: FlatClip, factors: Factors, valid: Bool[Array, " row"], keys: Array
) -> dict[str, Int64[Array, "..."]]:
    """The same, for clipping that must see the gradients of rows: they are made from the factors, for this chunk."""
    names = sorted(weights)
    vectors = row_gradients(loss, factors)
    parts = [loss.rules[name].part(weights[name]) for name in names]
    total = clip.grid_sum(clip.shaped([vectors[name] for name in names], parts, keys), valid)
    return {name: part.astype(jnp.int64) * (_FINE // GRID) for name, part in zip(names, total, strict=True)}


def row_gradients(loss: FactoredLoss, factors: Factors) -> dict[str, Float32[Array, "row ..."]]:
    """The gradient of each row of a chunk by itself, by the name of the weight."""
    found = {name: rule.gradients(factors.notes, factors.backs) for name, rule in loss.rules.items()}
    for name, part in factors.common.items():
        found[name] = found[name] + part
    return found


class FineSum(eqx.Module):
    """A sum of chunks: whole steps of the grid, and what is left in fine steps, so that no number of rows overflows."""

    whole: dict[str, Int64[Array, "..."]]
    rest: dict[str, Int64[Array, "..."]]

    @classmethod
    def zero(cls, weights: Weights) -> "FineSum":
        """Nothing yet."""
        zeros = {name: jnp.zeros(weight.shape, jnp.int64) for name, weight in weights.items()}
        return cls(zeros, zeros)

    def plus(self, fine: Mapping[str, Int64[Array, "..."]]) -> "FineSum":
        """With one more chunk."""
        fine = {name: self.rest[name] + value for name, value in fine.items()}
        # A shift is a division that rounds down, for numbers below zero too, and less work.
        return FineSum(
            {name: self.whole[name] + (value >> _BITS) for name, value in fine.items()},
            {name: value & (2**_BITS - 1) for name, value in fine.items()},
        )

    def on_grid(self) -> dict[str, Int64[Array, "..."]]:
        """The sum on the grid that the noise is added on."""
        return {name: self.whole[name] + rest for name, rest in to_grid(self.rest).items()}


def to_grid(fine: Mapping[str, Int64[Array, "..."]]) -> dict[str, Int64[Array, "..."]]:
    """Fine steps rounded to the nearest step of the grid."""
    step = _FINE // GRID
    return {name: (value + step // 2) // step for name, value in fine.items()}


def _scales(
    loss: FactoredLoss, weights: Weights, clip: FlatClip, factors: Factors, valid: Bool[Array, " row"], slack: float
) -> dict[str, Float64[Array, " row"]]:
    """What the rows are multiplied with, by the name of the layer; zero where a row does not count."""
    parts = {name: rule.part(weights[name]) for name, rule in loss.rules.items()}
    bounds = clip.bounds(list(parts.values()))
    joined = _joined(loss.rules, set(factors.common))
    squares: dict[str, Array] = {}
    reach: dict[str, Array] = {}
    for name, rule in loss.rules.items():
        group, common = clip.group(parts[name]), factors.common.get(name)
        if name in joined.values():
            continue  # its norm comes with that of its matrix
        if isinstance(rule, MatrixRule):
            found, most = rule.squares(factors.notes, factors.backs, common, bias=name in joined)
        else:
            found, most = rule.squares(factors.notes, factors.backs, common)
        squares[group] = squares[group] + found if group in squares else found
        reach[group] = jnp.maximum(reach[group], most) if group in reach else most
    norms = {
        group: jnp.maximum(jnp.sqrt(jnp.maximum(found, 0.0)), reach[group] / CANCEL) for group, found in squares.items()
    }
    usable = valid & jnp.isfinite(sum(norms.values()))
    scales = {
        group: jnp.where(usable, jnp.minimum(1.0, bounds[group] / norm) * (1 - slack), 0.0)
        for group, norm in norms.items()
    }
    return {part.layer: scales[clip.group(part)] for part in parts.values()}


def _joined(rules: Mapping[str, Rule], apart: Set[str]) -> dict[str, str]:
    """The name of each matrix whose layer has a bias with the same uses, to the name of that bias.

    Their norm is taken at once: a bias is one more input, and clipping never tells weights of one target apart. Those
    that have a part in common with all rows are left ``apart``.
    """
    biases = {
        (rule.target, rule.blocked): name
        for name, rule in rules.items()
        if isinstance(rule, VectorRule) and rule.source is None and name not in apart
    }
    found: dict[str, str] = {}
    for name, rule in rules.items():
        if not isinstance(rule, MatrixRule) or name in apart:
            continue
        bias = biases.get((rule.target, rule.blocked))
        if bias is not None and bias not in found.values():
            found[name] = bias
    return found


def _check_shapes(loss: FactoredLoss, weights: Weights, notes: Mapping[str, Array]) -> None:
    """A rule that does not fit its weight could sum what its norm never saw."""
    taps = loss.taps()
    for name, rule in loss.rules.items():
        note = None if rule.source is None else notes[rule.source].shape[1:]
        if not rule.agrees(weights[name].shape, note, taps[rule.target]):  # type: ignore[arg-type]
            raise ArgumentError(f"The rule of the weight {name!r} does not fit its shape and its factors.")


def draws_of(loss: FactoredLoss) -> int:
    """How often a row is drawn in a step."""
    return max(draws for draws, _, _ in loss.taps().values())


def _most_uses(loss: FactoredLoss) -> int:
    return max(draws * blocks for draws, blocks, _ in loss.taps().values())


def _float32(values: Mapping[str, Array]) -> dict[str, Array]:
    return {name: value.astype(jnp.float32) for name, value in values.items()}
