"""sfumato: a private table in, a certified generative model out.

>>> import sfumato as sf
>>> schema = sf.Schema.load("schema.toml")                                       # doctest: +SKIP
>>> release = sf.fit(table, schema, epsilon=1.0, delta=1e-6)                     # doctest: +SKIP
>>> release.sample(10_000), release.log_prob(new_rows), release.certificate      # doctest: +SKIP
"""

from importlib.metadata import version

from sfumato.errors import (
    ArgumentError,
    BudgetError,
    ReleaseError,
    SchemaError,
    SfumatoError,
    TableError,
)
from sfumato.evaluation import Evaluation, evaluate
from sfumato.fitting.learning import Learning
from sfumato.fitting.likelihood import Optimiser
from sfumato.fitting.priors import MixturePrior
from sfumato.fitting.scaling import ScalingShare
from sfumato.pipeline import fit, fit_without_privacy
from sfumato.privacy import Certificate
from sfumato.release import Release, load
from sfumato.schema import Schema, draft
from sfumato.synthesizers import (
    REGISTRY,
    Aim,
    Auto,
    Chain,
    HFlow,
    Independent,
    Maf,
    Mog,
    Mst,
    Tbart,
)

__version__ = version("sfumato")

__all__ = [
    "REGISTRY",
    "Aim",
    "ArgumentError",
    "Auto",
    "BudgetError",
    "Certificate",
    "Chain",
    "Evaluation",
    "HFlow",
    "Independent",
    "Learning",
    "Maf",
    "MixturePrior",
    "Mog",
    "Mst",
    "Optimiser",
    "Release",
    "ReleaseError",
    "ScalingShare",
    "Schema",
    "SchemaError",
    "SfumatoError",
    "TableError",
    "Tbart",
    "__version__",
    "draft",
    "evaluate",
    "fit",
    "fit_without_privacy",
    "load",
]
