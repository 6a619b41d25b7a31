"""Maf: DP-NF, a masked autoregressive flow trained by noisy clipped gradients."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import equinox as eqx
import jax

from sfumato.checks import instance, positive, whole
from sfumato.encoding.layout import Layout
from sfumato.errors import ArgumentError
from sfumato.fitting.activation_start import ActivationStart, with_activations
from sfumato.fitting.batches import expected_batch, sampling_rate
from sfumato.fitting.likelihood import Optimiser, RowLoss, descend
from sfumato.fitting.priors import MixturePrior, PublicMixture, with_prior
from sfumato.fitting.scaling import ScalingShare, buy_scaling
from sfumato.fitting.selection import Selection, check_shares, pledged
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.models.union import DensityUnion
from sfumato.privacy import Curator, FixedSizeSampling, FlatClip, PoissonSampling, Relation, SgdPlan


@dataclass(frozen=True, kw_only=True)
class Maf:
    """DP-NF: a masked autoregressive flow of five blocks, trained by DP-SGD with Adam.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of continuous rows.
    Cost: three Gaussian sums for locations and scales (``scaling``, 4 % of the budget; None buys none and leaves the
    features as they are), the rest on noisy gradients. ``batch`` is the expected batch; by default a sixth of the
    declared table, at most 4,096 rows (a sixth of the rows where no size is declared). ``prior`` is the base: the
    standard normal (None), a mixture bought with a share of the budget, or a public one. ``selection`` pays for a
    choice among models along the training. ``activations`` buys the start of activation normalisation (DP-NF-INIT);
    None starts it at the identity for free.
    Reference: Waites and Cummings 2021, "Differentially Private Normalizing Flows for Privacy-Preserving Density
    Estimation".

    >>> Maf(blocks=3).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "maf"
    title: ClassVar[str] = "DP-NF: masked autoregressive flow by noisy gradients"
    reference: ClassVar[str] = "Waites and Cummings 2021 (AIES)"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob", "warm_start")

    blocks: int = 5
    width: int = 64
    depth: int = 2
    act_norm: bool = False
    activations: ActivationStart | None = None
    prior: MixturePrior | PublicMixture | None = None
    batch: int | None = None
    steps: int = 1_000
    clip: float = 50.0
    optimiser: Optimiser = Optimiser()
    scaling: ScalingShare | None = ScalingShare()
    sampling: Literal["poisson", "fixed-size"] = "poisson"
    selection: Selection | None = None

    def __post_init__(self) -> None:
        whole(1, blocks=self.blocks, width=self.width, depth=self.depth, steps=self.steps)
        positive(clip=self.clip)
        if self.batch is not None:
            whole(1, batch=self.batch)
        if self.sampling not in ("poisson", "fixed-size"):
            raise ArgumentError(f"Expected sampling={self.sampling!r} to be 'poisson' or 'fixed-size'.")
        self._check_parts()

    def _check_parts(self) -> None:
        if self.prior is not None and not isinstance(self.prior, PublicMixture):
            instance(MixturePrior, prior=self.prior)
        if self.activations is not None:
            instance(ActivationStart, activations=self.activations)
            if not self.act_norm:
                raise ArgumentError("A start of activation normalisation needs act_norm=True.")
        bought = (self.scaling, self.activations, self.prior)
        check_shares(self.selection, *(getattr(part, "share", 0.0) for part in bought))

    @property
    def relation(self) -> Relation:
        return PoissonSampling.relation if self.sampling == "poisson" else FixedSizeSampling.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """With and without bought scales, ActNorm and its start, a bought prior, a declared batch, either sampling."""
        tiny = cls(steps=2, blocks=1, width=4)
        return (
            tiny,
            replace(tiny, blocks=2, width=8, batch=20, prior=MixturePrior(components=2, rounds=1)),
            replace(tiny, batch=20, scaling=None, act_norm=True, activations=ActivationStart()),
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

    def fit(self, curator: Curator, layout: Layout) -> MaskedAutoregressiveFlow | DensityUnion:
        plan, choices = self.plan(curator.declared_size), pledged(curator, layout, self.selection)
        shape = MafShape(layout.num_features, self.blocks, self.width, self.depth, self.act_norm)
        flow = MaskedAutoregressiveFlow.start(shape, key=curator.start_key())
        if self.scaling is not None:
            flow = flow.rescaled(*buy_scaling(curator, shape.num_features, self.scaling))
        if self.activations is not None:
            flow = with_activations(flow, self.activations, curator)
        if self.prior is not None:
            discrete = any(feature.size is not None for feature in layout.features)
            key = jax.random.fold_in(curator.start_key(), 1)
            flow = with_prior(flow, self.prior, curator, discrete=discrete, key=key)
        fixed = lambda model: (model.scaling, model.base)
        trainable = eqx.tree_at(
            fixed, jax.tree.map(lambda _: True, flow), jax.tree.map(lambda _: False, fixed(flow)), is_leaf=_is_none
        )
        given: dict[str, Any] = {"plan": plan, "optimiser": self.optimiser, "purpose": "gradients of the likelihood"}
        params, rest = eqx.partition(flow, trainable)
        models = descend(flow, params, RowLoss(rest), curator, **given, checkpoints=choices.checkpoints)
        return choices.released(curator, layout, models)


def _is_none(value: Any) -> bool:
    return value is None
