"""Store: a detector as a folder for its owner alone. It holds members and is as private as the rows; never pass it on.

Members are arrays in safetensors files, so that loading runs no code. ``detector.json`` says what was promised and has
the digest of every other file, and the allowance is tied to it.
"""

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from sfumato.atomic import atomic_file
from sfumato.detection.ensemble import Ensemble
from sfumato.detection.mixtures import Mixture
from sfumato.errors import ArgumentError, ReleaseError, SfumatoError
from sfumato.privacy.allowance import Allowance
from sfumato.release import Release
from sfumato.release.store import from_bytes, to_bytes
from sfumato.schema import Schema

FORMAT = "sfumato detector 1"
_FACTS, _ALLOWANCE = "detector.json", "allowance"
_ARRAYS = ("log_weights", "means", "inverses")


def check_folder(folder: Path) -> None:
    """Refuse a place where no detector could be written, before any work is done."""
    if os.path.lexists(folder):
        raise ArgumentError(f"output {str(folder)!r}: is there already; a detector is never written over")
    if not folder.parent.is_dir():
        raise ArgumentError(f"output {str(folder)!r}: the folder {str(folder.parent)!r} does not exist; create it")


def save(folder: Path, ensemble: Ensemble, facts: Mapping[str, Any], charges: int) -> None:
    """Write a detector, in full or not at all: folder of mode 0700, files of mode 0600."""
    check_folder(folder)
    hidden = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.tmp")
    files = _files(ensemble)
    stated = {
        **facts,
        "format": FORMAT,
        "schema": ensemble.schema.to_dict(),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())},
    }
    # Not sorted: the order of the columns is that of the features that members were trained on.
    text = json.dumps(stated, indent=1, allow_nan=False).encode()
    try:
        hidden.mkdir(mode=0o700)
        for name, content in {**files, _FACTS: text}.items():
            with atomic_file(hidden / name, private=True) as stream:
                stream.write(content)
        Allowance.create(hidden / _ALLOWANCE, charges, {"detector": hashlib.sha256(text).hexdigest()})
        hidden.rename(folder)
    except OSError as error:
        raise ArgumentError(f"output {str(folder)!r}: {(error.strerror or 'cannot be written').lower()}") from None
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def load(folder: Path) -> tuple[Ensemble, dict[str, Any], Allowance]:
    """Read a detector after checking all of it."""
    try:
        if folder.is_dir() and stat.S_IMODE(folder.stat().st_mode) & 0o077 and os.name == "posix":
            raise ReleaseError(f"{str(folder)!r} can be read by others: it holds private members; chmod 700 it first.")
        text = (folder / _FACTS).read_bytes()
        facts = json.loads(text)
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise ReleaseError(f"{str(folder)!r} is no detector of this version of sfumato.")
        files = {name: (folder / name).read_bytes() for name in facts["files"] if Path(name).name == name}
        if any(hashlib.sha256(files[name]).hexdigest() != digest for name, digest in facts["files"].items()):
            raise ReleaseError(f"{str(folder)!r} was damaged: a digest does not fit.")
        ensemble = _ensemble(files, Schema.from_dict(facts["schema"]))
    except OSError as error:
        raise ReleaseError(f"Cannot read {str(folder)!r}: {(error.strerror or 'unknown reason').lower()}.") from None
    except SfumatoError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError):
        raise ReleaseError(f"{str(folder)!r} is no detector, or was damaged.") from None
    allowance = Allowance(folder / _ALLOWANCE)
    if allowance.facts.get("detector") != hashlib.sha256(text).hexdigest():
        raise ReleaseError(f"{str(folder)!r} has the allowance of another detector.")
    return ensemble, facts, allowance


def _files(ensemble: Ensemble) -> dict[str, bytes]:
    arrays = {"thresholds": np.asarray(ensemble.thresholds, np.float64)}
    mixtures = [member for member in ensemble.members if isinstance(member, Mixture)]
    if mixtures:
        arrays |= {name: np.stack([getattr(member, name) for member in mixtures]) for name in _ARRAYS}
    flows = [member for member in ensemble.members if isinstance(member, Release)]
    packed = {f"flow_{place:05d}.safetensors": to_bytes(member) for place, member in enumerate(flows)}
    return {"members.safetensors": safetensors.numpy.save(arrays), **packed}


def _ensemble(files: Mapping[str, bytes], schema: Schema) -> Ensemble:
    arrays = safetensors.numpy.load(files["members.safetensors"])
    thresholds = arrays["thresholds"]
    if "means" in arrays:
        parts = zip(*(arrays[name] for name in _ARRAYS), strict=True)
        members: list[Mixture | Release] = [
            Mixture(log_weights=weights, means=means, inverses=inverses) for weights, means, inverses in parts
        ]
    else:
        members = [from_bytes(files[name]) for name in sorted(files) if name.startswith("flow_")]
    if len(members) != len(thresholds):
        raise ValueError("members")
    return Ensemble(schema=schema, members=tuple(members), thresholds=thresholds)
