"""Selection among models: scores of bounded sensitivity, the better model, none twice, and a share that was pledged."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.encoding.layout import layout_of
from sfumato.errors import ArgumentError
from sfumato.fitting.selection import Selection, _Classifier, _PairFit, _Scores, _View, choose_models
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
from sfumato.privacy.events import ExponentialChoice, GaussianSum
from sfumato.schema import Boolean, Categorical, Schema

SCHEMA = Schema(columns={"a": Boolean(), "b": Categorical(levels=("x", "y", "z")), "c": Boolean()}, rows=3_000)
LAYOUT = layout_of(SCHEMA)


@dataclass(frozen=True)
class Copies:
    """A model that draws a = b's first level, with so large a chance that c is a as well."""

    agree: float

    def draw_rows(self, key, num_rows, at_once):
        return table(num_rows, self.agree, int(jax.random.bits(key)) % 2**31)

    def points(self, drawn, levels):
        return (drawn + 0.5) / np.array([2, 3, 2])

    def sample(self, key):
        raise NotImplementedError

    def describe(self):
        return {}


def table(num_rows, agree, seed):
    random = np.random.default_rng(seed)
    a = random.integers(0, 2, num_rows)
    c = np.where(random.random(num_rows) < agree, a, 1 - a)
    return np.stack([a, random.integers(0, 3, num_rows), c], axis=1).astype(float)


def curator_of(epsilon=1.0, seed=1):
    rows = table(3_000, 0.9, 5)
    low = (rows / np.array([2, 3, 2])).astype(np.float32)
    held = {"low": low, "width": np.tile(np.float32([1 / 2, 1 / 3, 1 / 2]), (len(rows), 1))}
    ledger = Ledger(Budget(epsilon=epsilon, delta=1e-6), Adjacency())
    return Curator(held, ledger=ledger, randomness=Randomness.from_seed(seed), public_size=3_000), ledger


MODELS = [Copies(0.1), Copies(0.9), Copies(0.5), Copies(0.8)]


@pytest.mark.parametrize("label", [None, "c"])
def test_the_better_models_are_chosen_and_none_twice(label):
    """By pairs 0.9 fits best and then 0.8; a classifier is as good from either, and wrong from the first two others.

    Scores lie apart by hundreds of rows, so that either outcome fails by chance once in 10^5 runs at most.
    """
    curator, ledger = curator_of()
    settings = Selection(checkpoints=4, chosen=2, share=0.3)
    epsilon = settings.pledge(curator)
    found = choose_models(curator, LAYOUT, MODELS, settings, epsilon=epsilon, label=label)
    assert sorted(found) == [1, 3]
    assert ledger.events == (ExponentialChoice(epsilon=epsilon),) * 2, "the pledge is the charge, and the only one"


def test_what_was_pledged_cannot_be_spent_by_a_sum_in_between():
    curator, ledger = curator_of()
    settings = Selection(checkpoints=4, chosen=2, share=0.2)
    epsilon = settings.pledge(curator)
    ledger.charge(ledger.calibrate(lambda multiplier: GaussianSum(noise_multiplier=multiplier)), "the rest")
    assert len(choose_models(curator, LAYOUT, MODELS, settings, epsilon=epsilon, label=None)) == 2


def test_all_may_be_chosen():
    curator, _ = curator_of()
    settings = Selection(checkpoints=4, chosen=4, share=0.2)
    found = choose_models(curator, LAYOUT, MODELS, settings, epsilon=settings.pledge(curator), label=None)
    assert sorted(found) == [0, 1, 2, 3]


def test_the_sum_of_pair_scores_is_half_of_the_squares_that_a_model_gains():
    view = _View.of(LAYOUT)
    real, made = (
        view.many((table(500, agree, seed) + 0.5) / np.array([2, 3, 2])) for agree, seed in ((0.9, 1), (0.6, 2))
    )
    scorer = _PairFit.of(view, made)
    total = float(jnp.mean(jax.vmap(lambda codes: scorer(view, codes))(real)))
    gains = []
    for one, other in scorer.pairs:
        p, q = (
            np.bincount(np.asarray(rows[:, one] * view.sizes[other] + rows[:, other]), minlength=6) / 500
            for rows in (real, made)
        )
        gains.append((np.sum(p**2) - np.sum((p - q) ** 2)) / 2)
    assert total == pytest.approx(np.mean(gains), abs=1e-5)


@pytest.mark.parametrize("kind", ["pairs", "label"])
def test_no_row_moves_a_score_by_more_than_one(kind):
    view = _View.of(LAYOUT)
    drawn = [view.many((table(500, agree, 3) + 0.5) / np.array([2, 3, 2])) for agree in (0.2, 0.7)]
    worth = jnp.array([1.0, 0.4])
    scorers = [
        _PairFit.of(view, codes) if kind == "pairs" else _Classifier.of(view, codes, 2, worth) for codes in drawn
    ]
    scores = _Scores(view, jax.tree.map(lambda *parts: jnp.stack(parts), *scorers))
    random = np.random.default_rng(0)
    low = jnp.asarray(random.uniform(-1, 2, (200, 3)), jnp.float32)
    found = jax.vmap(lambda low: scores({"low": low, "width": jnp.full(3, 0.5, jnp.float32)}))(low)
    assert float(jnp.max(jnp.abs(found))) <= 1


def test_settings_are_checked():
    for given in ({"checkpoints": 0}, {"chosen": 9, "checkpoints": 4}, {"share": 0.9}):
        with pytest.raises(ArgumentError):
            Selection(**given)
