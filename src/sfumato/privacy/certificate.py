"""Certificate: what was done to the rows, what it costs, and under which assumptions; JSON, re-derivable."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from math import inf
from typing import Any, Literal

from sfumato.errors import ArgumentError, BudgetError
from sfumato.privacy.accounting import clt_epsilon, headline, rdp_epsilon, without_exposures
from sfumato.privacy.adjacency import Adjacency, Relation
from sfumato.privacy.budget import Budget
from sfumato.privacy.concentrated import total_rho
from sfumato.privacy.events import Concentrated, Event, LaplaceSum, NonPrivate, event_from_dict, event_to_dict
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.randomness import Randomness

ASSUMPTIONS = (
    "The schema (columns, kinds, bounds, levels, declared size) is public and was not read from the rows, but for "
    "levels and bounds that a charge paid for.",
    "The settings of the fit were fixed in advance, or chosen without these rows.",
    "The machine that ran the fit is trusted; time and memory it took are not protected.",
    "Every other fit or query on the same rows adds to the epsilon stated here.",
    "The guarantee covers this file and anything computed from it, not reports that used the real rows.",
)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The statement that comes with a release.

    Guarantees: ``rederive`` recomputes epsilon from ``charges`` alone and agrees with ``epsilon``.
    """

    status: Literal["for release", "not for release"]
    epsilon: float
    delta: float
    budget_epsilon: float
    adjacency: Adjacency
    charges: tuple[tuple[str, Event], ...]
    accountant: Mapping[str, Any]
    epsilon_rdp: float
    epsilon_clt: float
    randomness: Mapping[str, Any]
    public: Mapping[str, Any]
    assumptions: tuple[str, ...]
    versions: Mapping[str, str]

    def rederive(self) -> float:
        """Epsilon, computed anew from the listed events."""
        return headline([event for _, event in self.charges], self.adjacency, self.delta).epsilon

    @property
    def epsilon_zcdp(self) -> float | None:
        """An upper bound by zero-concentrated privacy, derived from the charges; None where it has no rule for them.

        It has none for sampled sums. Reference: Bun and Steinke 2016; the conversion is the best over Renyi orders
        (Canonne, Kamath, Steinke 2020).
        """
        events, delta = without_exposures([event for _, event in self.charges], self.delta)
        try:
            rho = float(total_rho(events))
            return rdp_epsilon((Concentrated(rho=max(rho, 1e-12)),), self.adjacency, delta) if delta > 0 else inf
        except (BudgetError, ArgumentError):
            return None

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe fields; an infinite epsilon is the text "infinity"."""
        return {
            "status": self.status,
            "epsilon": _number_out(self.epsilon),
            "delta": self.delta,
            "budget_epsilon": self.budget_epsilon,
            **self.adjacency.to_dict(),
            "charges": [{"purpose": purpose, "event": event_to_dict(event)} for purpose, event in self.charges],
            "accountant": dict(self.accountant),
            "epsilon_rdp": _number_out(self.epsilon_rdp),
            "epsilon_clt_approximation_may_understate": _number_out(self.epsilon_clt),
            "randomness": dict(self.randomness),
            "public": dict(self.public),
            "assumptions": list(self.assumptions),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Certificate":
        """The inverse of ``to_dict``; what it could not have written is refused."""
        try:
            certificate = cls(
                status=fields["status"],
                epsilon=_number_in(fields["epsilon"]),
                delta=float(fields["delta"]),
                budget_epsilon=float(fields["budget_epsilon"]),
                adjacency=Adjacency(
                    relation=Relation(fields["relation"]), unit=fields["unit"], max_rows=fields["max_rows"]
                ),
                charges=tuple((c["purpose"], event_from_dict(c["event"])) for c in fields["charges"]),
                accountant=fields["accountant"],
                epsilon_rdp=_number_in(fields["epsilon_rdp"]),
                epsilon_clt=_number_in(fields["epsilon_clt_approximation_may_understate"]),
                randomness=fields["randomness"],
                public=fields["public"],
                assumptions=tuple(fields["assumptions"]),
                versions=fields["versions"],
            )
            if certificate._is_sound() and certificate.to_dict() == dict(fields):
                return certificate
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            pass
        raise ArgumentError("The certificate does not have the expected form.")

    def _is_sound(self) -> bool:
        events = [event for _, event in self.charges]
        texts = (self.adjacency.unit, *self.assumptions, *(purpose for purpose, _ in self.charges))
        return (
            self.status == ("for release" if self.epsilon < inf else "not for release")
            and (0 <= self.epsilon <= self.budget_epsilon or self.epsilon == inf)
            and all(getattr(event, "max_rows", self.adjacency.max_rows) == self.adjacency.max_rows for event in events)
            and 0 < self.delta < 1
            and 0 < self.budget_epsilon < inf
            and self.epsilon_rdp >= 0
            and self.epsilon_clt >= 0
            and all(isinstance(text, str) for text in texts)
        )


def certify(ledger: Ledger, randomness: Randomness, public: Mapping[str, Any]) -> Certificate:
    """The certificate of what a ledger recorded. Where others know the key, or a seed makes it, epsilon is infinite.

    A ledger that admits to work without protection has said so already, and needs no other reason.
    """
    charges = tuple((entry.purpose, entry.event) for entry in ledger.charges)
    if any(isinstance(event, NonPrivate) for event in ledger.events):
        pass
    elif randomness.source == "seed":
        charges = (*charges, ("seed", NonPrivate(reason="the noise was drawn from a seed and can be removed")))
    elif randomness.source != "os":
        charges = (*charges, ("audit", NonPrivate(reason="made by an audit, with doors or a key of its own")))
    return _certificate(charges, ledger.adjacency, ledger.budget, randomness, public)


def _certificate(
    charges: tuple[tuple[str, Event], ...],
    adjacency: Adjacency,
    budget: Budget,
    randomness: Randomness,
    public: Mapping[str, Any],
) -> Certificate:
    delta = budget.delta
    events = tuple(event for _, event in charges)
    stated = headline(events, adjacency, delta)
    private = stated.epsilon < inf
    return Certificate(
        status="for release" if private else "not for release",
        epsilon=stated.epsilon,
        delta=delta,
        budget_epsilon=budget.epsilon,
        adjacency=adjacency,
        charges=charges,
        accountant={
            "name": stated.accountant,
            "discretisation": stated.discretisation,
            "library": stated.library,
        },
        epsilon_rdp=rdp_epsilon(events, adjacency, delta) if private else inf,
        epsilon_clt=clt_epsilon(events, delta) if private else inf,
        randomness={
            "source": "256 bits of operating system entropy" if randomness.source == "os" else randomness.source,
            "generator": "ChaCha20",
            "noise": _noise_words(events),
            "hardened": randomness.source == "os",
        },
        public=public,
        assumptions=ASSUMPTIONS + _about_public_table(public),
        versions={name: version(name) for name in ("sfumato", "jax", "numpy", "dp-accounting")}
        | {"python": platform.python_version()},
    )


def _about_public_table(public: Mapping[str, Any]) -> tuple[str, ...]:
    if "public_table" not in public:
        return ()
    digest = public["public_table"]["sha256"]
    return (f"The table that the fit started from (SHA-256 of its cells {digest}) is public: none of it is protected.",)


def _noise_words(events: tuple[Event, ...]) -> str:
    kinds = {type(event) for event in events} - {NonPrivate}
    if events and not kinds:
        return "none"
    laws = ["rounded Gaussian"] if kinds != {LaplaceSum} else []
    laws += ["two-sided geometric (Laplace)"] if LaplaceSum in kinds else []
    return f"{' and '.join(laws)} on an integer grid"


def _number_out(value: float) -> float | str:
    return "infinity" if value == inf else value


def _number_in(value: float | str) -> float:
    return inf if value == "infinity" else float(value)
