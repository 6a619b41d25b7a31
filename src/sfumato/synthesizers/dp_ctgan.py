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
from sfumato.fitting.critics import CriticSize, WholeCritic
from sfumato.fitting.generator_start import GeneratorSize, level_shares, with_shares
from sfumato.fitting.marginals import MarginalShare, buy_marginals
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.generators.blocks import blocks_of
from sfumato.models.generators.conditional import ConditionalGenerator, condition_width, conditions
from sfumato.models.generators.critic import CriticShape
from sfumato.models.generators.generator import Generator
from sfumato.models.union import LevelUnion
from sfumato.privacy import Curator, PoissonSampling, Relation, SgdPlan
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
        choices = pledged(curator, layout, self.selection)
        rate = sampling_rate(curator.declared_size, self.batch, 10)
        marginals = buy_marginals(curator, layout, self.marginals)
        maker = start_conditional(layout, self.generator, marginals, key=first)
        scene = ConditionalScene(maker) if isinstance(maker, ConditionalGenerator) else Scene(maker)
        shape = CriticShape(scene.inputs, self.critic.width, self.critic.depth)
        critic = WholeCritic(scene, shape, self.game.loss, self.clip)
        plan = SgdPlan(sampling=PoissonSampling(rate=rate), clip=critic.clip, steps=self.steps)
        given: dict[str, Any] = {"plan": plan, "game": self.game, "key": second}
        models = play_game(curator, maker, critic, **given, checkpoints=choices.checkpoints)
        return choices.released(curator, layout, models)


def start_conditional(
    layout: Layout, size: GeneratorSize, marginals: MarginalMap, *, key: Array
) -> Generator | ConditionalGenerator:
    """A generator before the game, which knows each column by itself; without levels to ask for, a plain one."""
    blocks = blocks_of(layout)
    width, bins = condition_width(blocks), marginals.starts.shape[1] if blocks.places("point") else 0
    shape = GeneratorSize(latent=size.latent + width, width=size.width, depth=size.depth).shape(blocks, None, bins)
    plain = Generator.start(shape, key=key, marginals=marginals)
    inner = with_shares(plain, marginals, key=jax.random.fold_in(key, 1))
    if not width:
        return inner
    shares = [level_shares(marginals, place, blocks.blocks[place]) for place in conditions(blocks)]
    logs = np.log(np.concatenate([share for share in shares if share is not None]))
    return ConditionalGenerator(inner, jnp.asarray(logs, jnp.float32))
