"""Allowance: a budget on disk that says how often something may still be asked, charged before an answer is given.

The file has a head (what one charge is, and how many there are) and then one record of 16 bytes a charge. Records are
only ever added, and what is there counts: how much was spent is read off the length of the file. A record that was
torn by a crash counts as spent, and so does a damaged one. So at any moment the file says at least what was answered,
and at most one charge more for every process that was stopped between its charge and its answer.

Limits: whoever can write the file can forge it, and an old copy of the folder forgets what was spent since. Locks are
those of the operating system; some network drives have none.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sfumato.atomic import atomic_file, to_disk
from sfumato.checks import whole
from sfumato.errors import ArgumentError, BudgetError

_HEAD, _RECORD = 1024, 16
_FORMAT = "sfumato allowance 1"
MOST = 10**9
"""Charges that an allowance may have at most."""


class Allowance:
    """A number of charges, kept in a file that only grows.

    Guarantees: ``charge`` returns only after the charge is on the disk; two processes never get the same charge; a
    process that is killed at any point leaves a file that counts no charge too few.
    """

    def __init__(self, path: str | Path) -> None:
        """Open an allowance that is there."""
        self._path = Path(path)
        with self._opened() as handle:
            head = os.pread(handle, _HEAD, 0)
        self._facts, self._stamp = _read_head(head)
        self._most = int(self._facts["most"])

    @classmethod
    def create(cls, path: str | Path, most: int, facts: Mapping[str, Any]) -> "Allowance":
        """Write a new allowance, in full or not at all, readable by its owner alone. ``facts`` are JSON-safe."""
        whole(0, most=most)
        if most > MOST:
            raise ArgumentError(f"Expected most={most} charges of at most {MOST}.")
        if Path(path).exists():
            raise ArgumentError(f"{str(path)!r} is there already: an allowance is never begun anew.")
        with atomic_file(Path(path), private=True) as stream:
            stream.write(_head({**facts, "format": _FORMAT, "most": most}))
        return cls(path)

    @property
    def facts(self) -> dict[str, Any]:
        """What was written when it was created."""
        return {name: value for name, value in self._facts.items() if name not in ("format", "most")}

    @property
    def most(self) -> int:
        """How many charges there were at first."""
        return self._most

    @property
    def spent(self) -> int:
        """How many are gone, torn records among them."""
        with self._opened() as handle:
            return min(self._most, _count(handle))

    @property
    def left(self) -> int:
        """How many are left."""
        return self._most - self.spent

    def charge(self, number: int = 1) -> int:
        """Take up to so many charges and return how many were had; at least one, or ``BudgetError``.

        They are on the disk when this returns. An error on the way (a full disk) may have spent them all the same.
        """
        whole(1, number=number)
        with self._opened() as handle, _locked(handle):
            spent = _count(handle)
            had = min(number, self._most - spent)
            if had < 1:
                raise BudgetError(f"The budget is spent: all {self._most:,} charges were made; nothing was drawn.")
            records = b"".join(_record(self._stamp, place) for place in range(spent, spent + had))
            _write_all(handle, records, _HEAD + spent * _RECORD)
            to_disk(handle)
        return had

    def damaged(self) -> int:
        """How many records are torn or were changed; each counts as spent."""
        with self._opened() as handle:
            content = os.pread(handle, _count(handle) * _RECORD, _HEAD)
        places = range(-(-len(content) // _RECORD))
        return sum(content[_RECORD * i : _RECORD * (i + 1)] != _record(self._stamp, i) for i in places)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if os.name != "posix":
            raise ArgumentError("An allowance needs the file locks of a POSIX system.")
        # Opened anew each time: a lock belongs to what was opened, which a forked process would share.
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            reason = (error.strerror or "unknown reason").lower()
            raise ArgumentError(f"Cannot open the allowance {str(self._path)!r}: {reason}.") from None
        try:
            yield handle
        finally:
            os.close(handle)


@contextmanager
def _locked(handle: int) -> Iterator[None]:
    import fcntl  # only where there is one

    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


def _count(handle: int) -> int:
    """Records that are there; a torn one counts as whole."""
    return -(-max(0, os.fstat(handle).st_size - _HEAD) // _RECORD)


def _write_all(handle: int, content: bytes, place: int) -> None:
    while content:
        written = os.pwrite(handle, content, place)
        content, place = content[written:], place + written


def _record(stamp: bytes, place: int) -> bytes:
    """Its number, and a checksum that ties it to this file and place."""
    number = place.to_bytes(8, "little")
    return number + hashlib.sha256(stamp + number).digest()[:8]


def _head(facts: Mapping[str, Any]) -> bytes:
    text = json.dumps(facts, sort_keys=True, ensure_ascii=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    line = f"{digest} {text}".encode()
    if len(line) > _HEAD - 1:
        raise ArgumentError("The facts of an allowance are too long.")
    return line.ljust(_HEAD - 1) + b"\n"


def _read_head(head: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        digest, _, text = head.decode("ascii").rstrip().partition(" ")
        facts = json.loads(text)
        if hashlib.sha256(text.encode()).hexdigest() == digest and facts["format"] == _FORMAT:
            return facts, hashlib.sha256(head).digest()
    except (ValueError, KeyError, TypeError):
        pass
    raise ArgumentError("This is no allowance of sfumato, or its head is damaged: nothing can be asked.")
