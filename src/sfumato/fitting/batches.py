"""Batches: how many rows a step expects, from public facts alone."""

from math import sqrt

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


_QUIET = 5.0
"""A noise multiplier past which small batches cost no more privacy than large ones."""


def quiet_rate(noise_multiplier: float, steps: int, declared: int | None, batch: int | None) -> float:
    """The chance of a row to be in a batch that is as small as it can be without wasting privacy.

    For a fixed budget and number of steps, noise over batch hardly depends on the batch, as long as the noise of a step
    stays a few times its sensitivity: what is added up is then nearly Gaussian, whatever the rate. Gradients of a
    private fit are so noisy that the rows left out are not missed. ``noise_multiplier`` is that of one sum of the whole
    budget. A declared table has 256 to 4,096 rows in a batch, or so many as were asked for.
    Reference: the central limit of sampled Gaussian steps, Bu, Dong, Long, Su 2020.

    >>> round(quiet_rate(5.0, 2_500, 100_000, None), 3), quiet_rate(5.0, 2_500, 2_560, None)
    (0.02, 0.1)
    """
    if batch is not None:
        return sampling_rate(declared, batch, 1)
    rate = min(1.0, _QUIET / (max(noise_multiplier, 1e-9) * sqrt(steps)))
    if declared is None:
        return rate
    return min(1.0, max(LEAST, min(MOST, rate * declared)) / declared)
