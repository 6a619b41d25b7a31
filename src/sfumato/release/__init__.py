"""A release: model, schema and certificate; sample, score, save, load."""

from sfumato.privacy import Certificate
from sfumato.release.release import Release
from sfumato.release.store import load

__all__ = ["Certificate", "Release", "load"]
