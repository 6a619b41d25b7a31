"""Laws of the learned dequantisation: its map, its density, and the bound that it serves.

All numbers are drawn with fixed seeds; nothing here is a statistical test.
"""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import expit, logit, ndtri
from scipy.stats import norm

from sfumato.errors import ArgumentError, ReleaseError
from sfumato.fitting.flow_loss import FlowLoss
from sfumato.models.flows.dequantiser import Dequantiser, DequantiserShape
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.mixture_cdf import MixtureCdf
from sfumato.models.flows.share_cells import ShareCells
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.models.registry import skeleton

MAP = MixtureCdf(components=4)
HOSTILE = [1e-3, 1.0, 10.0, 1e3, 1e6]


def key_of(number):
    return jax.random.wrap_key_data(jnp.array([13, number], jnp.uint32))


def jiggled(module, number, size):
    leaves, structure = jax.tree.flatten(module)
    keys = jax.random.split(key_of(number), len(leaves))
    return jax.tree.unflatten(
        structure,
        [leaf + size * jax.random.normal(key, leaf.shape, jnp.float32) for key, leaf in zip(keys, leaves, strict=True)],
    )


def raw_of(size, num=64, number=0):
    return size * jax.random.normal(key_of(number), (num, MAP.num_parameters()), jnp.float32)


def dequantiser_of(num, couplings=1, size=0.6):
    shape = DequantiserShape(tuple(range(num)), width=8, summary=3, couplings=couplings)
    return jiggled(Dequantiser.start(shape, key=key_of(1)), 2, size)


# --- the map of one number ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", HOSTILE)
def test_the_mixture_map_rises_and_is_inverted_in_32_bits(size):
    """To a few roundings: a flat stretch of the map leaves x open, so the error is taken in the image."""
    raw = raw_of(size)
    xs = jnp.asarray(np.concatenate([np.linspace(-20, 20, 81), [-1e4, -300, 300, 1e4]]), jnp.float32)
    at = jax.jit(jax.vmap(jax.vmap(MAP.forward, (0, None)), (None, 0)))
    ys, log_slopes = at(xs, raw)
    assert np.all(np.isfinite(ys)) and np.all(np.isfinite(log_slopes))
    order = np.argsort(np.asarray(xs))
    assert np.all(np.diff(np.asarray(ys)[:, order], axis=1) >= 0)
    back = jax.jit(jax.vmap(jax.vmap(MAP.inverse, (0, None)), (0, 0)))(ys, raw)
    again = np.asarray(jax.vmap(jax.vmap(MAP.forward, (0, None)), (0, 0))(back, raw)[0], np.float64)
    slope, tiny = np.exp(np.asarray(log_slopes, np.float64)), 2.0**-23
    # The image is known to a few units of its last place, or to what such a unit of x makes of it.
    allowed = 16 * tiny * (np.abs(ys) + 8 + slope * (np.abs(xs)[None] + 8))
    assert np.all(np.abs(again - np.asarray(ys)) <= allowed)
    if size <= 1:
        assert np.max(np.abs(back - xs)[:, np.abs(xs) <= 20]) < 1e-4


@pytest.mark.parametrize("size", HOSTILE)
def test_the_log_slope_of_the_mixture_map_is_that_of_autodiff(size):
    raw = raw_of(size, number=1).astype(jnp.float32)
    xs = jnp.linspace(-15, 15, 64, dtype=jnp.float32)
    with jax.enable_x64(True):
        wide, points = raw.astype(jnp.float64), xs.astype(jnp.float64)
        exact = jax.jit(jax.vmap(jax.grad(lambda x, r: MAP.forward(x, r)[0])))(points, wide)
    found = jax.vmap(MAP.forward)(xs, raw)[1]
    np.testing.assert_allclose(found, np.log(exact), atol=3e-4)


@pytest.mark.parametrize("size", HOSTILE)
def test_gradients_of_the_mixture_map_and_its_inverse_are_finite_and_right(size):
    raw, xs = raw_of(size, number=2), jnp.linspace(-15, 15, 64, dtype=jnp.float32)
    both = lambda x, r: sum(MAP.forward(x, r))
    for gradient in jax.jit(jax.vmap(jax.grad(both, (0, 1))))(xs, raw):
        assert np.all(np.isfinite(gradient))
    with jax.enable_x64(True):
        x, r = jnp.asarray(0.7, jnp.float64), raw[0].astype(jnp.float64)
        y = MAP.forward(x, r)[0]
        found = jax.jit(jax.grad(MAP.inverse, (0, 1)))(y, r)
        slope, by_raw = jax.grad(lambda x, r: MAP.forward(x, r)[0], (0, 1))(x, r)
        np.testing.assert_allclose(found[0], 1 / slope, rtol=1e-6)
        np.testing.assert_allclose(found[1], -by_raw / slope, rtol=1e-6, atol=1e-9)


def test_the_mixture_map_is_the_log_odds_of_its_mixture():
    """Against SciPy, with one component far from the others, in the tails where F rounds to 0 and 1 as well."""
    raw = np.zeros(14, np.float32)
    raw[4:8] = [-3, 0, 0, 3]
    xs = np.array([-30.0, -2.0, 0.0, 1.5, 30.0])
    apart = np.linspace(-0.5, 0.5, 4)
    scale = np.sqrt(1 - 3 * apart.var() / np.pi**2)
    places = (xs[:, None] - (6 * np.tanh(raw[4:8].astype(float) / 6) + apart)) / scale
    expected = np.log(expit(places).mean(1)) - np.log(expit(-places).mean(1))
    found = jax.vmap(lambda x: MAP.forward(x, jnp.asarray(raw))[0])(jnp.asarray(xs, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


# --- the conditional flow -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num", "couplings"), [(1, 1), (5, 1), (5, 2)], ids=str)
def test_log_q_is_the_jacobian_of_the_draw(num, couplings):
    """In 64 bits by autodiff from noise to shares, and by the inverse from the shares alone; in 32 bits by the inverse.

    In 32 bits a share near 1 has few digits left, so those draws are compared where all shares are below 0.99.
    """
    part = dequantiser_of(num, couplings)
    noise = jnp.asarray(logit(np.random.default_rng(1).uniform(0.02, 0.98, (40, num))), jnp.float32)
    centres = jax.random.normal(key_of(3), (40, num), jnp.float32)
    taps = part.no_taps()

    def at(weights, centre, eps):
        u, log_q, _ = part.draw(weights, centre, eps, taps)
        jacobian = jax.jacfwd(lambda eps: part.draw(weights, centre, eps, taps)[0])(eps)
        base = jnp.sum(jax.nn.log_sigmoid(eps) + jax.nn.log_sigmoid(-eps))
        return u, log_q, base - jnp.linalg.slogdet(jacobian)[1], part.log_q(weights, centre, u)

    over = jax.jit(jax.vmap(at, (None, 0, 0)))
    u, log_q, _, by_inverse = over(part.weights(), centres, noise)
    assert np.all((u > 0) & (u < 1))
    assert np.std(log_q) > 0.05, "the flow under test must not be uniform"
    inner = np.all(u < 0.99, axis=1)
    assert np.sum(inner) >= 10
    np.testing.assert_allclose(log_q[inner], by_inverse[inner], atol=2e-3)
    with jax.enable_x64(True):
        weights, centres, noise = jax.tree.map(lambda x: x.astype(jnp.float64), (part.weights(), centres, noise))
        _, log_q, by_autodiff, by_inverse = over(weights, centres, noise)
    np.testing.assert_allclose(log_q, by_autodiff, atol=1e-7)
    np.testing.assert_allclose(log_q, by_inverse, atol=1e-6)


@pytest.mark.parametrize(("num", "couplings"), [(1, 1), (2, 2)], ids=str)
def test_the_density_of_shares_adds_up_to_one(num, couplings):
    part, nodes = dequantiser_of(num, couplings, 0.4), 2_000 if num == 1 else 300
    line = (np.arange(nodes) + 0.5) / nodes
    # Even steps of an S-shaped stretch of the line: closer together near the ends, where densities can be steep.
    places, widths = line**2 * (3 - 2 * line), 6 * line * (1 - line) / nodes
    grid = np.stack(np.meshgrid(*[places] * num), -1).reshape(-1, num)
    cells = np.prod(np.stack(np.meshgrid(*[widths] * num), -1), -1).ravel()
    for number in range(3):
        centre = jax.random.normal(key_of(20 + number), (num,), jnp.float32)
        found = jax.jit(jax.vmap(lambda u, c=centre: part.log_q(part.weights(), c, u)))(jnp.asarray(grid, jnp.float32))
        assert abs(np.sum(np.exp(np.asarray(found, float)) * cells) - 1) < 2e-3


def test_the_start_is_as_good_as_uniform():
    """The divergence from the uniform density is below 1e-4 a feature, and both halves are uniform shares."""
    part = Dequantiser.start(DequantiserShape((0, 1)), key=key_of(4))
    u = (np.arange(4_000) + 0.5) / 4_000
    noise = jnp.asarray(np.stack([logit(u), logit(u)], 1), jnp.float32)
    draw = jax.jit(jax.vmap(lambda eps: part.draw(part.weights(), jnp.zeros(2), eps, part.no_taps())))
    shares, log_q, _ = draw(noise)
    assert 0 < float(jnp.mean(log_q)) < 1e-4
    np.testing.assert_allclose(shares[:, 0], u, atol=1e-5)
    np.testing.assert_allclose(shares[:, 1], u, atol=5e-3)


@jax.jit
def drawn(part, centres, noise):
    """Shares, their log q by the draw and by the inverse, and the gradients of both in the weights."""

    def at(weights, centre, eps):
        u, log_q, _ = part.draw(weights, centre, eps, part.no_taps())
        return log_q + jnp.sum(u), (u, log_q, part.log_q(weights, centre, jax.lax.stop_gradient(u)))

    return jax.vmap(jax.grad(at, has_aux=True), (None, 0, 0))(part.weights(), centres, noise)


@pytest.mark.parametrize("size", HOSTILE)
def test_no_weights_break_the_draw(size):
    """Shares strictly inside the cell, log q and all gradients finite, whatever noise has made of the weights."""
    noise = jnp.asarray(logit(np.random.default_rng(2).uniform(1e-7, 1, (50, 4))), jnp.float32)
    centres = 3 * jax.random.normal(key_of(6), (50, 4), jnp.float32)
    gradients, (u, log_q, by_inverse) = drawn(dequantiser_of(4, 2, size), centres, noise)
    assert np.all((u > 0) & (u < 1)) and np.all(np.isfinite(log_q)) and np.all(np.isfinite(by_inverse))
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients.values())


def test_a_shape_that_makes_no_sense_is_refused():
    for wrong in ({"discrete": ()}, {"discrete": (1, 1)}, {"discrete": (0,), "couplings": 2}, {"discrete": (-1, 2)}):
        with pytest.raises(ArgumentError, match="dequantiser"):
            DequantiserShape(**wrong)


# --- cells behind the marginals -------------------------------------------------------------------------------


def test_cells_behind_the_marginals_are_those_of_the_distribution_function():
    edges = np.array([0, 0.25, 0.5, 0.75, 1, 1], np.float32)
    shares = np.array([0, 0.1, 0.4, 0.45, 1, 1], np.float32)
    marginals = MarginalMap.in_order(jnp.asarray(edges)[None].repeat(5, 0), jnp.asarray(shares)[None].repeat(5, 0))
    low, width = np.array([0.25, 0.0, 0.3, 1.0, 0.6]), np.array([0.25, 1.0, 0.0, 0.0, 1e-6])
    cells = ShareCells.behind(marginals, jnp.asarray(low, jnp.float32), jnp.asarray(width, jnp.float32))
    np.testing.assert_allclose(cells.low, np.interp(low, edges, shares), atol=1e-6)
    np.testing.assert_allclose(cells.width, [0.3, 1.0, 0, 0, 0.2e-6], rtol=1e-5)
    np.testing.assert_allclose(np.exp(cells.log_ratio), [1.2, 1.0, 1.2, 2.2, 0.2], rtol=1e-5)


# --- the bound ------------------------------------------------------------------------------------------------


@cache
def bent_flow(num, couplings):
    """A flow that is far from uniform inside its cells, behind uneven marginals."""
    learned = DequantiserShape(tuple(range(num)), width=16, summary=4, couplings=couplings)
    flow = SplineFlow.start(SplineFlowShape(num, 2, 8, 2, 2, 6, 1, "low-rank"), key=key_of(7), dequantiser=learned)
    moving = (flow.conditioner, flow.linear)
    flow = eqx.tree_at(lambda model: (model.conditioner, model.linear), flow, jiggled(moving, 8, 0.35))
    edges = np.tile(np.array([0, 0.5, 0.75, 1], np.float32), (num, 1))
    shares = np.tile(np.array([0, 0.2, 0.7, 1], np.float32), (num, 1))
    return eqx.tree_at(
        lambda model: model.marginals, flow, MarginalMap.in_order(jnp.asarray(edges), jnp.asarray(shares))
    )


def exact_log_mean(flow, low, width, nodes):
    """The log of the mean density on the cube over a cell, by the midpoint rule in each feature's normal quantile."""
    lines, cells = [], []
    for start, size in zip(low, width, strict=True):
        ends = ndtri(np.clip([start, start + size], 1e-6, 1 - 1e-6))
        points = np.linspace(*ends, nodes + 1)
        lines.append((points[1:] + points[:-1]) / 2)
        cells.append(np.diff(norm.cdf(points)) / size)
    grid = np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(low))
    masses = np.prod(np.stack(np.meshgrid(*cells, indexing="ij"), -1), -1).ravel()
    log_p = np.asarray(jax.jit(jax.vmap(flow.log_prob))(jnp.asarray(grid, jnp.float32)), float)
    return np.log(np.sum(np.exp(log_p - norm.logpdf(grid).sum(1)) * masses))


def with_tails(flow, low, width, nodes, reach=20.0):
    """The same behind the marginals, with all past +-4.75 there: what is sampled there falls into the end cells."""
    cells = ShareCells.behind(flow.marginals, jnp.asarray(low, jnp.float32), jnp.asarray(width, jnp.float32))
    lines = []
    for start, size in zip(np.asarray(cells.low, float), np.asarray(cells.width, float), strict=True):
        ends = [-reach if start < 1e-6 else ndtri(start), reach if start + size > 1 - 1e-6 else ndtri(start + size)]
        lines.append(np.linspace(*ends, nodes + 1))
    middles, steps = [(line[1:] + line[:-1]) / 2 for line in lines], [line[1] - line[0] for line in lines]
    grid = np.stack(np.meshgrid(*middles), -1).reshape(-1, len(low))
    log_p = np.asarray(jax.jit(jax.vmap(flow._standard_log_prob))(jnp.asarray(grid, jnp.float32)), float)
    return np.log(np.sum(np.exp(log_p)) * np.prod(steps) / np.prod(width))


def bounds_of(flow, low, width, draws=4_096):
    """The mean of log p - log q for a row, from the loss that is trained."""
    loss = FlowLoss(skeleton=flow, draws=draws)
    taps = {name: jnp.zeros(size, jnp.float32) for name, size in loss.taps().items()}
    row = {"low": jnp.asarray(low, jnp.float32), "width": jnp.asarray(width, jnp.float32)}
    whole = lambda weights, key: -loss.row(weights, row, key, taps)[0] - loss.common(weights)
    return jax.jit(whole)(loss.weights(flow), key_of(9))


def only_dequantiser_trained(flow, low, width, steps=2_000):
    row = {"low": jnp.asarray(low, jnp.float32), "width": jnp.asarray(width, jnp.float32)}
    loss = FlowLoss(skeleton=flow, draws=64)
    taps = {name: jnp.zeros(size, jnp.float32) for name, size in loss.taps().items()}
    adam = optax.adam(optax.cosine_decay_schedule(2e-2, steps))

    def step(state, key):
        part, moments = state
        value = lambda part: loss.row(flow.weights() | part.weights(), row, key, taps)[0]
        change, moments = adam.update(jax.grad(value)(part), moments)
        return (optax.apply_updates(part, change), moments), None

    start = (flow.dequantiser, adam.init(flow.dequantiser))
    (part, _), _ = jax.jit(lambda start: jax.lax.scan(step, start, jax.random.split(key_of(10), steps)))(start)
    return eqx.tree_at(lambda model: model.dequantiser, flow, part)


@pytest.mark.parametrize(
    ("low", "width"),
    [((0.0,), (0.5,)), ((0.5, 0.0), (0.25, 1.0))],
    ids=["a level", "a level and a missing value"],
)
def test_the_bound_is_below_the_log_mass_and_reaches_it(low, width):
    """Before training it is clearly below the mass; where q is trained for the cell, nine tenths of the gap close.

    A missing value may lie anywhere, over all bins of the marginals.
    """
    flow = bent_flow(len(low), len(low))
    exact = exact_log_mean(flow, low, width, 4_000 if len(low) == 1 else 400)
    start = float(bounds_of(flow, low, width))
    flow = only_dequantiser_trained(flow, low, width)
    trained = float(bounds_of(flow, low, width))
    assert start < exact - 0.03
    assert exact - 0.1 * (exact - start) < trained < exact + 2e-3, (start, trained, exact)
    # The mean of weighted points finds the mass itself, with all that lies in the tails.
    wholly = with_tails(flow, low, width, 4_000 if len(low) == 1 else 400)
    points = np.random.default_rng(0).uniform(size=(8_192, len(low)))
    cell = jnp.asarray(low, jnp.float32), jnp.asarray(width, jnp.float32)
    found = eqx.filter_jit(flow.log_mean_density)(*cell, jnp.asarray(points, jnp.float32))
    assert abs(float(found) - wholly) < 0.02
    # The mutant: a bound that forgets log q is above the mass, and the test would see it.
    cells = ShareCells.behind(flow.marginals, *cell)
    draw = lambda point: flow.draw_in_cells(flow.weights(), cells, point, flow.dequantiser.no_taps())[1]
    assert trained + float(jnp.mean(jax.jit(jax.vmap(draw))(jnp.asarray(points[:512], jnp.float32)))) > exact + 0.02


# --- training -------------------------------------------------------------------------------------------------


def toy_rows(num=2_048):
    """Two columns of four and three levels; the second follows from the first nearly always."""
    random = np.random.default_rng(5)
    first = random.choice(4, num, p=[0.4, 0.1, 0.3, 0.2])
    second = np.where(random.uniform(size=num) < 0.9, np.array([2, 0, 1, 0])[first], random.choice(3, num))
    low = np.stack([first / 4, second / 3], 1).astype(np.float32)
    return {"low": jnp.asarray(low), "width": jnp.tile(jnp.asarray([1 / 4, 1 / 3], jnp.float32), (num, 1))}


def trained(rows, dequantiser, steps=300):
    """A flow trained by Adam without privacy, with uniform or learned dequantisation."""
    shape = SplineFlowShape(2, 2, 16, 1, 2, 8, 1, "low-rank")
    flow = SplineFlow.start(shape, key=key_of(11), dequantiser=dequantiser)
    loss, adam = FlowLoss(skeleton=flow), optax.adam(optax.cosine_decay_schedule(1e-2, steps))
    taps = {name: jnp.zeros(size, jnp.float32) for name, size in loss.taps().items()}

    def mean(flow, rows, keys):
        weights = loss.weights(flow)
        values = jax.vmap(lambda row, key: loss.row(weights, row, key, taps)[0])(rows, keys)
        return jnp.mean(values) + loss.common(weights)

    def step(state, key):
        flow, moments = state
        chosen = jax.random.choice(jax.random.fold_in(key, 1), rows["low"].shape[0], (256,))
        batch = jax.tree.map(lambda column: column[chosen], rows)
        gradient = jax.grad(mean)(flow, batch, jax.random.split(key, 256))
        gradient = eqx.tree_at(lambda model: model.marginals, gradient, jax.tree.map(jnp.zeros_like, flow.marginals))
        change, moments = adam.update(gradient, moments)
        return (optax.apply_updates(flow, change), moments), None

    run = lambda flow: jax.lax.scan(step, (flow, adam.init(flow)), jax.random.split(key_of(12), steps))[0][0]
    return jax.jit(run)(flow)


@jax.jit
def scores(flow, rows):
    """The mean bound of a flow in nats by its own draws, and the mean of what many weighted points find."""
    taps = {name: jnp.zeros(size, jnp.float32) for name, size in flow.taps().items()}
    weights, points = flow.weights(), jax.random.uniform(key_of(13), (128, 2), jnp.float32)

    def at(low, width):
        over = jax.vmap(lambda point: flow.row_bound(weights, low, width, point, taps)[0])
        return jnp.mean(over(points)) + flow.log_det(), flow.log_mean_density(low, width, points)

    bound, exact = jax.vmap(at)(rows["low"][:128], rows["width"][:128])
    return jnp.mean(bound), jnp.mean(exact)


def test_learned_dequantisation_beats_the_uniform_one_in_the_bound():
    """Without privacy, on a toy table: the bound is higher, and nearer to what it bounds."""
    rows = toy_rows()
    uniform, best = scores(trained(rows, None), rows)
    learned, mass = scores(trained(rows, DequantiserShape((0, 1), width=16, summary=4, couplings=2)), rows)
    assert learned > uniform + 0.03, (uniform, best, learned, mass)
    assert abs(mass - learned) < 0.5 * (best - uniform), (uniform, best, learned, mass)


# --- the model in a release -----------------------------------------------------------------------------------


def described(dequantiser):
    flow = SplineFlow.start(SplineFlowShape(3, 2, 8, 2, 2, 6, 1, "plu"), key=key_of(14), dequantiser=dequantiser)
    return flow, flow.describe(), [leaf.size for leaf in jax.tree.leaves(flow)]


def test_a_flow_with_a_dequantiser_is_rebuilt_from_its_description():
    flow, description, sizes = described(DequantiserShape((2, 0), width=5, summary=3, components=2, couplings=2))
    shapes = skeleton(description, sizes)
    assert jax.tree.structure(shapes) == jax.tree.structure(flow)
    same = jax.tree.map(lambda shape, leaf: shape.shape == leaf.shape and shape.dtype == leaf.dtype, shapes, flow)
    assert all(jax.tree.leaves(same))


def test_a_flow_without_one_is_described_and_drawn_as_before():
    flow, description, sizes = described(None)
    assert "dequantiser" not in description and len(sizes) == 15
    assert jax.tree.structure(skeleton(description, sizes)) == jax.tree.structure(flow)
    other, _, _ = described(DequantiserShape((0,)))
    plain = eqx.tree_at(lambda model: model.dequantiser, other, None)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(flow), strict=True))


@pytest.mark.parametrize(
    "damage",
    [
        {"discrete": [0, 3]},
        {"discrete": [0, 0]},
        {"discrete": [-1]},
        {"discrete": []},
        {"discrete": [True]},
        {"discrete": "01"},
        {"width": 10**6},
        {"width": 0},
        {"couplings": 3},
        {"components": 2.0},
        None,
    ],
    ids=str,
)
def test_a_damaged_description_of_a_dequantiser_is_refused(damage):
    _, description, sizes = described(DequantiserShape((0, 1), width=5, summary=3))
    wrong = "none" if damage is None else description["dequantiser"] | damage
    with pytest.raises(ReleaseError, match=r"damaged|claims"):
        skeleton(description | {"dequantiser": wrong}, sizes)
