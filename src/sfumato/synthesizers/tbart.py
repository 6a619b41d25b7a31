"""Tbart: DP-TBART, a decoder-only transformer over the codes of columns, trained by noisy clipped gradients."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from sfumato.checks import between, instance, whole
from sfumato.encoding.layout import Layout
from sfumato.errors import ArgumentError
from sfumato.fitting.batches import sampling_rate
from sfumato.fitting.clipping import Clipping
from sfumato.fitting.codecs import PaidBins
from sfumato.fitting.codes_loss import drawn_at_most, fast_or_plain
from sfumato.fitting.likelihood import Optimiser, descend
from sfumato.fitting.select_measure import seen_as_codes
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.fitting.transformer_loss import TransformerLoss
from sfumato.fitting.warm_start import WarmStart, buy_start
from sfumato.models.codes.codec import Codec
from sfumato.models.codes.coded import CodedModel
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.codes.transformer import MOST_LAYERS, Transformer, TransformerShape
from sfumato.models.union import CodedUnion
from sfumato.privacy import Curator, PoissonSampling, Relation, SgdPlan

__all__ = ["Clipping", "Optimiser", "PaidBins", "Selection", "Tbart", "TransformerSize", "WarmStart"]


@dataclass(frozen=True, kw_only=True)
class TransformerSize:
    """The size of the transformer: layers, width, and heads that share the width."""

    layers: int = 2
    width: int = 64
    heads: int = 4

    def __post_init__(self) -> None:
        whole(1, layers=self.layers, width=self.width, heads=self.heads)
        between(1, MOST_LAYERS, layers=self.layers)
        if self.width % self.heads:
            raise ArgumentError(f"Expected width={self.width} to be a multiple of heads={self.heads}.")


@dataclass(frozen=True, kw_only=True)
class Tbart:
    """DP-TBART: a row is a sentence of its columns' codes, and a transformer learns to write such sentences.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    Cost: Gaussian sums for the bins of columns (``codec``, 10 % of the budget; None takes ``even_bins`` over public
    bounds, which cost nothing); where asked for, sums and choices for a warm start by chosen tables (``warm``), and
    choices for the ``selection`` of models along the training; the rest on noisy gradients. Training starts from
    the graphical model of the tables, or from the shares of codes that were bought along with the bins. ``batch``
    is the expected batch; by default a tenth of the declared table, from 256 to 4,096 rows. ``order`` is the order
    of columns: as in the table, or by their number of codes; with ``warm`` it is that of the graphical model.
    Reference: Castellon, Gopal, Bloniarz, Rosenberg 2023, "DP-TBART: A Transformer-based Autoregressive Model for
    Differentially Private Tabular Data Generation"; ``Tbart.paper()`` has its settings.

    >>> Tbart(steps=500).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "tbart"
    title: ClassVar[str] = "DP-TBART: transformer over codes by noisy gradients"
    reference: ClassVar[str] = "Castellon, Gopal, Bloniarz, Rosenberg 2023"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob", "warm_start")

    size: TransformerSize = TransformerSize()
    batch: int | None = None
    steps: int = 1_000
    clipping: Clipping = Clipping(bound=1.0)
    optimiser: Optimiser = Optimiser(learning_rate=3e-3)
    codec: PaidBins | None = PaidBins()
    even_bins: int = 100
    warm: WarmStart | None = None
    order: Literal["table", "few-first", "many-first"] = "table"
    selection: Selection | None = None

    def __post_init__(self) -> None:
        whole(1, steps=self.steps)
        whole(2, even_bins=self.even_bins)
        if self.batch is not None:
            whole(1, batch=self.batch)
        instance(TransformerSize, size=self.size)
        instance(Clipping, clipping=self.clipping)
        instance(Optimiser, optimiser=self.optimiser)
        if self.order not in ("table", "few-first", "many-first"):
            raise ArgumentError(f"Expected order={self.order!r} to be 'table', 'few-first' or 'many-first'.")
        self._check_shares()

    def _check_shares(self) -> None:
        spent = 0.0
        if self.codec is not None:
            instance(PaidBins, codec=self.codec)
            spent += self.codec.share
        if self.warm is not None:
            instance(WarmStart, warm=self.warm)
            spent += self.warm.spent
        check_shares(self.selection, spent)

    @classmethod
    def paper(cls) -> Self:
        """The settings that the paper states: three layers of width 768 and twelve heads, 256 rows a step, Adam at
        0.0003, 100 even bins.

        It does not state the number of steps or the bound; those are ours.
        """
        return cls(
            size=TransformerSize(layers=3, width=768, heads=12),
            batch=256,
            optimiser=Optimiser(learning_rate=3e-4, averaging=0.0, decay=False),
            codec=None,
        )

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Bought and even bins, with and without a tree, every order, clipping whole and by unit."""
        bins = PaidBins(rounds=2, bins=8, codes=4)
        tiny = cls(steps=2, size=TransformerSize(layers=1, width=4, heads=2), codec=bins)
        return (
            tiny,
            replace(tiny, batch=20, warm=WarmStart()),
            replace(tiny, codec=None, even_bins=4, order="many-first", clipping=Clipping(kind="unit")),
        )

    def plan(self, declared: int | None) -> SgdPlan:
        """Sampling, clipping and steps for a table of a declared size, or a tenth of the rows without one."""
        sampling = PoissonSampling(rate=sampling_rate(declared, self.batch, 10))
        return SgdPlan(sampling=sampling, clip=self.clipping.clip(), steps=self.steps)

    def fit(self, curator: Curator, layout: Layout) -> CodedModel | CodedUnion:
        plan, choices = self.plan(curator.declared_size), pledged(curator, layout, self.selection)
        codec, base, view = self._start(curator, layout)
        shape = TransformerShape(sizes=codec.sizes, order=self._order(codec.sizes, base), **asdict(self.size))
        model = Transformer.start(shape, key=curator.start_key(), base=base)
        loss = fast_or_plain(TransformerLoss(skeleton=model), model, drawn_at_most(plan, curator))
        given: dict[str, Any] = {"plan": plan, "optimiser": self.optimiser, "purpose": "gradients of the likelihood"}
        found = descend(model, model.trainable(), loss, view, **given, checkpoints=choices.checkpoints)
        return choices.released(curator, layout, [CodedModel(codec, each) for each in found])

    def _start(self, curator: Curator, layout: Layout) -> tuple[Codec, ConditionalTables | None, Curator]:
        """The codec, what is known of the codes before training, and the doors to rows of codes."""
        coded, view = seen_as_codes(curator, layout, self.codec, self.even_bins)
        if self.warm is not None:
            start = buy_start(view, coded.codec.sizes, self.warm)
            return coded.measured(start.shares), start.tables, view
        return coded.codec, ConditionalTables.independent(list(coded.shares)) if coded.shares else None, view

    def _order(self, sizes: tuple[int, ...], base: ConditionalTables | None) -> tuple[int, ...]:
        if self.warm is not None and base is not None:
            return base.order
        sign = {"table": 0, "few-first": 1, "many-first": -1}[self.order]
        return tuple(int(column) for column in np.argsort(sign * np.asarray(sizes), kind="stable"))
