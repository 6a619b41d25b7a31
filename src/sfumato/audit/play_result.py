"""Play result: what record-play found."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PlayResult:
    """How many pairs of neighbours were played, and what differed.

    ``skipped`` counts the pairs whose tables a setting does not go with, and ``refusals`` says why.
    """

    pairs: int = 0
    skipped: int = 0
    violations: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def __add__(self, other: "PlayResult") -> "PlayResult":
        return PlayResult(
            pairs=self.pairs + other.pairs,
            skipped=self.skipped + other.skipped,
            violations=self.violations + other.violations,
            refusals=self.refusals + other.refusals,
        )

    def to_dict(self) -> dict[str, object]:
        """JSON-safe fields."""
        return {
            "pairs": self.pairs,
            "skipped": self.skipped,
            "violations": list(self.violations),
            "refusals": list(self.refusals),
        }
