"""One file a published method, and the registry that the pipeline, the command line and the tests run over."""

from sfumato.errors import ArgumentError
from sfumato.fitting.selection import Selection
from sfumato.synthesizers.aim import Aim
from sfumato.synthesizers.auto import Auto
from sfumato.synthesizers.chain import Chain
from sfumato.synthesizers.dp_cgan import DpCgan
from sfumato.synthesizers.dp_ctgan import DpCtgan
from sfumato.synthesizers.dp_gan import DpGan
from sfumato.synthesizers.gs_wgan import GsWgan
from sfumato.synthesizers.hflow import HFlow
from sfumato.synthesizers.independent import Independent
from sfumato.synthesizers.maf import Maf
from sfumato.synthesizers.merf import Merf
from sfumato.synthesizers.mog import Mog
from sfumato.synthesizers.mst import Mst
from sfumato.synthesizers.ntk import Ntk
from sfumato.synthesizers.pate_gan import PateCtgan, PateGan
from sfumato.synthesizers.synthesizer import Synthesizer
from sfumato.synthesizers.tbart import Tbart

REGISTRY: dict[str, type[Synthesizer]] = {
    method.name: method
    for method in (
        *(Aim, Auto, Chain, HFlow, Independent, Maf, Mog, Mst, Tbart),
        *(DpCgan, DpCtgan, DpGan, GsWgan, Merf, Ntk, PateCtgan, PateGan),
    )
}
"""Every method by its name. A new method is one file and one entry here."""


def method_named(name: str) -> type[Synthesizer]:
    """The method of that name, or an error that lists the names there are."""
    if name not in REGISTRY:
        raise ArgumentError(f"Unknown method {name!r}; there are: {', '.join(sorted(REGISTRY))}.")
    return REGISTRY[name]


__all__ = [
    "REGISTRY",
    "Aim",
    "Auto",
    "Chain",
    "DpCgan",
    "DpCtgan",
    "DpGan",
    "GsWgan",
    "HFlow",
    "Independent",
    "Maf",
    "Merf",
    "Mog",
    "Mst",
    "Ntk",
    "PateCtgan",
    "PateGan",
    "Selection",
    "Synthesizer",
    "Tbart",
    "method_named",
]
