"""Maf: DP-NF, a masked autoregressive flow trained by noisy clipped gradients."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import equinox as eqx
import jax

from sfumato.checks import positive, whole
from sfumato.encoding.layout import Layout
from sfumato.errors import ArgumentError
from sfumato.fitting.batches import expected_batch, sampling_rate
from sfumato.fitting.likelihood import Optimiser, fit_likelihood
from sfumato.fitting.scaling import ScalingShare, buy_scaling
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.privacy import Curator, FixedSizeSampling, FlatClip, PoissonSampling, Relation, SgdPlan


@dataclass(frozen=True, kw_only=True)
class Maf:
    """DP-NF: a masked autoregressive flow of five blocks, trained by DP-SGD with Adam.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of continuous rows.
    Cost: three Gaussian sums for locations and scales (``scaling``, 4 % of the budget; None buys none and leaves
    the features as they are), the rest on noisy gradients. ``batch`` is the expected batch; by default a sixth
    of the declared table, at most 4,096 rows (a sixth of the rows where no size is declared).
    Reference: Waites and Cummings 2021, "Differentially Private Normalizing Flows for Privacy-Preserving Density
    Estimation".

    >>> Maf(blocks=3).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "maf"
    title: ClassVar[str] = "DP-NF: masked autoregressive flow by noisy gradients"
    reference: ClassVar[str] = "Waites and Cummings 2021 (AIES)"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    blocks: int = 5
    width: int = 64
    depth: int = 2
    act_norm: bool = False
    batch: int | None = None
    steps: int = 1_000
    clip: float = 50.0
    optimiser: Optimiser = Optimiser()
    scaling: ScalingShare | None = ScalingShare()
    sampling: Literal["poisson", "fixed-size"] = "poisson"

    def __post_init__(self) -> None:
        whole(1, blocks=self.blocks, width=self.width, depth=self.depth, steps=self.steps)
        positive(clip=self.clip)
        if self.batch is not None:
            whole(1, batch=self.batch)
        if self.sampling not in ("poisson", "fixed-size"):
            raise ArgumentError(f"Expected sampling={self.sampling!r} to be 'poisson' or 'fixed-size'.")

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation if self.sampling == "poisson" else FixedSizeSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """With and without bought scales, ActNorm, a declared batch, either way of sampling."""
        tiny = cls(steps=2, blocks=1, width=4)
        return (
            tiny,
            replace(tiny, blocks=2, width=8, batch=20),
            replace(tiny, batch=20, scaling=None, act_norm=True),
            replace(tiny, batch=20, sampling="fixed-size"),
        )

    def plan(self, declared: int | None) -> SgdPlan:
        """Sampling, clipping and steps for a table of a declared size; a sixth of the rows where none is declared."""
        clip = FlatClip(bound=self.clip)
        if self.sampling == "poisson":
            rate = sampling_rate(declared, self.batch, 6)
            return SgdPlan(sampling=PoissonSampling(rate=rate), clip=clip, steps=self.steps)
        if declared is None:
            raise ArgumentError("A batch size needs a declared table size: set 'rows' in the schema.")
        batch = min(declared, expected_batch(declared, self.batch, 6))
        return SgdPlan(sampling=FixedSizeSampling(batch=batch, rows=declared), clip=clip, steps=self.steps)

    def fit(self, curator: Curator, layout: Layout) -> MaskedAutoregressiveFlow:
        plan = self.plan(curator.declared_size)
        shape = MafShape(layout.num_features, self.blocks, self.width, self.depth, self.act_norm)
        flow = MaskedAutoregressiveFlow.start(shape, key=curator.start_key())
        if self.scaling is not None:
            flow = flow.rescaled(*buy_scaling(curator, shape.num_features, self.scaling))
        trainable = eqx.tree_at(
            lambda model: model.scaling, jax.tree.map(lambda _: True, flow), jax.tree.map(lambda _: False, flow.scaling)
        )
        return fit_likelihood(
            flow, trainable, curator, plan=plan, optimiser=self.optimiser, purpose="gradients of the likelihood"
        )
