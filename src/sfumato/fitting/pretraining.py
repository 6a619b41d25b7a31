"""Pretraining: plain gradient steps on public rows, before the private ones.

The rows come from a table that was declared public (``curator.public_rows``). Nothing is clipped, noised or charged:
nobody whom the promise covers is in them, as the certificate's assumptions say.
Reference: Boob et al. 2018, section 3.2 (warm starting from related public tables); Zhang, Ji, Wang 2018.
"""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from sfumato.privacy import Curator
from sfumato.privacy.factors import FactoredLoss
from sfumato.privacy.unprotected import factored_losses, losses

Params = TypeVar("Params")

STEPS, BATCH = 1_000, 256
"""Steps at most, and rows in each."""


def pretrained(loss: Any, params: Params, curator: Curator, *, transformation: Any, steps: int = STEPS) -> Params:
    """The parameters after gradient steps on the loss of public rows; as they are where there are no such rows.

    Cost: none. The key is a public one.
    """
    rows = curator.public_rows
    if rows is None:
        return params
    key = jax.random.fold_in(curator.start_key(), 0x9A71)
    return _descended(loss, params, rows, key, transformation, steps)


def _descended(loss: Any, params: Any, rows: Any, key: Array, transformation: Any, steps: int) -> Any:
    total = factored_losses(loss) if isinstance(loss, FactoredLoss) else losses(loss)

    @eqx.filter_jit
    def run(params: Any, rows: Any) -> Any:
        def step(place: Array, carry: Any) -> Any:
            params, moments = carry
            draw, noise = jax.random.split(jax.random.fold_in(key, place))
            batch = public_batch(rows, draw, BATCH)
            mean = lambda params: _mean(total, params, batch, jax.random.split(noise, BATCH))
            change, moments = transformation.update(jax.grad(mean)(params), moments, params)
            return optax.apply_updates(params, change), moments

        return jax.lax.fori_loop(0, steps, step, (params, transformation.init(params)))[0]

    return run(params, rows)


def public_batch(rows: Any, key: Array, size: int) -> Any:
    """So many public rows, drawn with replacement."""
    num = jax.tree.leaves(rows)[0].shape[0]
    places = jax.random.randint(key, (size,), 0, num)
    return jax.tree.map(lambda column: column[places], rows)


def _mean(total: Any, params: Any, batch: Any, keys: Array) -> Float[Array, ""]:
    return total(params, batch, keys, jnp.ones(keys.shape[0], bool)) / keys.shape[0]
