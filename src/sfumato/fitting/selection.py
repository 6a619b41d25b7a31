"""Selection: which of several models to release, told by private rows through the second door.

Models along a training differ, and under noise the last is not always the best. Some are chosen, one after another and
none twice, by the exponential mechanism on a score of bounded sensitivity, and their union is the release. The share
of the budget is fixed and charged before the training takes the rest (``Curator.pledge_choices``).

Two scores, both sums over private rows of a number in [-1, 1], so that one row moves each by one at most:

* with a label, whether a small classifier that was trained on a model's rows is right about the row; rows of frequent
  labels count for less, by the shares that labels have in the models' rows;
* without one, how well a model's pairs of columns fit: with shares q of a pair's cells a row adds q(its cell) minus
  half the sum of q squared, averaged over pairs. Over n rows with shares p that is n / 2 times (|p|^2 - |p - q|^2), so
  the largest score has the smallest squared distance.

Reference: Boob et al. 2018, section 4; McSherry and Talwar 2007.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from sfumato.checks import between, instance, whole
from sfumato.encoding.layout import Feature, Layout
from sfumato.errors import ArgumentError
from sfumato.fitting.generator_start import label_place
from sfumato.models.model import LevelModel
from sfumato.models.union import union_of
from sfumato.privacy import Curator
from sfumato.privacy.queries import ScoreQuery

PURPOSE = "choice of models"
_ROWS, _MOST_CODES, _MOST_LEVELS, _STEPS = 4_096, 8, 64, 300


@dataclass(frozen=True, kw_only=True)
class Selection:
    """How many models along a training are candidates, how many of them are released, and at which share.

    ``label`` names a column of few values that rows of a good model must help to predict; without it, pairs of columns
    must fit.

    >>> Selection(checkpoints=5, chosen=2).share
    0.05
    """

    checkpoints: int = 8
    chosen: int = 1
    share: float = 0.05
    label: str | None = None

    def __post_init__(self) -> None:
        whole(1, checkpoints=self.checkpoints, chosen=self.chosen)
        between(1, 100, checkpoints=self.checkpoints)
        between(1e-6, 0.5, share=self.share)
        if self.chosen > self.checkpoints:
            raise ArgumentError(f"Expected chosen={self.chosen} of at most checkpoints={self.checkpoints}.")

    def pledge(self, curator: Curator) -> float:
        """Charge the choices before anything else may take their budget; the epsilon of each is returned."""
        return curator.pledge_choices(PURPOSE, share=self.share, times=self.chosen)


@dataclass(frozen=True, kw_only=True)
class Pledge:
    """Choices that were paid for before a training, or none: then the last model is the release."""

    settings: Selection | None
    epsilon: float
    label: str | None

    @property
    def checkpoints(self) -> int:
        """How many models along the training are asked for."""
        return 1 if self.settings is None else self.settings.checkpoints

    def released(self, curator: Curator, layout: Layout, models: Sequence[Any]) -> Any:
        """The model to release: the last, the one that was chosen, or the union of those.

        ``curator`` must hold the rows as cells. Cost: what was pledged.
        """
        if self.settings is None:
            return models[-1]
        chosen = choose_models(curator, layout, models, self.settings, epsilon=self.epsilon, label=self.label)
        return models[chosen[0]] if len(chosen) == 1 else union_of([models[place] for place in chosen])


def pledged(curator: Curator, layout: Layout, settings: Selection | None, label: str | None = None) -> Pledge:
    """Pay for the choices of a selection, if there is one, before anything else is bought.

    ``label`` is that of the method, where the selection names none. Cost: ``share`` of the budget, now.
    """
    if settings is None:
        return Pledge(settings=None, epsilon=0.0, label=None)
    label = settings.label or label
    label_place(layout, label)  # a label that there is not is refused before anything is spent
    return Pledge(settings=settings, epsilon=settings.pledge(curator), label=label)


def check_shares(selection: Selection | None, *parts: float) -> None:
    """Refuse a selection that is none, and shares of the budget that leave too little for the training."""
    if selection is not None:
        instance(Selection, selection=selection)
    if sum(parts) + (0.0 if selection is None else selection.share) > 0.95:
        raise ArgumentError("What is bought and chosen may spend 95 % of the budget at most, selection included.")


def choose_models(
    curator: Curator, layout: Layout, models: Sequence[Any], settings: Selection, *, epsilon: float, label: str | None
) -> list[int]:
    """The places of the chosen models, in the order in which they were chosen.

    Cost: one ``ExponentialChoice`` at ``epsilon`` for each, which a pledge has paid for.
    """
    view = _View.of(layout)
    key = jax.random.fold_in(curator.start_key(), 0x5E1)
    drawn = [view.many(_points(model, jax.random.fold_in(key, place), layout)) for place, model in enumerate(models)]
    if label is None:
        scorers: list[Any] = [_PairFit.of(view, codes) for codes in drawn]
    else:
        place = view.place(layout, label)
        counts = np.bincount(
            np.concatenate([np.asarray(codes[:, place]) for codes in drawn]), minlength=view.sizes[place]
        )
        rare = np.maximum(counts, 0.01 * counts.sum() / counts.size)
        worth = jnp.asarray(rare.min() / rare, jnp.float32)
        scorers = [_Classifier.of(view, codes, place, worth) for codes in drawn]
    left, found = list(range(len(models))), []
    for _ in range(settings.chosen):
        query = ScoreQuery(
            function=_Scores(view, jax.tree.map(lambda *parts: jnp.stack(parts), *[scorers[at] for at in left])),
            num_candidates=len(left),
            purpose=PURPOSE,
        )
        found.append(left.pop(curator.noisy_choice(query, epsilon=epsilon)))
    return found


def _points(model: Any, key: Array, layout: Layout) -> Float[np.ndarray, "row feature"]:
    """Rows that a model draws, as points of the unit cube."""
    if isinstance(model, LevelModel):
        levels = tuple(feature.size for feature in layout.features)
        return model.points(model.draw_rows(key, _ROWS, _ROWS), levels)
    return np.asarray(_drawn(model, jax.random.split(key, _ROWS)))


@eqx.filter_jit
def _drawn(model: Any, keys: Array) -> Float[Array, "row feature"]:
    # Compiled once for all candidates, which have one shape.
    return jax.scipy.special.ndtr(jax.vmap(model.sample)(keys))


class _View(eqx.Module):
    """Rows as coarse codes, from the schema alone: levels as they are, numbers in a few even bins."""

    sizes: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, layout: Layout) -> "_View":
        return cls(tuple(_num_codes(feature) for feature in layout.features))

    def place(self, layout: Layout, label: str) -> int:
        return next(at for at, f in enumerate(layout.features) if f.column == label and f.role == "value")

    def codes(self, points: Float[Array, " feature"]) -> Int[Array, " feature"]:
        sizes = jnp.asarray(self.sizes)
        return jnp.clip(jnp.floor(points * sizes).astype(jnp.int32), 0, sizes - 1)

    def many(self, points: np.ndarray) -> Int[Array, "row feature"]:
        return jax.vmap(self.codes)(jnp.asarray(points, jnp.float32))

    def hot(self, codes: Int[Array, " feature"]) -> Float[Array, " number"]:
        return jnp.concatenate(
            [jax.nn.one_hot(codes[at], size, dtype=jnp.float32) for at, size in enumerate(self.sizes)]
        )


def _num_codes(feature: Feature) -> int:
    if feature.size is None:
        return _MOST_CODES
    return min(_MOST_LEVELS if feature.nominal else _MOST_CODES, feature.size)


class _Scores(eqx.Module):
    """The score of every candidate for one private row."""

    view: _View
    scorers: Any

    def __call__(self, row: dict[str, Array]) -> Float[Array, " candidate"]:
        codes = self.view.codes(row["low"] + row["width"] / 2)
        return jax.vmap(lambda scorer: scorer(self.view, codes))(self.scorers)


class _PairFit(eqx.Module):
    """How well the pairs of columns of a model fit a row."""

    shares: Float[Array, " cell"]
    half_squares: Float[Array, ""]
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)

    @classmethod
    def of(cls, view: _View, codes: Int[Array, "row feature"]) -> "_PairFit":
        num = len(view.sizes)
        pairs = tuple(combinations(range(num), 2)) if num > 1 else ((0, 0),)
        tables = []
        for one, other in pairs:
            cells = np.asarray(codes[:, one]) * view.sizes[other] + np.asarray(codes[:, other])
            tables.append(np.bincount(cells, minlength=view.sizes[one] * view.sizes[other]) / len(cells))
        half = np.mean([np.sum(table**2) for table in tables]) / 2
        return cls(jnp.asarray(np.concatenate(tables), jnp.float32), jnp.asarray(half, jnp.float32), pairs)

    def __call__(self, view: _View, codes: Int[Array, " feature"]) -> Float[Array, ""]:
        one, other = (np.array(side) for side in zip(*self.pairs, strict=True))
        sizes = np.array(view.sizes)
        starts = np.concatenate([[0], np.cumsum(sizes[one] * sizes[other])[:-1]])
        cells = starts + codes[one] * sizes[other] + codes[other]
        return jnp.mean(self.shares[cells]) - self.half_squares


class _Classifier(eqx.Module):
    """Logistic regression of the label on all other columns, trained on rows that a model made."""

    weight: Float[Array, "class number"]
    bias: Float[Array, " class"]
    worth: Float[Array, " class"]
    place: int = eqx.field(static=True)

    @classmethod
    def of(cls, view: _View, codes: Int[Array, "row feature"], place: int, worth: Array) -> "_Classifier":
        classes = view.sizes[place]
        start = (jnp.zeros((classes, sum(view.sizes)), jnp.float32), jnp.zeros(classes, jnp.float32))
        transformation = optax.adam(0.05)

        def loss(parts: Any) -> Array:
            model = cls(parts[0], parts[1], worth, place)
            logs = jax.vmap(lambda row: jax.nn.log_softmax(model.logits(view, row)))(codes)
            right = jnp.take_along_axis(logs, codes[:, place][:, None], axis=1)[:, 0]
            return -jnp.mean(worth[codes[:, place]] * right) + 1e-4 * jnp.sum(model.weight**2)

        @jax.jit
        def trained(parts: Any) -> Any:
            def step(_: Any, carry: Any) -> Any:
                parts, moments = carry
                change, moments = transformation.update(jax.grad(loss)(parts), moments, parts)
                return optax.apply_updates(parts, change), moments

            return jax.lax.fori_loop(0, _STEPS, step, (parts, transformation.init(parts)))[0]

        weight, bias = trained(start)
        return cls(weight, bias, worth, place)

    def logits(self, view: _View, codes: Int[Array, " feature"]) -> Float[Array, " class"]:
        first = int(sum(view.sizes[: self.place]))
        others = view.hot(codes).at[first : first + view.sizes[self.place]].set(0.0)
        return self.weight @ others + self.bias

    def __call__(self, view: _View, codes: Int[Array, " feature"]) -> Float[Array, ""]:
        right = jnp.argmax(self.logits(view, codes)) == codes[self.place]
        return jnp.where(right, self.worth[codes[self.place]], 0.0)
