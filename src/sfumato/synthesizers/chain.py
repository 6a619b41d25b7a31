"""Chain: a small autoregressive network over codes, on top of a tree of measured pairs."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from sfumato.checks import instance, whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.batches import quiet_rate
from sfumato.fitting.chain_loss import ChainLoss
from sfumato.fitting.clipping import Clipping
from sfumato.fitting.codecs import PaidBins, buy_codec
from sfumato.fitting.likelihood import Optimiser, descend
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.fitting.warm_start import WarmStart, buy_tree
from sfumato.models.codes.chain import Chain as ChainModel
from sfumato.models.codes.chain import ChainShape
from sfumato.models.codes.coded import CodedModel
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.union import CodedUnion
from sfumato.privacy import Curator, PoissonSampling, Relation, SgdPlan

__all__ = ["Chain", "Clipping", "Optimiser", "PaidBins", "Selection", "WarmStart"]


@dataclass(frozen=True, kw_only=True)
class Chain:
    """One small network for the chain rule over codes, which learns what a tree of measured pairs does not know.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    Cost: Gaussian sums for the bins of columns (``codec``, 10 % of the budget), for the dependence of all pairs and the
    pairs of a tree (``warm``, 5 % and 20 %; None starts from independent columns), choices for the ``selection`` of
    models along the training, if there is one, the rest on noisy gradients. ``batch`` is the expected batch; by default
    as few rows as keep the noise of a step clear of where small batches cost privacy, at least 256. ``shared`` lets all
    columns share what their codes mean, as letters of a word do.
    Reference: the factorisation of Castellon et al. 2023 (DP-TBART) with a masked sum in place of attention; the hybrid
    of measured tables and gradients that they leave open.

    >>> Chain(steps=500).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "chain"
    title: ClassVar[str] = "Chain: small autoregressive network on a measured tree"
    reference: ClassVar[str] = "after Castellon, Gopal, Bloniarz, Rosenberg 2023"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob", "warm_start")

    width: int = 64
    shared: bool = False
    batch: int | None = None
    steps: int = 3_000
    clipping: Clipping = Clipping(bound=1.0)
    optimiser: Optimiser = Optimiser(learning_rate=3e-3)
    codec: PaidBins = PaidBins()
    warm: WarmStart | None = WarmStart()
    selection: Selection | None = None

    def __post_init__(self) -> None:
        whole(1, width=self.width, steps=self.steps)
        if self.batch is not None:
            whole(1, batch=self.batch)
        instance(Clipping, clipping=self.clipping)
        instance(Optimiser, optimiser=self.optimiser)
        instance(PaidBins, codec=self.codec)
        spent = self.codec.share
        if self.warm is not None:
            instance(WarmStart, warm=self.warm)
            spent += self.warm.dependence + self.warm.pairs
        check_shares(self.selection, spent)

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """With and without a tree, a declared batch, clipping by layer, a union of two models out of three."""
        tiny = cls(steps=2, width=4, codec=PaidBins(rounds=2, bins=8, codes=4))
        other = replace(tiny, warm=None, batch=20, clipping=Clipping(kind="layer", bound=1.0))
        return (tiny, replace(other, steps=3, selection=Selection(checkpoints=3, chosen=2)))

    def plan(self, curator: Curator) -> SgdPlan:
        """Sampling, clipping and steps, from the declared size and the budget alone."""
        rate = quiet_rate(curator.noise_multiplier(1.0), self.steps, curator.declared_size, self.batch)
        return SgdPlan(sampling=PoissonSampling(rate=rate), clip=self.clipping.clip(), steps=self.steps)

    def fit(self, curator: Curator, layout: Layout) -> CodedModel | CodedUnion:
        plan, choices = self.plan(curator), pledged(curator, layout, self.selection)
        coded = buy_codec(curator, layout, self.codec)
        view = curator.through(coded.codec.row)
        base = ConditionalTables.independent(list(coded.shares))
        if self.warm is not None:
            base = buy_tree(view, coded, self.warm, ordered=layout.ordered_columns)
        shape = ChainShape(coded.codec.sizes, base.order, self.width, self.shared)
        chain = ChainModel.start(shape, key=curator.start_key(), base=base)
        given: dict[str, Any] = {"plan": plan, "optimiser": self.optimiser, "purpose": "gradients of the likelihood"}
        found = descend(chain, chain.trainable(), ChainLoss(chain), view, **given, checkpoints=choices.checkpoints)
        return choices.released(curator, layout, [CodedModel(coded.codec, each) for each in found])
