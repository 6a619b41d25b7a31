"""The doors as wholes: the compiled step equals the loop over rows, and the rows stay inside."""

import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sfumato.privacy.step as step
from privacy.doors import WIDE, curator_of, gradients_of, linear_loss, multiplier_of, plan_of
from sfumato.errors import ArgumentError
from sfumato.privacy import (
    Adjacency,
    Budget,
    Curator,
    FixedSizeSampling,
    FlatClip,
    Ledger,
    Randomness,
    Relation,
    SgdPlan,
    SumQuery,
)
from sfumato.privacy.clipping import GRID
from sfumato.privacy.noise import MOST_DEVIATION, check_deviation
from sfumato.privacy.queries import count_query
from sfumato.privacy.step import PrivateRows, batch_total, grid_total


def _loss(params, row, key):
    return jnp.sum(jnp.tanh(params["w"] @ row["x"] + params["b"]) ** 2)


def _params():
    random = np.random.default_rng(1)
    return {"w": jnp.asarray(random.normal(size=(3, 4)), jnp.float32), "b": jnp.zeros(3, jnp.float32)}


def _total(rows: np.ndarray, plan: SgdPlan) -> np.ndarray:
    key = Randomness.from_seed(3).key
    with jax.enable_x64(True):
        private = PrivateRows.of({"x": rows})
        return np.asarray(jax.jit(lambda r: batch_total(_loss, _params(), plan, r, key, 1, 0, 300.0))(private))


def test_the_compiled_step_equals_a_loop_over_rows():
    """Every row takes part; the loop clips each gradient in float64 with NumPy and cuts it to the grid."""
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    plan = plan_of(rate=1.0, bound=0.5)
    expected = np.zeros(15)
    gradient = jax.jit(jax.grad(_loss))
    for row in rows:
        parts = gradient(_params(), {"x": jnp.asarray(row)}, None)
        flat = np.concatenate([np.asarray(parts[name], np.float64).ravel() for name in sorted(parts)])
        expected += np.trunc(flat * min(1.0, 0.5 / np.linalg.norm(flat)) * GRID / 0.5)
    assert np.abs(_total(rows, plan) - expected).max() <= 300 * 2 + 3e-6 * GRID * 300  # a grid step or two a row


@pytest.mark.parametrize("micro", [1, 4, 16, 64])
def test_sums_do_not_depend_on_the_micro_batch(micro, monkeypatch):
    rows = np.random.default_rng(2).normal(size=(64, 4)).astype(np.float32)
    whole = _total(rows, plan_of(rate=0.5))
    monkeypatch.setattr(step, "micro_batch", lambda: micro)
    found = _total(rows, plan_of(rate=0.5))
    # The sums are exact; what may differ is the last bit of a row's own gradient, compiled for another batch.
    assert np.abs(found - whole).max() <= 64 * 4


def test_adding_one_row_moves_a_step_by_at_most_one_bound():
    random = np.random.default_rng(4)
    for hostile in (np.zeros(4), np.full(4, 1e30), np.full(4, np.nan), np.full(4, -np.inf), random.normal(size=4)):
        rows = random.normal(size=(40, 4)).astype(np.float32)
        more = np.vstack([rows, hostile[None]]).astype(np.float32)
        moved = _total(more, plan_of(rate=1.0)) - _total(rows, plan_of(rate=1.0))
        assert np.isfinite(moved).all()
        assert np.linalg.norm(moved.astype(np.float64)) <= GRID


def test_one_row_does_not_change_the_gradient_of_another():
    """No layer can mix rows: the gradients are taken by vmap of one row."""
    rows = np.random.default_rng(5).normal(size=(8, 4)).astype(np.float32)
    changed = rows.copy()
    changed[3] = 100.0
    take = jax.vmap(jax.grad(_loss), (None, 0, None))
    first, second = take(_params(), {"x": rows}, None), take(_params(), {"x": changed}, None)
    others = np.arange(8) != 3
    assert np.array_equal(first["w"][others], second["w"][others])


def test_a_query_must_return_what_it_declares():
    for returned in (jnp.ones(()), jnp.ones(1), jnp.ones(99)):
        query = SumQuery(function=lambda row, r=returned: r, num_entries=100, clip=FlatClip(bound=1.0), purpose="test")
        with pytest.raises(ArgumentError, match="100 entries"):
            curator_of(np.ones((3, 1))).noisy_sum(query, share=0.1)


def test_short_floats_are_clipped_as_float32_and_other_kinds_refused():
    rows = jnp.asarray(np.random.default_rng(6).normal(size=(50, 30)), jnp.bfloat16) * 100
    with jax.enable_x64(True):
        for i in range(50):
            grid = np.asarray(FlatClip(bound=1.0).grid_sum(rows[i : i + 1], jnp.ones(1, bool)), np.float64)
            assert np.linalg.norm(grid) <= GRID
        with pytest.raises(ArgumentError, match="real numbers"):
            FlatClip(bound=1.0).grid_sum(jnp.ones((1, 2), jnp.complex64), jnp.ones(1, bool))


def _unpacked(folder: Path) -> bytes:
    parts = []
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            parts.append(content)
            try:
                parts.append(zlib.decompress(content))
            except zlib.error:
                parts.append(content)
    return b"".join(parts)


def test_no_row_reaches_a_compilation_cache(tmp_path):
    """With a persistent cache switched on its files hold no row; a row that were a constant of the code would show."""
    canary = np.random.default_rng(7).normal(size=(64, 5)).astype(np.float32)
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_compilation_cache_max_size",
    )
    before = {name: getattr(jax.config, name) for name in names}
    from jax.experimental.compilation_cache import compilation_cache

    try:
        for name, value in zip(names, (str(tmp_path), 0.0, 0, -1), strict=True):
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        curator = curator_of(canary)
        query = SumQuery(function=lambda row: row["x"], num_entries=5, clip=FlatClip(bound=1.0), purpose="test")
        curator.noisy_sum(query, share=0.1)
        gradients_of(curator, plan_of(rate=0.5, steps=2), 5)
        found = _unpacked(tmp_path)
        assert found
        assert canary.tobytes()[:256] not in found
        constant = jnp.asarray(canary)  # the control: the same search does see a constant
        jax.jit(lambda x: jnp.tanh(constant * x).sum())(3.0)
        assert canary.tobytes()[:256] in _unpacked(tmp_path)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def test_the_curator_shows_nothing_of_its_rows():
    curator = curator_of(np.full((7, 2), 31337.0))
    assert "31337" not in repr(curator)
    assert "7" not in repr(curator)
    assert not hasattr(curator, "__len__")
    assert not hasattr(curator, "__iter__")
    assert "31337" not in repr(curator._rows)


def test_fixed_size_batches_go_with_replace_one():
    adjacency = Adjacency(relation=Relation.REPLACE_ONE)
    plan = SgdPlan(sampling=FixedSizeSampling(batch=10, rows=40), clip=FlatClip(bound=1.0), steps=40)
    curator = curator_of(np.zeros((40, 3000)), budget=WIDE, adjacency=adjacency)  # of little noise: quicker by RDP
    noise = gradients_of(curator, plan, 3000) * 10
    deviation = 2.0 * multiplier_of(curator)  # neighbours are two row bounds apart
    assert abs(noise.std() / deviation - 1) < 5 / np.sqrt(2 * noise.size)
    with pytest.raises(ArgumentError, match="exact number of rows"):
        gradients_of(curator_of(np.zeros((39, 3)), adjacency=adjacency), plan, 3)
    with pytest.raises(ArgumentError, match="replace-one"):
        gradients_of(curator_of(np.zeros((40, 3))), plan, 3)
    with pytest.raises(ArgumentError, match="unit column"):
        Adjacency(relation=Relation.REPLACE_ONE, unit="person")


def test_an_undeclared_size_is_measured_once_and_charged():
    curator = curator_of(np.ones((500, 1)), budget=WIDE)
    curator._size = curator._declared = None
    sizes = {curator.size for _ in range(3)}
    assert len(sizes) == 1
    assert [entry.purpose for entry in curator._ledger.entries] == ["row count"]
    assert abs(sizes.pop() - 500) < 300
    assert curator.declared_size is None


def test_the_exact_total_of_a_query_is_whole():
    rows = PrivateRows.of({"x": np.ones((10, 2), np.float32)})
    with jax.enable_x64(True):
        total = grid_total(rows, lambda row: row["x"], FlatClip(bound=2.0), 2)
    assert total.dtype == jnp.int64
    assert np.allclose(np.asarray(total) / GRID * 2.0, 10, rtol=1e-4)
    assert linear_loss(jnp.ones(2), {"x": jnp.ones(2)}, None) == 2


def test_noise_past_64_bits_is_refused_before_anything_is_charged():
    """Cut off at the largest whole number, noise would leave the exact sum behind."""
    far = Adjacency(unit="person", max_rows=2**31)
    ledger = Ledger(Budget(epsilon=0.01, delta=1e-9), far)
    curator = Curator({"x": np.zeros((4, 1), np.float32)}, ledger=ledger, randomness=Randomness.from_seed(1))
    with pytest.raises(ArgumentError, match="too large to be added exactly"):
        curator.noisy_sum(count_query(), share=1e-6)
    assert ledger.entries == ()
    assert check_deviation(MOST_DEVIATION) is None
    with pytest.raises(ArgumentError):
        check_deviation(float("nan"))
