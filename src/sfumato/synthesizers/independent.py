"""Independent: the noisy shares of every column by itself, and nothing of how columns go together."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from sfumato.checks import instance, whole
from sfumato.encoding.layout import Layout
from sfumato.fitting.codecs import PaidBins
from sfumato.fitting.graphical import estimate
from sfumato.fitting.select_measure import coded_model, measure, seen_as_codes
from sfumato.models.codes.coded import CodedModel
from sfumato.privacy import Curator, Relation


@dataclass(frozen=True, kw_only=True)
class Independent:
    """Independent columns: all one-way tables of counts in one noisy sum. What every other method must beat.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    Cost: one Gaussian sum of the whole budget, less what the bins of columns cost where they are bought (``codec``;
    None takes ``even_bins`` over public bounds, which cost nothing).
    Reference: the simplest of the methods in McKenna, Miklau, Sheldon 2021.

    >>> Independent(even_bins=10).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "independent"
    title: ClassVar[str] = "Independent columns from noisy counts"
    reference: ClassVar[str] = "McKenna, Miklau, Sheldon 2021, as a baseline"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    codec: PaidBins | None = None
    even_bins: int = 32

    def __post_init__(self) -> None:
        whole(2, even_bins=self.even_bins)
        if self.codec is not None:
            instance(PaidBins, codec=self.codec)

    @property
    def relation(self) -> Relation:
        return Relation.ADD_OR_REMOVE_ONE

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Even and bought bins."""
        tiny = cls(even_bins=6)
        return (tiny, replace(tiny, codec=PaidBins(rounds=2, bins=8, codes=4)))

    def fit(self, curator: Curator, layout: Layout) -> CodedModel:
        coded, view = seen_as_codes(curator, layout, self.codec, self.even_bins)
        groups = [(column,) for column in range(len(coded.codec.sizes))]
        noise = view.least_noise()
        measured = measure(view, groups, coded.codec.sizes, noise_multiplier=noise, purpose="counts of each column")
        return coded_model(coded, estimate(coded.codec.sizes, measured))
