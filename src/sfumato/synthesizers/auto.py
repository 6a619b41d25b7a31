"""Auto: the method for a table about which nothing more is known than its schema and its budget."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from sfumato.checks import instance, positive
from sfumato.encoding.layout import Layout
from sfumato.fitting.codecs import PaidBins, buy_codec
from sfumato.fitting.pair_graph import PairGraph, buy_graph
from sfumato.models.codes.coded import CodedModel
from sfumato.privacy import Curator, Relation
from sfumato.synthesizers.chain import Chain


@dataclass(frozen=True, kw_only=True)
class Auto:
    """What does best on most tables: gradients on top of measured pairs, or for small tables the pairs alone.

    A table is small if its declared rows, times the mu of the whole budget (one over the noise of a single count), are
    below ``small``: then noise drowns gradients, and a graphical model of chosen pairs is released. All of this is
    public. Where no size is declared the table is not taken for small.
    Guarantees: (epsilon, delta) for one unit; exact likelihood of every row.
    Cost: that of ``chain``; for a small table Gaussian sums for the bins of its columns (``codec``), the dependence of
    all pairs (``graph``), and the chosen pairs, which get the rest.
    Reference: the hybrid that Castellon et al. 2023 leave open; see ``Chain``.

    >>> Auto().relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "auto"
    title: ClassVar[str] = "Auto: measured pairs, and gradients where the table affords them"
    reference: ClassVar[str] = "see chain"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    small: float = 300.0
    chain: Chain = Chain()
    graph: PairGraph = PairGraph()
    codec: PaidBins = PaidBins(share=0.2)

    def __post_init__(self) -> None:
        positive(small=self.small)
        instance(Chain, chain=self.chain)
        instance(PairGraph, graph=self.graph)
        instance(PaidBins, codec=self.codec)

    @property
    def relation(self) -> Relation:
        return self.chain.relation

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """A table that counts as small, and one that does not."""
        few = PaidBins(rounds=2, bins=8, codes=4)
        tiny = cls(small=1e12, codec=few, graph=PairGraph(pairs_a_column=1.0))
        return (tiny, replace(tiny, small=1e-12, chain=Chain.trials()[0]))

    def fit(self, curator: Curator, layout: Layout) -> CodedModel:
        declared = curator.declared_size
        if declared is None or declared >= self.small * curator.noise_multiplier(1.0):
            return self.chain.fit(curator, layout)
        coded = buy_codec(curator, layout, self.codec)
        view = curator.through(coded.codec.row)
        return CodedModel(coded.codec, buy_graph(view, coded, self.graph, ordered=layout.ordered_columns))
