"""Files that are there in full or not at all."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A stream into a hidden file beside ``path`` that takes its name only when all of it is on the disk.

    Guarantees: a process that is killed, or an error inside the block, leaves ``path`` as it was. A ``private`` file
    can be read and written by its owner alone (mode 0600) from its first byte on, whatever was there before.
    """
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        opener = _owner_only if private else None
        with open(hidden, "xb", opener=opener) as stream:
            yield stream
            stream.flush()
            to_disk(stream.fileno())
        hidden.replace(path)
        _sync_folder(path.parent)
    finally:
        hidden.unlink(missing_ok=True)


def to_disk(handle: int) -> None:
    """Flush a file to the disk itself; some systems need to be told not to stop at the cache of the drive."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fsync(handle)


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    # The new name lives in the folder, which some systems flush apart from the file.
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
