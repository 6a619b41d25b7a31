"""Joint: a distribution over the codes of one row, the discrete core of every model of codes."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int


@runtime_checkable
class CodeDistribution(Protocol):
    """Probabilities of whole rows of codes, with exact likelihood and sampling. Written for one row."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each column."""
        ...

    def log_prob(self, codes: Int[Array, " column"]) -> Float[Array, ""]:
        """The log probability of a row of codes, in nats."""
        ...

    def sample(self, key: Array) -> Int[Array, " column"]:
        """One row of codes."""
        ...

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild it: JSON-safe, with its ``kind``."""
        ...
