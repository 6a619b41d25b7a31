"""The game: when whom it moves, what it keeps, that it learns; conditional generators and their files."""

from collections import Counter
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.errors import ArgumentError, ReleaseError
from sfumato.fitting.adversarial import Game, _Table
from sfumato.fitting.critic_loss import ConditionalScene, Scene
from sfumato.fitting.critics import CriticSize, WholeCritic
from sfumato.fitting.generator_start import GeneratorSize
from sfumato.fitting.marginals import MarginalShare
from sfumato.models.generators.blocks import Block, RowBlocks
from sfumato.models.generators.conditional import ConditionalGenerator, condition_width
from sfumato.models.generators.critic import CriticShape
from sfumato.models.generators.generator import Generator, GeneratorShape
from sfumato.models.registry import skeleton
from sfumato.schema import Boolean, Schema
from sfumato.synthesizers.dp_cgan import default_label
from sfumato.synthesizers.dp_gan import DpGan, Selection

KEY = jax.random.key(0)
BLOCKS = RowBlocks((Block("choice", 3, None), Block("bits", 2, None), Block("choice", 4, 1), Block("choice", 2, None)))
SHARES = np.array([0.7, 0.2, 0.1, 0.9, 0.1])


def plain(latent=2):
    return Generator.start(GeneratorShape(BLOCKS, latent=latent, width=4, depth=1), key=KEY)


def conditional():
    return ConditionalGenerator(plain(2 + condition_width(BLOCKS)), jnp.log(jnp.asarray(SHARES, jnp.float32)))


def table_of(game, steps, checkpoints=1):
    shape = CriticShape(BLOCKS.width, width=3, depth=1)
    critic = WholeCritic(Scene(plain()), shape, game.loss, 1.0)
    return _Table(critic, plain(), game, steps, checkpoints), shape.start(KEY)


def played(table, weights, steps):
    state = table.start(weights, eqx.filter(plain().layers, eqx.is_array), KEY)
    start, seen = state["makers"], []
    update = jax.jit(lambda weights, state: table.update(jax.tree.map(jnp.zeros_like, weights), state, weights))
    for _ in range(steps):
        weights, state = update(weights, state)
        seen.append(state)
    return start, seen


def test_the_generator_moves_after_every_so_many_steps_of_the_critic():
    table, weights = table_of(Game(made=4, critic_steps=3), 9)
    start, seen = played(table, weights, 7)
    same = lambda one, two: bool(jnp.array_equal(one[0].weight, two[0].weight))
    moved = [not same(one, two) for one, two in pairwise([start, *[state["makers"] for state in seen]])]
    assert moved == [False, False, True, False, False, True, False]


def test_checkpoints_keep_the_averages_of_their_time():
    table, weights = table_of(Game(made=4, critic_steps=1, averaging=0.5), 6, checkpoints=3)
    _, seen = played(table, weights, 6)
    for place, step in enumerate((2, 4, 6)):
        kept, then = seen[-1]["kept"][0].weight[place], seen[step - 1]["average"][0].weight
        assert jnp.array_equal(kept, then)


def test_weights_stay_in_their_bound():
    table, weights = table_of(Game(loss="wasserstein", made=4, critic_rate=1.0, weight_bound=0.05), 5)
    update = jax.jit(lambda weights, state: table.update(jax.tree.map(jnp.ones_like, weights), state, weights))
    weights, _ = update(weights, table.start(weights, eqx.filter(plain().layers, eqx.is_array), KEY))
    assert max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(weights)) <= 0.05 + 1e-7


def test_the_game_learns_that_columns_agree():
    """Without noise: two coins that are one. Before the game they agree by half; the seed makes both runs repeat."""
    draw = np.random.default_rng(0).random(600) < 0.5
    rows, schema = pa.table({"a": draw, "b": draw}), Schema(columns={"a": Boolean(), "b": Boolean()}, rows=600)
    sizes = {"generator": GeneratorSize(latent=4, width=16, depth=1), "critic": CriticSize(width=16)}
    agree, game = [], Game(made=64, learning_rate=1e-2, critic_rate=1e-2)
    for steps in (1, 400):
        method = DpGan(**sizes, steps=steps, batch=128, game=game, marginals=MarginalShare(rounds=1))
        made = sf.fit_without_privacy(rows, schema, method=method, seed=1).sample_arrow(2_000, seed=1)
        agree.append(np.mean(np.asarray(made["a"]) == np.asarray(made["b"])))
    assert agree[0] < 0.7 and agree[1] > 0.85


def test_conditions_come_by_their_shares():
    """3,000 draws: the deviation of a share is below 0.01, and 0.05 is five of them."""
    drawn = np.asarray(jax.jit(jax.vmap(conditional().draw_condition))(jax.random.split(KEY, 3_000)))
    assert np.array_equal(np.unique(drawn.sum(axis=1)), [1.0])
    found = drawn.mean(axis=0)
    assert np.abs(found[:3] - SHARES[:3] / 2).max() < 0.05 and np.abs(found[3:] - SHARES[3:] / 2).max() < 0.05


def test_a_row_brings_a_condition_of_its_own_and_a_made_row_pays_for_breaking_its():
    scene = ConditionalScene(conditional())
    row = {"low": jnp.array([1 / 3, 0.0, 0.25, 0.5]), "width": jnp.array([1 / 3, 0.5, 0.25, 0.5])}
    seen = np.asarray(jax.jit(jax.vmap(lambda key: scene.real(row, key)))(jax.random.split(KEY, 50)))
    asked = Counter(tuple(each) for each in seen[:, BLOCKS.width :].tolist())
    assert set(asked) == {(0.0, 1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0, 1.0)}
    made, cost = jax.jit(lambda key: scene.made(scene.embedder, key))(KEY)
    assert made.shape == (scene.inputs,) and float(cost) > 0


def test_a_conditional_generator_is_rebuilt_from_its_description_and_no_other():
    model = conditional()
    sizes = [leaf.size for leaf in jax.tree.leaves(model)]
    again = skeleton(model.describe(), sizes)
    shapes = lambda tree: [leaf.shape for leaf in jax.tree.leaves(tree)]
    assert shapes(again) == shapes(model)
    for fields, given in (
        (model.describe(), sizes[:-1]),
        (model.describe(), [*sizes[:-1], sizes[-1] + 1]),
        ({**model.describe(), "latent": 1}, sizes),
        ({**model.describe(), "blocks": [["point", None, None]], "num_features": 1}, sizes),
    ):
        with pytest.raises(ReleaseError):
            skeleton(fields, given)


def test_the_default_label_is_the_last_of_few_values():
    from sfumato.encoding.layout import layout_of
    from sfumato.schema import Continuous

    assert default_label(layout_of(Schema(columns={"u": Continuous(lower=0, upper=1)}))) is None
    assert default_label(layout_of(Schema(columns={"a": Boolean(), "b": Boolean(nullable=True)}))) == "b"


def test_settings_are_checked():
    for given in ({"loss": "other"}, {"critic_steps": 0}, {"made": 1}, {"penalty": -1.0}, {"weight_bound": 0.0}):
        with pytest.raises(ArgumentError):
            Game(**given)
    with pytest.raises(ArgumentError, match="95 %"):
        DpGan(marginals=MarginalShare(share=0.8), selection=Selection(share=0.3))
    assert DpGan.paper().grouping.follow == "public"
