"""Releases of the spline flow: files with and without a dequantiser, damaged and forged ones, and what a score is.

The models are made up and not fitted: what is asked here does not depend on where the numbers come from.
"""

import json
import time
import tracemalloc
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

from contract.test_release_files import (
    MOST_BYTES,
    MOST_SECONDS,
    compact,
    parts_of,
    refused_or_equal,
    same,
    small_release,
)
from sfumato.encoding.layout import layout_of
from sfumato.errors import ArgumentError, ReleaseError
from sfumato.models.flows.copula import Copula
from sfumato.models.flows.dequantiser import DequantiserShape
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.models.model import CellModel
from sfumato.release import release as release_module
from sfumato.release import store
from sfumato.schema import Continuous, Integer, Schema

KINDS = {
    "low-rank": ("low-rank", 0),
    "plu": ("plu", 0),
    "copula": ("low-rank", 0),
    "learned": ("low-rank", 1),
    "learned twice": ("plu", 2),
}
"""The linear part, and the couplings of a dequantiser; 0 for none."""

over_kinds = pytest.mark.parametrize("kind", KINDS)


def flow_of(schema, kind, size=0.3):
    """A flow with noise on every number but those of its marginals, which have bins of unequal shares."""
    linear, couplings = KINDS[kind]
    features = layout_of(schema).features
    places = tuple(place for place, feature in enumerate(features) if feature.size is not None)
    learned = DequantiserShape(places, width=5, summary=3, couplings=couplings) if couplings else None
    shape = SplineFlowShape(len(features), 2, 6, 2, 2, 4, 1, linear)
    key = jax.random.wrap_key_data(jnp.array([5, 6], jnp.uint32))
    leaves, structure = jax.tree.flatten(SplineFlow.start(shape, key=key, dequantiser=learned).trainable())
    keys = jax.random.split(key, len(leaves))
    moved = [leaf + size * jax.random.normal(own, leaf.shape) for own, leaf in zip(keys, leaves, strict=True)]
    line = lambda *values: jnp.tile(jnp.array(values, jnp.float32), (len(features), 1))
    marginals = MarginalMap.in_order(line(0, 0.25, 0.5, 1), line(0, 0.2, 0.3, 1))
    correlated = jnp.linalg.cholesky(0.5 * jnp.eye(len(features), dtype=jnp.float32) + 0.5)
    return jax.tree.unflatten(structure, moved).behind(marginals, Copula(correlated) if kind == "copula" else None)


@cache
def release_of(kind):
    plain = small_release()
    return replace(plain, model=flow_of(plain.schema, kind), kind="arrow")


@cache
def content_of(kind):
    return store.to_bytes(release_of(kind))


TABLE = pa.table({"z": [0.0, 2.5, 9.9], "smokes": [True, None, False], "colour": ["red", "blue", "green"]})


# --- files ----------------------------------------------------------------------------------------------------


@over_kinds
def test_a_release_comes_back_with_all_that_it_can_do(kind):
    release, again = release_of(kind), store.from_bytes(content_of(kind))
    assert same(again, release) and store.to_bytes(again) == content_of(kind)
    assert (again.model.dequantiser is None) == (KINDS[kind][1] == 0)
    assert isinstance(again.model, CellModel)
    scores = release.log_prob(TABLE)
    assert np.all(np.isfinite(scores)) and np.array_equal(again.log_prob(TABLE), scores)
    sample = release.sample(40, seed=5)
    assert again.sample(40, seed=5).equals(sample)
    assert 0 <= min(sample["z"].to_pylist()) <= max(sample["z"].to_pylist()) <= 10
    assert set(sample["colour"].to_pylist()) <= {"red", "green", "blue"}


@over_kinds
def test_every_seventh_byte_flipped_is_refused(kind):
    content = content_of(kind)
    for place in range(3, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 0x01
        assert refused_or_equal(bytes(changed), release_of(kind)), place


def forged(kind):
    """Files with a right digest whose description of the model is not that of its numbers."""
    texts, tensors = parts_of(content_of(kind))
    model, found = json.loads(texts["model"]), {}

    def add(name, changed, tensors=tensors):
        found[name] = store._pack({**texts, "model": compact(changed)}, tensors)

    sizes = ("num_features", "blocks", "width", "depth", "embedding", "bins", "rank", "bins_of_marginals")
    for field in sizes:
        assert field in model
        if field == "rank" and model["linear"] == "plu":
            continue  # it has none, so whatever is said of it changes nothing
        add(f"without {field}", {name: value for name, value in model.items() if name != field})
        for value in (0, -1, 10**6, 2**63, 1.5, "4", None, True, [4], 9, float("nan")):
            add(f"{field} = {value!r}", {**model, field: value})
    for value in ("plu" if model["linear"] == "low-rank" else "low-rank", "", None, 5, []):
        add(f"linear = {value!r}", {**model, "linear": value})
    for value in (None, 1, "yes", [], not model.get("copula", False)):
        add(f"copula = {value!r}", {**model, "copula": value})
    add("another kind", {**model, "kind": "masked_autoregressive_flow"})
    add("unknown field", {**model, "surprise": 1})
    own = model.get("dequantiser", {"discrete": [1], "width": 5, "summary": 3, "components": 4, "couplings": 1})
    for field in own:
        for value in (None, 0, -1, [0], [99], [0, 0], 10**6, "1", True, {}):
            add(f"dequantiser {field} = {value!r}", {**model, "dequantiser": {**own, field: value}})
    add("dequantiser of nothing", {**model, "dequantiser": None})
    add(
        "dequantiser come or gone",
        {k: v for k, v in model.items() if k != "dequantiser"}
        if "dequantiser" in model
        else {**model, "dequantiser": own},
    )
    # As many tensors as there should be, so that their number gives nothing away.
    million = {name: np.zeros(10**6 // len(tensors), np.float32) for name in tensors}
    ones = {**model, **dict.fromkeys(sizes, 1), "depth": model["depth"]}
    for field in sizes:
        add(f"a million {field}", {**ones, field: 10**6}, million)
    for many in ({"bins": 200}, {"embedding": 10_000}, {"bins_of_marginals": 10_000}):
        add(f"sizes that multiply, {many}", {**ones, "num_features": 500, "width": 500, **many}, million)
    return {name: file for name, file in found.items() if file != content_of(kind)}


@pytest.mark.parametrize("kind", ["copula", "learned"])
def test_forged_descriptions_are_refused_quickly_and_with_little_memory(kind):
    files, wrong = forged(kind), []
    assert len(files) > 140
    tracemalloc.start()
    try:
        for name, file in files.items():
            tracemalloc.reset_peak()
            before, started = tracemalloc.get_traced_memory()[0], time.perf_counter()
            try:
                store.from_bytes(file)
                wrong.append(f"{name}: was accepted")
            except ReleaseError as error:
                if "\n" in str(error) or len(str(error)) > 300:
                    wrong.append(f"{name}: message is not one line")
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__}")
            if time.perf_counter() - started > MOST_SECONDS:
                wrong.append(f"{name}: took {time.perf_counter() - started:.0f} s")
            if tracemalloc.get_traced_memory()[1] - before > MOST_BYTES + 30 * len(file):
                wrong.append(f"{name}: took much memory")
    finally:
        tracemalloc.stop()
    assert not wrong, "\n".join(wrong)


# --- scores ---------------------------------------------------------------------------------------------------


def test_a_score_is_exact_or_a_bound_and_says_which():
    assert release_of("plu").likelihood(7) == (
        "an importance-weighted estimate from 7 fixed points of the cells of discrete values; more tighten it"
    )
    assert "32 fixed points" in release_of("learned").likelihood()
    numbers = Schema(columns={"u": Continuous(lower=0, upper=1), "v": Continuous(lower=-5, upper=5)}, rows=100)
    exact = replace(release_of("plu"), schema=numbers, model=flow_of(numbers, "plu"))
    assert exact.likelihood() == "the exact log density"
    rows = pa.table({"u": [0.1, 0.6], "v": [-4.0, 2.0]})
    assert np.array_equal(exact.log_prob(rows, draws=1), exact.log_prob(rows, draws=64)), "draws do not matter"
    rounded = replace(numbers, columns={**numbers.columns, "u": Continuous(lower=0, upper=1, decimals=2)})
    assert "estimate" in replace(exact, schema=rounded).likelihood(), "declared decimals make cells"
    with pytest.raises(ArgumentError):
        exact.log_prob(rows, draws=0)


def bent(kind):
    """A release of two columns of few levels whose density is far from flat inside the cells, and rows of it."""
    schema = Schema(columns={"k": Integer(lower=0, upper=2), "l": Integer(lower=0, upper=3)}, rows=100)
    release = replace(release_of("plu"), schema=schema, model=flow_of(schema, kind))
    return release, pa.table({"k": [0, 1, 2] * 4, "l": [0, 1, 2, 3] * 3})


@pytest.mark.parametrize("kind", ["low-rank", "learned"])
def test_more_draws_tighten_the_bound(kind, monkeypatch):
    """The mean score of all twelve values rises with the draws, to their exact masses. The mutant ignores draws.

    Nothing is random: the points are a fixed lattice. The masses of all values add up to one at many draws.
    """
    release, rows = bent(kind)
    means = {draws: float(np.mean(release.log_prob(rows, draws=draws))) for draws in (1, 64, 2048)}
    best = means[2048]
    assert np.exp(release.log_prob(rows, draws=2048)).sum() == pytest.approx(1, abs=0.02)
    assert means[1] + 0.2 < means[64] < best, means
    assert abs(means[64] - best) < 0.5 * abs(means[1] - best), means
    lattice = release_module._lattice
    monkeypatch.setattr(release_module, "_lattice", lambda draws, num_features: lattice(1, num_features))
    ignored = float(np.mean(release.log_prob(rows, draws=64)))
    assert not abs(ignored - best) < 0.5 * abs(means[1] - best), "the check above rejects the mutant"
