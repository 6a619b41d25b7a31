"""The only room that sees rows. Reading this folder is enough to check the privacy of the whole system."""

from sfumato.privacy.absolute_clipping import AbsoluteClip
from sfumato.privacy.adjacency import Adjacency, Relation
from sfumato.privacy.budget import Budget
from sfumato.privacy.certificate import Certificate
from sfumato.privacy.clipping import FlatClip
from sfumato.privacy.curator import Curator
from sfumato.privacy.fine_clipping import LayerClip, SparseClip, UnitClip
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.levels import Texts
from sfumato.privacy.plan import SgdPlan
from sfumato.privacy.queries import CountQuery, DistanceQuery, ScoreQuery, SumQuery
from sfumato.privacy.randomness import Randomness
from sfumato.privacy.sampling import FixedSizeSampling, PoissonSampling

__all__ = [
    "AbsoluteClip",
    "Adjacency",
    "Budget",
    "Certificate",
    "CountQuery",
    "Curator",
    "DistanceQuery",
    "FixedSizeSampling",
    "FlatClip",
    "LayerClip",
    "Ledger",
    "PoissonSampling",
    "Randomness",
    "Relation",
    "ScoreQuery",
    "SgdPlan",
    "SparseClip",
    "SumQuery",
    "Texts",
    "UnitClip",
]
