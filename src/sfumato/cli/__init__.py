"""The command line: parses, calls, prints."""

from sfumato.cli import evaluations, releases, schemas
from sfumato.cli.app import app, main

__all__ = ["app", "evaluations", "main", "releases", "schemas"]
