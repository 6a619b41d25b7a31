"""PATE-GAN and PATE-CTGAN: teachers on disjoint parts of the rows vote on made rows, and a student learns the votes."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import jax

from sfumato.checks import instance
from sfumato.encoding.layout import Layout
from sfumato.fitting.critic_loss import Scene
from sfumato.fitting.critics import CriticSize
from sfumato.fitting.generator_start import GeneratorSize, label_place, start_generator
from sfumato.fitting.marginals import MarginalShare, buy_marginals
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.fitting.teaching import Classroom, teach_generator
from sfumato.models.generators.conditional import ConditionalGenerator
from sfumato.models.generators.generator import Generator
from sfumato.models.union import LevelUnion
from sfumato.privacy import Curator, PoissonSampling, Relation
from sfumato.synthesizers.dp_cgan import default_label
from sfumato.synthesizers.dp_ctgan import conditional_scene, start_conditional
from sfumato.synthesizers.gs_wgan import tiny_class

__all__ = ["Classroom", "CriticSize", "GeneratorSize", "MarginalShare", "PateCtgan", "PateGan", "Selection"]


@dataclass(frozen=True, kw_only=True)
class PateGan:
    """PATE-GAN: teachers learn on parts of the rows without noise; what leaves is a noisy count of their votes.

    Guarantees: (epsilon, delta) for one unit, all of whose rows are in one part. No likelihood.
    Cost: Gaussian sums for the one-way marginals (15 % of the budget), and one for the votes of all rounds together;
    choices for the ``selection`` of models along the rounds, if there is one.
    Public implementations leave votes uncharged; here all are paid for before the first.
    ``label`` is a column that rows are made for; by default the last one of 2 to 64 values.
    Reference: Jordon, Yoon, van der Schaar 2019, "PATE-GAN", with Gaussian noise on votes in place of Laplace noise, as
    Papernot et al. 2018 propose.
    """

    name: ClassVar[str] = "pate-gan"
    title: ClassVar[str] = "PATE-GAN: teachers vote on made rows with noise"
    reference: ClassVar[str] = "Jordon, Yoon, van der Schaar 2019 (ICLR)"
    can: ClassVar[tuple[str, ...]] = ("sample",)

    label: str | None = None
    generator: GeneratorSize = GeneratorSize(width=64, depth=1)
    critic: CriticSize = CriticSize(width=16)
    teaching: Classroom = Classroom(rounds=30, made=60, learning_rate=3e-3)
    marginals: MarginalShare = MarginalShare()
    selection: Selection | None = None

    def __post_init__(self) -> None:
        instance(GeneratorSize, generator=self.generator)
        instance(CriticSize, critic=self.critic)
        instance(Classroom, teaching=self.teaching)
        instance(MarginalShare, marginals=self.marginals)
        check_shares(self.selection, self.marginals.share)

    @classmethod
    def paper(cls) -> Self:
        """The sizes of the paper: a teacher for 1,000 rows, one of the numbers that it tries; five steps of 64 rows a
        round, 64 made rows, nothing before the first round. It measures no marginals and its student is a network;
        both are as they are here, since single columns would be noise without the first.
        """
        steps = {"local_steps": 5, "batch": 64, "warm_steps": 0, "maker_steps": 1}
        return cls(
            critic=CriticSize(width=32, depth=1, apart=False),
            teaching=Classroom(part_rows=1_000, made=64, anchor=0.0, learning_rate=1e-3, **steps),
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

    def fit(self, curator: Curator, layout: Layout) -> Generator | ConditionalGenerator | LevelUnion:
        first, second = jax.random.split(curator.start_key())
        label = self.label or default_label(layout)
        label_place(layout, label)  # refused before anything is spent
        choices = pledged(curator, layout, self.selection)
        generator = start_generator(curator, layout, self.generator, self.marginals, label=label, key=first)
        given: dict[str, Any] = {"key": second, "checkpoints": choices.checkpoints}
        scene, size = Scene(generator), self.critic
        models = teach_generator(curator, generator, scene, size, self.teaching, "votes", **given)
        return choices.released(curator, layout, models)


@dataclass(frozen=True, kw_only=True)
class PateCtgan(PateGan):
    """PATE-CTGAN: the same with a generator that is told one level of one column, as of ``DpCtgan``.

    Guarantees and cost: as ``PateGan``. Shares of levels come with the marginals.
    Reference: Rosenblatt et al. 2020.
    """

    name: ClassVar[str] = "pate-ctgan"
    title: ClassVar[str] = "PATE-CTGAN: PATE-GAN with conditions on any level"
    reference: ClassVar[str] = "Rosenblatt et al. 2020"

    def fit(self, curator: Curator, layout: Layout) -> Generator | ConditionalGenerator | LevelUnion:
        first, second = jax.random.split(curator.start_key())
        place = label_place(layout, self.label or default_label(layout))  # refused before anything is spent
        choices = pledged(curator, layout, self.selection)
        marginals = buy_marginals(curator, layout, self.marginals)
        maker = start_conditional(layout, self.generator, marginals, place, key=first)
        scene = conditional_scene(maker, place)
        given: dict[str, Any] = {"key": second, "checkpoints": choices.checkpoints}
        models = teach_generator(curator, maker, scene, self.critic, self.teaching, "votes", **given)
        return choices.released(curator, layout, models)
