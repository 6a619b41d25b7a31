"""White box: the attack of one who sees every answer of every door, on canaries of his own."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sfumato.audit.bounds import gaussian_bound, threshold_bound
from sfumato.audit.canaries import Canaries, CanaryCurator, Participation
from sfumato.audit.finding import Finding
from sfumato.audit.neighbours import SCHEMAS
from sfumato.encoding.layout import layout_of
from sfumato.privacy import Adjacency, Budget, Ledger, Randomness
from sfumato.privacy.certificate import certify
from sfumato.progress import Progress, quiet
from sfumato.synthesizers import Synthesizer

_ASSUMED = {
    "full": "scores independent and normal of one variance: true of canaries that take part in every step",
    "planned": "scores independent; nothing is assumed about their law",
}


@dataclass(frozen=True, kw_only=True)
class Observations:
    """The scores of canaries that were in and of canaries that were out, beside the certified epsilon."""

    inside: np.ndarray
    outside: np.ndarray
    certified: float
    delta: float
    participation: Participation

    def __add__(self, other: "Observations") -> "Observations":
        """Both together: runs of equal settings have scores of equal law."""
        return replace(
            self,
            inside=np.concatenate([self.inside, other.inside]),
            outside=np.concatenate([self.outside, other.outside]),
            certified=max(self.certified, other.certified),
        )

    def finding(self, confidence: float) -> Finding:
        """The lower bound that fits the participation, beside the certified epsilon."""
        bound = gaussian_bound if self.participation == "full" else threshold_bound
        words = "full participation" if self.participation == "full" else "as planned"
        return Finding(
            name=f"white box, {words}",
            certified=self.certified,
            lower=bound(self.inside, self.outside, self.delta, confidence),
            delta=self.delta,
            confidence=confidence,
            observations=self.inside.size + self.outside.size,
            assumptions=_ASSUMED[self.participation],
        )

    def parts(self, num: int) -> list["Observations"]:
        """So many parts of these observations: as good as so many runs, since canaries are independent."""
        pairs = zip(np.array_split(self.inside, num), np.array_split(self.outside, num), strict=True)
        return [replace(self, inside=inside, outside=outside) for inside, outside in pairs]


def observe(
    method: Synthesizer,
    *,
    budget: Budget,
    canaries: int,
    participation: Participation,
    random: np.random.Generator,
    randomness: Randomness | None = None,
    max_rows: int = 1,
    progress: Progress = quiet,
) -> Observations:
    """Run the method's fit once, with canaries behind its doors.

    ``random`` tosses the coins; the noise is the system's, or that of ``randomness`` where a test must repeat.
    ``max_rows`` above one audits the protection of a unit with so many rows.
    """
    unit = "row" if max_rows == 1 else "canary"
    ledger = Ledger(budget, Adjacency(relation=method.relation, unit=unit, max_rows=max_rows))
    noise = Randomness.from_os() if randomness is None else randomness
    planted = Canaries.toss(canaries, random)
    given: dict[str, Any] = {"ledger": ledger, "randomness": noise, "progress": progress}
    curator = CanaryCurator(planted, participation=participation, random=random, **given)
    method.fit(curator, layout_of(replace(SCHEMAS["mixed"], rows=canaries)))
    return Observations(
        inside=curator.scores[planted.coins],
        outside=curator.scores[~planted.coins],
        certified=certify(ledger, noise, {}).epsilon,
        delta=budget.delta,
        participation=participation,
    )


def repeatable_randomness(seed: int) -> Randomness:
    """A key that anyone can recompute, posing as the system's: for tests of the audit, whose noise must repeat."""
    return Randomness("os", np.random.default_rng(seed).bytes(32))
