"""File: a report on the disk, for its owner alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.atomic import atomic_file
from sfumato.errors import ArgumentError
from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.report.page import report_page
from sfumato.evaluation.report.side_by_side import comparison_page

SUFFIXES = (".html", ".json")
NOT_PRIVATE = (
    "It was computed on private rows without noise, so it is as private as they are: the certificate does not "
    "cover it. Do not publish it, and keep it apart from the release."
)


def save_report(evaluation: Evaluation | Mapping[str, Evaluation], path: str | Path) -> None:
    """Write a report of one evaluation, or of several side by side, as .html for people or .json for programs.

    Privacy: none; the file can be read by its owner alone (mode 0600).

    >>> save_report(evaluation, "report.html")                                # doctest: +SKIP
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"output {str(target)!r}: expected a name that ends in {' or '.join(SUFFIXES)}")
    content = _page(evaluation) if target.suffix.lower() == ".html" else _fields(evaluation)
    try:
        with atomic_file(target, private=True) as stream:
            stream.write(content.encode())
    except OSError as error:
        raise ArgumentError(f"output {str(target)!r}: {(error.strerror or 'cannot be written').lower()}") from None


def _page(evaluation: Evaluation | Mapping[str, Evaluation]) -> str:
    return report_page(evaluation) if isinstance(evaluation, Evaluation) else comparison_page(evaluation)


def _fields(evaluation: Evaluation | Mapping[str, Evaluation]) -> str:
    found: dict[str, Any] = {"warning": NOT_PRIVATE}
    if isinstance(evaluation, Evaluation):
        found["groups"] = evaluation.to_dict()
    else:
        found["releases"] = {name: each.to_dict() for name, each in evaluation.items()}
    return json.dumps(found, indent=2, allow_nan=False) + "\n"
