"""Mixture CDF: an increasing map of the real line, the log-odds of a mixture of logistic distributions.

F(x) = sum_i pi_i sigmoid((x - mu_i) / s_i) leads onto (0, 1), so it can not be followed by another map of the real
line. Its log-odds can, and a scale and a shift behind them complete the map: x -> a logit(F(x)) + b.
Reference: Ho, Chen, Srinivas, Duan, Abbeel 2019 (Flow++), section 3.2.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, log_softmax, logsumexp, softmax
from jaxtyping import Array, Float

from sfumato.models.flows.autoregressive import UnivariateMap
from sfumato.models.flows.linear import squashed

_LOG_WEIGHT, _MEAN, _LOG_SCALE = 4.0, 6.0, 2.0  # limits of the raw parameters of a component
_LOG_STRETCH, _SHIFT = 1.5, 6.0  # limits of the scale and the shift behind the log-odds
_SPREAD = 0.5
_HALVINGS, _POLISHES = 24, 3


class _Mixture(eqx.Module):
    """A mixture of logistic distributions: log weights, means and log-scales."""

    log_weight: Float[Array, " component"]
    mean: Float[Array, " component"]
    log_scale: Float[Array, " component"]

    def log_odds(self, x: Array) -> tuple[Array, Array]:
        """logit(F(x)) and its slope. No two large numbers are subtracted, so that both hold far in the tails."""
        place = (x - self.mean) * jnp.exp(-self.log_scale)
        below, above = self.log_weight + log_sigmoid(place), self.log_weight + log_sigmoid(-place)
        rise = softmax(below) * jax.nn.sigmoid(-place) + softmax(above) * jax.nn.sigmoid(place)
        return logsumexp(below) - logsumexp(above), jnp.sum(rise * jnp.exp(-self.log_scale))


class MixtureCdf(UnivariateMap):
    """x -> a logit(F(x)) + b for a mixture of ``components`` logistic distributions.

    The parameters are raw log weights, means and log-scales of the components, then log a and b. All are squashed, so
    that no noisy step can break the map. At zeros it is all but the identity: the means stand a little apart, or all
    components would have the same gradient for ever, and the scales are smaller to match the variance.

    >>> y, log_slope = MixtureCdf(components=1).forward(jnp.asarray(0.3), jnp.zeros(5))
    >>> round(float(y), 5), round(float(log_slope), 5)
    (0.3, 0.0)
    """

    components: int = eqx.field(static=True, default=4)

    def num_parameters(self) -> int:
        return 3 * self.components + 2

    def forward(self, x: Array, parameters: Float[Array, " p"]) -> tuple[Array, Array]:
        odds, slope = self._mixture(parameters).log_odds(x)
        log_stretch, shift = _ends(parameters)
        return jnp.exp(log_stretch) * odds + shift, jnp.log(slope) + log_stretch

    def inverse(self, y: Array, parameters: Float[Array, " p"]) -> Array:
        mixture = self._mixture(parameters)
        log_stretch, shift = _ends(parameters)
        odds = (y - shift) * jnp.exp(-log_stretch)
        root = _root(*jax.lax.stop_gradient((mixture, odds)))
        # One step of Newton's method from the root moves nothing, and has the gradient of the inverse.
        found, slope = mixture.log_odds(root)
        return root - (found - odds) / jax.lax.stop_gradient(slope)

    def _mixture(self, parameters: Float[Array, " p"]) -> _Mixture:
        weight, mean, log_scale = parameters[:-2].reshape(3, self.components)
        apart = np.linspace(-_SPREAD, _SPREAD, self.components) if self.components > 1 else np.zeros(1)
        # A logistic distribution of scale s has the variance (pi s)^2 / 3.
        start = 0.5 * math.log(1 - 3 * float(apart.var()) / math.pi**2)
        return _Mixture(
            log_softmax(squashed(weight, _LOG_WEIGHT)),
            squashed(mean, _MEAN) + apart.astype(mean.dtype),
            squashed(log_scale, _LOG_SCALE) + start,
        )


def _ends(parameters: Float[Array, " p"]) -> tuple[Array, Array]:
    return squashed(parameters[-2], _LOG_STRETCH), squashed(parameters[-1], _SHIFT)


def _root(mixture: _Mixture, odds: Array) -> Array:
    """The x where the log-odds of the mixture are ``odds``.

    Those of a mixture lie between the smallest and the largest of its components', which gives a bracket. It is halved
    a fixed number of times, and Newton's method, held inside what is left, makes good the last digits.
    """
    ends = mixture.mean + jnp.exp(mixture.log_scale) * odds

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = low + 0.5 * (high - low)
        small = mixture.log_odds(middle)[0] < odds
        return jnp.where(small, middle, low), jnp.where(small, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.min(ends), jnp.max(ends)))
    x = low + 0.5 * (high - low)
    for _ in range(_POLISHES):
        found, slope = mixture.log_odds(x)
        x = jnp.clip(x - (found - odds) / slope, low, high)
    return x
