"""Attacks on the software itself: canaries through the real doors, and record-play. Needs no private rows."""

from sfumato.audit.audit import AuditResult, audit
from sfumato.audit.finding import Finding
from sfumato.audit.playback import PlayResult, play

__all__ = ["AuditResult", "Finding", "PlayResult", "audit", "play"]
