"""Settling: a trained chain is moved so that its single columns agree with what was measured of them.

Noise in gradients moves the shares of all columns a little, and the shares were measured better than that. The log odds
of a column's codes get the same shift whatever came before, so what the chain has learnt of columns together stays.
How far it moves, the data say: where chain and measurement are apart by no more than the noise of the measurement, it
stays where it is. All of it is post-processing of what the doors gave out; rows are those that the chain itself draws.
Reference: shrinkage by an estimated spread, as in Efron and Morris 1973.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.models.codes.chain import Chain
from sfumato.models.codes.together import draw_rows

_ROWS, _ROUNDS = 2**15, 3
"""Rows that are drawn to see where a chain is, and how often: a shift of one column moves those after it."""


def settled(chain: Chain, shares: Sequence[Float[np.ndarray, " code"]], doubts: Sequence[float], key: Array) -> Chain:
    """The chain with biases shifted so that its columns have these shares, as far as ``doubts`` let them be believed.

    ``doubts`` are standard deviations of the noise on the share of a code, for each column.
    """
    goals: list[Float[np.ndarray, " code"]] = []
    for each in jax.random.split(key, _ROUNDS):
        rows = draw_rows(chain, each, _ROWS, _ROWS)
        held = [_shares(rows[:, column], size) for column, size in enumerate(chain.sizes)]
        goals = goals or [believed(*column) for column in zip(held, shares, doubts, strict=True)]
        shifts = np.zeros(chain.head_bias.shape, np.float32)
        for place, column in enumerate(chain.order):
            shifts[place, : chain.sizes[column]] = _log_ratio(goals[column], held[column])
        chain = eqx.tree_at(lambda chain: chain.head_bias, chain, chain.head_bias + jnp.asarray(shifts))
    return chain


def believed(
    held: Float[np.ndarray, " code"], measured: Float[np.ndarray, " code"], doubt: float
) -> Float[np.ndarray, " code"]:
    """Between what a model holds and what was measured, by as much as both differ past the noise of the measurement.

    >>> held, measured = np.array([0.5, 0.5]), np.array([0.6, 0.4])
    >>> believed(held, measured, 1e-6).round(3).tolist(), believed(held, measured, 0.2).tolist()
    ([0.6, 0.4], [0.5, 0.5])
    """
    squares = float(np.sum((measured - held) ** 2))
    noise = doubt**2 * (len(held) - 1)
    trust = max(0.0, squares - noise) / squares if squares > 0 else 0.0
    return held + trust * (measured - held)


def _shares(codes: Int[np.ndarray, " row"], size: int) -> Float[np.ndarray, " code"]:
    return np.bincount(codes, minlength=size) / len(codes)


def _log_ratio(goal: Float[np.ndarray, " code"], held: Float[np.ndarray, " code"]) -> Float[np.ndarray, " code"]:
    """How far log odds must move, in one round by a factor of e at most; a code that was never drawn counts as one."""
    least = 1 / _ROWS
    return np.clip(np.log((goal + least) / (held + least)), -1.0, 1.0)
