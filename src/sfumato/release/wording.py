"""Wording: a certificate in plain words, for the terminal and for the report."""

from collections.abc import Mapping
from typing import Any

from sfumato.privacy.certificate import Certificate
from sfumato.privacy.events import (
    Concentrated,
    Event,
    ExponentialChoice,
    Exposure,
    FixedSizeGaussian,
    GaussianSum,
    LaplaceSum,
    PoissonGaussian,
)
from sfumato.privacy.events import NonPrivate as NonPrivateEvent


def promise(certificate: Certificate) -> dict[str, str]:
    """The main facts of a certificate, by their names."""
    adjacency, accountant, randomness = certificate.adjacency, certificate.accountant, certificate.randomness
    step = accountant.get("discretisation")
    exactness = f", discretisation {step:g}" if isinstance(step, float) else ""
    private, zcdp = certificate.epsilon < float("inf"), certificate.epsilon_zcdp
    return {
        "epsilon": number(certificate.epsilon) + (f" (asked for: {certificate.budget_epsilon:g})" if private else ""),
        "delta": f"{certificate.delta:g}",
        "protected": protected_words(certificate),
        "relation": adjacency.relation.value,
        "unit": f"{adjacency.unit} (rows each, at most: {adjacency.max_rows})",
        "accountant": f"{accountant.get('name')} ({accountant.get('library')}{exactness})",
        "RDP cross-check": number(certificate.epsilon_rdp),
        "zCDP figure": "none for these charges" if zcdp is None else number(zcdp),
        "CLT figure": number(certificate.epsilon_clt) + (" (approximation, may understate)" if private else ""),
        "randomness": f"{randomness.get('source')}; {randomness.get('generator')}",
        "noise": f"{randomness.get('noise')}; hardened: {'yes' if randomness.get('hardened') is True else 'no'}",
    }


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Facts within facts under dotted names.

    >>> flat({"settings": {"steps": 3}, "rows": None})
    {'settings.steps': '3', 'rows': 'none'}
    """
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = "none" if value is None else str(value)
    return found


def protected_words(certificate: Certificate) -> str:
    """Who or what a release protects, in a sentence."""
    adjacency = certificate.adjacency
    if adjacency.relation.value == "replace-one":
        return "one row, replaced by any other (the number of rows is public)"
    if adjacency.unit == "row" and adjacency.max_rows == 1:
        return "one row, added or removed"
    return f"one value of column {adjacency.unit!r} with all of its rows, added or removed"


def event_words(event: Event) -> str:
    """What was done, in words.

    >>> event_words(GaussianSum(noise_multiplier=4.0))
    'a sum over all rows, Gaussian noise of 4 times its sensitivity'
    """
    match event:
        case GaussianSum():
            return f"a sum over all rows, Gaussian noise of {event.noise_multiplier:.4g} times its sensitivity"
        case PoissonGaussian():
            return (
                f"{event.steps:,} sums, each over rows taken with probability {event.rate:.4g} (Poisson), "
                f"Gaussian noise of {event.noise_multiplier:.4g} times the row bound"
            )
        case FixedSizeGaussian():
            return (
                f"{event.steps:,} sums, each over {event.batch:,} of {event.rows:,} rows without replacement, "
                f"Gaussian noise of {event.noise_multiplier:.4g} times the sensitivity"
            )
        case ExponentialChoice():
            return f"a choice by the exponential mechanism at epsilon {event.epsilon:.4g}"
        case LaplaceSum():
            return f"a sum over all rows, Laplace noise on whole numbers at epsilon {event.epsilon:.4g}"
        case Concentrated():
            return f"sums and choices, their noise chosen as answers came in, within rho {event.rho:.4g} in all"
        case Exposure():
            return f"what one unit alone has may come out with a chance of at most {event.delta:.4g}"
        case NonPrivateEvent():
            return f"no protection: {event.reason}"


def number(value: float) -> str:
    """An epsilon for a person; infinity is said out loud."""
    return "infinite (no protection)" if value == float("inf") else f"{value:.6g}"
