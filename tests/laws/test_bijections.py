"""Laws of the bijections: each in one dictionary, each law over all of it.

To add a bijection, add a line to ``BIJECTIONS``. The last layers of the networks are random and not zero here,
since a flow at its start is the identity and would pass almost anything.
"""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.models.flows.autoregressive import AffineMap, Autoregressive
from sfumato.models.flows.bijection import ActNorm, Affine, Bijection, Chain, Reverse
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.models.flows.linear import LowRank, Plu
from sfumato.models.flows.made import Made, masks_of
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.spline import SplineMap

SIZES = [(depth, features) for depth in (1, 2, 3) for features in (1, 2, 5, 12)]
LIMIT = AffineMap().limit


def key_of(number):
    return jax.random.wrap_key_data(jnp.array([7, number], jnp.uint32))


def jiggled(module, number, size=0.4):
    """The same module with random noise on every array, its last layers among them."""
    leaves, structure = jax.tree.flatten(module)
    keys = jax.random.split(key_of(number), len(leaves))
    moved = [leaf + size * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, moved)


def made_of(depth, features, number=0, width=9):
    made = jiggled(Made.start(features, 2, width=width, depth=depth, key=key_of(number)), number + 100)
    assert all(float(jnp.abs(weight).min()) > 0 for weight in made.weights), "no law may hold because of zeros"
    return made


def autoregressive(depth, features, number=0):
    return Autoregressive(made_of(depth, features, number), AffineMap())


def network_name(depth, features):
    return f"autoregressive, depth {depth}, features {features}"


def affine(features):
    steps = jnp.arange(features, dtype=jnp.float32)
    return Affine(steps - 1.5, jnp.exp(0.3 * steps - 0.5))


def spline_of(features):
    made = jiggled(Made.start(features, SplineMap().num_parameters(), width=9, depth=2, key=key_of(8)), 8)
    return Autoregressive(made, SplineMap())


def marginal_map(features, bins=6):
    """Bins of unequal widths and unequal shares, the last feature with bins that are not used."""
    random = np.random.default_rng(3)
    lines = [np.r_[0, np.cumsum(random.dirichlet(np.full(bins, 4.0)))] for _ in range(2 * features)]
    edges, shares = np.array(lines[:features]), np.array(lines[features:])
    edges[-1, -3:], shares[-1, -3:] = 1.0, 1.0
    return MarginalMap.in_order(jnp.asarray(edges, jnp.float32), jnp.asarray(shares, jnp.float32))


BIJECTIONS: dict[str, tuple[int, Bijection]] = {
    "reverse": (5, Reverse()),
    "affine": (4, affine(4)),
    "actnorm": (4, jiggled(ActNorm.identity(4), 1)),
    "chain": (5, Chain((autoregressive(2, 5), Reverse(), jiggled(ActNorm.identity(5), 2), autoregressive(1, 5, 3)))),
    "empty chain": (3, Chain(())),
    "maf blocks": (3, jiggled(MaskedAutoregressiveFlow.start(MafShape(3, 3, 8, 1, True), key=key_of(4)).blocks, 4)),
}
BIJECTIONS |= {
    "low rank": (5, jiggled(LowRank.start(5, 2, key=key_of(5)), 5)),
    "low rank, one feature": (1, jiggled(LowRank.start(1, 1, key=key_of(5)), 6)),
    "plu": (5, jiggled(Plu.start(5), 7)),
    "spline, autoregressive": (4, spline_of(4)),
    "marginal map": (3, marginal_map(3)),
}
BIJECTIONS |= {network_name(depth, features): (features, autoregressive(depth, features)) for depth, features in SIZES}

over_all = pytest.mark.parametrize("name", BIJECTIONS)
over_networks = pytest.mark.parametrize(("depth", "features"), SIZES)


def rows_of(features, num=6, number=9):
    return 1.5 * jax.random.normal(key_of(number), (num, features))


@cache
def facts(name):
    """All that the laws compare, compiled once a bijection, because that is what takes the time."""
    features, bijection = BIJECTIONS[name]

    @jax.jit
    def batch(rows):
        there, log_dets = jax.vmap(bijection.forward)(rows)
        back = jax.vmap(bijection.inverse)
        jacobians = jax.vmap(jax.jacfwd(lambda x: bijection.forward(x)[0]))(rows)
        return {
            "there": there,
            "log_dets": log_dets,
            "back": back(rows),
            "there and back": back(there),
            "back and there": jax.vmap(bijection.forward)(back(rows))[0],
            "jacobians": jacobians,
        }

    @jax.jit
    def one(row):
        return *bijection.forward(row), bijection.inverse(row)

    rows = rows_of(features)
    return {key: np.asarray(value) for key, value in batch(rows).items()} | {
        "rows": np.asarray(rows),
        "one by one": [tuple(map(np.asarray, one(row))) for row in rows],
    }


@over_all
def test_inverse_undoes_forward_and_forward_undoes_inverse(name):
    fact = facts(name)
    tolerance = 2e-5 * (1 + np.abs(fact["back"]).max())
    np.testing.assert_allclose(fact["there and back"], fact["rows"], atol=tolerance)
    np.testing.assert_allclose(fact["back and there"], fact["rows"], atol=tolerance)


@over_all
def test_forward_moves_the_rows(name):
    """A bijection that is the identity would pass the other laws for nothing."""
    moved = np.abs(facts(name)["there"] - facts(name)["rows"]).max()
    assert (moved < 1e-6) == (name == "empty chain")


@over_all
def test_log_determinant_is_that_of_the_jacobian(name):
    _, expected = np.linalg.slogdet(facts(name)["jacobians"].astype(np.float64))
    np.testing.assert_allclose(facts(name)["log_dets"], expected, atol=1e-4)


@over_all
def test_a_batch_is_a_loop_over_its_rows(name):
    fact = facts(name)
    for row, (there, log_det, back) in enumerate(fact["one by one"]):
        np.testing.assert_allclose(fact["there"][row], there, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(fact["log_dets"][row], log_det, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(fact["back"][row], back, rtol=1e-5, atol=1e-5)


@over_networks
def test_the_jacobian_of_an_autoregression_is_lower_triangular(depth, features):
    for jacobian in facts(network_name(depth, features))["jacobians"]:
        assert np.all(np.triu(jacobian, 1) == 0)
        assert np.all(np.diagonal(jacobian) > 0)
        below = jacobian[np.tril_indices(features, -1)]
        assert np.all(below != 0), "every feature before counts"


@over_networks
def test_outputs_of_a_feature_depend_on_all_features_before_it_and_on_no_other(depth, features):
    made = made_of(depth, features)
    jacobian = np.asarray(jax.jit(jax.jacfwd(made))(rows_of(features)[0]))  # feature, output, input
    assert jacobian.shape == (features, 2, features)
    before = np.tri(features, k=-1, dtype=bool)[:, None, :]
    assert np.all((jacobian != 0) == before)


def test_the_mask_law_rejects_a_mask_that_lets_a_feature_see_itself():
    """The mutant: >= where > belongs in the last layer."""
    made = made_of(1, 5)
    masks = masks_of(5, 2, made.units, 1)
    seen = [
        np.ones_like(masks[0]) * masks[0],
        np.repeat(np.arange(1, 6), 2)[:, None] >= np.repeat(np.arange(1, 5), made.units),
    ]

    def leaky(x):
        hidden = jnp.tanh((made.weights[0] * seen[0]) @ x + made.biases[0])
        return ((made.weights[1] * seen[1]) @ hidden).reshape(5, 2)

    jacobian = np.asarray(jax.jacfwd(leaky)(rows_of(5)[0]))
    assert np.any((jacobian != 0) != np.tri(5, k=-1, dtype=bool)[:, None, :])


@over_networks
def test_the_fast_inverse_is_the_naive_one(depth, features):
    bijection = autoregressive(depth, features)

    def naive(y):
        x = jnp.zeros(features)
        for i in range(features):
            x = x.at[i].set(bijection.univariate.inverse(y[i], bijection.conditioner(x)[i]))
        return x

    fast, rows = facts(network_name(depth, features))["back"], rows_of(features)
    np.testing.assert_allclose(fast, jax.jit(jax.vmap(naive))(rows), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [1, 3, 4, 5, 17])
def test_the_fast_inverse_holds_at_widths_that_do_not_divide(width):
    bijection = Autoregressive(made_of(2, 5, width=width), AffineMap())
    rows = rows_of(5)
    back = jax.jit(jax.vmap(lambda y: bijection.forward(bijection.inverse(y))[0]))(rows)
    np.testing.assert_allclose(back, rows, atol=1e-4)


def test_a_map_of_one_number_is_the_identity_at_zero_and_increasing_everywhere():
    univariate = AffineMap()
    zero = jnp.zeros(univariate.num_parameters())
    for x in (-30.0, -1.0, 0.0, 2.5, 1e4):
        assert univariate.forward(jnp.float32(x), zero) == (x, 0.0)
        assert univariate.inverse(jnp.float32(x), zero) == x
    for number in range(20):
        parameters = 3 * jax.random.normal(key_of(number), (2,))
        x = jnp.float32(0.7)
        slope = jax.grad(lambda x, p: univariate.forward(x, p)[0])(x, parameters)
        np.testing.assert_allclose(univariate.forward(x, parameters)[1], jnp.log(slope), atol=1e-5)
        y, _ = univariate.forward(x, parameters)
        np.testing.assert_allclose(univariate.inverse(y, parameters), x, atol=1e-4)


@pytest.mark.parametrize("size", [0.0, 1e-38, 1.0, 1e3, 1e18, -1e18, 3e38, -3e38])
def test_no_parameter_makes_the_scale_blow_up(size):
    univariate = AffineMap()
    y, log_slope = univariate.forward(jnp.float32(1.0), jnp.array([0.0, size], jnp.float32))
    assert bool(jnp.isfinite(y)) and abs(float(log_slope)) <= LIMIT
    assert bool(jnp.isfinite(univariate.inverse(jnp.float32(1.0), jnp.array([0.0, size], jnp.float32))))


@pytest.mark.parametrize("size", [10.0, 1e3, 1e6])
def test_extreme_networks_stay_finite(size):
    shape = MafShape(4, 3, 8, 2, False)
    flow = jiggled(MaskedAutoregressiveFlow.start(shape, key=key_of(1)).blocks, 5, size=size)
    y, log_det = jax.jit(jax.vmap(flow.forward))(rows_of(4))
    back = jax.jit(jax.vmap(flow.inverse))(rows_of(4))
    assert all(bool(jnp.all(jnp.isfinite(value))) for value in (y, log_det, back))
    assert float(jnp.abs(log_det).max()) <= 3 * 4 * LIMIT


LINEAR = {
    **{f"low rank {rank}": (5, lambda key, rank=rank: LowRank.start(5, rank, key=key)) for rank in (1, 2, 5)},
    "plu": (5, lambda key: Plu.start(5)),
    "low rank, one feature": (1, lambda key: LowRank.start(1, 1, key=key)),
    "plu, one feature": (1, lambda key: Plu.start(1)),
}
HOSTILE = ("random", "large", "huge", "alternating", "all equal")


def attacked(linear, how, number):
    """The parameters after a noisy or hostile update."""
    leaves, structure = jax.tree.flatten(linear)
    keys = jax.random.split(key_of(number), len(leaves))
    random = [jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    signs = [(-1.0) ** jnp.arange(leaf.size).reshape(leaf.shape) for leaf in leaves]
    moved = {
        "random": random,
        "large": [100 * leaf for leaf in random],
        "huge": [1e6 * leaf for leaf in random],
        "alternating": [1e6 * sign for sign in signs],
        "all equal": [-1e6 * jnp.ones(leaf.shape) for leaf in leaves],
    }[how]
    return jax.tree.unflatten(structure, [leaf.astype(jnp.float32) for leaf in moved])


@jax.jit
def linear_facts(flow, rows):
    there, log_dets = jax.vmap(flow.forward)(rows)
    jacobian = jax.jacfwd(lambda x: flow.forward(x)[0])(rows[0])
    return there, log_dets, jax.vmap(flow.inverse)(there), jacobian


@pytest.mark.parametrize("how", HOSTILE)
@pytest.mark.parametrize("name", LINEAR)
def test_no_update_makes_a_linear_flow_singular(name, how):
    """Ten updates each, in 32 bits: determinants are finite and those of the matrix, and rows come back to 1e-3."""
    features, start = LINEAR[name]
    rows = rows_of(features)
    for number in range(10):
        flow = attacked(start(key_of(0)), how, number)
        flow = eqx.tree_at(lambda flow: flow.shift, flow, jnp.clip(flow.shift, -10, 10))
        there, log_dets, back, jacobian = (np.asarray(fact, np.float64) for fact in linear_facts(flow, rows))
        assert np.all(np.isfinite(there)) and np.all(np.abs(log_dets) <= 3 * features + 3)
        np.testing.assert_allclose(log_dets, np.linalg.slogdet(jacobian)[1], atol=0.01)
        np.testing.assert_allclose(back, rows, atol=1e-3)


def test_the_law_of_updates_rejects_parts_that_are_not_shrunk(monkeypatch):
    """The mutants: raw factors and raw triangles. Each loses rows that the real ones give back."""

    def loose(self):
        return {"scale": jnp.exp(self.log_scale), "left": self.left, "right": self.right, "shift": self.shift}

    def raw(self):
        below = np.tril(np.ones(self.lower.shape, np.float32), -1)
        scale = jnp.exp(self.log_scale)
        return {"lower": self.lower * below, "upper": self.upper * below.T, "scale": scale, "shift": self.shift}

    monkeypatch.setattr(LowRank, "weights", loose)
    monkeypatch.setattr(Plu, "weights", raw)
    linear_facts.clear_cache()
    for name in ("low rank 2", "plu"):
        with pytest.raises(AssertionError):
            test_no_update_makes_a_linear_flow_singular(name, "large")
    linear_facts.clear_cache()


def test_a_flow_starts_as_its_reversals():
    """Fresh networks have a last layer of zeros: the start depends on nothing, least of all on rows."""
    for blocks in (1, 2):
        flow = MaskedAutoregressiveFlow.start(MafShape(4, blocks, 8, 2, True), key=key_of(0))
        row = rows_of(4)[0]
        y, log_det = flow.blocks.forward(row)
        np.testing.assert_array_equal(y, row[::-1] if blocks == 1 else row)
        assert float(log_det) == 0


def test_every_bijection_of_the_room_is_in_the_dictionary():
    def kinds(kind):
        return {kind} | {k for sub in kind.__subclasses__() for k in kinds(sub)}

    concrete = {kind for kind in kinds(Bijection) if not kind.__abstractmethods__}
    inside = {type(part) for _, b in BIJECTIONS.values() for part in jax.tree.leaves(b, is_leaf=_is_bijection)}
    inside |= {type(bijection) for _, bijection in BIJECTIONS.values()}
    assert {kind for kind in concrete if kind.__module__.startswith("sfumato.")} <= inside


def _is_bijection(node):
    return isinstance(node, Bijection) and not isinstance(node, Chain)


def test_an_abstract_bijection_cannot_be_made():
    class Half(Bijection):
        def forward(self, x):
            return x, jnp.zeros(())

    with pytest.raises(TypeError):
        Half()


def test_a_spline_is_the_same_however_its_few_numbers_are_added(monkeypatch):
    """Products of matrices on a CPU, sums elsewhere."""
    random = np.random.default_rng(5)
    points = jnp.asarray(random.normal(size=40) * 3, jnp.float32)
    raw = jnp.asarray(random.normal(size=(40, SplineMap().num_parameters())), jnp.float32)
    whole = lambda points, raw: (
        *jax.vmap(SplineMap().forward)(points, raw),
        jax.vmap(SplineMap().inverse)(points, raw),
    )
    products = jax.jit(whole)(points, raw)
    monkeypatch.setattr("sfumato.models.flows.spline.jax.default_backend", lambda: "gpu")
    for one, other in zip(products, jax.jit(lambda *given: whole(*given))(points, raw), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
