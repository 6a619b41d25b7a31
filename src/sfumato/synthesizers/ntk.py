"""Ntk: DP-NTK, a generator that is trained towards one noisy mean of tangent features of a network."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import jax
from jaxtyping import Array

from sfumato.checks import instance, whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.generator_start import GeneratorSize, start_generator
from sfumato.fitting.marginals import MarginalShare
from sfumato.fitting.matching import Embedding, Training, fit_matching
from sfumato.fitting.tangent import TangentEmbedding
from sfumato.models.generators.blocks import RowBlocks
from sfumato.models.generators.generator import Generator
from sfumato.privacy import Curator, Relation


@dataclass(frozen=True, kw_only=True)
class Ntk:
    """DP-NTK: the mean gradient of a random network at the rows is bought once, and a generator is trained towards it.

    ``label`` names a column of few values: rows are then embedded, and made, for each label apart. ``hidden`` is how
    many hidden units the random network has; an embedding has a number for each of its parameters.
    Guarantees: (epsilon, delta) for one unit. It gives rows and no likelihood.
    Cost: Gaussian sums for the one-way marginals (``marginals``; None buys none), then one Gaussian sum for all that is
    left. Training costs no privacy.
    Corrected: the published code takes shares of labels from their exact counts for free, and draws its noise from a
    seeded generator. Here shares of labels are part of the one noisy sum, and the noise is the curator's.
    Reference: Yang, Adamczewski, Sutherland, Li, Park 2023, "Differentially Private Neural Tangent Kernels for
    Privacy-Preserving Data Generation"; ``Ntk.paper()`` measures no marginals.

    >>> Ntk(label="income").relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "ntk"
    title: ClassVar[str] = "DP-NTK: a generator by one noisy mean of tangent features"
    reference: ClassVar[str] = "Yang, Adamczewski, Sutherland, Li, Park 2023"
    can: ClassVar[tuple[str, ...]] = ("sample",)

    label: str | None = None
    hidden: int = 50
    size: GeneratorSize = GeneratorSize()
    training: Training = Training(batch=512)
    marginals: MarginalShare | None = MarginalShare()

    def __post_init__(self) -> None:
        if self.label is not None:
            instance(str, label=self.label)
        whole(1, hidden=self.hidden)
        instance(GeneratorSize, size=self.size)
        instance(Training, training=self.training)
        if self.marginals is not None:
            instance(MarginalShare, marginals=self.marginals)

    @classmethod
    def paper(cls) -> Self:
        """The settings nearest to the paper's: no marginals. It does not state sizes for tables; those are ours."""
        return cls(marginals=None)

    @property
    def relation(self) -> Relation:
        return Relation.ADD_OR_REMOVE_ONE

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """With and without marginals."""
        tiny = cls(
            hidden=3,
            size=GeneratorSize(latent=2, width=4, depth=1),
            training=Training(steps=2, batch=8),
            marginals=MarginalShare(rounds=2, bins=8),
        )
        return (tiny, replace(tiny, marginals=None))

    def fit(self, curator: Curator, layout: Layout) -> Generator:
        key, other = jax.random.split(curator.start_key())
        generator = start_generator(curator, layout, self.size, self.marginals, label=self.label, key=key)
        return fit_matching(curator, generator, self._embedding, self.training, key=other)

    def _embedding(self, blocks: RowBlocks, columns: tuple[int, ...], key: Array) -> Embedding:
        return TangentEmbedding.start(blocks, columns, width=self.hidden, key=key)
