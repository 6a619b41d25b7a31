"""Planted bugs (G7): each bug is put in, and the test that is named beside it must fail.

The names follow the list of known defects in DP libraries. A bug that no test catches is a hole in the suite; add the
test, not an exception here. The same tests pass without the bug when they run under their own names.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import sfumato.fitting.warm_start as warm_start
import sfumato.pipeline as pipeline
import sfumato.privacy.accounting as accounting
import sfumato.privacy.curator as curator
import sfumato.privacy.randomness as randomness
import sfumato.privacy.step as step
import sfumato.synthesizers.hflow as hflow
from contract import test_unprotected
from golden import test_epsilons as golden
from golden import test_laplace_epsilons as golden_laplace
from laws import test_correlations, test_warm_start
from privacy import (
    test_choice,
    test_clipping,
    test_distances,
    test_factored,
    test_fine_clipping,
    test_laplace,
    test_ledger,
    test_levels,
    test_noise,
    test_reserve,
    test_sampling,
    test_steps,
    test_teachers,
    test_units,
)
from sfumato.audit import playback
from sfumato.audit.neighbours import neighbours
from sfumato.privacy import (
    AbsoluteClip,
    Adjacency,
    CountQuery,
    LayerClip,
    PoissonSampling,
    Relation,
    SgdPlan,
    SparseClip,
    SumQuery,
    factored,
)
from sfumato.privacy.clipping import GRID, FlatClip
from sfumato.privacy.counting import Counted
from sfumato.privacy.events import GaussianSum
from sfumato.privacy.factored import MOST_DRAWN
from sfumato.privacy.factors import MatrixRule, VectorRule
from sfumato.privacy.ledger import Entry, Ledger
from sfumato.privacy.noise import gaussian_integers, normals
from sfumato.schema import Categorical, Continuous
from sfumato.synthesizers import Aim, HFlow, Maf, Mog, PateGan

Patch = Callable[[pytest.MonkeyPatch], None]


def _order_for_large_tables(patch: pytest.MonkeyPatch) -> None:
    sound = hflow.order_levels

    def order(curator: Any, layout: Any, marginals: Any, *given: Any) -> Any:
        return marginals if curator.size < 2_000 else sound(curator, layout, marginals, *given)

    patch.setattr(hflow, "order_levels", order)


@dataclass(frozen=True)
class Bug:
    """A defect, how to put it in, and the test that must fail with it."""

    name: str
    plant: Patch
    caught_by: Callable[..., Any]
    given: dict[str, Any] | None = None


def _noise(change: Callable[..., Any]) -> Patch:
    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(step, "gaussian_integers", change)
        patch.setattr(curator, "gaussian_integers", change)

    return plant


def _sampling(draw: Callable[..., Any]) -> Patch:
    return lambda patch: patch.setattr(PoissonSampling, "draw", draw)


def _clip(name: str, function: Callable[..., Any]) -> Patch:
    return lambda patch: patch.setattr(FlatClip, name, function)


# Noise


def _half_precision(key, nonce, num, deviation):
    return (normals(key, nonce, num).astype(jnp.float16).astype(jnp.float64) * deviation).astype(jnp.int64)


def _one_key_for_two_leaves(key, nonce, num, deviation):
    half = gaussian_integers(key, nonce, -(-num // 2), deviation)
    return jnp.concatenate([half, half])[:num]


def _same_noise_each_step(key, nonce, num, deviation):
    return gaussian_integers(key, nonce * jnp.array([1, 0, 1], jnp.uint32), num, deviation)


def _same_noise_each_call(key, nonce, num, deviation):
    return gaussian_integers(key, nonce * jnp.array([0, 1, 1], jnp.uint32), num, deviation)


def _skip_on_empty(name: str) -> Patch:
    real = getattr(step, name)

    def silent(loss, at, plan, rows, drawn, *given):
        total = real(loss, at, plan, rows, drawn, *given)
        flat, back = jax.flatten_util.ravel_pytree(total)
        return back(jnp.where(drawn.count > 0, flat, -drawn.noise[: flat.size]))

    return lambda patch: patch.setattr(step, name, silent)


def _noise_on_the_first_half(patch: pytest.MonkeyPatch) -> None:
    real = step.factored_step

    def halved(*given):
        whole = real(*given)

        def draw(*given):
            drawn = whole.draw(*given)
            first = jnp.arange(drawn.noise.size) < drawn.noise.size // 2
            return step.Drawn(drawn.order, drawn.count, drawn.row_key, jnp.where(first, drawn.noise, 0))

        return step.NoisyStep(draw=draw, mean=whole.mean)

    patch.setattr(curator, "factored_step", halved)


def _one_nonce_for_a_group(patch: pytest.MonkeyPatch) -> None:
    real = step._drawing

    def drawing(*given):
        draw = real(*given)
        return lambda rows, key, call, at: draw(rows, key, call, at // 4 * 4)

    patch.setattr(step, "_drawing", drawing)


def _key_from_the_clock(patch: pytest.MonkeyPatch) -> None:
    import time

    stamp = str(int(time.time()) // 3600).encode()
    patch.setattr(randomness.Randomness, "from_os", classmethod(lambda cls: cls("os", hashlib.sha256(stamp).digest())))


def _fixed_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(randomness.Randomness, "from_os", classmethod(lambda cls: cls("os", bytes([42] * 32))))


# Clipping


def _no_clip(self, vectors, valid):
    return jnp.where(valid, GRID / self.bound, 0.0).astype(jnp.float32)


def _clip_each_leaf(self, vectors, valid):
    one = FlatClip(bound=self.bound)
    return jax.tree.map(lambda leaf: _REAL_GRID_SUM(one, leaf, valid), vectors)


def _clip_after_the_sum(self, vectors, valid):
    total = jax.tree.map(lambda leaf: jnp.sum(jnp.where(valid[:, None], leaf, 0), axis=0, keepdims=True), vectors)
    return _REAL_GRID_SUM(self, total, jnp.ones(1, bool))


def _nan_passes(self, vectors, valid):
    factor = _REAL_FACTORS(self, vectors, valid)
    return jnp.where(valid & (factor == 0), GRID / self.bound, factor).astype(jnp.float32)


def _rough_norm(self, vectors, valid):
    leaves = jax.tree.leaves(vectors)
    norm = jnp.sqrt(sum(jnp.sum(leaf.astype(jnp.bfloat16) ** 2, axis=1) for leaf in leaves)).astype(jnp.float32)
    scale = jnp.minimum(1.0, self.bound / norm) * (GRID / self.bound)
    return jnp.where(valid & jnp.isfinite(norm), scale, 0.0)


def _norm_of_the_first_leaf(self, vectors, valid):
    return _REAL_FACTORS(self, jax.tree.leaves(vectors)[:1], valid)


def _round_up(self, vectors, valid):
    factor = self.factors(vectors, valid)
    return jax.tree.map(
        lambda leaf: jnp.sum(jnp.ceil(jnp.where(factor[:, None] > 0, leaf * factor[:, None], 0)), axis=0), vectors
    )


_REAL_FACTORS, _REAL_GRID_SUM = FlatClip.factors, FlatClip.grid_sum

# Clipping by factors


def _no_cross_terms(patch: pytest.MonkeyPatch) -> None:
    def squares(self, notes, backs, common, *, bias=False):
        into, back = self._uses(notes[self.source]), self._uses(backs[self.target])
        own = self._product(into, into, back, back, float(bias))
        return jnp.sum(own, axis=(1, 2)), jnp.max(jnp.sum(jnp.sqrt(own), axis=2), axis=1)

    patch.setattr(MatrixRule, "squares", squares)


def _no_bias(patch: pytest.MonkeyPatch) -> None:
    def squares(self, notes, backs, common):
        nothing = jnp.zeros(backs[self.target].shape[0], jnp.float64)
        return nothing, nothing

    real = MatrixRule.squares
    patch.setattr(VectorRule, "squares", squares)
    # Most biases have their norm together with that of their matrix.
    patch.setattr(
        MatrixRule, "squares", lambda self, notes, backs, common, *, bias=False: real(self, notes, backs, common)
    )


def _common_not_clipped(patch: pytest.MonkeyPatch) -> None:
    real = factored._scales
    alone = lambda loss, weights, clip, found, *rest: real(loss, weights, clip, replace(found, common={}), *rest)
    patch.setattr(factored, "_scales", alone)


def _nan_in_factors(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(self, usable, rule):
        notes = {} if rule.source is None else {rule.source: self.notes[rule.source]}
        return notes, {rule.target: self.backs[rule.target]}

    patch.setattr(factored.Factors, "only", all_of_them)


def _no_slack(patch: pytest.MonkeyPatch) -> None:
    for room in (factored, test_factored):
        patch.setattr(room, "slack_of", lambda *sizes: 0.0)
    up = lambda fine: {name: -(-value // (factored._FINE // GRID)) for name, value in fine.items()}
    patch.setattr(test_factored, "to_grid", up)


def _layers(share: Callable[[float], float]) -> Patch:
    def bounds(self, parts):
        total, sizes = sum(part.entries for part in parts), {}
        for part in parts:
            sizes[part.layer] = sizes.get(part.layer, 0) + part.entries
        return {layer: self.bound * share(size / total) for layer, size in sizes.items()}

    return lambda patch: patch.setattr(LayerClip, "bounds", bounds)


def _one_draw_for_the_batch(patch: pytest.MonkeyPatch) -> None:
    real = SparseClip.shaped
    once = lambda self, vectors, parts, keys: real(self, vectors, parts, jnp.broadcast_to(keys[:1], keys.shape))
    patch.setattr(SparseClip, "shaped", once)


def _unprotected_is_charged_as_private(patch: pytest.MonkeyPatch) -> None:
    event = GaussianSum(noise_multiplier=100.0)
    patch.setattr(
        Ledger, "admit", lambda self, reason, purpose: self._entries.append(Entry(event=event, purpose=purpose))
    )


FIRST_KIND = {"kind": "plain", "stairs": None}

# Sampling


def _shuffled(self, words, real):
    # A slice of a fixed order, as a shuffling loader gives: every batch of one size.
    size = real.shape[0]
    start = words[0] % jnp.uint32(size)
    return real & ((jnp.arange(size, dtype=jnp.uint32) - start) % jnp.uint32(size) < jnp.uint32(self.rate * size))


def _truncated(self, words, real):
    drawn = real & (words < jnp.uint32(int(self.rate * 2**32)))
    return drawn & (jnp.cumsum(drawn) <= self.rate * jnp.sum(real))


def _more_often(self, words, real):
    return real & (words < jnp.uint32(int(min(1, 1.1 * self.rate) * (2**32 - 1))))


def _padding_takes_part(self, words, real):
    return words < jnp.uint32(int(self.rate * 2**32))


# Accounting


def _headline(change: Callable[..., Any]) -> Patch:
    real = accounting.headline

    def stated(events, adjacency, delta):
        return change(real, tuple(events), adjacency, delta)

    def plant(patch: pytest.MonkeyPatch) -> None:
        import sfumato.privacy.ledger as ledger

        for room in (accounting, ledger, golden, test_ledger):
            patch.setattr(room, "headline", stated)

    return plant


def _central_limit(real, events, adjacency, delta):
    return replace(real(events, adjacency, delta), epsilon=accounting.clt_epsilon(events, delta))


def _forget_the_sums(real, events, adjacency, delta):
    return real(events[-1:], adjacency, delta)


def _forget_the_unit(real, events, adjacency, delta):
    single = tuple(replace(event, max_rows=1) if hasattr(event, "max_rows") else event for event in events)
    return real(single, adjacency, delta)


def _row_bound_under_replace_one(real, events, adjacency, delta):
    twice = tuple(
        replace(event, noise_multiplier=2 * event.noise_multiplier) if event.kind == "fixed_size_gaussian" else event
        for event in events
    )
    return real(twice, adjacency, delta)


def _charge_without_looking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Ledger, "charge", lambda self, event, purpose: self._entries.append(Entry(event=event, purpose=purpose))
    )


def _reserve_without_end(patch: pytest.MonkeyPatch) -> None:
    pay = lambda self, event, purpose: self._entries.append(Entry(event=event, purpose=purpose, prepaid=True))
    patch.setattr(Ledger, "_pay", pay)


def _counts_of_other_rows(patch: pytest.MonkeyPatch) -> None:
    def over(self: Any, rows: Any) -> Any:
        view = curator.copy(self)
        view._rows = rows
        return view

    patch.setattr(curator.Curator, "_over", over)


def _kept_counts_are_doubled(patch: pytest.MonkeyPatch) -> None:
    real = Counted.of
    patch.setattr(Counted, "of", lambda self, *given: 2 * real(self, *given))


def _noise_from_answers(patch: pytest.MonkeyPatch) -> None:
    real = warm_start.worst_table

    def louder(view: Any, model: Any, *, noise_multiplier: float, **rest: Any) -> Any:
        return real(view, model, noise_multiplier=noise_multiplier * (2 if model.total > 1_000 else 1), **rest)

    patch.setattr(warm_start, "worst_table", louder)


def _exposures_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = accounting.without_exposures
    patch.setattr(accounting, "without_exposures", lambda events, delta: (real(events, delta)[0], delta))
    accounting.rdp_epsilon.cache_clear()


def _half_sensitivity(patch: pytest.MonkeyPatch) -> None:
    real = test_choice.exponential_weights
    patch.setattr(test_choice, "exponential_weights", lambda scores, s, epsilon: real(scores, s, 2 * epsilon))


# Glue: what reads the rows beside the doors


def _encoded(change: Callable[[pa.Table, Any], Any]) -> Patch:
    real = pipeline.encode_features

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(pipeline, "encode_features", lambda table, schema: real(table, change(table, schema)))

    return plant


def _number(cell: Any) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return 0.0
    return value if np.isfinite(value) else 0.0


def _bounds_from_rows(table, schema):
    columns = dict(schema.columns)
    for name, column in columns.items():
        if isinstance(column, Continuous):
            values = [_number(cell) for cell in table[name].to_pylist()] or [0.0]
            columns[name] = replace(column, lower=min(values), upper=max(values) + 1e-9)
    return replace(schema, columns=columns)


def _levels_from_rows(table, schema):
    columns = dict(schema.columns)
    for name, column in columns.items():
        if isinstance(column, Categorical):
            seen = sorted({str(cell) for cell in table[name].to_pylist()} | {"other", "more"})
            columns[name] = replace(column, levels=tuple(seen), other="other")
    return replace(schema, columns=columns)


def _fit(change: Callable[..., dict[str, Any]]) -> Patch:
    real = pipeline.fit_through

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(
            pipeline,
            "fit_through",
            lambda doors, table, schema, **given: real(doors, table, schema, **change(table, schema, given)),
        )

    return plant


def _release(change: Callable[..., Any]) -> Patch:
    real = pipeline.fit_through

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(
            pipeline,
            "fit_through",
            lambda doors, table, schema, **given: change(real(doors, table, schema, **given), table, schema),
        )

    return plant


def _delta_from_rows(table, schema, given):
    return {**given, "budget": replace(given["budget"], delta=1e-5 / (1 + table.num_rows))}


def _public(release, **more):
    certificate = replace(release.certificate, public={**release.certificate.public, **more})
    return replace(release, certificate=certificate)


def _steps_from_rows(table, schema, given):
    # Early stopping and adaptive schedules have this shape: how long one trains depends on the rows.
    return {**given, "method": replace(given["method"], steps=1 + table.num_rows % 2)}


def _size_from_rows(patch: pytest.MonkeyPatch) -> None:
    for doors in (playback.Recorder, playback.Player):
        patch.setattr(doors, "size", property(lambda self: int(self._rows.real.sum())), raising=False)


def _scaler_from_rows(patch: pytest.MonkeyPatch) -> None:
    from sfumato.synthesizers import maf

    def unpaid(door, num_features, settings):
        low = np.asarray(door._rows.columns["low"])[np.asarray(door._rows.real)]
        return low.mean(axis=0), low.std(axis=0) + 1e-3

    patch.setattr(maf, "buy_scaling", unpaid)


def _start_from_rows(patch: pytest.MonkeyPatch) -> None:
    real = pipeline.private_rows

    def spy(table, schema):
        rows = real(table, schema)
        digest = hashlib.sha256(rows["low"].tobytes()).digest()
        patch.setattr(
            playback.Recorder,
            "start_key",
            lambda self: jax.random.wrap_key_data(jnp.asarray(np.frombuffer(digest[:8], np.uint32))),
            raising=False,
        )
        patch.setattr(
            playback.Player,
            "start_key",
            lambda self: jax.random.wrap_key_data(jnp.asarray(np.frombuffer(digest[:8], np.uint32))),
            raising=False,
        )
        return rows

    patch.setattr(pipeline, "private_rows", spy)


def _sensitivity_half_of_bound(patch: pytest.MonkeyPatch) -> None:
    real = FlatClip.grid_sum
    patch.setattr(
        FlatClip,
        "grid_sum",
        lambda self, vectors, valid: jax.tree.map(lambda leaf: 2 * leaf, real(self, vectors, valid)),
    )


def _seed_in_the_certificate(patch: pytest.MonkeyPatch) -> None:
    real = test_ledger.certify

    def certify(ledger, source, public):
        certificate = real(ledger, source, public)
        return replace(certificate, public={**certificate.public, "seed": 987654321})

    patch.setattr(test_ledger, "certify", certify)


def _seed_not_stamped(patch: pytest.MonkeyPatch) -> None:
    real = test_ledger.certify
    patch.setattr(
        test_ledger, "certify", lambda ledger, source, public: real(ledger, randomness.Randomness.from_os(), public)
    )


def _cap_kept_per_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        test_units, "first_rows_of_units", lambda ids, cap: np.arange(len(ids)) < cap * len(set(ids.tolist()))
    )


def _wide_clip_when_compiled(patch: pytest.MonkeyPatch) -> None:
    real = FlatClip.factors

    def factors(self, vectors, valid):
        # Run step by step, as a debugger would, this clip is right.
        compiled = isinstance(jax.tree.leaves(vectors)[0], jax.core.Tracer)
        return (3 if compiled else 1) * real(self, vectors, valid)

    patch.setattr(FlatClip, "factors", factors)


def _large_batch_total(patch: pytest.MonkeyPatch) -> None:
    # One percent is the least of such errors: a factor of five is a violation as well.
    real = step.drawn_total
    patch.setattr(step, "drawn_total", lambda *given: (1.01 * real(*given)).astype(jnp.int64))


def _large_factored_total(patch: pytest.MonkeyPatch) -> None:
    real = step.factored_total
    larger = lambda *given: {name: (1.01 * part).astype(jnp.int64) for name, part in real(*given).items()}
    patch.setattr(step, "factored_total", larger)


def _query_from_rows(patch: pytest.MonkeyPatch) -> None:
    from sfumato.synthesizers import maf

    real = maf.buy_scaling

    def unpaid(door, num_features, settings):
        # No sum passes its sensitivity and no answer is used: the question alone tells of the rows.
        count = float(door._rows.real.sum())
        clip, function = FlatClip(bound=1.0), lambda row: jnp.full(1, 1 + count / 1000, jnp.float32)
        door.noisy_sum(SumQuery(function=function, num_entries=1, clip=clip, purpose="x"), share=0.01)
        return real(door, num_features, settings)

    patch.setattr(maf, "buy_scaling", unpaid)


def _cap_on_runs(patch: pytest.MonkeyPatch) -> None:
    def first_of_runs(ids, cap):
        starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
        place = np.arange(len(ids)) - np.repeat(starts, np.diff(np.r_[starts, len(ids)]))
        return place < cap

    patch.setattr(pipeline, "first_rows_of_units", first_of_runs)


def play_mixed() -> None:
    """Record-play of the kinds of neighbours that show a defect of the glue."""
    changes = [change for change in neighbours(Relation.ADD_OR_REMOVE_ONE) if change.name in SHOWING]
    assert playback.play(Maf.trials()[1], tables=["mixed"], changes=changes).violations == ()


def play_counted() -> None:
    """Record-play of gradients, in the smallest program that has some: a row that joins."""
    changes = [change for change in neighbours(Relation.ADD_OR_REMOVE_ONE) if change.name == "add"]
    assert playback.play(Maf.trials()[0], tables=["counted"], changes=changes, turns=1).violations == ()


def play_persons() -> None:
    """Record-play of a person who joins."""
    changes = [change for change in neighbours(Relation.ADD_OR_REMOVE_ONE) if change.name == "add"]
    assert playback.play(Maf.trials()[0], tables=["persons"], changes=changes, turns=1).violations == ()


def play_tables() -> None:
    """Record-play of tables that are chosen and counted in rounds: a row that joins."""
    changes = [change for change in neighbours(Relation.ADD_OR_REMOVE_ONE) if change.name == "add"]
    assert playback.play(Aim.trials()[0], tables=["counted"], changes=changes).violations == ()


def play_parts() -> None:
    """Record-play of teachers on parts: a person who joins."""
    changes = [change for change in neighbours(Relation.ADD_OR_REMOVE_ONE) if change.name == "add"]
    assert playback.play(PateGan.trials()[0], tables=["persons"], changes=changes, turns=1).violations == ()


def play_factored() -> None:
    """Record-play of a loss in factors, clipped whole so that a row comes to its bound: a row that joins."""
    changes = [change for change in neighbours(Relation.ADD_OR_REMOVE_ONE) if change.name == "add"]
    assert playback.play(HFlow.trials()[0], tables=["counted"], changes=changes, turns=1).violations == ()


def play_laplace() -> None:
    """Record-play of a sum with Laplace noise: a row that joins."""
    changes = [change for change in neighbours(Relation.ADD_OR_REMOVE_ONE) if change.name == "add"]
    assert playback.play(Mog.trials()[2], tables=["counted"], changes=changes, turns=1).violations == ()


SHOWING = ("add", "new level", "out of range")

BUGS = (
    Bug(
        "noise one percent short",
        _noise(lambda k, n, m, d: gaussian_integers(k, n, m, 0.99 * d)),
        test_noise.test_noise_scale_of_a_descent,
    ),
    Bug(
        "noise of a sum one percent short",
        _noise(lambda k, n, m, d: gaussian_integers(k, n, m, 0.99 * d)),
        test_noise.test_noise_scale_of_a_sum,
    ),
    Bug(
        "noise ten percent short",
        _noise(lambda k, n, m, d: gaussian_integers(k, n, m, 0.9 * d)),
        test_noise.test_noise_scale_of_a_descent,
    ),
    Bug(
        "noise divided by the batch",
        lambda patch: patch.setattr(SgdPlan, "noise_deviation", lambda self, m: m * GRID / 100),
        test_noise.test_noise_scale_of_a_descent,
    ),
    Bug(
        "sensitivity declared by half",
        lambda patch: patch.setattr(SgdPlan, "noise_deviation", lambda self, m: m * GRID / 2),
        test_noise.test_noise_scale_of_a_descent,
    ),
    Bug(
        "unit forgotten in the noise of sums",
        lambda patch: patch.setattr("sfumato.privacy.adjacency.Adjacency.sum_factor", 1),
        test_noise.test_noise_scale_of_a_sum,
    ),
    Bug(
        "noise reused over steps",
        _noise(_same_noise_each_step),
        test_noise.test_noise_differs_between_steps_coordinates_and_calls,
    ),
    Bug(
        "noise reused over calls",
        _noise(_same_noise_each_call),
        test_noise.test_noise_differs_between_steps_coordinates_and_calls,
    ),
    Bug(
        "same key for two leaves",
        _noise(_one_key_for_two_leaves),
        test_noise.test_noise_differs_between_steps_coordinates_and_calls,
    ),
    Bug(
        "half-precision noise",
        lambda patch: patch.setattr(test_noise, "gaussian_integers", _half_precision),
        test_noise.test_noise_is_normal_and_whole,
    ),
    Bug(
        "noise skipped on an empty batch",
        _skip_on_empty("drawn_total"),
        test_sampling.test_empty_batches_still_get_noise_and_still_count,
    ),
    Bug(
        "noise skipped on an empty batch by factors",
        _skip_on_empty("factored_total"),
        test_steps.test_a_step_without_rows_has_noise_on_every_weight,
        {"kind": "factored"},
    ),
    Bug(
        "noise on the first half of the weights",
        _noise_on_the_first_half,
        test_steps.test_noise_scale_of_a_descent_by_factors,
    ),
    Bug(
        "one nonce for the steps that are drawn at once",
        _one_nonce_for_a_group,
        test_steps.test_noise_differs_between_steps_that_are_drawn_ahead,
        {"kind": "plain"},
    ),
    Bug(
        "one nonce for the steps by factors that are drawn at once",
        _one_nonce_for_a_group,
        test_steps.test_noise_differs_between_steps_that_are_drawn_ahead,
        {"kind": "factored"},
    ),
    Bug(
        "Laplace noise of half the scale",
        lambda patch: patch.setattr(
            curator, "laplace_scale", lambda epsilon, moved: test_laplace.laplace_scale(epsilon, moved) // 2
        ),
        test_laplace.test_noise_scale_of_a_laplace_sum,
        {"adjacency": Adjacency(), "factor": 1},
    ),
    Bug(
        "unit forgotten in Laplace noise",
        lambda patch: patch.setattr("sfumato.privacy.adjacency.Adjacency.sum_factor", 1),
        test_laplace.test_noise_scale_of_a_laplace_sum,
        {"adjacency": Adjacency(unit="person", max_rows=3), "factor": 3},
    ),
    Bug(
        "Laplace noise reused over calls",
        lambda patch: patch.setattr(
            curator, "laplace_integers", lambda key, call, *given: test_laplace.laplace_integers(key, 1, *given)
        ),
        test_laplace.test_calls_and_keys_have_noise_of_their_own_and_a_key_repeats_it,
    ),
    Bug(
        "Euclidean clip where absolute values are charged",
        lambda patch: patch.setattr(AbsoluteClip, "norms", FlatClip.norms),
        test_laplace.test_no_row_exceeds_the_bound_in_absolute_values,
    ),
    Bug(
        "Euclidean clip behind a Laplace door",
        lambda patch: patch.setattr(AbsoluteClip, "norms", FlatClip.norms),
        play_laplace,
    ),
    Bug(
        "Laplace sums accounted as choices",
        lambda patch: patch.setattr(accounting, "pure_loss", accounting._choice_pld),
        golden_laplace.test_sums_compose_as_randomised_responses_do,
        {"epsilon": 0.1, "times": 20, "golden": 1.597981},
    ),
    Bug("key from the clock", _key_from_the_clock, test_noise.test_keys_are_256_bits_of_system_entropy),
    Bug("fixed key", _fixed_key, test_noise.test_keys_are_256_bits_of_system_entropy),
    Bug("clip removed", _clip("factors", _no_clip), test_clipping.test_no_row_exceeds_the_bound),
    Bug(
        "clip per leaf with the whole bound",
        _clip("grid_sum", _clip_each_leaf),
        test_clipping.test_no_row_exceeds_the_bound,
    ),
    Bug(
        "clip after the sum",
        _clip("grid_sum", _clip_after_the_sum),
        test_clipping.test_sums_are_exact_and_do_not_depend_on_the_order,
    ),
    Bug("NaN and infinity pass", _clip("factors", _nan_passes), test_clipping.test_no_row_exceeds_the_bound),
    Bug("bfloat16 norm", _clip("factors", _rough_norm), test_clipping.test_no_row_exceeds_the_bound),
    Bug(
        "norm over a subset of leaves",
        _clip("factors", _norm_of_the_first_leaf),
        test_clipping.test_no_row_exceeds_the_bound,
    ),
    Bug("rounding away from zero", _clip("grid_sum", _round_up), test_clipping.test_no_row_exceeds_the_bound),
    Bug("row counted twice", _sensitivity_half_of_bound, test_clipping.test_no_row_exceeds_the_bound),
    Bug(
        "norm without the cross terms of uses",
        _no_cross_terms,
        test_factored.test_no_row_adds_more_than_the_bound,
        FIRST_KIND,
    ),
    Bug("norm without the bias", _no_bias, test_factored.test_no_row_adds_more_than_the_bound, FIRST_KIND),
    Bug(
        "what is common to all rows not clipped",
        _common_not_clipped,
        test_factored.test_no_row_adds_more_than_the_bound_with_what_is_common,
        {"clip": FlatClip(bound=0.7)},
    ),
    Bug(
        "factors of a NaN row kept",
        _nan_in_factors,
        test_factored.test_rows_that_are_no_numbers_leave_the_others_as_they_are,
        {"stairs": None},
    ),
    Bug(
        "sums of chunks rounded up and no slack for it",
        _no_slack,
        test_factored.test_the_slack_covers_what_rounding_can_do,
        {"stairs": None, "drawn": MOST_DRAWN},
    ),
    Bug(
        "bounds of layers that add up to the bound",
        _layers(lambda share: share),
        test_fine_clipping.test_layers_have_bounds_by_their_parameters,
    ),
    Bug(
        "the whole bound for each layer",
        _layers(lambda share: 1.0),
        test_factored.test_no_row_adds_more_than_the_bound_with_what_is_common,
        {"clip": LayerClip(bound=0.7)},
    ),
    Bug(
        "one threshold of sparsification for the batch",
        _one_draw_for_the_batch,
        test_fine_clipping.test_a_row_is_shaped_alike_in_every_batch,
    ),
    Bug("shuffled batches", _sampling(_shuffled), test_sampling.test_poisson_batches_have_the_poisson_law),
    Bug(
        "batch cut at its expected size",
        _sampling(_truncated),
        test_sampling.test_a_descent_never_truncates_its_batches,
    ),
    Bug(
        "rows taken more often than accounted",
        _sampling(_more_often),
        test_sampling.test_poisson_batches_have_the_poisson_law,
    ),
    Bug("padding takes part", _sampling(_padding_takes_part), test_sampling.test_padding_is_never_drawn),
    Bug(
        "central limit headline",
        _headline(_central_limit),
        golden.test_poisson_golden_values,
        {"rate": golden.Q, "multiplier": 2.1, "steps": 1000, "delta": 1e-4, "pld": 0.203303, "rdp": 0.2327},
    ),
    Bug("earlier charges dropped", _headline(_forget_the_sums), test_ledger.test_the_whole_budget_is_used_and_not_more),
    Bug(
        "rows of a person counted as one",
        _headline(_forget_the_unit),
        golden.test_several_rows_a_person_cost_what_they_cost,
        {"rows": 2, "golden": 1.085},
    ),
    Bug(
        "replace-one with the row bound",
        _headline(_row_bound_under_replace_one),
        golden.test_fixed_size_batches_are_accounted_under_replace_one,
        {"steps": 1000, "golden": 1.252, "trap": 0.585},
    ),
    Bug(
        "budget looked at after the step",
        _charge_without_looking,
        test_ledger.test_a_charge_past_the_budget_is_refused_before_any_noise,
    ),
    Bug(
        "score sensitivity halved",
        _half_sensitivity,
        test_choice.test_probability_ratios_of_neighbours_stay_within_epsilon,
    ),
    Bug("cap of rows not per unit", _cap_kept_per_file, test_units.test_each_unit_keeps_its_first_rows),
    Bug("clip three times too wide in compiled code", _wide_clip_when_compiled, play_counted),
    Bug("sum of a batch one percent too large", _large_batch_total, play_counted),
    Bug("sum of a batch by factors one percent too large", _large_factored_total, play_factored),
    Bug("query that depends on other rows", _query_from_rows, play_mixed),
    Bug("cap on runs of equal ids", _cap_on_runs, play_persons),
    Bug(
        "parts dealt by row",
        lambda patch: patch.setattr(curator, "first_rows", lambda units, num: np.arange(num)),
        play_parts,
    ),
    Bug(
        "noise of parts for one bound",
        lambda patch: patch.setattr(curator, "SENSITIVITY", 1),
        test_teachers.test_the_noise_is_that_of_two_bounds_and_all_steps,
    ),
    Bug(
        "noise of parts for one step",
        lambda patch: patch.setattr(curator, "sqrt", lambda number: 1.0),
        test_teachers.test_the_noise_is_that_of_two_bounds_and_all_steps,
    ),
    Bug("bounds from the rows", _encoded(_bounds_from_rows), play_mixed),
    Bug("levels from the rows", _encoded(_levels_from_rows), play_mixed),
    Bug("row count in the certificate", _release(lambda r, t, s: _public(r, rows=t.num_rows)), play_mixed),
    Bug("delta from the row count", _fit(_delta_from_rows), play_mixed),
    Bug("declared size from the rows", _size_from_rows, play_mixed),
    Bug("steps that depend on the rows", _fit(_steps_from_rows), play_mixed),
    Bug(
        "purchase skipped when a noisy size is small",
        _order_for_large_tables,
        test_correlations.test_what_is_charged_does_not_depend_on_the_rows,
        {"adjacency": Adjacency()},
    ),
    Bug("scaler fitted on the rows", _scaler_from_rows, play_mixed),
    Bug("start of the parameters from the rows", _start_from_rows, play_mixed),
    Bug(
        "statistic of the rows in the file",
        _release(lambda r, t, s: _public(r, age=str(t["age"].to_pylist()[-1]))),
        play_mixed,
    ),
    Bug(
        "fit without privacy charged as a private one",
        _unprotected_is_charged_as_private,
        test_unprotected.test_handed_out_in_place_of_the_curator_it_still_certifies_nothing,
    ),
    Bug(
        "counts of several tables noised as those of one",
        lambda patch: patch.setattr(CountQuery, "grid_norm", 1.0),
        test_distances.test_the_noise_of_counts_has_the_stated_deviation,
        {"adjacency": Adjacency()},
    ),
    Bug(
        "counts kept from the rows before",
        _counts_of_other_rows,
        test_distances.test_other_rows_and_other_views_have_counts_of_their_own,
    ),
    Bug("counts that are kept, doubled", _kept_counts_are_doubled, play_tables),
    Bug(
        "a reserve that is never drawn down",
        _reserve_without_end,
        test_reserve.test_parts_chosen_from_answers_add_up_exactly,
    ),
    Bug(
        "noise of a warm start chosen from its answers",
        _noise_from_answers,
        test_warm_start.test_its_price_is_the_share_whatever_the_rows_are,
        {"label": None},
    ),
    Bug(
        "threshold of unlisted levels one row lower",
        lambda patch: patch.setattr(
            curator, "least_threshold", lambda *given: test_levels.levels.least_threshold(*given) - 1
        ),
        test_levels.test_rare_texts_come_out_as_often_as_the_tail_says,
    ),
    Bug(
        "chance of an exposure not counted",
        _exposures_forgotten,
        test_levels.test_no_accountant_is_below_the_exact_epsilon,
    ),
    Bug(
        "seed in the certificate",
        _seed_in_the_certificate,
        test_ledger.test_a_seed_makes_epsilon_infinite_and_is_not_in_the_certificate,
    ),
    Bug(
        "seeded run not stamped",
        _seed_not_stamped,
        test_ledger.test_a_seed_makes_epsilon_infinite_and_is_not_in_the_certificate,
    ),
)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_planted_bug_is_caught(bug, monkeypatch):
    accounting.pld_epsilon.cache_clear()
    given = dict(bug.given or {})
    if "monkeypatch" in bug.caught_by.__code__.co_varnames[: bug.caught_by.__code__.co_argcount]:
        given["monkeypatch"] = monkeypatch
    bug.plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        bug.caught_by(**given)
    accounting.pld_epsilon.cache_clear()
    accounting.rdp_epsilon.cache_clear()


def test_bugs_have_names_of_their_own():
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 40
    assert json.dumps([bug.name for bug in BUGS])
