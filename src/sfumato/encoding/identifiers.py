"""Identifiers of synthetic rows, which tell nothing of the private ones."""

import secrets
import uuid

import numpy as np
import pyarrow as pa

from sfumato.schema import Identifier


def make_identifiers(num_rows: int, column: Identifier, *, generator: np.random.Generator | None = None) -> pa.Array:
    """Number the rows from 1, or give each a random UUID.

    >>> make_identifiers(3, Identifier(regenerate="number")).to_pylist()
    [1, 2, 3]
    """
    if column.regenerate == "number":
        return pa.array(np.arange(1, num_rows + 1), pa.int64())
    size = 16 * num_rows
    data = secrets.token_bytes(size) if generator is None else generator.bytes(size)
    parts = (data[start : start + 16] for start in range(0, size, 16))
    return pa.array([str(uuid.UUID(bytes=part, version=4)) for part in parts], pa.string())
