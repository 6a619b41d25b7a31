"""Plan: the one place where sampling, clipping, steps and noise meet, so that they cannot disagree."""

from dataclasses import dataclass

from sfumato.checks import whole
from sfumato.errors import ArgumentError
from sfumato.privacy.adjacency import Adjacency, Relation
from sfumato.privacy.clipping import GRID, FlatClip
from sfumato.privacy.events import Event, FixedSizeGaussian, PoissonGaussian
from sfumato.privacy.sampling import FixedSizeSampling, PoissonSampling


@dataclass(frozen=True, kw_only=True)
class SgdPlan:
    """Noisy gradient descent: who takes part, how a row is bounded, how many steps.

    Cost: ``event``; the noise multiplier comes from the budget, never from a setting.
    Reference: Abadi et al. 2016, algorithm 1.

    >>> plan = SgdPlan(sampling=PoissonSampling(rate=0.1), clip=FlatClip(bound=1.0), steps=100)
    >>> plan.event(2.0, Adjacency(unit="person", max_rows=3)).max_rows
    3
    """

    sampling: PoissonSampling | FixedSizeSampling
    clip: FlatClip
    steps: int

    def __post_init__(self) -> None:
        whole(1, steps=self.steps)

    def event(self, noise_multiplier: float, adjacency: Adjacency) -> Event:
        """What running this plan does to the rows, in the words of the accountant."""
        if self.sampling.relation is not adjacency.relation:
            raise ArgumentError(
                f"{type(self.sampling).__name__} protects under {self.sampling.relation.value}, "
                f"but this run is under {adjacency.relation.value}."
            )
        match self.sampling:
            case PoissonSampling():
                return PoissonGaussian(
                    rate=self.sampling.rate,
                    noise_multiplier=noise_multiplier,
                    steps=self.steps,
                    max_rows=adjacency.max_rows,
                )
            case FixedSizeSampling():
                return FixedSizeGaussian(
                    rows=self.sampling.rows,
                    batch=self.sampling.batch,
                    noise_multiplier=noise_multiplier,
                    steps=self.steps,
                )

    def noise_deviation(self, noise_multiplier: float) -> float:
        """Standard deviation of the noise on a step's sum, in grid units.

        The multiplier is relative to the sensitivity: one row bound under add-or-remove-one (a unit's further
        rows are in the event), two under replace-one.
        """
        rows_moved = 2 if self.sampling.relation is Relation.REPLACE_ONE else 1
        return noise_multiplier * rows_moved * GRID
