"""Page: one HTML file that shows how good a synthetic table is, and needs nothing else."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.report.certificate import certificate_section
from sfumato.evaluation.report.charts.svg import PATTERNS
from sfumato.evaluation.report.columns import columns_section
from sfumato.evaluation.report.definitions import definitions_section
from sfumato.evaluation.report.details import details_of, details_section
from sfumato.evaluation.report.groups import GROUPS, group_of, ordered
from sfumato.evaluation.report.markup import element, text
from sfumato.evaluation.report.overview import overview
from sfumato.evaluation.report.pairs import pairs_section
from sfumato.release import Certificate

WARNING = (
    "This page is private. It was computed on private rows without noise, so it is not itself protected. "
    "Do not publish it, and do not keep it beside the release."
)

Section = tuple[str, str, str]
"""The anchor, the title and the content of a section."""


def report_page(
    evaluation: Evaluation,
    *,
    certificate: Certificate | None = None,
    title: str = "How good is the synthetic table?",
    made_at: str | None = None,
) -> str:
    """The report as the text of a complete HTML page, the same for the same evaluation.

    The certificate is that of the release of the comparison, unless another is given. ``made_at`` is shown as it is.

    Privacy: none. The page is for whoever may see the real rows, and says so at its top.

    >>> page = report_page(evaluation)                                          # doctest: +SKIP
    """
    release = evaluation.comparison.release
    if certificate is None and release is not None:
        certificate = release.certificate
    sections: list[Section] = [
        ("overview", "Overview", overview(evaluation, certificate)),
        ("columns", "Columns", columns_section(evaluation) + details_of(evaluation, "columns")),
        ("pairs", "Pairs", pairs_section(evaluation) + details_of(evaluation, "pairs")),
    ]
    keys = [key for key, _ in ordered(evaluation) if key not in ("columns", "pairs")]
    sections += [(key, group_of(key).title, details_section(evaluation, key)) for key in keys]
    metrics = [score.metric for score in evaluation.scores]
    sections.append(("certificate", "Certificate", certificate_section(certificate)))
    sections.append(("reading", "How to read", definitions_section(metrics)))
    return whole_page(title, sections, made_at=made_at)


def whole_page(title: str, sections: Sequence[Section], *, made_at: str | None = None) -> str:
    """A page around sections: warning, navigation, style and script, closed to the network."""
    style, script = _part("style.css"), _part("script.js")
    policy = (
        f"default-src 'none'; style-src {_fingerprint(style)}; script-src {_fingerprint(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = (
        '<meta charset="utf-8">'
        + f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">'
        + '<meta name="viewport" content="width=device-width, initial-scale=1">'
        + '<meta name="robots" content="noindex"><meta name="referrer" content="no-referrer">'
        + '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        + element("title", text(title))
        + element("style", style)
    )
    links = "".join(
        element("li", element("a", text(_link(anchor, words)), href=f"#{anchor}")) for anchor, words, _ in sections
    )
    body = [
        PATTERNS,
        element("a", "Skip to the content", href="#content", class_="skip"),
        element(
            "p",
            element("strong", "Private. "),
            text(WARNING.removeprefix("This page is private. ")),
            class_="banner",
            role="note",
        ),
        _header(title, made_at),
        element("nav", element("ul", links), aria_label="Sections"),
        element("main", *(_section(*section) for section in sections), id="content"),
        element("footer", element("p", text(WARNING))),
        element("script", script),
    ]
    content = element("head", head) + element("body", *body)
    return "<!DOCTYPE html>\n" + element("html", content, lang="en") + "\n"


def _link(anchor: str, title: str) -> str:
    return GROUPS[anchor].link if anchor in GROUPS else title


def _header(title: str, made_at: str | None) -> str:
    made = element("p", text(made_at), class_="made") if made_at else ""
    return element("header", element("h1", text(title)), made)


def _section(anchor: str, title: str, content: str) -> str:
    heading = element("h2", text(title), id=f"{anchor}-title")
    return element("section", heading, content, id=anchor, aria_labelledby=f"{anchor}-title")


def _part(file: str) -> str:
    return Path(__file__).with_name(file).read_text(encoding="utf-8")


def _fingerprint(part: str) -> str:
    """What the browser checks before it applies an inline style or runs an inline script: nothing else may run."""
    digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
    return f"'sha256-{digest}'"
