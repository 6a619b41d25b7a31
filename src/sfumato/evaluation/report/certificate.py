"""Certificate: the promise of a release in words, beside the measurements that it does not cover."""

from collections.abc import Mapping

from sfumato.evaluation.report.markup import element, paragraphs, scrolling, text
from sfumato.release import Certificate
from sfumato.release.wording import event_words, flat, promise

_NONE = (
    "No release was given, so nothing is known here of how the synthetic rows were made, nor of what they protect.",
    "Give the file of the release with --model (or release= in Python) to show its certificate and its likelihoods.",
)
_LOUD = (
    "NOT FOR RELEASE. The certificate of this model states no protection: its epsilon is infinite. "
    "Its rows and its file must be treated like the real rows."
)


def certificate_section(certificate: Certificate | None) -> str:
    """What is promised, by which steps, under which assumptions."""
    if certificate is None:
        return paragraphs(*_NONE)
    charges = element(
        "table",
        element("thead", element("tr", element("th", "For", scope="col"), element("th", "What was done", scope="col"))),
        element("tbody", *(_row(purpose, event_words(event)) for purpose, event in certificate.charges)),
        class_="plain",
    )
    return (
        status(certificate)
        + _listed(promised(certificate))
        + element("h3", "Charged to the budget")
        + scrolling(charges, "Charges")
        + element("h3", "Assumptions")
        + element("ol", *(element("li", text(assumption)) for assumption in certificate.assumptions))
        + element("h3", "Public facts")
        + _listed(flat(certificate.public))
        + element("h3", "Versions")
        + _listed({key: str(value) for key, value in certificate.versions.items()})
    )


def status(certificate: Certificate) -> str:
    """Whether it may be released, said loudly where it may not."""
    if certificate.status == "not for release":
        return element("p", element("strong", _LOUD), class_="alarm")
    words = "The certificate covers the release and whatever is computed from it. It does not cover this page."
    return element("p", text(words), class_="lead")


def promised(certificate: Certificate) -> dict[str, str]:
    """The status and the main facts, by their names as headings."""
    told = {"status": certificate.status, **promise(certificate)}
    return {name[:1].upper() + name[1:]: words for name, words in told.items()}


def _listed(facts: Mapping[str, str]) -> str:
    rows = "".join(_row(key, value) for key, value in facts.items())
    return scrolling(element("table", element("tbody", rows), class_="plain"), "Facts of the certificate")


def _row(key: str, value: str) -> str:
    return element("tr", element("th", text(key), scope="row"), element("td", text(value)))
