"""Auto: the method for a table about which nothing more is known than its schema and its budget."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from sfumato.checks import between, instance, positive
from sfumato.encoding.layout import Feature, Layout
from sfumato.errors import ArgumentError
from sfumato.fitting.codecs import PaidBins
from sfumato.models.codes.coded import CodedModel
from sfumato.models.union import CodedUnion
from sfumato.privacy import Curator, Relation
from sfumato.synthesizers.aim import Aim
from sfumato.synthesizers.chain import Chain


@dataclass(frozen=True, kw_only=True)
class Auto:
    """What does best on most tables, by public facts alone: chosen tables, or gradients on top of measured pairs.

    The size that counts is the declared rows times the mu of the whole budget (one over the noise of a single count).
    Below ``small`` noise drowns gradients. From ``large`` on they see more than pairs of columns do, and between the
    two where more than ``numeric`` of all columns have many values: numbers go along with each other densely, which
    pairs of bins tell badly. Otherwise AIM is taken, with bins that are bought where some column has more values than
    bins. Where no size is declared the table is taken for one in between. ``label`` names a column that is to be
    predicted: AIM then measures its pairs with all other columns first; gradients see it as they see any other.
    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    Cost: that of ``chain`` or of ``aim``.
    Reference: the hybrid that Castellon et al. 2023 leave open; see ``Chain`` and ``Aim``.

    >>> Auto().relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "auto"
    title: ClassVar[str] = "Auto: chosen tables, or gradients on measured pairs"
    reference: ClassVar[str] = "see aim and chain"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    small: float = 2_000.0
    large: float = 20_000.0
    numeric: float = 0.5
    label: str | None = None
    chain: Chain = Chain()
    aim: Aim = Aim(codec=PaidBins(share=0.15))

    def __post_init__(self) -> None:
        positive(small=self.small, large=self.large)
        between(0, 1, numeric=self.numeric)
        instance(Chain, chain=self.chain)
        instance(Aim, aim=self.aim)
        if self.label is not None:
            instance(str, label=self.label)
        if self.label and self.aim.label and self.label != self.aim.label:
            raise ArgumentError(f"label is {self.label!r} and aim.label {self.aim.label!r}: name one column, in label.")

    @property
    def relation(self) -> Relation:
        return self.chain.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """A table of numbers that counts as small; other choices come down to the trials of ``chain`` and ``aim``."""
        return (cls(small=1e12, large=1e12, aim=Aim.trials()[1], chain=Chain.trials()[0]),)

    def fit(self, curator: Curator, layout: Layout) -> CodedModel | CodedUnion:
        layout.label(self.label or self.aim.label)  # a wrong name is refused whichever method is taken
        return self.chosen(curator, layout).fit(curator, layout)

    def chosen(self, curator: Curator, layout: Layout) -> Chain | Aim:
        """The method for a table of this layout, declared size and budget."""
        values = [feature for feature in layout.features if feature.role == "value"]
        wide = [feature for feature in values if self._is_wide(feature)]
        aim = replace(self.aim, codec=self.aim.codec if wide else None, label=self.label or self.aim.label)
        dense = len(wide) > self.numeric * len(values)
        if curator.declared_size is None:
            return self.chain if dense else aim
        size = curator.declared_size / curator.noise_multiplier(1.0)
        return self.chain if size >= self.large or (size >= self.small and dense) else aim

    def _is_wide(self, feature: Feature) -> bool:
        """Whether a feature has many values. One that was learnt counts by its kind: its size is no public fact."""
        if feature.learnt:
            return not feature.nominal
        return feature.size is None or feature.size > self.aim.even_bins
