"""Chain: a small autoregressive network over codes, on top of a few chosen and measured tables."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import jax

from sfumato.checks import instance, whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.batches import quiet_rate
from sfumato.fitting.chain_loss import ChainLoss
from sfumato.fitting.clipping import Clipping
from sfumato.fitting.codecs import PaidBins
from sfumato.fitting.codes_loss import drawn_at_most, fast_or_plain
from sfumato.fitting.likelihood import Optimiser, descend
from sfumato.fitting.select_measure import seen_as_codes
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.fitting.settling import settled
from sfumato.fitting.warm_start import WarmStart, buy_start
from sfumato.models.codes.chain import Chain as ChainModel
from sfumato.models.codes.chain import ChainShape
from sfumato.models.codes.coded import CodedModel
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.union import CodedUnion
from sfumato.privacy import Curator, PoissonSampling, Relation, SgdPlan

__all__ = ["Chain", "Clipping", "Optimiser", "PaidBins", "Selection", "WarmStart"]

_SETTLING = 0x5E7
"""Sets the key of settling apart from that of the start."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """One small network for the chain rule over codes, which learns what a few measured tables do not know.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    Cost: Gaussian sums for the bins of columns (``codec``, 10 % of the budget; None takes ``even_bins`` over public
    bounds), sums and choices for single columns and chosen tables (``warm``, 3 % and 30 %; None starts from independent
    columns), choices for the ``selection`` of models along the training, if there is one, the rest on noisy gradients.
    ``batch`` is the expected batch; by default as few rows as keep the noise of a step clear of where small batches
    cost privacy, at least 256. ``shared`` lets all columns share what their codes mean, as letters of a word do.
    ``label`` names a column that is to be predicted: its pairs with all others are measured ahead of the chosen tables.
    Reference: the factorisation of Castellon et al. 2023 (DP-TBART) with a masked sum in place of attention; the hybrid
    of measured tables and gradients that they leave open; the choice of tables of McKenna et al. 2022 (AIM).

    >>> Chain(steps=500).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "chain"
    title: ClassVar[str] = "Chain: small autoregressive network on chosen tables"
    reference: ClassVar[str] = "after Castellon, Gopal, Bloniarz, Rosenberg 2023"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob", "warm_start")

    width: int = 32
    shared: bool = False
    batch: int | None = None
    steps: int = 3_000
    clipping: Clipping = Clipping(bound=1.0)
    optimiser: Optimiser = Optimiser(learning_rate=5e-3)
    codec: PaidBins | None = PaidBins()
    even_bins: int = 32
    warm: WarmStart | None = WarmStart()
    label: str | None = None
    selection: Selection | None = None

    def __post_init__(self) -> None:
        whole(1, width=self.width, steps=self.steps)
        whole(2, even_bins=self.even_bins)
        if self.batch is not None:
            whole(1, batch=self.batch)
        instance(Clipping, clipping=self.clipping)
        instance(Optimiser, optimiser=self.optimiser)
        if self.label is not None:
            instance(str, label=self.label)
        spent = 0.0
        if self.codec is not None:
            instance(PaidBins, codec=self.codec)
            spent += self.codec.share
        if self.warm is not None:
            instance(WarmStart, warm=self.warm)
            spent += self.warm.spent
        check_shares(self.selection, spent)

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """With and without a warm start, bought and even bins, clipping by layer, a union of two of three models."""
        tiny = cls(steps=2, width=4, codec=PaidBins(rounds=2, bins=8, codes=4))
        other = replace(tiny, warm=None, codec=None, even_bins=6, batch=20, clipping=Clipping(kind="layer", bound=1.0))
        return (tiny, replace(other, steps=3, selection=Selection(checkpoints=3, chosen=2)))

    def plan(self, curator: Curator) -> SgdPlan:
        """Sampling, clipping and steps, from the declared size and the budget alone."""
        rate = quiet_rate(curator.noise_multiplier(1.0), self.steps, curator.declared_size, self.batch)
        return SgdPlan(sampling=PoissonSampling(rate=rate), clip=self.clipping.clip(), steps=self.steps)

    def fit(self, curator: Curator, layout: Layout) -> CodedModel | CodedUnion:
        label, plan = layout.label(self.label), self.plan(curator)
        choices = pledged(curator, layout, self.selection, self.label)
        coded, view = seen_as_codes(curator, layout, self.codec, self.even_bins)
        start = None if self.warm is None else buy_start(view, coded.codec.sizes, self.warm, label=label)
        base = ConditionalTables.independent(coded.alone()) if start is None else start.tables
        codec = coded.codec if start is None else coded.measured(start.shares)
        shape = ChainShape(codec.sizes, base.order, self.width, self.shared)
        chain = ChainModel.start(shape, key=curator.start_key(), base=base)
        given: dict[str, Any] = {"plan": plan, "optimiser": self.optimiser, "purpose": "gradients of the likelihood"}
        loss = fast_or_plain(ChainLoss(chain), chain, drawn_at_most(plan, curator))
        found = descend(chain, chain.trainable(), loss, view, **given, checkpoints=choices.checkpoints)
        if start is not None:
            key = jax.random.fold_in(curator.start_key(), _SETTLING)
            found = [settled(each, start.shares, start.doubts, key) for each in found]
        return choices.released(curator, layout, [CodedModel(codec, each) for each in found])
