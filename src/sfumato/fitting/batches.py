"""Batches: how many rows a step expects, from public facts alone."""

from sfumato.errors import ArgumentError

LEAST, MOST = 256, 4_096


def expected_batch(declared: int, batch: int | None, part: int) -> int:
    """The batch that was asked for, or one row in ``part`` of the declared table, from 256 to 4,096 rows.

    >>> expected_batch(30_000, None, 20), expected_batch(30_000, 100, 20)
    (1500, 100)
    """
    return batch if batch is not None else min(MOST, max(LEAST, declared // part))


def sampling_rate(declared: int | None, batch: int | None, part: int) -> float:
    """The chance of a row to be in a batch.

    Where no size is declared the number of rows is private, and only a rate can be chosen: one in ``part``.

    >>> sampling_rate(30_000, None, 20), sampling_rate(None, None, 20), sampling_rate(100, None, 20)
    (0.05, 0.05, 1.0)
    """
    if declared is not None:
        return min(1.0, expected_batch(declared, batch, part) / declared)
    if batch is not None:
        raise ArgumentError("A batch size needs a declared table size: set 'rows' in the schema.")
    return 1 / part
