"""Flows: members that are flows, fitted without privacy through the doors that protect nobody.

NO PRIVACY: what is fitted here may repeat rows. It serves a vote and is never released; its certificate says so.
"""

from dataclasses import dataclass, field, replace

import pyarrow as pa

from sfumato.fitting.scaling import ScalingShare
from sfumato.pipeline import fit_without_privacy
from sfumato.release import Release
from sfumato.schema import Schema
from sfumato.synthesizers import Maf, Synthesizer


@dataclass(frozen=True, kw_only=True)
class FlowMembers:
    """How members are trained: any method of the registry that is a density, by default a small flow.

    Every part is fitted by itself. The declared rows of the schema, a public number, are shared out evenly.

    >>> FlowMembers().kind
    'flow'
    """

    method: Synthesizer = field(default_factory=lambda: Maf(steps=600, width=32, scaling=ScalingShare()))

    @property
    def kind(self) -> str:
        """The name of this kind of member."""
        return "flow"

    def train(self, part: pa.Table, schema: Schema, members: int) -> Release:
        """A flow of one part. Its release is not for release."""
        rows = None if schema.rows is None else max(1, schema.rows // members)
        return fit_without_privacy(part, replace(schema, rows=rows, unit=None), method=self.method)
