"""Synthesizer: what a method is to the rest of the library, and the registry of all of them."""

from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from sfumato.encoding.layout import Layout
from sfumato.models.model import Model
from sfumato.privacy import Curator, Relation


@runtime_checkable
class Synthesizer(Protocol):
    """A frozen configuration with one verb. It is given doors, never rows.

    ``name``, ``title``, ``reference`` and ``can`` are for people (``sfumato methods``); ``relation`` says which
    neighbours the method protects; ``fit`` spends the curator's budget and returns a model, which has a likelihood if
    the method says that it ``can`` "log_prob".
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    can: ClassVar[tuple[str, ...]]

    @property
    def relation(self) -> Relation: ...

    def fit(self, curator: Curator, layout: Layout) -> Model: ...

    def settings(self) -> dict[str, Any]:
        """The configuration as JSON-safe fields, for the certificate."""
        ...

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Settings that fit a small table in a moment and together run every path: for tests and audits."""
        ...
