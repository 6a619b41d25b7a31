"""The audit as a whole: small, once, with what the command line reads."""

import json

import pytest

from sfumato.audit import audit
from sfumato.audit.finding import Finding
from sfumato.audit.playback import PlayResult
from sfumato.errors import ArgumentError
from sfumato.fitting.marginals import MarginalShare
from sfumato.synthesizers import HFlow, Maf
from sfumato.synthesizers.hflow import FlowSize


class Small(Maf):
    """The method with one trial, so that record-play takes seconds."""

    @classmethod
    def trials(cls):
        return Maf.trials()[3:]


def test_every_attack_reports_beside_the_certificate():
    """False alarms: each bound at 99.9999 %, and one in a million for related noise.

    The bound of 1,500 canaries is 6.2 on average with a deviation of 0.3, so it falls to 4 in less than one run of a
    hundred million.
    """
    told = []
    result = audit(
        Small(steps=3, blocks=1, width=4),
        epsilon=8.0,
        canaries=1_500,
        confidence=1 - 1e-6,
        progress=lambda *given: told.append(given),
    )
    names = [finding.name for finding in result.findings if not finding.name.startswith("  ")]
    assert names[0] == "white box, full participation" and "white box, full participation, units of 3 rows" in names
    assert names[-2:] == ["white box, as planned", "one run, end to end"]
    assert not result.violated and result.faults == () and result.play.pairs >= 11 and told
    assert all(finding.certified <= 8 and finding.lower <= finding.certified for finding in result.findings)
    assert result.findings[-1].most > result.findings[-1].certified, "the attack on the release could win"
    assert result.findings[0].lower > 4, "1,500 canaries show at least half of it"
    fields = result.to_dict()
    assert json.loads(json.dumps(fields, allow_nan=False))["method"] == "maf"
    assert fields["record_play"]["violations"] == []


def test_a_loss_in_factors_is_audited_too(monkeypatch):
    """The white boxes of DP-HFlow; record-play and the attack on a release have tests of their own.

    False alarms: as above.
    """
    played, last = [], Finding(name="x", certified=1.0, lower=0.0, delta=1e-9, confidence=0.9, observations=1)
    monkeypatch.setitem(audit.__globals__, "play", lambda trial, **given: played.append(trial) or PlayResult(pairs=1))
    monkeypatch.setitem(audit.__globals__, "one_run", lambda method, **given: last)
    method = HFlow(steps=1, size=FlowSize(blocks=1, width=4), marginals=MarginalShare(rounds=1))
    result = audit(method, epsilon=8.0, canaries=1_500, confidence=1 - 1e-6)
    assert not result.violated and result.faults == ()
    assert tuple(played) == HFlow.trials()
    assert result.findings[0].lower > 4, "1,500 canaries show at least half of it"
    names = [finding.name for finding in result.findings]
    assert any("marginals" in name for name in names) and any("gradients" in name for name in names)


def test_arguments_are_checked_before_anything_runs():
    for given in ({"canaries": 3}, {"confidence": 2.0}, {"epsilon": -1.0}):
        with pytest.raises(ArgumentError):
            audit("maf", **given)
    with pytest.raises(ArgumentError, match="there are"):
        audit("nothing")
