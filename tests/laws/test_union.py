"""Unions: the mixture of their members, in density, masses of cells and rows; checkpoints along a training."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.errors import ArgumentError, ReleaseError
from sfumato.fitting.likelihood import Optimiser, RowLoss, descend
from sfumato.models.codes.codec import Codec
from sfumato.models.codes.coded import CodedModel
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.models.mixture import GaussianMixture
from sfumato.models.model import CellModel, DensityModel, LevelModel
from sfumato.models.registry import skeleton
from sfumato.models.union import union_of
from sfumato.privacy import Adjacency, Budget, Curator, FlatClip, Ledger, PoissonSampling, Randomness, SgdPlan

LEFT, RIGHT = (GaussianMixture.of([1], [[at]], [[[0.01]]]) for at in (-2.0, 3.0))


def coded(first):
    return CodedModel(Codec.of_levels([2]), ConditionalTables.independent([np.array([first, 1 - first])]))


def flow(seed):
    return MaskedAutoregressiveFlow.start(MafShape(2, 2, 4, 1, False), key=jax.random.key(seed))


def test_a_union_of_densities_is_the_mixture():
    union = union_of([LEFT, RIGHT])
    assert isinstance(union, DensityModel) and not isinstance(union, CellModel) and not isinstance(union, LevelModel)
    for at in (-2.0, 0.3, 3.0):
        x = jnp.array([at])
        expected = np.logaddexp(float(LEFT.log_prob(x)), float(RIGHT.log_prob(x))) - np.log(2)
        assert float(union.log_prob(x)) == pytest.approx(expected, rel=1e-5)
    grid = jnp.linspace(-6, 6, 20_001)[:, None]
    assert float(jnp.sum(jnp.exp(jax.vmap(union.log_prob)(grid)))) * 12 / 20_000 == pytest.approx(1, abs=1e-3)
    rows = np.asarray(jax.vmap(union.sample)(jax.random.split(jax.random.key(0), 4_000)))[:, 0]
    # 4,000 throws of a coin lie 240 off once in 10^13 runs.
    assert abs(int((rows > 0).sum()) - 2_000) < 240
    assert np.all(np.minimum(abs(rows + 2), abs(rows - 3)) < 1)


def test_a_union_of_codes_has_exact_masses_and_draws_alike():
    union = union_of([coded(0.1), coded(0.7)])
    assert isinstance(union, CellModel) and isinstance(union, LevelModel) and union.exact
    mass = union.log_mean_density(jnp.array([0.0]), jnp.array([0.5]), jnp.zeros((1, 1)))
    assert float(jnp.exp(mass)) / 2 == pytest.approx(0.4)
    for num in (1, 7, 1_000):
        points = union.points(union.draw_rows(jax.random.key(num), num, 1_024), (2,))
        assert points.shape == (num, 1) and np.all((points >= 0) & (points <= 1))
    assert abs(int((points < 0.5).sum()) - 400) < 60


@pytest.mark.parametrize("members", [[LEFT, RIGHT], [coded(0.2), coded(0.3)], [flow(0), flow(1), flow(2)]])
def test_a_union_is_rebuilt_from_its_description(members):
    union = union_of(members)
    sizes = [leaf.size for leaf in jax.tree.leaves(eqx.filter(union, eqx.is_array))]
    found = skeleton(union.describe(), sizes)
    assert type(found) is type(union)
    shapes = lambda model: [leaf.shape for leaf in jax.tree.leaves(model) if hasattr(leaf, "shape")]
    assert shapes(found) == shapes(eqx.filter(union, eqx.is_array))
    described = union.describe()
    for wrong in (
        {"members": len(members) + 1}, {"members": 0}, {"members": 10**9}, {"members": True}, {"members": None},
        {"of": "union"}, {"of": "nothing"}, {"of": None}, {"num_features": 10**6},
    ):  # fmt: skip
        with pytest.raises(ReleaseError):
            skeleton({**described, **wrong}, sizes)


def test_a_union_needs_members_of_one_shape():
    for members in ([], [LEFT, GaussianMixture.standard(2)], [flow(0), LEFT]):
        with pytest.raises(ArgumentError):
            union_of(members)


def test_checkpoints_end_in_the_model_of_the_whole_training_and_begin_before_it():
    """The same noise, with checkpoints and without: the last is the model to the bit, and the first is not."""
    rows = np.random.default_rng(0).random((64, 1)).astype(np.float32)
    plan = SgdPlan(sampling=PoissonSampling(rate=0.5), clip=FlatClip(bound=1.0), steps=6)

    def trained(checkpoints):
        ledger = Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency())
        held = {"low": rows, "width": np.zeros_like(rows)}
        curator = Curator(held, ledger=ledger, randomness=Randomness.from_seed(1), public_size=64)
        params, fixed = eqx.partition(LEFT, eqx.is_array)
        given = {"plan": plan, "optimiser": Optimiser(), "purpose": "test", "checkpoints": checkpoints}
        return descend(LEFT, params, RowLoss(fixed), curator, **given), ledger.events

    (last,), alone = trained(1)
    (first, second, third), along = trained(3)
    assert alone == along, "checkpoints cost nothing"
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(third), jax.tree.leaves(last), strict=True))
    means = [float(model.means[0, 0]) for model in (LEFT, first, second, third)]
    assert len(set(means)) == 4
