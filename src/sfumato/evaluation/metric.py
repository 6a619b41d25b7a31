"""Metric: what is measured, on what scale, and what came of it, failures included."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sfumato.errors import SfumatoError
from sfumato.evaluation.comparison import Comparison

Direction = Literal["higher", "lower"]
Scope = Literal["column", "pair", "table"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The declaration of a metric: its name, which direction is better, the range it lies in, what it looks at.

    ``ideal`` is the value that a perfect copy would have, where that is not the better end of the range: a
    detector that does no better than a coin has an AUROC of one half.

    >>> Metric(name="x", title="X", direction="higher", range=(0, 1), scope="column", reference="").ideal
    1
    """

    name: str
    title: str
    direction: Direction
    range: tuple[float, float]
    scope: Scope
    reference: str
    about: str = ""
    ideal: float | None = None

    def __post_init__(self) -> None:
        if self.ideal is None:
            object.__setattr__(self, "ideal", self.range[1] if self.direction == "higher" else self.range[0])


@dataclass(frozen=True, kw_only=True)
class Part:
    """One entry of a breakdown: of a column, a pair, a classifier. It has a value, or says why it has none.

    >>> Part(of=("age",), failure="constant column").value is None
    True
    """

    of: tuple[str, ...]
    value: float | None = None
    failure: str | None = None
    detail: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.value is not None and not math.isfinite(self.value):
            object.__setattr__(self, "value", None)
            object.__setattr__(self, "failure", self.failure or "not a finite number")
        if self.value is None and self.failure is None:
            object.__setattr__(self, "failure", "no value")
        finite = {name: float(number) for name, number in self.detail.items() if math.isfinite(number)}
        object.__setattr__(self, "detail", finite)


@dataclass(frozen=True, kw_only=True)
class Score:
    """What a metric came to: the mean of its parts, and each part.

    A part that failed is never dropped in silence: ``text`` says how many there are wherever the mean is shown.

    >>> metric = Metric(name="x", title="X", direction="higher", range=(0, 1), scope="column", reference="")
    >>> Score(metric=metric, parts=(Part(of=("a",), value=0.5), Part(of=("b",), failure="constant"))).text
    '0.500 (1 of 2 failed)'
    """

    metric: Metric
    parts: tuple[Part, ...]
    rows: str = ""

    @property
    def value(self) -> float | None:
        """The mean over the parts that have a value; None where none has."""
        values = [part.value for part in self.parts if part.value is not None]
        # Divided before they are added: the sum of values that are finite need not be.
        return math.fsum(value / len(values) for value in values) if values else None

    @property
    def failures(self) -> tuple[Part, ...]:
        """The parts without a value."""
        return tuple(part for part in self.parts if part.value is None)

    @property
    def applies(self) -> bool:
        """Whether there was anything to measure."""
        return bool(self.parts)

    @property
    def text(self) -> str:
        """The mean for a person, with what failed."""
        if not self.applies:
            return "does not apply"
        if self.value is None:
            return "failed"
        failed = len(self.failures)
        return f"{self.value:.3f}" + (f" ({failed} of {len(self.parts)} failed)" if failed else "")

    def to_dict(self) -> dict[str, object]:
        """JSON-safe fields."""
        parts = [
            {"of": list(part.of), "value": part.value, "failure": part.failure, "detail": dict(part.detail)}
            for part in self.parts
        ]
        metric = self.metric
        return {
            "metric": metric.name,
            "title": metric.title,
            "direction": metric.direction,
            "range": [end if math.isfinite(end) else None for end in metric.range],
            "scope": metric.scope,
            "value": self.value,
            "failed": len(self.failures),
            "rows": self.rows,
            "parts": parts,
        }


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A piece of work that yields one metric, or several that share their cost.

    ``run`` gives the parts of each metric by its name; a name that is left out does not apply to these tables.
    ``cap`` is the most rows of each table that it looks at; larger tables are sampled, and the score says so.
    """

    metrics: tuple[Metric, ...]
    run: Callable[[Comparison], Mapping[str, Sequence[Part]]]
    cap: int | None = None

    def scores(self, comparison: Comparison) -> tuple[Score, ...]:
        """The score of each metric. What goes wrong becomes a failed part, never an exception."""
        seen = comparison.capped(self.cap)
        try:
            found = self.run(seen)
        except SfumatoError as error:
            found = self._failed(str(error))
        except ModuleNotFoundError as error:
            found = self._failed(f"needs {error.name}: pip install 'sfumato[report]' (or '.[report]' in a checkout)")
        except Exception as error:
            # The type alone: the message of another library may quote cells.
            found = self._failed(type(error).__name__)
        return tuple(
            Score(metric=metric, parts=tuple(found.get(metric.name, ())), rows=seen.caps) for metric in self.metrics
        )

    def _failed(self, why: str) -> dict[str, list[Part]]:
        return {metric.name: [Part(of=("table",), failure=why)] for metric in self.metrics}
