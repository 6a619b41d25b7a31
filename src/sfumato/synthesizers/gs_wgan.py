"""GS-WGAN: critics on disjoint parts of the rows, and a noisy gradient at the generator's door."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import jax

from sfumato.checks import instance
from sfumato.encoding.layout import Layout
from sfumato.fitting.critic_loss import Scene
from sfumato.fitting.critics import CriticSize
from sfumato.fitting.generator_start import GeneratorSize, start_generator
from sfumato.fitting.marginals import MarginalShare
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.fitting.teaching import Classroom, teach_generator
from sfumato.models.generators.generator import Generator
from sfumato.models.union import LevelUnion
from sfumato.privacy import Curator, PoissonSampling, Relation
from sfumato.synthesizers.dp_cgan import default_label

__all__ = ["Classroom", "CriticSize", "GeneratorSize", "GsWgan", "MarginalShare", "Selection"]


@dataclass(frozen=True, kw_only=True)
class GsWgan:
    """GS-WGAN: critics learn on parts of the rows without noise; which way made rows should move leaves with noise.

    Guarantees: (epsilon, delta) for one unit, all of whose rows are in one part. No likelihood.
    Cost: Gaussian sums for the one-way marginals (15 % of the budget), and one for all rounds together; choices for the
    ``selection`` of models along the rounds, if there is one.
    ``label`` is a column that rows are made for; by default the last one of 2 to 64 values.
    Critics are trained on their parts before the first round (``teaching.warm_steps``). That costs nothing: they never
    leave, and a unit still moves the answer of one part alone.
    Reference: Chen, Orekondy, Fritz 2020, "GS-WGAN". It asks one critic a round, which makes a round
    cheap. Here all critics answer in every round, as one sum; critics are classifiers.
    """

    name: ClassVar[str] = "gs-wgan"
    title: ClassVar[str] = "GS-WGAN: noisy gradients at the generator's door"
    reference: ClassVar[str] = "Chen, Orekondy, Fritz 2020 (NeurIPS)"
    can: ClassVar[tuple[str, ...]] = ("sample",)

    label: str | None = None
    generator: GeneratorSize = GeneratorSize(width=64, depth=1)
    critic: CriticSize = CriticSize(width=32)
    teaching: Classroom = Classroom()
    marginals: MarginalShare = MarginalShare()
    selection: Selection | None = None

    def __post_init__(self) -> None:
        instance(GeneratorSize, generator=self.generator)
        instance(CriticSize, critic=self.critic)
        instance(Classroom, teaching=self.teaching)
        instance(MarginalShare, marginals=self.marginals)
        check_shares(self.selection, self.marginals.share)

    @classmethod
    def paper(cls, label: str | None = None) -> Self:
        """The sizes of the published code, which are for images: 1,000 critics, 32 made rows, five critic steps of 32
        rows a round and 2,000 before the first, rates of 1e-4. Its 20,000 rounds ask one critic each, so every critic
        is asked about 20 times: as often as here, where all of them are asked in each of 20.
        """
        steps = {"local_steps": 5, "batch": 32, "warm_steps": 400}
        return cls(
            label=label,
            generator=GeneratorSize(latent=10, width=64, depth=1),
            critic=CriticSize(width=64, depth=1, apart=False),
            teaching=Classroom(
                parts=1_000, rounds=20, made=32, learning_rate=1e-4, critic_rate=1e-4, anchor=0.0, **steps
            ),
        )

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Settings small enough for audits."""
        return (cls(**tiny_class()),)

    def fit(self, curator: Curator, layout: Layout) -> Generator | LevelUnion:
        first, second = jax.random.split(curator.start_key())
        label = self.label or default_label(layout)
        choices = pledged(curator, layout, self.selection, label)
        generator = start_generator(curator, layout, self.generator, self.marginals, label=label, key=first)
        given: dict[str, Any] = {"key": second, "checkpoints": choices.checkpoints}
        scene, size = Scene(generator), self.critic
        models = teach_generator(curator, generator, scene, size, self.teaching, "slopes", **given)
        return choices.released(curator, layout, models)


def tiny_class() -> dict[str, Any]:
    """Sizes for trials."""
    return {
        "generator": GeneratorSize(latent=2, width=4, depth=1),
        "critic": CriticSize(width=4, depth=1),
        "teaching": Classroom(parts=3, rounds=2, made=2, warm_steps=1, batch=2, maker_steps=1),
        "marginals": MarginalShare(rounds=1, bins=8),
    }
