"""Audit: every attack on one method, and what all of them found."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.audit.canaries import Participation
from sfumato.audit.finding import Finding
from sfumato.audit.neighbours import random_neighbours
from sfumato.audit.one_run import one_run
from sfumato.audit.play_result import PlayResult
from sfumato.audit.playback import play
from sfumato.audit.white_box import Observations, observe
from sfumato.checks import between, whole
from sfumato.privacy import Budget, Relation
from sfumato.progress import Progress, quiet
from sfumato.synthesizers import Synthesizer, method_named

_FEW = 4_000
"""Canaries of the attacks that need no more, or would take long with more."""

_UNIT_ROWS = 3
"""Rows of a unit, where the protection of units is attacked."""

_BLOCK = 10_000
"""Canaries of one run: each has a coordinate of its own, so the work grows with the square."""


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """What the attacks on a method found, each beside what was certified."""

    method: str
    settings: dict[str, Any]
    findings: tuple[Finding, ...]
    play: PlayResult
    faults: tuple[str, ...] = ()

    @property
    def violated(self) -> bool:
        """Whether any attack refutes the certificate, any pair of neighbours differs, or a door misbehaved."""
        refuted = any(finding.violated for finding in self.findings)
        return refuted or bool(self.play.violations) or bool(self.faults)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe fields."""
        return {
            "method": self.method,
            "settings": self.settings,
            "violated": self.violated,
            "findings": [finding.to_dict() for finding in self.findings],
            "faults": list(self.faults),
            "record_play": self.play.to_dict(),
        }


def audit(
    method: Synthesizer | str,
    *,
    epsilon: float = 4.0,
    delta: float = 1e-5,
    canaries: int = 10_000,
    confidence: float = 0.999,
    full: bool = False,
    progress: Progress = quiet,
) -> AuditResult:
    """Attack a method: canaries through its real doors, guesses about its release, and record-play.

    ``confidence`` is that of the whole audit and is divided among its lines. Needs no data. Coins and noise come from
    the system, so two audits differ a little. ``full`` pools five times the canaries, fits the one-run attack to more
    rows, and adds 200 random pairs of neighbours to each setting.

    >>> result = audit("maf", epsilon=4.0)                      # doctest: +SKIP
    >>> [finding.ratio for finding in result.findings]          # doctest: +SKIP
    """
    method = method_named(method)() if isinstance(method, str) else method
    budget = Budget(epsilon=epsilon, delta=delta)
    whole(100, canaries=canaries)
    between(0.5, 1 - 1e-9, confidence=confidence)
    random = np.random.default_rng()
    num = canaries * (5 if full else 1)
    few = min(num, _FEW)
    seen = [pooled(method, budget, num, "full", random, progress)]
    seen += [pooled(trial, budget, few, "full", random, progress) for trial in _of_other_relations(method)]
    if method.relation is Relation.ADD_OR_REMOVE_ONE:
        seen.append(pooled(method, budget, few, "full", random, progress, max_rows=_UNIT_ROWS))
    planned = pooled(method, budget, num if full else few, "planned", random, progress)
    # Each line may err by its share, so that the whole audit cries wolf no more often than it says.
    lines = sum(1 + len(each.doors) for each in seen) + 2
    each_line = 1 - (1 - confidence) / lines
    findings = [finding for each in seen for finding in each.findings(each_line)]
    findings.append(planned.finding(each_line))
    hidden, plain = (2_000, 10_000) if full else (500, 1_000)
    # At a small epsilon and delta: so few guesses could not show a large epsilon even if all of them were right, nor
    # any at a delta that alone explains a lucky run.
    small = Budget(epsilon=min(1.0, epsilon), delta=min(1e-9, delta))
    last: dict[str, Any] = {"confidence": each_line, "random": random, "progress": progress}
    findings.append(one_run(method, budget=small, canaries=hidden, plain=plain, **last))
    faults = tuple(dict.fromkeys(fault for each in (*seen, planned) for fault in each.faults))
    played = PlayResult()
    for trial in type(method).trials():
        played += play(trial, progress=progress)
        if full:
            played += play(trial, changes=random_neighbours(trial.relation, 200, random), progress=progress)
    return AuditResult(
        method=method.name, settings=method.settings(), findings=tuple(findings), play=played, faults=faults
    )


def _of_other_relations(method: Synthesizer) -> list[Synthesizer]:
    """One trial of the method for each relation that it protects under besides its own."""
    found = {trial.relation: trial for trial in type(method).trials() if trial.relation is not method.relation}
    return list(found.values())


def pooled(
    method: Synthesizer,
    budget: Budget,
    canaries: int,
    participation: Participation,
    random: np.random.Generator,
    progress: Progress = quiet,
    *,
    max_rows: int = 1,
) -> Observations:
    """The observations of so many canaries, in equal runs of at most 10,000: a plan may depend on their number."""
    num_runs = -(-canaries // _BLOCK)
    size = -(-canaries // num_runs)
    runs = [
        observe(
            method,
            budget=budget,
            canaries=size,
            participation=participation,
            random=random,
            max_rows=max_rows,
            progress=progress,
        )
        for _ in range(num_runs)
    ]
    return sum(runs[1:], runs[0])
