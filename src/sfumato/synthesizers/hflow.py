"""HFlow: DP-HFlow, a conditional spline flow for mixed tables, trained by noisy clipped gradients."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax

from sfumato.checks import positive, whole
from sfumato.encoding.layout import Layout
from sfumato.errors import ArgumentError
from sfumato.fitting.flow_loss import FlowLoss
from sfumato.fitting.likelihood import Optimiser, descend
from sfumato.fitting.marginals import MarginalShare, buy_marginals
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.privacy import Curator, FlatClip, PoissonSampling, Relation, SgdPlan


@dataclass(frozen=True, kw_only=True)
class HFlow:
    """DP-HFlow: three blocks of a shared conditional spline and a linear flow, behind measured marginals.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of continuous rows.
    Cost: Gaussian sums for the one-way marginals (``marginals``, 5 % of the budget; None buys none), the rest on noisy
    gradients. ``batch`` is the expected batch; by default a sixth of the declared table, at most 4,096 rows.
    Reference: Lee, Kim, Jeong, Ro 2022, "Differentially Private Normalizing Flows for Synthetic Tabular Data
    Generation".

    >>> HFlow(blocks=2).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "hflow"
    title: ClassVar[str] = "DP-HFlow: conditional spline flow by noisy gradients"
    paper: ClassVar[str] = "Lee, Kim, Jeong, Ro 2022 (AAAI)"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    blocks: int = 3
    width: int = 64
    linear: Literal["low-rank", "plu"] = "low-rank"
    batch: int | None = None
    steps: int = 2_000
    clip: float = 2.0
    optimiser: Optimiser = Optimiser(learning_rate=3e-3)
    marginals: MarginalShare | None = MarginalShare()

    def __post_init__(self) -> None:
        whole(1, blocks=self.blocks, width=self.width, steps=self.steps)
        positive(clip=self.clip)
        if self.batch is not None:
            whole(1, batch=self.batch)
        if self.linear not in ("low-rank", "plu"):
            raise ArgumentError(f"Expected linear={self.linear!r} to be 'low-rank' or 'plu'.")

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple["HFlow", ...]:
        """Settings small enough for tests and audits that together run every path."""
        return (
            cls(steps=2, blocks=2, width=8, batch=20, marginals=MarginalShare(rounds=2, bins=8)),
            cls(steps=2, blocks=1, width=4, batch=20, linear="plu", marginals=None),
        )

    def plan(self, declared: int | None) -> SgdPlan:
        """Sampling, clipping and steps for a table of a declared size; a sixth of the rows where none is declared."""
        clip = FlatClip(bound=self.clip)
        if declared is None:
            if self.batch is not None:
                raise ArgumentError("A batch size needs a declared table size: set 'rows' in the schema.")
            return SgdPlan(sampling=PoissonSampling(rate=1 / 6), clip=clip, steps=self.steps)
        batch = self.batch if self.batch is not None else min(4_096, max(256, declared // 6))
        return SgdPlan(sampling=PoissonSampling(rate=min(1.0, batch / declared)), clip=clip, steps=self.steps)

    def fit(self, curator: Curator, layout: Layout) -> SplineFlow:
        plan = self.plan(curator.declared_size)
        shape = SplineFlowShape(layout.num_features, self.blocks, self.width, 2, 4, 8, 1, self.linear)
        flow = SplineFlow.start(shape, key=curator.start_key())
        if self.marginals is not None:
            flow = eqx.tree_at(lambda model: model.marginals, flow, buy_marginals(curator, layout, self.marginals))
        trainable = eqx.tree_at(
            lambda model: model.marginals,
            jax.tree.map(lambda _: True, flow),
            jax.tree.map(lambda _: False, flow.marginals),
        )
        params, _ = eqx.partition(flow, trainable)
        loss = FlowLoss(skeleton=flow)
        return descend(
            flow, params, loss, curator, plan=plan, optimiser=self.optimiser, purpose="gradients of the likelihood"
        )
