"""DP-GAN: a generator taught by a critic whose gradients on private rows are clipped and noised."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import jax
from jaxtyping import Array

from sfumato.checks import instance, positive, whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.adversarial import Game, play_game, public_look
from sfumato.fitting.batches import sampling_rate
from sfumato.fitting.critic_loss import Scene
from sfumato.fitting.critics import CriticRule, CriticSize, WholeCritic, critic_shape
from sfumato.fitting.generator_start import GeneratorSize, label_place, start_generator
from sfumato.fitting.grouped_critic import Grouping, grouped_critic
from sfumato.fitting.marginals import MarginalShare
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.models.generators.generator import Generator
from sfumato.models.union import LevelUnion
from sfumato.privacy import Curator, PoissonSampling, Relation, SgdPlan

__all__ = ["CriticSize", "DpGan", "Game", "GeneratorSize", "Grouping", "MarginalShare", "Selection"]


@dataclass(frozen=True, kw_only=True)
class DpGan:
    """DP-GAN: a private critic teaches a generator, which meets no row.

    Guarantees: (epsilon, delta) for one unit. No likelihood.
    Cost: Gaussian sums for the one-way marginals (``marginals``, 15 % of the budget; None buys none), choices for the
    ``selection`` of models, if there is one, and the rest on noisy gradients of the critic, of which every step is
    charged. ``batch`` is the expected batch; by default a tenth of the declared table, from 256 to 4,096 rows.
    ``label`` names a column that the generator is told first, and that the selection predicts. ``grouping`` clips
    groups of parameters by bounds of their own, in place of the whole gradient at ``clip``.
    Reference: Boob et al. 2018, "Private Synthetic Data Generation via GANs". Its Algorithm 3 clips the gradient of a
    batch and accounts for no group but one; here rows are clipped and all groups accounted (``grouped_critic``).

    >>> DpGan(steps=500).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "dpgan"
    title: ClassVar[str] = "DP-GAN: a generator taught by a private critic"
    reference: ClassVar[str] = "Boob, Cummings, Kimpara, Tantipongpipat, Waites, Zimmerman 2018"
    can: ClassVar[tuple[str, ...]] = ("sample", "warm_start")

    generator: GeneratorSize = GeneratorSize(width=64, depth=1)
    critic: CriticSize = CriticSize()
    game: Game = Game()
    batch: int | None = None
    steps: int = 2_000
    clip: float = 1.0
    grouping: Grouping | None = None
    marginals: MarginalShare | None = MarginalShare()
    selection: Selection | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        whole(1, steps=self.steps)
        positive(clip=self.clip)
        if self.batch is not None:
            whole(1, batch=self.batch)
        instance(GeneratorSize, generator=self.generator)
        instance(CriticSize, critic=self.critic)
        instance(Game, game=self.game)
        for kind, part in ((Grouping, self.grouping), (MarginalShare, self.marginals)):
            if part is not None:
                instance(kind, **{kind.__name__.lower(): part})
        check_shares(self.selection, 0.0 if self.marginals is None else self.marginals.share)

    @classmethod
    def paper(cls, label: str | None = None) -> Self:
        """What the paper proposes: parameter groups whose bounds follow the norms, and a choice among models.

        It measures no marginals and states no sizes; groups and bounds come from made rows, or a public table.
        """
        return cls(
            game=Game(critic_steps=5, penalty=0.0, averaging=0.0),
            grouping=Grouping(follow="public"),
            marginals=None,
            selection=Selection(chosen=3),
            label=label,
        )

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Whole gradients and groups, both losses, bounds that follow the norms either way, selection by pairs."""
        small: dict[str, Any] = {"generator": GeneratorSize(latent=2, width=4, depth=1)}
        small |= {"critic": CriticSize(width=4, depth=1), "game": Game(made=4, critic_steps=1), "steps": 2}
        tiny = cls(**small, marginals=MarginalShare(rounds=1, bins=8), selection=Selection(checkpoints=2))
        other = Game(loss="wasserstein", made=4, critic_steps=2, penalty=0.0, weight_bound=0.1)
        return (
            tiny,
            replace(tiny, grouping=Grouping(groups=2, follow="noisy"), marginals=None, selection=None, batch=20),
            replace(tiny, game=other, grouping=Grouping(groups=3, follow="public"), selection=None),
        )

    def fit(self, curator: Curator, layout: Layout) -> Generator | LevelUnion:
        first, second, third = jax.random.split(curator.start_key(), 3)
        rate = sampling_rate(curator.declared_size, self.batch, 10)
        label_place(layout, self.label)  # a label that there is not is refused before anything is spent
        choices = pledged(curator, layout, self.selection, self.label)
        told = None if self.marginals is None else self.label  # a label's shares must be known to draw it first
        generator = start_generator(curator, layout, self.generator, self.marginals, label=told, key=first)
        critic = self._critic(curator, generator, second)
        plan = SgdPlan(sampling=PoissonSampling(rate=rate), clip=critic.clip, steps=self.steps)
        given: dict[str, Any] = {"plan": plan, "game": self.game, "key": third}
        models = play_game(curator, generator, critic, **given, checkpoints=choices.checkpoints)
        return choices.released(curator, layout, models)

    def _critic(self, curator: Curator, generator: Generator, key: Array) -> CriticRule:
        scene = Scene(generator)
        shape = critic_shape(scene, self.critic)
        if self.grouping is None:
            return WholeCritic(scene, shape, self.game.loss, self.clip)
        first, second = jax.random.split(key)
        rows = public_look(curator, scene, generator, self.game.made, first)
        return grouped_critic(scene, shape, self.game.loss, self.grouping, rows=rows, key=second)
