"""DP-CGAN: a label-conditional generator and a critic, with both parts of the critic's loss clipped row by row."""

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from sfumato.encoding.layout import Layout
from sfumato.fitting.adversarial import Game
from sfumato.fitting.critics import CriticSize
from sfumato.fitting.generator_start import GeneratorSize
from sfumato.fitting.marginals import MarginalShare
from sfumato.fitting.selection import Selection
from sfumato.models.generators.generator import Generator
from sfumato.models.union import LevelUnion
from sfumato.privacy import Curator, PoissonSampling, Relation
from sfumato.synthesizers.dp_gan import DpGan

__all__ = ["CriticSize", "DpCgan", "Game", "GeneratorSize", "MarginalShare", "Selection"]

_MOST_CLASSES = 64


@dataclass(frozen=True, kw_only=True)
class DpCgan:
    """DP-CGAN: rows are made for a label, and the critic sees label and row together.

    Guarantees: (epsilon, delta) for one unit. No likelihood.
    Cost: Gaussian sums for the one-way marginals, among them the shares of labels, choices for the ``selection`` of
    models along the game, if there is one, the rest on noisy gradients of the critic. ``label`` is a column of 2 to 64
    values; by default the last such column of the schema.
    Reference: Torkzadehmahani, Kairouz, Paten 2019. It clips the gradients on real and on made rows apart, adds them
    and puts noise on the sum. Made rows whose labels come from bought shares tell nothing of a row, so here
    the noise is on the part of real rows alone, at half of the sensitivity; both parts are clipped by row all the same.

    >>> DpCgan(steps=500).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "dp-cgan"
    title: ClassVar[str] = "DP-CGAN: label-conditional generator, both loss parts clipped"
    reference: ClassVar[str] = "Torkzadehmahani, Kairouz, Paten 2019"
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
        self._game(self.label)

    @classmethod
    def paper(cls, label: str | None = None) -> Self:
        """The sizes of the paper and its code, which are for images: one hidden layer of 128 units on either side,
        600 rows a step, a bound of 1.1, no penalty. Labels still need their bought shares, and Adam moves the critic.
        """
        return cls(
            label=label,
            generator=GeneratorSize(latent=100, width=128, depth=1),
            critic=CriticSize(width=128, depth=1, apart=False),
            game=Game(made=600, learning_rate=1e-3, averaging=0.0, penalty=0.0),
            batch=600,
            clip=1.1,
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

    def fit(self, curator: Curator, layout: Layout) -> Generator | LevelUnion:
        return self._game(self.label or default_label(layout)).fit(curator, layout)

    def _game(self, label: str | None) -> DpGan:
        shared = {field.name: getattr(self, field.name) for field in fields(self)}
        return DpGan(**{**shared, "label": label})


def default_label(layout: Layout) -> str | None:
    """The last column of 2 to 64 declared values, which the schema says; None where there is none.

    >>> from sfumato.encoding.layout import layout_of
    >>> from sfumato.schema import Boolean, Continuous, Schema
    >>> default_label(layout_of(Schema(columns={"paid": Boolean(), "sum": Continuous(lower=0, upper=1)})))
    'paid'
    """
    able = [f for f in layout.features if f.role == "value" and not f.learnt and 2 <= (f.size or 0) <= _MOST_CLASSES]
    return able[-1].column if able else None
