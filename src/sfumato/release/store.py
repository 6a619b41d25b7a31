"""Store: a release as one ``.safetensors`` file. Loading runs no code and believes nothing it has not checked.

The header holds the schema, the description of the model and the certificate as JSON text, and a SHA-256 digest
over all of it and every tensor. A file is accepted only if writing its content again gives the same bytes, so
there is exactly one file for one release, and no byte of it can change unseen.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from sfumato.atomic import atomic_file
from sfumato.encoding.layout import layout_of
from sfumato.errors import ReleaseError, SfumatoError
from sfumato.models.registry import skeleton
from sfumato.privacy import Certificate
from sfumato.release.release import Release
from sfumato.schema import Schema

FORMAT, VERSION = "sfumato release", "1"
_KINDS = ("pandas", "polars", "arrow", "duckdb")
_MOST_HEADER = 16 * 2**20
_MOST_FILE = 2**32
_MOST_AXES = 8
_TEXTS = ("format", "version", "kind", "schema", "model", "certificate")


def save(release: Release, path: str | Path) -> None:
    """Write a release to one file, in full or not at all."""
    try:
        with atomic_file(Path(path)) as stream:
            stream.write(to_bytes(release))
    except OSError as error:
        raise ReleaseError(f"Cannot write {str(path)!r}: {(error.strerror or 'unknown reason').lower()}.") from None


def load(path: str | Path) -> Release:
    """Read a release from a file, after checking all of it.

    >>> load("nowhere.safetensors")
    Traceback (most recent call last):
    sfumato.errors.ReleaseError: Cannot read 'nowhere.safetensors': no such file or directory.
    """
    try:
        if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            raise ReleaseError(f"Cannot read {str(path)!r}: it is a device or a pipe; name a file.")
        if Path(path).stat().st_size > _MOST_FILE:
            raise ReleaseError(f"{str(path)!r} is larger than any release of this version (4 GiB).")
        content = Path(path).read_bytes()
    except OSError as error:
        raise ReleaseError(f"Cannot read {str(path)!r}: {(error.strerror or 'unknown reason').lower()}.") from None
    try:
        return from_bytes(content)
    except ReleaseError as error:
        raise ReleaseError(f"{str(path)!r} is not a release that can be trusted: {error}") from None


def to_bytes(release: Release) -> bytes:
    """The one byte form of a release."""
    return _pack(_texts(release), _tensors(release.model))


def from_bytes(content: bytes) -> Release:
    """The release that the bytes hold, or a ``ReleaseError`` that says what is wrong with them."""
    texts = _read_texts(content)
    try:
        tensors = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
        raise ReleaseError("its tensors are damaged.") from None
    if _pack({name: texts[name] for name in _TEXTS}, tensors) != content:
        raise ReleaseError("its digest does not fit its content: it was changed or damaged.")
    release = _rebuild(texts, tensors)
    try:
        again = to_bytes(release)
    except (ValueError, TypeError, RecursionError):  # numbers that are none, and other things JSON has no word for
        again = b""
    if again != content:
        raise ReleaseError("its schema, model or certificate is not written as sfumato writes it.")
    return release


def _texts(release: Release) -> dict[str, str]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": release.kind,
        "schema": _json(release.schema.to_dict()),
        "model": _json(release.model.describe()),
        "certificate": _json(release.certificate.to_dict()),
    }


def _tensors(model: Any) -> dict[str, np.ndarray]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(model, eqx.is_array))
    return {jax.tree_util.keystr(path).lstrip("."): np.asarray(leaf) for path, leaf in leaves}


def _pack(texts: Mapping[str, str], tensors: Mapping[str, np.ndarray]) -> bytes:
    metadata = {**texts, "digest": _digest(texts, tensors)}
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    place, parts = 0, []
    for name in sorted(tensors):
        part = np.ascontiguousarray(tensors[name], "<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensors[name].shape),
            "data_offsets": [place, place + len(part)],
        }
        place += len(part)
        parts.append(part)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def _digest(texts: Mapping[str, str], tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(_json(sorted(texts.items())).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name], "<f4")
        digest.update(_json([name, list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read_texts(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(_MOST_HEADER, len(content) - 8):
        raise ReleaseError("it has no safetensors header of a possible size.")
    try:
        header = json.loads(content[8 : 8 + length])
    except (ValueError, RecursionError):
        raise ReleaseError("its header is not JSON.") from None
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ReleaseError("it was not written by sfumato.")
    if metadata.get("version") != VERSION:
        raise ReleaseError("it is of another format version; read it with the sfumato that wrote it, or a newer one.")
    if not all(isinstance(metadata.get(name), str) for name in (*_TEXTS, "digest")):
        raise ReleaseError("parts of its header are missing.")
    _check_sizes(header, len(content) - 8 - length)
    return {name: metadata[name] for name in _TEXTS}


def _check_sizes(header: Mapping[str, Any], num_bytes: int) -> None:
    """Every tensor must be float32 and its shape borne out by bytes that are there, before any is allocated."""
    total = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if not isinstance(shape, list) or len(shape) > _MOST_AXES:
            raise ReleaseError("the shape of a tensor is damaged.")
        if not all(type(size) is int and 0 <= size < 2**31 for size in shape):
            raise ReleaseError("the shape of a tensor is damaged.")
        if entry.get("dtype") != "F32":
            raise ReleaseError("a tensor is not of 32-bit floats.")
        total += 4 * math.prod(shape)
    if total != num_bytes:
        raise ReleaseError("its tensors and its length do not agree.")


def _rebuild(texts: Mapping[str, str], tensors: Mapping[str, np.ndarray]) -> Release:
    if texts["kind"] not in _KINDS:
        raise ReleaseError("it names an unknown kind of table.")
    try:
        schema = Schema.from_dict(json.loads(texts["schema"]))
        certificate = Certificate.from_dict(json.loads(texts["certificate"]))
        description = json.loads(texts["model"])
    except (SfumatoError, ValueError, TypeError, AttributeError, RecursionError):
        raise ReleaseError("its schema, model or certificate does not have the expected form.") from None
    if not isinstance(description, dict) or description.get("num_features") != layout_of(schema).num_features:
        raise ReleaseError("its model does not describe the columns of its schema.")
    shapes = skeleton(description, [tensor.size for tensor in tensors.values()])
    return Release(model=_fill(shapes, tensors), schema=schema, certificate=certificate, kind=texts["kind"])  # type: ignore[arg-type]


def _fill(shapes: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    arrays, rest = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    leaves, structure = jax.tree_util.tree_flatten_with_path(arrays)
    names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in leaves]
    if sorted(names) != sorted(tensors):
        raise ReleaseError("its tensors are not those of the model it describes.")
    for name, (_, shape) in zip(names, leaves, strict=True):
        if tensors[name].shape != shape.shape:
            raise ReleaseError(f"tensor {name!r} does not have the shape of the model it describes.")
    filled = jax.tree_util.tree_unflatten(structure, [jnp.asarray(tensors[name]) for name in names])
    return eqx.combine(filled, rest)


def _json(value: Any) -> str:
    # Keys keep their order: that of the columns is part of the schema.
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
