"""Evaluation: every measurement of a comparison, group by group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import Comparison
from sfumato.evaluation.metric import Measurement, Score
from sfumato.progress import Progress, quiet


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation:
    """The scores of a comparison by group: columns, pairs, workload, detection, utility, density, membership.

    Privacy: none; computed on private rows without noise. It is for whoever may see the rows.
    """

    comparison: Comparison
    groups: Mapping[str, tuple[Score, ...]]

    def __repr__(self) -> str:
        # What stands last in a notebook is printed: neither rows nor what was measured on them.
        return "Evaluation(private; see .score(name).text, .to_dict() or save_report)"

    @property
    def scores(self) -> tuple[Score, ...]:
        """All scores, in the order of the groups."""
        return tuple(score for scores in self.groups.values() for score in scores)

    def score(self, name: str) -> Score:
        """The score of a metric by its name."""
        for score in self.scores:
            if score.metric.name == name:
                return score
        raise ArgumentError(f"Unknown metric {name!r}; there are: {', '.join(s.metric.name for s in self.scores)}.")

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe fields."""
        return {group: [score.to_dict() for score in scores] for group, scores in self.groups.items()}


def measure(
    comparison: Comparison, catalogue: Mapping[str, Sequence[Measurement]], progress: Progress = quiet
) -> Evaluation:
    """Run the measurements, telling how many are done."""
    total = sum(len(measurements) for measurements in catalogue.values())
    done, groups = 0, {}
    for group, measurements in catalogue.items():
        scores: list[Score] = []
        for measurement in measurements:
            progress("measuring", done, total)
            scores += measurement.scores(comparison)
            done += 1
        groups[group] = tuple(scores)
    progress("measuring", total, total)
    return Evaluation(comparison=comparison, groups=groups)
