"""The command line: parses, calls, prints."""

from sfumato.cli import accounts, detections, evaluations, releases, schemas
from sfumato.cli.app import app, main

_ORDER = (
    *("draft", "check", "fit", "sample", "score", "detect", "show", "report", "compare"),
    *("build_detector", "ask_detector"),
    *("account", "audit", "methods", "demo"),
)
app.registered_commands.sort(key=lambda command: _ORDER.index(getattr(command.callback, "__name__", "")))

__all__ = ["accounts", "app", "detections", "evaluations", "main", "releases", "schemas"]
