"""Auto: the method for a table about which nothing more is known than its schema and its budget."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from sfumato.checks import instance, positive
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
    """What does best on most tables, by public facts alone: chosen tables, and gradients on top where these tell more.

    The size that counts is the declared rows times the mu of the whole budget (one over the noise of a single
    count). Below ``small`` noise drowns gradients, and AIM is taken. All other tables, those of no declared size
    among them, are ``chain``'s: it measures a few chosen tables and learns the rest by gradients. Bins are bought
    where some column has more values than bins; of columns that are learnt, numbers always count as such and levels
    never do. ``label`` names a column that is to be predicted: its pairs with all others come first.
    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    Cost: that of ``chain`` or of ``aim``.
    Reference: the hybrid that Castellon et al. 2023 leave open; see ``Chain`` and ``Aim``.

    >>> Auto().relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "auto"
    title: ClassVar[str] = "Auto: chosen tables, and gradients on top where the table is large enough"
    reference: ClassVar[str] = "see aim and chain"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    small: float = 1_000.0
    label: str | None = None
    chain: Chain = Chain()
    aim: Aim = Aim(codec=PaidBins(share=0.25), singles=0.2, labelled=0.5)

    def __post_init__(self) -> None:
        positive(small=self.small)
        instance(Chain, chain=self.chain)
        instance(Aim, aim=self.aim)
        if self.label is not None:
            instance(str, label=self.label)
        if len(self._labels) > 1:
            raise ArgumentError(
                f"The labels {', '.join(map(repr, self._labels))} are named: name one column, in label."
            )

    @property
    def _labels(self) -> tuple[str, ...]:
        """The labels that are named, each once."""
        return tuple(dict.fromkeys(filter(None, (self.label, self.chain.label, self.aim.label))))

    @property
    def relation(self) -> Relation:
        return self.chain.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """A table of numbers that counts as small; other choices come down to the trials of ``chain`` and ``aim``."""
        return (cls(small=1e12, aim=Aim.trials()[1], chain=Chain.trials()[0]),)

    def fit(self, curator: Curator, layout: Layout) -> CodedModel | CodedUnion:
        return self.chosen(curator, layout).fit(curator, layout)

    def chosen(self, curator: Curator, layout: Layout) -> Chain | Aim:
        """The method for a table of this layout, declared size and budget; an unknown label is refused."""
        label = next(iter(self._labels), None)
        layout.label(label)
        declared = curator.declared_size
        small = declared is not None and declared / curator.noise_multiplier(1.0) < self.small
        method = self.aim if small else self.chain
        wide = any(self._is_wide(feature, method.even_bins) for feature in layout.features if feature.role == "value")
        return replace(method, codec=method.codec if wide else None, label=label)

    def _is_wide(self, feature: Feature, bins: int) -> bool:
        """Whether a feature has many values. One that was learnt counts by its kind: its size is no public fact."""
        if feature.learnt:
            return not feature.nominal
        return feature.size is None or feature.size > bins
