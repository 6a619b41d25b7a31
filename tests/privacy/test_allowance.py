"""The allowance on disk: exact over ten thousand charges, after torn writes, kill -9, and two processes at once."""

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sfumato.errors import ArgumentError, BudgetError
from sfumato.privacy import allowance as module
from sfumato.privacy.allowance import Allowance

HEAD, RECORD = 1024, 16


@pytest.fixture
def path(tmp_path):
    return tmp_path / "allowance"


def test_it_counts_and_refuses(path):
    kept = Allowance.create(path, 5, {"what": "test"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (kept.charge(), kept.charge(3), kept.left) == (1, 3, 1)
    assert kept.charge(10) == 1  # what is left, and no more
    for number in (1, 7):
        with pytest.raises(BudgetError, match="all 5 charges"):
            kept.charge(number)
    again = Allowance(path)
    assert (again.most, again.spent, again.left, again.damaged(), again.facts) == (5, 5, 0, 0, {"what": "test"})
    with pytest.raises(ArgumentError, match="never begun anew"):
        Allowance.create(path, 5, {})
    with pytest.raises(ArgumentError):
        kept.charge(0)


def test_ten_thousand_charges_and_not_one_more(path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # the disk is not under test here
    kept, had = Allowance.create(path, 10_000, {}), 0
    for _ in range(10_000):
        had += kept.charge()
    assert (had, kept.spent, kept.damaged()) == (10_000, 10_000, 0)
    with pytest.raises(BudgetError):
        kept.charge()
    assert path.stat().st_size == HEAD + 10_000 * RECORD


@pytest.mark.parametrize("torn", [1, 7, 15])
def test_a_torn_record_counts_as_spent(path, torn):
    kept = Allowance.create(path, 5, {})
    kept.charge(2)
    os.truncate(path, HEAD + RECORD + torn)
    assert (kept.spent, kept.damaged()) == (2, 1)
    kept.charge()
    assert (kept.spent, kept.damaged()) == (3, 1)  # the torn one stays, and the next begins behind it
    assert path.stat().st_size == HEAD + 3 * RECORD


@pytest.mark.parametrize("place", ["pwrite", "fsync"])
def test_what_fails_on_the_way_gives_nothing_and_counts_no_less(path, place, monkeypatch):
    """A full disk after half a record, and a disk that does not say that it wrote."""
    kept, write = Allowance.create(path, 5, {}), os.pwrite

    def fails(handle, *rest):
        if place == "pwrite":
            write(handle, rest[0][:9], rest[1])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, place, fails)
        with pytest.raises(OSError):
            kept.charge()
    assert (kept.spent, kept.left) == (1, 4)
    assert [kept.charge() for _ in range(4)] == [1] * 4
    with pytest.raises(BudgetError):
        kept.charge()


def test_a_charge_is_on_the_disk_before_it_is_had(path, monkeypatch):
    order = []
    real_write, real_sync = os.pwrite, os.fsync
    kept = Allowance.create(path, 5, {})
    monkeypatch.setattr(os, "pwrite", lambda *given: (order.append("write"), real_write(*given))[1])
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("sync"), real_sync(handle))[1])
    kept.charge(2)
    assert order == ["write", "sync"]


def test_threads_and_short_writes(path, monkeypatch):
    """Eight threads ask for 200 of 150 charges through writes that are cut short: 150 are had, none twice."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, content, place: real(handle, content[:5], place))
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    kept = Allowance.create(path, 150, {})

    def ask(_):
        try:
            return kept.charge()
        except BudgetError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        had = list(pool.map(ask, range(200)))
    assert (sum(had), kept.spent, kept.damaged()) == (150, 150, 0)


def test_a_lock_that_does_not_hold_would_be_found(path, monkeypatch):
    """Mutant: two charges that both read the length before either writes give the same record twice."""
    kept = Allowance.create(path, 10, {})
    monkeypatch.setattr(module, "_count", lambda handle: 0)
    assert kept.charge() + kept.charge() == 2
    monkeypatch.undo()
    assert kept.spent == 1  # what the count above, and the trial below, would show


@pytest.mark.parametrize("content", [b"", b"x" * 2000, b"\0" * 1024])
def test_a_damaged_head_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match="no allowance"):
        Allowance(path)
    with pytest.raises(ArgumentError, match="no such file"):
        Allowance(path.with_name("nowhere"))


def test_kill_9_and_two_processes_at_once():
    """Eight processes of a detector killed at random points, then two at once: every answer was charged.

    ``benchmarks/detection_kills.py`` does the same with 50 kills and 10,000 questions.
    """
    root = Path(__file__).parents[2]
    arguments = ["--kills", "8", "--questions", "600", "--longest", "0.05", "--seed", "3"]
    command = [sys.executable, "-m", "benchmarks.detection_kills", *arguments]
    run = subprocess.run(command, cwd=root, capture_output=True, timeout=120, check=True)
    found = json.loads(run.stdout)
    assert found["exact_after_every_kill"] and found["exact_at_the_end"] and found["both_refused_at_the_end"]
    assert found["spent"] == 600 == found["answers"] + found["charges_whose_answer_was_lost"]
    assert min(found["answers_of_two_at_once"]) > 0
