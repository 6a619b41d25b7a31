"""Finding: what one attack showed, beside what was certified."""

from dataclasses import dataclass
from math import inf, isfinite


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A lower bound on epsilon from an attack, beside the certified upper bound.

    ``lower`` holds with probability ``confidence`` over the run of the attack, under ``assumptions``; ``most`` is the
    greatest bound that the attack could have shown, had it been right about everything.

    >>> finding = Finding(name="x", certified=4.0, lower=3.0, delta=1e-5, confidence=0.999, observations=100)
    >>> finding.ratio, finding.violated
    (0.75, False)
    """

    name: str
    certified: float
    lower: float
    delta: float
    confidence: float
    observations: int
    assumptions: str = ""
    most: float = inf

    @property
    def ratio(self) -> float:
        """How much of the certified epsilon the attack showed: 1 is a tight audit, above 1 a broken certificate."""
        return self.lower / self.certified if self.certified > 0 else (inf if self.lower > 0 else 0.0)

    @property
    def violated(self) -> bool:
        """Whether the attack refutes the certificate at this confidence. What is no number counts as an alarm."""
        return not self.lower <= self.certified

    @property
    def verdict(self) -> str:
        """In words. That an attack fails to refute proves nothing."""
        if self.violated:
            return "REFUTED"
        return "not refuted" if self.most > self.certified else "too weak to refute"

    def to_dict(self) -> dict[str, object]:
        """JSON-safe fields; an infinite number is the text "infinity"."""
        return {
            "name": self.name,
            "certified": _number(self.certified),
            "lower": _number(self.lower),
            "ratio": _number(self.ratio),
            "violated": self.violated,
            "verdict": self.verdict,
            "most": _number(self.most),
            "delta": self.delta,
            "confidence": self.confidence,
            "observations": self.observations,
            "assumptions": self.assumptions,
        }


def _number(value: float) -> float | str:
    return value if isfinite(value) else "infinity" if value == inf else "not a number"
