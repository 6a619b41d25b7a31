"""DP-CTGAN: a generator that any level of any column can be asked of, taught by a private critic."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sfumato.checks import instance, positive, whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.adversarial import Game, play_game
from sfumato.fitting.batches import sampling_rate
from sfumato.fitting.critic_loss import ConditionalScene, Scene
from sfumato.fitting.critics import CriticSize, WholeCritic, critic_shape
from sfumato.fitting.generator_start import GeneratorSize, label_place, level_shares, with_shares
from sfumato.fitting.marginals import MarginalShare, buy_marginals
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.generators.blocks import blocks_of
from sfumato.models.generators.conditional import ConditionalGenerator, condition_width, conditions
from sfumato.models.generators.generator import Generator
from sfumato.models.union import LevelUnion
from sfumato.privacy import Curator, PoissonSampling, Relation, SgdPlan
from sfumato.synthesizers.dp_cgan import default_label
from sfumato.synthesizers.dp_gan import DpGan

__all__ = ["CriticSize", "DpCtgan", "Game", "GeneratorSize", "MarginalShare", "Selection"]


@dataclass(frozen=True, kw_only=True)
class DpCtgan:
    """DPCTGAN without its leaks: conditions on levels, shares of levels bought, numbers behind bought marginals.

    Guarantees: (epsilon, delta) for one unit. No likelihood.
    Cost: Gaussian sums for the one-way marginals (``marginals``), from which the frequencies of all conditions follow;
    choices for the ``selection`` of models along the game, if there is one; the rest on noisy gradients of the critic.
    Through ``sf.fit_without_privacy`` it is CTGAN, the ceiling that private fits are held against, with a certificate
    that says infinity.
    ``label`` is a column that the critic sees apart, and that can be asked for even where it has two levels; by default
    the last one of 2 to 64 values.
    Reference: Xu et al. 2019 (CTGAN); Rosenblatt et al. 2020 (DPCTGAN). Public implementations draw conditions, and the
    rows that go with them, by exact counts, and fit mixtures to numbers without noise. Here a row brings a condition
    of its own, and marginals that were paid for stand in for the mixtures.

    >>> DpCtgan(steps=500).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "dp-ctgan"
    title: ClassVar[str] = "DPCTGAN: conditional generator of any level, private critic"
    reference: ClassVar[str] = "Rosenblatt et al. 2020, after Xu et al. 2019"
    can: ClassVar[tuple[str, ...]] = ("sample", "warm_start")

    label: str | None = None
    generator: GeneratorSize = GeneratorSize(width=64, depth=1)
    critic: CriticSize = CriticSize()
    game: Game = Game()
    batch: int | None = None
    steps: int = 2_000
    clip: float = 1.0
    marginals: MarginalShare = MarginalShare()
    selection: Selection | None = None

    def __post_init__(self) -> None:
        whole(1, steps=self.steps)
        positive(clip=self.clip)
        if self.batch is not None:
            whole(1, batch=self.batch)
        instance(GeneratorSize, generator=self.generator)
        instance(CriticSize, critic=self.critic)
        instance(Game, game=self.game)
        instance(MarginalShare, marginals=self.marginals)
        check_shares(self.selection, self.marginals.share)

    @classmethod
    def paper(cls) -> Self:
        """The sizes of the published code: two hidden layers of 256 units on either side, a normal vector of 128, 500
        rows a step, rates of 2e-4. What it learns for free, from counts and from mixtures of numbers, is bought here.
        """
        return cls(
            generator=GeneratorSize(latent=128, width=256, depth=2),
            critic=CriticSize(width=256, depth=2, apart=False),
            game=Game(made=500, learning_rate=2e-4, critic_rate=2e-4, averaging=0.0, penalty=0.0),
            batch=500,
        )

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Settings small enough for audits."""
        tiny = DpGan.trials()[0]
        shared = {name: getattr(tiny, name) for name in ("generator", "critic", "game", "steps", "marginals")}
        return (cls(**shared),)

    def fit(self, curator: Curator, layout: Layout) -> Generator | ConditionalGenerator | LevelUnion:
        first, second = jax.random.split(curator.start_key())
        place = label_place(layout, self.label or default_label(layout))  # refused before anything is spent
        choices = pledged(curator, layout, self.selection)
        rate = sampling_rate(curator.declared_size, self.batch, 10)
        marginals = buy_marginals(curator, layout, self.marginals)
        maker = start_conditional(layout, self.generator, marginals, place, key=first)
        scene = conditional_scene(maker, place)
        shape = critic_shape(scene, self.critic)
        critic = WholeCritic(scene, shape, self.game.loss, self.clip)
        plan = SgdPlan(sampling=PoissonSampling(rate=rate), clip=critic.clip, steps=self.steps)
        given: dict[str, Any] = {"plan": plan, "game": self.game, "key": second}
        models = play_game(curator, maker, critic, **given, checkpoints=choices.checkpoints)
        return choices.released(curator, layout, models)


def start_conditional(
    layout: Layout, size: GeneratorSize, marginals: MarginalMap, label: int | None, *, key: Array
) -> Generator | ConditionalGenerator:
    """A generator before the game, which knows each column by itself; without levels to ask for, a plain one.

    The ``label`` can be asked for even where it has two levels.
    """
    blocks = blocks_of(layout, label)
    width, bins = condition_width(blocks), marginals.starts.shape[1] if blocks.places("point") else 0
    shape = GeneratorSize(latent=size.latent + width, width=size.width, depth=size.depth).shape(blocks, None, bins)
    plain = Generator.start(shape, key=key, marginals=marginals)
    inner = with_shares(plain, marginals, key=jax.random.fold_in(key, 1))
    if not width:
        return inner
    shares = [level_shares(marginals, place, blocks.blocks[place]) for place in conditions(blocks)]
    logs = np.log(np.concatenate([share for share in shares if share is not None]))
    return ConditionalGenerator(inner, jnp.asarray(logs, jnp.float32))


def conditional_scene(maker: Generator | ConditionalGenerator, label: int | None) -> Scene:
    """What critics are shown: rows beside conditions, where there are any, with the label apart."""
    return ConditionalScene(maker, place=label) if isinstance(maker, ConditionalGenerator) else Scene(maker)
