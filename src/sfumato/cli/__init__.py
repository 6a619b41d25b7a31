"""The command line: parses, calls, prints."""

from sfumato.cli import releases, schemas
from sfumato.cli.app import app, main

__all__ = ["app", "main", "releases", "schemas"]
