"""Norm and sum see the same numbers: losses whose factors are mostly rounding error, through the compiled step."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.errors import ArgumentError
from sfumato.privacy import FlatClip, PoissonSampling, SgdPlan
from sfumato.privacy.clipping import GRID
from sfumato.privacy.factored import _FINE, FineSum, added_rows, chunk_rows, factors_of, most_drawn, slack_of
from sfumato.privacy.factors import MatrixRule, Stairs, VectorRule
from sfumato.privacy.products import grouped
from sfumato.privacy.step import Drawn, PrivateRows, drawn_total, factored_total

NUM = 32
PLAN = SgdPlan(sampling=PoissonSampling(rate=1.0), clip=FlatClip(bound=1.0), steps=1)


def rounding_error(row):
    """a * b - c, where c is a * b rounded: zero, or the rounding error where a compiler fuses product and sum.

    Without ``from_memory`` one row moved the factored sum by 1.25 bounds (JAX 0.10 on a CPU).
    """
    product, scale = row["a"] * row["b"], jnp.float32(1e20)
    return (product - row["c"]) * scale, (product - row["d"]) * scale


class Errors:
    """A loss whose factors are such numbers."""

    rules: ClassVar = {"p": MatrixRule(source="x", target="x"), "q": VectorRule(target="y")}
    common_names = ()

    def weights(self, params):
        return params

    def taps(self):
        return {"x": (2, 1, 6), "y": (2, 1, 6)}

    def row(self, weights, row, key, taps):
        x, y = rounding_error(row)
        return jnp.sum(taps["x"] * x) + jnp.sum(taps["y"] * y), {"x": y, "y": x}

    def common(self, weights):
        return jnp.zeros((), jnp.float32)


def plain(params, row, key):
    x, y = rounding_error(row)
    return jnp.sum(params["x"] * x) + jnp.sum(params["y"] * y)


def furthest(total):
    """How far one row moves a sum, in bounds, over 32 rows."""
    random = np.random.default_rng(0)
    found = 0.0
    with jax.enable_x64(True):
        compiled = jax.jit(total)
        for _ in range(4):
            a, b = (random.normal(size=(NUM, 2, 1, 6)).astype(np.float32) for _ in range(2))
            columns = {"a": a, "b": b, "c": a * b, "d": a * b}
            for place in range(8):
                order = np.r_[place, np.zeros(NUM - 1)].astype(np.int32)
                moved = np.asarray(compiled(columns, order), np.float64)
                found = max(found, float(np.linalg.norm(moved)) / GRID)
    return found


def drawn_of(columns, order):
    rows = PrivateRows(columns, jnp.ones(NUM, bool), NUM)
    return rows, Drawn(order, jnp.asarray(1, jnp.int64), jax.random.key(2), jnp.zeros(0, jnp.int64))


def factored(columns, order):
    weights = {"p": jnp.zeros((6, 6), jnp.float32), "q": jnp.zeros(6, jnp.float32)}
    rows, drawn = drawn_of(columns, order)
    found = factored_total(Errors(), weights, PLAN, rows, drawn, float(NUM))
    return jnp.concatenate([part.ravel() for part in found.values()])


def by_row(columns, order):
    rows, drawn = drawn_of(columns, order)
    params = {name: jnp.zeros((2, 1, 6), jnp.float32) for name in ("x", "y")}
    return drawn_total(plain, params, PLAN, rows, drawn)


@pytest.mark.parametrize("total", [factored, by_row], ids=["factored", "by row"])
def test_one_row_moves_a_sum_by_its_bound_at_most(total):
    assert 0.99 < furthest(total) <= 1


@pytest.mark.parametrize(
    ("rule", "weight", "note", "tap"),
    [
        (VectorRule(target="x"), (9, 4), None, (1, 1, 4)),
        (MatrixRule(source="x", target="x"), (3, 2), (1, 1, 2), (4, 1, 3)),
        (MatrixRule(source="x", target="x", blocked=True), (3, 2), (1, 3, 2), (1, 3, 3)),
        (VectorRule(target="x", source="x"), (4,), (1, 1, 1), (1, 1, 4)),
    ],
    ids=["a bias for all blocks", "one note for four draws", "one matrix for all blocks", "one note for four entries"],
)
def test_rules_that_do_not_fit_are_refused(rule, weight, note, tap):
    """Each would broadcast on the way to the sum, and let a row add many times its bound."""

    class Wrong(Errors):
        rules: ClassVar = {"w": rule}

        def taps(self):
            return {"x": tap}

        def row(self, weights, row, key, taps):
            return jnp.sum(taps["x"]), {} if note is None else {"x": jnp.ones(note, jnp.float32)}

    with pytest.raises(ArgumentError, match="does not fit"), jax.enable_x64(True):
        factors_of(Wrong(), {"w": jnp.zeros(weight, jnp.float32)}, {"a": jnp.zeros((2, 1))}, jnp.zeros((2, 2)))


def test_what_is_common_is_masked_too():
    class Masked(Errors):
        rules: ClassVar = {"w": MatrixRule(source="x", target="x", stairs=Stairs(inputs=2, outputs=2, strict=True))}
        common_names = ("w",)

        def taps(self):
            return {"x": (1, 1, 2)}

        def row(self, weights, row, key, taps):
            return jnp.sum(taps["x"]), {"x": jnp.ones((1, 1, 2), jnp.float32)}

        def common(self, weights):
            return 10 * jnp.sum(weights["w"])

    with jax.enable_x64(True):
        weights = {"w": jnp.zeros((2, 2), jnp.float32)}
        found = factors_of(Masked(), weights, {"a": jnp.zeros((2, 1))}, jnp.zeros((2, 2)))
    assert np.asarray(found.common["w"]).tolist() == [[0, 0], [10, 0]]


def test_sums_do_not_overflow():
    """More than 2**24 rows at their bound, all one way: a plain sum of fine steps is past 64 bits at 2**23."""
    with jax.enable_x64(True):
        total = FineSum.zero({"w": jnp.zeros(1)})
        for _ in range(16):
            total = total.plus({"w": jnp.full(1, 2**21 * _FINE + 3, jnp.int64)})
        assert int(total.on_grid()["w"][0]) == 2**25 * GRID


def test_sums_of_chunks_are_exact_below_zero_too():
    """Against Python's whole numbers, in chunks that leave something over on either side of zero."""
    chunks = [-1, 1, -(2**20), 2**20 - 1, -(2**41) - 7, 2**45 + 5, -(2**60) + 3, -(2**19), 2**19 - 1]
    step = _FINE // GRID
    with jax.enable_x64(True):
        total = FineSum.zero({"w": jnp.zeros(1)})
        for place, chunk in enumerate(chunks):
            total = total.plus({"w": jnp.full(1, chunk, jnp.int64)})
            whole, rest = (int(part["w"][0]) for part in (total.whole, total.rest))
            assert 0 <= rest < step and whole * step + rest == sum(chunks[: place + 1])
            assert int(total.on_grid()["w"][0]) == (sum(chunks[: place + 1]) + step // 2) // step


@pytest.mark.parametrize("batch", [1.0, 100.0, 512.0, 700.0, 4096.0, 10_000.0, 60_000.0])
def test_chunks_on_a_gpu_are_cut_into_few_equal_groups(monkeypatch, batch):
    """What is padded is little, and no group is far smaller than it may be."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    chunk, usual = chunk_rows(batch), batch + 2.5 * batch**0.5
    assert chunk % 32 == 0 and usual <= chunk * max(1, round(usual / 16_384)) <= 1.07 * usual + 32
    size = grouped(jnp.zeros((chunk, 1)), added_rows(2**17)).shape[1]
    assert min(chunk, 96) <= size <= added_rows(2**17)


def test_models_of_too_much_rounding_are_refused():
    assert slack_of(30_000, 12, most_drawn(0.1, 4096.0)) < 0.001
    assert slack_of(30_000, 12) < 0.02, "for the largest draw there may be"
    with pytest.raises(ArgumentError, match="Too many"):
        slack_of(4, 2_000_000)
