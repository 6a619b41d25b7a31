"""Merf: DP-MERF, a generator that is trained towards one noisy mean of random Fourier features."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import jax
from jaxtyping import Array

from sfumato.checks import instance, positive, whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.fourier import mixed_embedding, wave_embedding
from sfumato.fitting.generator_start import GeneratorSize, start_generator
from sfumato.fitting.likelihood import Optimiser
from sfumato.fitting.marginals import MarginalShare
from sfumato.fitting.matching import Embedding, Training, fit_matching
from sfumato.models.generators.blocks import RowBlocks
from sfumato.models.generators.generator import Generator
from sfumato.privacy import Curator, Relation


@dataclass(frozen=True, kw_only=True)
class Merf:
    """DP-MERF: the mean embedding of the rows is bought once, and a generator is trained to have the same one.

    ``label`` names a column of few values: rows are then embedded, and made, for each label apart. ``features`` is how
    many numbers an embedding has, for each label; None is by the number of columns. ``order`` is how many columns a
    random wave looks at together; None takes the published embedding, waves over all numbers and every category by
    itself. ``kernel_width`` is in units of [0, 1]: of the domain of a column, or of its ranks where ``marginals`` are
    bought.
    Guarantees: (epsilon, delta) for one unit. It gives rows and no likelihood.
    Cost: Gaussian sums for the one-way marginals (``marginals``; None buys none), then one Gaussian sum for all that is
    left. Training costs no privacy.
    Corrected: the published code takes the kernel width from distances between private rows, and shares of labels from
    their exact counts, both for free, and draws its noise from a seeded generator. Here the width is a setting, shares
    of labels are part of the one noisy sum, and the noise is the curator's.
    Reference: Harder, Adamczewski, Park 2021, "DP-MERF: Differentially Private Mean Embeddings with Random Features for
    Practical Privacy-Preserving Data Generation"; ``Merf.paper()`` has its embedding.

    >>> Merf(label="income").relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "merf"
    title: ClassVar[str] = "DP-MERF: a generator by one noisy mean of random Fourier features"
    reference: ClassVar[str] = "Harder, Adamczewski, Park 2021 (AISTATS)"
    can: ClassVar[tuple[str, ...]] = ("sample",)

    label: str | None = None
    features: int | None = None
    order: int | None = 2
    kernel_width: float = 0.25
    size: GeneratorSize = GeneratorSize()
    training: Training = Training()
    marginals: MarginalShare | None = MarginalShare()

    def __post_init__(self) -> None:
        if self.label is not None:
            instance(str, label=self.label)
        if self.features is not None:
            whole(2, features=self.features)
        if self.order is not None:
            whole(1, order=self.order)
        positive(kernel_width=self.kernel_width)
        instance(GeneratorSize, size=self.size)
        instance(Training, training=self.training)
        if self.marginals is not None:
            instance(MarginalShare, marginals=self.marginals)

    @classmethod
    def paper(cls) -> Self:
        """The published embedding, without marginals; what the paper tunes for each table, or takes from private rows,
        is ours."""
        return cls(order=None, marginals=None)

    @property
    def relation(self) -> Relation:
        return Relation.ADD_OR_REMOVE_ONE

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Both embeddings, with and without marginals."""
        short = Training(steps=2, batch=8, optimiser=Optimiser())
        tiny = cls(
            features=12,
            size=GeneratorSize(latent=2, width=4, depth=1),
            training=short,
            marginals=MarginalShare(rounds=2, bins=8),
        )
        return (tiny, replace(tiny, order=None, marginals=None))

    def fit(self, curator: Curator, layout: Layout) -> Generator:
        key, other = jax.random.split(curator.start_key())
        generator = start_generator(curator, layout, self.size, self.marginals, label=self.label, key=key)
        return fit_matching(curator, generator, self._embedding, self.training, key=other)

    def _embedding(self, blocks: RowBlocks, columns: tuple[int, ...], key: Array) -> Embedding:
        size: dict[str, Any] = {"features": self.features, "width": self.kernel_width, "key": key}
        if self.order is None:
            return mixed_embedding(blocks, columns, **size)
        return wave_embedding(blocks, columns, order=self.order, **size)
