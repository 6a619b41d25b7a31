"""HFlow: DP-HFlow, a conditional spline flow for mixed tables, trained by noisy clipped gradients."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

from sfumato.checks import instance, whole
from sfumato.encoding.layout import Layout
from sfumato.errors import ArgumentError
from sfumato.fitting.batches import sampling_rate
from sfumato.fitting.clipping import Clipping
from sfumato.fitting.correlations import CorrelationShare, buy_correlations
from sfumato.fitting.flow_loss import FlowLoss
from sfumato.fitting.level_order import order_levels
from sfumato.fitting.likelihood import Optimiser, descend
from sfumato.fitting.marginals import MarginalShare, buy_marginals, normal_marginals
from sfumato.fitting.scaling import ScalingShare, buy_scaling
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.models.flows.copula import Copula
from sfumato.models.flows.dequantiser import DequantiserShape
from sfumato.models.flows.marginal_map import MarginalMap
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.models.union import CellUnion
from sfumato.privacy import Curator, PoissonSampling, Relation, SgdPlan

__all__ = [
    "Clipping",
    "CorrelationShare",
    "Dequantisation",
    "FlowSize",
    "HFlow",
    "MarginalShare",
    "Optimiser",
    "ScalingShare",
    "Selection",
]

_ADAPTED = ("size", "part", "optimiser", "marginals", "correlations")
"""Settings that a table of continuous columns alone has other defaults for."""


@dataclass(frozen=True, kw_only=True)
class FlowSize:
    """The size of the flow: blocks, hidden units of the shared network, bins of a spline, and the linear parts."""

    blocks: int = 3
    width: int = 64
    bins: int = 8
    linear: Literal["low-rank", "plu"] = "low-rank"
    rank: int = 1

    def __post_init__(self) -> None:
        whole(1, blocks=self.blocks, width=self.width, rank=self.rank)
        whole(2, bins=self.bins)
        if self.linear not in ("low-rank", "plu"):
            raise ArgumentError(f"Expected linear={self.linear!r} to be 'low-rank' or 'plu'.")

    def shape(self, num_features: int) -> SplineFlowShape:
        """The shape of the flow of so many features."""
        return SplineFlowShape(
            num_features, self.blocks, self.width, 2, 4, self.bins, min(self.rank, num_features), self.linear
        )


@dataclass(frozen=True, kw_only=True)
class Dequantisation:
    """Where in its cell a discrete value is put: where the other columns of the row make it likely, as far as the
    measured correlations tell ("copula"); anywhere alike ("uniform"); or where a learned flow says ("variational").

    ``draws`` points a row are averaged before clipping, which takes time and costs no privacy. Without correlations
    "copula" is "uniform".
    ``most_levels`` is for "variational": features of more values than that are small cells, and stay uniform.
    """

    kind: Literal["copula", "uniform", "variational"] = "copula"
    draws: int = 2
    most_levels: int = 256

    def __post_init__(self) -> None:
        whole(1, draws=self.draws)
        whole(2, most_levels=self.most_levels)
        if self.kind not in ("copula", "uniform", "variational"):
            raise ArgumentError(f"Expected kind={self.kind!r} to be 'copula', 'uniform' or 'variational'.")

    def draws_for(self, layout: Layout) -> int:
        """The points a row; one where every feature is a point already."""
        return self.draws if any(feature.size is not None for feature in layout.features) else 1

    def shape(self, layout: Layout) -> DequantiserShape | None:
        """The sizes of the dequantiser of a table, if it has one; features of the widest cells come last."""
        sizes = {place: feature.size for place, feature in enumerate(layout.features)}
        discrete = [place for place, size in sizes.items() if size is not None and size <= self.most_levels]
        if self.kind != "variational" or not discrete:
            return None
        return DequantiserShape(tuple(sorted(discrete, key=lambda place: -(sizes[place] or 0))))


@dataclass(frozen=True, kw_only=True)
class HFlow:
    """DP-HFlow: blocks of a shared conditional spline and a linear flow, behind measured marginals and correlations.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of continuous rows, an estimate that tightens with the
    number of draws for discrete ones.
    Cost: Gaussian sums for the one-way marginals (``marginals``, 15 % of the budget; None buys none), for the order of
    nominal levels (5 %) and the correlations of all pairs (``correlations``, 10 %; None buys neither), for the choices
    of a ``selection`` of models along the training, if there is one, the rest on noisy gradients. ``batch`` is the
    expected batch; by default one row in ``part`` of the declared table, from 256 to 4,096 rows. A table whose columns
    are all continuous has defaults of its own (``continuous()``), unless ``adapt`` is off: location and scale of each
    column (4 %) in place of marginals and correlations. What the schema says decides.
    Reference: Lee, Kim, Jeong, Ro 2022, "Differentially Private Normalizing Flows for Synthetic Tabular Data
    Generation"; ``HFlow.paper()`` has its settings.

    >>> HFlow(steps=500).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "hflow"
    title: ClassVar[str] = "DP-HFlow: conditional spline flow by noisy gradients"
    reference: ClassVar[str] = "Lee, Kim, Jeong, Ro 2022 (AAAI)"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob", "warm_start")

    size: FlowSize = FlowSize()
    batch: int | None = None
    part: int = 20
    steps: int = 1_000
    clipping: Clipping = Clipping()
    optimiser: Optimiser = Optimiser(learning_rate=6e-3)
    marginals: MarginalShare | ScalingShare | None = MarginalShare()
    correlations: CorrelationShare | None = CorrelationShare()
    dequantisation: Dequantisation = Dequantisation()
    adapt: bool = True
    selection: Selection | None = None

    def __post_init__(self) -> None:
        whole(1, steps=self.steps, part=self.part)
        if self.batch is not None:
            whole(1, batch=self.batch)
        instance(FlowSize, size=self.size)
        instance(Clipping, clipping=self.clipping)
        instance(Optimiser, optimiser=self.optimiser)
        instance(Dequantisation, dequantisation=self.dequantisation)
        self._check_shares()

    def _check_shares(self) -> None:
        spent = 0.0
        if self.marginals is not None:
            if not isinstance(self.marginals, ScalingShare):
                instance(MarginalShare, marginals=self.marginals)
            spent += self.marginals.share
        if self.correlations is not None:
            instance(CorrelationShare, correlations=self.correlations)
            spent += self.correlations.share + self.correlations.order
        check_shares(self.selection, spent)
        if self.correlations is not None and not isinstance(self.marginals, MarginalShare):
            raise ArgumentError(
                "Correlations are those of features behind histograms, and so need marginals that are: "
                "set correlations to None too."
            )

    @classmethod
    def paper(cls) -> Self:
        """The settings that the paper states: three blocks of rank one, AdaBelief at 0.001, learned dequantisation.

        It measures no marginals. It does not state width, batch, steps or bound; those are ours, with clipping by unit.
        """
        return cls(
            clipping=Clipping(kind="unit"),
            optimiser=Optimiser(kind="adabelief", learning_rate=1e-3, averaging=0.0, decay=False),
            marginals=None,
            correlations=None,
            dequantisation=Dequantisation(kind="variational"),
            adapt=False,
        )

    @classmethod
    def continuous(cls) -> Self:
        """The defaults for tables whose columns are all continuous: histograms of smooth columns cost more than they
        bring, and full linear flows between the splines do what correlations do elsewhere."""
        return cls(
            size=FlowSize(bins=4, linear="plu"),
            part=6,
            optimiser=Optimiser(learning_rate=4.5e-3),
            marginals=ScalingShare(),
            correlations=None,
        )

    def adapted(self, layout: Layout) -> Self:
        """The settings for a table of this layout: where all of it is continuous, those of ``continuous()`` stand in
        for defaults. What was learnt from rows decides nothing."""
        if not self.adapt or any(feature.learnt or feature.size is not None for feature in layout.features):
            return self
        usual, smooth = type(self)(), self.continuous()
        left = [name for name in _ADAPTED if getattr(self, name) == getattr(usual, name)]
        if self.correlations is not None and "correlations" not in left:
            left = [name for name in left if name != "marginals"]  # they were asked for, and rest on histograms
        return replace(self, **{name: getattr(smooth, name) for name in left})

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """With and without marginals and copula, both linear flows, a learned dequantiser, every kind of clipping."""
        tiny = cls(steps=2, size=FlowSize(blocks=1, width=4), marginals=MarginalShare(rounds=2, bins=8))
        plain = replace(
            tiny, size=FlowSize(blocks=1, width=4, linear="plu"), batch=20, marginals=None, correlations=None
        )
        learned = Dequantisation(kind="variational", draws=2)
        return (
            tiny,
            replace(plain, clipping=Clipping(kind="layer"), marginals=ScalingShare(rounds=1)),
            replace(plain, clipping=Clipping(kind="unit"), dequantisation=learned),
            replace(plain, clipping=Clipping(kind="sparse"), optimiser=Optimiser(kind="adabelief"), batch=None),
        )

    def plan(self, declared: int | None) -> SgdPlan:
        """Sampling, clipping and steps for a table of a declared size; one row in ``part`` without one."""
        sampling = PoissonSampling(rate=sampling_rate(declared, self.batch, self.part))
        return SgdPlan(sampling=sampling, clip=self.clipping.clip(), steps=self.steps)

    def fit(self, curator: Curator, layout: Layout) -> SplineFlow | CellUnion:
        return self.adapted(layout)._fitted(curator, layout)

    def _fitted(self, curator: Curator, layout: Layout) -> SplineFlow | CellUnion:
        plan, choices = self.plan(curator.declared_size), pledged(curator, layout, self.selection)
        dequantiser = self.dequantisation.shape(layout)
        flow = SplineFlow.start(self.size.shape(layout.num_features), key=curator.start_key(), dequantiser=dequantiser)
        flow = flow.behind(*self._fixed_maps(curator, layout))
        draws, conditional = self.dequantisation.draws_for(layout), self.dequantisation.kind == "copula"
        loss = FlowLoss(skeleton=flow, draws=draws, conditional=conditional)
        given: dict[str, Any] = {"plan": plan, "optimiser": self.optimiser, "purpose": "gradients of the likelihood"}
        models = descend(flow, flow.trainable(), loss, curator, **given, checkpoints=choices.checkpoints)
        return choices.released(curator, layout, models)

    def _fixed_maps(self, curator: Curator, layout: Layout) -> tuple[MarginalMap, Copula | None]:
        """Marginals with levels in an order that means something, and the copula of features behind them."""
        if self.marginals is None:
            return MarginalMap.identity(layout.num_features), None
        if isinstance(self.marginals, ScalingShare):
            return normal_marginals(*buy_scaling(curator, layout.num_features, self.marginals)), None
        marginals = buy_marginals(curator, layout, self.marginals)
        if self.correlations is None:
            return marginals, None
        if self.correlations.order > 0:
            marginals = order_levels(curator, layout, marginals, self.correlations.order, self.marginals.bins)
        return marginals, buy_correlations(curator, layout, marginals, self.correlations.share)
