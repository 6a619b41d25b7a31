"""Attacks on the software itself: canaries through the real doors, and record-play. Needs no private rows."""

from sfumato.audit.audit import AuditResult, audit
from sfumato.audit.finding import Finding
from sfumato.audit.play_result import PlayResult
from sfumato.audit.playback import play

__all__ = ["AuditResult", "Finding", "PlayResult", "audit", "play"]
