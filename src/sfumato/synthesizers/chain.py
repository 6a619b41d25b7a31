"""Chain: a small autoregressive network over codes, started from a tree of measured pairs."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from sfumato.checks import whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.batches import sampling_rate
from sfumato.fitting.chain_loss import ChainLoss
from sfumato.fitting.clipping import Clipping
from sfumato.fitting.codecs import PaidBins, buy_codec
from sfumato.fitting.likelihood import Optimiser, descend
from sfumato.fitting.warm_start import WarmStart, buy_tree
from sfumato.models.codes.chain import Chain as ChainModel
from sfumato.models.codes.chain import ChainShape
from sfumato.models.codes.coded import CodedModel
from sfumato.models.codes.tables import ConditionalTables
from sfumato.privacy import Curator, PoissonSampling, Relation, SgdPlan


@dataclass(frozen=True, kw_only=True)
class Chain:
    """One small network for the chain rule over codes, on top of a tree of measured pairs of columns.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    """

    name: ClassVar[str] = "chain"
    title: ClassVar[str] = "Chain: small autoregressive network on a measured tree"
    reference: ClassVar[str] = "after Castellon et al. 2023 (DP-TBART)"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    width: int = 64
    batch: int | None = None
    steps: int = 1_000
    clipping: Clipping = Clipping(bound=1.0)
    optimiser: Optimiser = Optimiser(learning_rate=3e-3)
    codec: PaidBins = PaidBins()
    warm: WarmStart | None = WarmStart()

    def __post_init__(self) -> None:
        whole(0, steps=self.steps)

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """With and without a tree."""
        tiny = cls(steps=2, width=4, codec=PaidBins(rounds=2, bins=8, codes=4))
        return (tiny, replace(tiny, warm=None, batch=20))

    def plan(self, declared: int | None) -> SgdPlan:
        """Sampling, clipping and steps for a table of a declared size, or a tenth of the rows without one."""
        sampling = PoissonSampling(rate=sampling_rate(declared, self.batch, 10))
        return SgdPlan(sampling=sampling, clip=self.clipping.clip(), steps=self.steps)

    def fit(self, curator: Curator, layout: Layout) -> CodedModel:
        coded = buy_codec(curator, layout, self.codec)
        view = curator.through(coded.codec.row)
        nominal = {f.column: f.nominal for f in layout.features if f.role == "value"}
        ordered = [not nominal.get(c, True) for c in dict.fromkeys(f.column for f in layout.features)]
        base = ConditionalTables.independent(list(coded.shares))
        if self.warm is not None:
            base = buy_tree(view, coded, self.warm, ordered=ordered)
        if self.steps == 0:
            return CodedModel(coded.codec, base)
        shape = ChainShape(coded.codec.sizes, base.order, self.width)
        chain = ChainModel.start(shape, key=curator.start_key(), base=base)
        plan = self.plan(curator.declared_size)
        purpose = "gradients of the likelihood"
        chain = descend(
            chain, chain.trainable(), ChainLoss(chain), view, plan=plan, optimiser=self.optimiser, purpose=purpose
        )
        return CodedModel(coded.codec, chain)
