"""White box: the attack of one who sees every answer of every door, on canaries of his own."""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from sfumato.audit.bounds import gaussian_bound, most_provable, threshold_bound
from sfumato.audit.canaries import Canaries, CanaryCurator, Participation
from sfumato.audit.finding import Finding
from sfumato.audit.neighbours import SCHEMAS
from sfumato.audit.plan_bound import plan_bound
from sfumato.audit.repeats import repeats
from sfumato.encoding.layout import layout_of
from sfumato.privacy import Adjacency, Budget, Ledger, Randomness, Relation
from sfumato.privacy.accounting import headline
from sfumato.privacy.events import Event, LaplaceSum
from sfumato.progress import Progress, quiet
from sfumato.synthesizers import Synthesizer

_ASSUMED = {
    "full": "scores independent and normal of one variance: true of canaries that take part in every step",
    "planned": "scores independent, and the charged events with their noise scaled by a common factor",
    "fixed": "scores independent; nothing is assumed about their law",
}


@dataclass(frozen=True, kw_only=True)
class Observations:
    """The scores of canaries that were in and of canaries that were out, beside what was charged.

    ``name`` says of what: of all that a fit did, or of one call of a door.
    """

    inside: np.ndarray
    outside: np.ndarray
    events: tuple[Event, ...]
    adjacency: Adjacency
    delta: float
    participation: Participation
    name: str
    faults: tuple[str, ...] = ()
    doors: tuple["Observations", ...] = ()

    @property
    def certified(self) -> float:
        """What the accountant states for the events."""
        return headline(self.events, self.adjacency, self.delta).epsilon

    def __add__(self, other: "Observations") -> "Observations":
        """Both together: runs of equal settings have scores of equal law."""
        return replace(
            self,
            inside=np.concatenate([self.inside, other.inside]),
            outside=np.concatenate([self.outside, other.outside]),
            faults=(*self.faults, *other.faults),
            doors=tuple(mine + theirs for mine, theirs in zip(self.doors, other.doors, strict=True)),
        )

    def finding(self, confidence: float) -> Finding:
        """The lower bound that fits the participation, beside the certified epsilon."""
        way = "fixed" if self._is_of_unknown_law() else self.participation
        lower = self._lower(way, confidence)
        return Finding(
            name=self.name,
            certified=self.certified,
            lower=lower,
            delta=self.delta,
            confidence=confidence,
            observations=self.inside.size + self.outside.size,
            assumptions=_ASSUMED[way],
            most=most_provable(self.inside.size + self.outside.size, confidence) if way == "fixed" else inf,
        )

    def findings(self, confidence: float) -> list[Finding]:
        """Of all that the fit did, and of each call of a door by itself, against its own charge."""
        return [self.finding(confidence), *(door.finding(confidence) for door in self.doors)]

    def _lower(self, way: str, confidence: float) -> float:
        if way == "full":
            return gaussian_bound(self.inside, self.outside, self.delta, confidence)
        if way == "fixed":
            return threshold_bound(self.inside, self.outside, self.delta, confidence)
        return plan_bound(self.inside, self.outside, self.events, self.adjacency, self.delta, confidence)

    def _is_of_unknown_law(self) -> bool:
        """Batches of fixed size, as planned; and Laplace noise where all take part, whose scores are not normal."""
        if self.participation == "planned":
            return self.adjacency.relation is Relation.REPLACE_ONE
        return any(isinstance(event, LaplaceSum) for event in self.events)

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
    words = "full participation" if participation == "full" else "as planned"
    words += "" if max_rows == 1 else f", units of {max_rows} rows"
    words += "" if method.relation is Relation.ADD_OR_REMOVE_ONE else f", {method.relation.value}"
    given: dict[str, Any] = {"ledger": ledger, "randomness": noise, "progress": progress}
    curator = CanaryCurator(planted, participation=participation, random=random, **given)
    method.fit(curator, layout_of(replace(SCHEMAS["mixed"], rows=canaries)))
    facts: dict[str, Any] = {
        "adjacency": ledger.adjacency,
        "delta": budget.delta,
        "participation": participation,
    }
    doors = tuple(
        Observations(**facts, **_split(heard.scores, planted), events=(heard.event,), name=f"  {heard.purpose}")
        for heard in curator.heard
    )
    lines = [line for heard in curator.heard if heard.noise is not None for line in heard.noise]
    return Observations(
        **facts,
        **_split(curator.scores, planted),
        events=ledger.drawn,
        name=f"white box, {words}",
        faults=(*curator.faults, *repeats(lines)),
        doors=doors if participation == "full" else (),
    )


def _split(scores: np.ndarray, planted: Canaries) -> dict[str, Any]:
    return {"inside": scores[planted.coins], "outside": scores[~planted.coins]}


def repeatable_randomness(seed: int) -> Randomness:
    """A key that anyone can recompute: for tests of the audit, whose noise must repeat."""
    return Randomness.known(np.random.default_rng(seed).bytes(32))
