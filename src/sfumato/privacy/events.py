"""Events: sentences about what was done to the rows, apart from what it costs.

An accountant reads them (``accounting.py``); the certificate lists them. They are JSON through a closed list
of kinds, so that reading a certificate can never run or import anything.

Noise multipliers are relative to the sensitivity under the adjacency of the run. That is what makes an event
true under either relation: under replace-one the sensitivity of a sum is twice the row bound, and the noise
was scaled with it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, TypeAlias

from sfumato.checks import between, whole
from sfumato.errors import ArgumentError

# What an accountant can answer in bounded time and memory, so that no certificate can ask for more.
_NOISE = (0.05, 1e9)
_MOST_STEPS, _MOST_ROWS_A_UNIT = 10**7, 100


@dataclass(frozen=True, kw_only=True)
class GaussianSum:
    """One sum over all rows with Gaussian noise of ``noise_multiplier`` times its sensitivity."""

    kind: ClassVar[str] = "gaussian_sum"
    noise_multiplier: float

    def __post_init__(self) -> None:
        between(*_NOISE, noise_multiplier=self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class PoissonGaussian:
    """``steps`` noisy sums, each over rows that were taken independently with probability ``rate``.

    With ``max_rows`` above one, a unit's rows are each taken or not, so its contribution is a binomial mixture
    of multiples of the bound.
    """

    kind: ClassVar[str] = "poisson_gaussian"
    rate: float
    noise_multiplier: float
    steps: int
    max_rows: int = 1

    def __post_init__(self) -> None:
        between(1e-12, 1, rate=self.rate)
        between(*_NOISE, noise_multiplier=self.noise_multiplier)
        whole(1, steps=self.steps, max_rows=self.max_rows)
        between(1, _MOST_STEPS, steps=self.steps)
        between(1, _MOST_ROWS_A_UNIT, max_rows=self.max_rows)


@dataclass(frozen=True, kw_only=True)
class FixedSizeGaussian:
    """``steps`` noisy sums, each over ``batch`` of ``rows`` rows drawn uniformly without replacement.

    Only meaningful under replace-one, where the number of rows is public.
    """

    kind: ClassVar[str] = "fixed_size_gaussian"
    rows: int
    batch: int
    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        between(*_NOISE, noise_multiplier=self.noise_multiplier)
        whole(1, rows=self.rows, batch=self.batch, steps=self.steps)
        between(1, _MOST_STEPS, steps=self.steps)
        if self.batch > self.rows:
            raise ArgumentError(f"Expected batch={self.batch} of at most rows={self.rows}.")


@dataclass(frozen=True, kw_only=True)
class ExponentialChoice:
    """One choice among public candidates by the exponential mechanism at ``epsilon``."""

    kind: ClassVar[str] = "exponential_choice"
    epsilon: float

    def __post_init__(self) -> None:
        between(1e-9, 1_000, epsilon=self.epsilon)


@dataclass(frozen=True, kw_only=True)
class LaplaceSum:
    """One sum over all rows with two-sided geometric noise of rate ``epsilon`` over its absolute sensitivity.

    That sensitivity is how far neighbours move the sum, in the sum of absolute values of its entries.
    """

    kind: ClassVar[str] = "laplace_sum"
    epsilon: float

    def __post_init__(self) -> None:
        between(1e-9, 1_000, epsilon=self.epsilon)


@dataclass(frozen=True, kw_only=True)
class Concentrated:
    """Sums and choices whose noise was chosen as answers came in, all within ``rho`` of zero-concentrated privacy.

    The total was fixed and charged in advance, and a filter stopped what would have passed it (``concentrated.py``).
    """

    kind: ClassVar[str] = "concentrated"
    rho: float

    def __post_init__(self) -> None:
        between(1e-12, 1e4, rho=self.rho)


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """Something that only one unit has may come out as it is, with a chance of at most ``delta``.

    It is a (0, delta)-private answer beside the others, and takes its delta from that of the whole (``levels.py``).
    """

    kind: ClassVar[str] = "exposure"
    delta: float

    def __post_init__(self) -> None:
        between(1e-15, 0.1, delta=self.delta)


@dataclass(frozen=True, kw_only=True)
class NonPrivate:
    """Anything without a guarantee: its epsilon is infinite, and says why."""

    kind: ClassVar[str] = "non_private"
    reason: str


Event: TypeAlias = (
    GaussianSum
    | PoissonGaussian
    | FixedSizeGaussian
    | ExponentialChoice
    | LaplaceSum
    | Concentrated
    | Exposure
    | NonPrivate
)

_KINDS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        GaussianSum,
        PoissonGaussian,
        FixedSizeGaussian,
        ExponentialChoice,
        LaplaceSum,
        Concentrated,
        Exposure,
        NonPrivate,
    )
}


def event_to_dict(event: Event) -> dict[str, object]:
    """The event as JSON-safe fields.

    >>> event_to_dict(GaussianSum(noise_multiplier=4.0))
    {'kind': 'gaussian_sum', 'noise_multiplier': 4.0}
    """
    return {"kind": event.kind, **asdict(event)}


def event_from_dict(fields: Mapping[str, object]) -> Event:
    """The inverse of ``event_to_dict``; an unknown kind or field is an error, never an import."""
    values = dict(fields)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ArgumentError(f"Unknown kind of event {kind!r}; known are {', '.join(sorted(_KINDS))}.")
    try:
        return _KINDS[kind](**values)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(f"The fields of a {kind} event do not fit: {', '.join(sorted(values))}.") from None
