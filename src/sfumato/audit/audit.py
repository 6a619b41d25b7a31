"""Audit: every attack on one method, and what all of them found."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.audit.canaries import Participation
from sfumato.audit.finding import Finding
from sfumato.audit.neighbours import random_neighbours
from sfumato.audit.one_run import one_run
from sfumato.audit.playback import PlayResult, play
from sfumato.audit.white_box import Observations, observe
from sfumato.checks import between, whole
from sfumato.privacy import Budget
from sfumato.progress import Progress, quiet
from sfumato.synthesizers import Synthesizer, method_named

_BLOCK = 10_000
"""Canaries of one run: each has a coordinate of its own, so the work grows with the square."""


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """What the attacks on a method found, each beside what was certified."""

    method: str
    settings: dict[str, Any]
    findings: tuple[Finding, ...]
    play: PlayResult

    @property
    def violated(self) -> bool:
        """Whether any attack refutes the certificate, or any pair of neighbours differs."""
        return bool(self.play.violations) or any(finding.violated for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe fields."""
        return {
            "method": self.method,
            "settings": self.settings,
            "violated": self.violated,
            "findings": [finding.to_dict() for finding in self.findings],
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

    Needs no data. Coins and noise come from the system, so two audits differ a little. ``full`` pools five times the
    canaries, fits the one-run attack to more rows, and adds 200 random pairs of neighbours to each setting.

    >>> result = audit("maf", epsilon=4.0)                      # doctest: +SKIP
    >>> [finding.ratio for finding in result.findings]          # doctest: +SKIP
    """
    method = method_named(method)() if isinstance(method, str) else method
    budget = Budget(epsilon=epsilon, delta=delta)
    whole(100, canaries=canaries)
    between(0.5, 1 - 1e-9, confidence=confidence)
    random = np.random.default_rng()
    ways: tuple[Participation, ...] = ("full", "planned")
    num = canaries * (5 if full else 1)
    findings = [pooled(method, budget, num, way, random, progress).finding(confidence) for way in ways]
    hidden, plain = (2_000, 10_000) if full else (500, 1_000)
    given: dict[str, Any] = {"confidence": confidence, "random": random, "progress": progress}
    findings.append(one_run(method, budget=budget, canaries=hidden, plain=plain, **given))
    played = PlayResult()
    for trial in type(method).trials():
        played += play(trial, progress=progress)
        if full:
            played += play(trial, changes=random_neighbours(trial.relation, 200, random), progress=progress)
    return AuditResult(method=method.name, settings=method.settings(), findings=tuple(findings), play=played)


def pooled(
    method: Synthesizer,
    budget: Budget,
    canaries: int,
    participation: Participation,
    random: np.random.Generator,
    progress: Progress = quiet,
) -> Observations:
    """The observations of so many canaries, in equal runs of at most 10,000: a plan may depend on their number."""
    num_runs = -(-canaries // _BLOCK)
    size = -(-canaries // num_runs)
    runs = [
        observe(method, budget=budget, canaries=size, participation=participation, random=random, progress=progress)
        for _ in range(num_runs)
    ]
    return sum(runs[1:], runs[0])
