"""The audit as a whole: small, once, with what the command line reads."""

import json

import pytest

from sfumato.audit import audit
from sfumato.errors import ArgumentError
from sfumato.synthesizers import Maf


class Small(Maf):
    """The method with one trial, so that record-play takes seconds."""

    @classmethod
    def trials(cls):
        return Maf.trials()[3:]


def test_every_attack_reports_beside_the_certificate():
    """False alarms: each bound at 99.9999 %, and one in a million for related noise."""
    told = []
    result = audit(
        Small(steps=3, blocks=1, width=4),
        epsilon=8.0,
        canaries=500,
        confidence=1 - 1e-6,
        progress=lambda *given: told.append(given),
    )
    names = [finding.name for finding in result.findings if not finding.name.startswith("  ")]
    assert names[0] == "white box, full participation" and "white box, full participation, units of 3 rows" in names
    assert names[-2:] == ["white box, as planned", "one run, end to end"]
    assert not result.violated and result.faults == () and result.play.pairs >= 11 and told
    assert all(finding.certified <= 8 and finding.lower <= finding.certified for finding in result.findings)
    assert result.findings[-1].most > result.findings[-1].certified, "the attack on the release could win"
    assert result.findings[0].lower > 4, "500 canaries show at least half of it"
    fields = result.to_dict()
    assert json.loads(json.dumps(fields, allow_nan=False))["method"] == "maf"
    assert fields["record_play"]["violations"] == []


def test_arguments_are_checked_before_anything_runs():
    for given in ({"canaries": 3}, {"confidence": 2.0}, {"epsilon": -1.0}):
        with pytest.raises(ArgumentError):
            audit("maf", **given)
    with pytest.raises(ArgumentError, match="there are"):
        audit("nothing")
