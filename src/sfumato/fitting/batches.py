"""Batches: how many rows a step expects, from public facts alone."""

from sfumato.errors import ArgumentError

LEAST, MOST = 256, 4_096


def expected_batch(declared: int | None, batch: int | None, part: int) -> int | None:
    """The batch that was asked for, or one row in ``part`` of the declared table, from 256 to 4,096 rows.

    None where no size is declared: the number of rows is then private, and only a rate can be chosen.

    >>> expected_batch(30_000, None, 20), expected_batch(30_000, 100, 20), expected_batch(None, None, 20)
    (1500, 100, None)
    """
    if declared is None:
        if batch is not None:
            raise ArgumentError("A batch size needs a declared table size: set 'rows' in the schema.")
        return None
    return batch if batch is not None else min(MOST, max(LEAST, declared // part))


def sampling_rate(declared: int | None, batch: int | None, part: int) -> float:
    """The chance of a row to be in a batch.

    >>> sampling_rate(30_000, None, 20), sampling_rate(None, None, 20), sampling_rate(100, None, 20)
    (0.05, 0.05, 1.0)
    """
    rows = expected_batch(declared, batch, part)
    return 1 / part if declared is None or rows is None else min(1.0, rows / declared)
