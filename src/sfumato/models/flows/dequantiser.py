"""Dequantiser: where in its cell a discrete value is put, learned with the density (variational dequantisation).

A density of real features knows discrete values as cells. The log of a cell's mass is bounded from below by the
mean of log p(u) - log q(u | x) over points u of the cell drawn from any q; the better q follows the density, the
tighter. A uniform q asks the density to be flat inside cells and to jump between them, which smooth flows are bad at.
Reference: Ho, Chen, Srinivas, Duan, Abbeel 2019 (Flow++); Lee, Kim, Jeong, Ro 2022, section "Variational
Dequantization".
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, sigmoid
from jax.scipy.special import logit
from jaxtyping import Array, Float

from sfumato.checks import whole
from sfumato.errors import ArgumentError
from sfumato.models.flows.mixture_cdf import MixtureCdf
from sfumato.models.starts import normal
from sfumato.models.taps import tapped

Weights = Mapping[str, Array]
Notes = dict[str, Array]

_PREFIX = "dequantiser_"
_INSIDE = 2.0**-24
"""Shares of a cell are kept this far from 0 and 1, the last that 32 bits can tell from 1."""


class DequantiserShape(eqx.Module):
    """The sizes of a dequantiser, and which features are discrete, in the order in which they are halved.

    The first half is never moved where there is one coupling, so the features of the widest cells should stand last.
    """

    discrete: tuple[int, ...] = eqx.field(static=True)
    width: int = eqx.field(static=True, default=32)
    summary: int = eqx.field(static=True, default=16)
    components: int = eqx.field(static=True, default=4)
    couplings: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        whole(1, width=self.width, summary=self.summary, components=self.components, couplings=self.couplings)
        if not self.discrete or len(set(self.discrete)) != len(self.discrete) or min(self.discrete) < 0:
            raise ArgumentError("A dequantiser needs at least one discrete feature, and each only once.")
        if self.couplings > min(2, len(self.discrete)):
            raise ArgumentError("A dequantiser has one coupling or, for two discrete features or more, two.")

    @property
    def halves(self) -> tuple[int, int]:
        """How many features each half has; a single feature is the second half."""
        first = len(self.discrete) // 2
        return first, len(self.discrete) - first

    @property
    def univariate(self) -> MixtureCdf:
        """The map of one feature."""
        return MixtureCdf(components=self.components)

    def layers(self) -> dict[str, tuple[int, int]]:
        """The shape [out, in] of each matrix, by the name of its layer."""
        found = {"look": (self.width, len(self.discrete)), "summary": (self.summary, self.width)}
        for number in range(self.couplings):
            seen, moved = self.halves[number % 2], self.halves[1 - number % 2]
            found[f"first{number}"] = (self.width, seen + self.summary)
            found[f"last{number}"] = (moved * self.univariate.num_parameters(), self.width)
        return found

    def describe(self) -> dict[str, Any]:
        """All that is needed to rebuild it, in plain types."""
        names = ("width", "summary", "components", "couplings")
        return {"discrete": list(self.discrete), **{name: getattr(self, name) for name in names}}


class Dequantiser(eqx.Module):
    """The conditional flow q(u | x) on the shares of the cells of discrete features.

    Noise eps is split in two halves. A network looks at the cells and makes a summary r of them, a second one sees
    the first half and r and gives the parameters of a map of the second half:

        r = NN(x),  (pi, mu, s, a, b) = NN([eps_1, r]),  u_1 = sigmoid(eps_1),
        u_2 = sigmoid(a logit(F(eps_2; pi, mu, s)) + b).

    With a second coupling the halves change their parts. It differs from the printed formula of Lee et al. in two ways.
    There u_2 = sigmoid(F(eps_2)), and since F leads onto (0, 1), u_2 never leaves (0.5, 0.731), so that q misses most
    of the cell and the bound is none; Flow++ has the log-odds, the scale and the shift in between. And eps is
    logistic, not normal: then u_1 is uniform, u_2 starts as good as uniform (a divergence below 1e-4 a feature), and
    what is trained starts at the plain method. The network sees eps_1 as share of its cell, which is bounded.
    """

    matrices: dict[str, Float[Array, "out into"]]
    biases: dict[str, Float[Array, " out"]]
    shape: DequantiserShape = eqx.field(static=True)

    @classmethod
    def start(cls, shape: DequantiserShape, *, key: Array) -> "Dequantiser":
        """Random hidden layers; the last layers are zero, so that q is all but uniform."""
        matrices, layers = {}, shape.layers()
        for (name, size), own in zip(layers.items(), jax.random.split(key, len(layers)), strict=True):
            scale = 0.0 if name.startswith("last") else 1 / np.sqrt(size[1])
            matrices[name] = (scale * normal(own, *size)).astype(jnp.float32)
        return cls(matrices, {name: jnp.zeros(size[0], jnp.float32) for name, size in layers.items()}, shape)

    def weights(self) -> dict[str, Array]:
        """What acts on a row, by name: all of the parameters as they are."""
        matrices = {_PREFIX + name: matrix for name, matrix in self.matrices.items()}
        return matrices | {f"{_PREFIX}{name}_bias": bias for name, bias in self.biases.items()}

    def taps(self) -> dict[str, tuple[int, int]]:
        """The shape [1, unit] of what each layer gives out."""
        return {_PREFIX + name: (1, size[0]) for name, size in self.shape.layers().items()}

    def no_taps(self) -> dict[str, Array]:
        """Taps that change nothing."""
        return {name: jnp.zeros(size, jnp.float32) for name, size in self.taps().items()}

    def draw(
        self, weights: Weights, centres: Float[Array, " c"], eps: Float[Array, " c"], taps: Weights
    ) -> tuple[Float[Array, " c"], Float[Array, ""], Notes]:
        """Shares of the cells for logistic noise, log q of them, and what went into each layer.

        ``centres`` are the centres of the cells as standard normal features; ``taps`` are added to what each layer
        gives out. Shares lie strictly inside (0, 1).
        """
        summary, notes = _summary(weights, centres, taps)
        halves, log_slope = self._split(eps), jnp.zeros((), eps.dtype)
        for number in range(self.shape.couplings):
            seen, moved = number % 2, 1 - number % 2
            raw, more = self._parameters(number, weights, summary, halves[seen], taps)
            halves[moved], slopes = jax.vmap(self.shape.univariate.forward)(halves[moved], raw)
            log_slope, notes = log_slope + jnp.sum(slopes), notes | more
        z = jnp.concatenate(halves)
        log_q = _log_logistic(eps) - log_slope - _log_logistic(z)
        return jnp.clip(sigmoid(z), _INSIDE, 1 - _INSIDE), log_q, notes

    def log_q(self, weights: Weights, centres: Float[Array, " c"], u: Float[Array, " c"]) -> Float[Array, ""]:
        """The log density of shares of the cells."""
        taps = self.no_taps()
        summary, _ = _summary(weights, centres, taps)
        z = logit(jnp.clip(u, _INSIDE, 1 - _INSIDE))
        halves, log_slope = self._split(z), jnp.zeros((), z.dtype)
        for number in reversed(range(self.shape.couplings)):
            seen, moved = number % 2, 1 - number % 2
            raw, _ = self._parameters(number, weights, summary, halves[seen], taps)
            halves[moved] = jax.vmap(self.shape.univariate.inverse)(halves[moved], raw)
            log_slope = log_slope + jnp.sum(jax.vmap(self.shape.univariate.forward)(halves[moved], raw)[1])
        return _log_logistic(jnp.concatenate(halves)) - log_slope - _log_logistic(z)

    def _split(self, values: Float[Array, " c"]) -> list[Array]:
        first = self.shape.halves[0]
        return [values[:first], values[first:]]

    def _parameters(
        self, number: int, weights: Weights, summary: Array, seen: Array, taps: Weights
    ) -> tuple[Float[Array, "moved p"], Notes]:
        shares = np.sqrt(12).astype(np.float32) * (sigmoid(seen) - 0.5)  # of variance one where seen is noise
        hidden, notes = _dense(f"first{number}", weights, jnp.concatenate([shares, summary]), taps)
        raw, more = _dense(f"last{number}", weights, jnp.tanh(hidden), taps)
        return raw.reshape(-1, self.shape.univariate.num_parameters()), notes | more


def logistic_noise(uniform: Float[Array, " c"]) -> Float[Array, " c"]:
    """Logistic noise from uniform points, kept off the ends of the unit interval.

    >>> float(logistic_noise(jnp.full(1, 0.5))[0])
    0.0
    """
    return logit(jnp.clip(uniform, _INSIDE, 1 - _INSIDE))


def _summary(weights: Weights, centres: Float[Array, " c"], taps: Weights) -> tuple[Array, Notes]:
    hidden, notes = _dense("look", weights, centres, taps)
    summary, more = _dense("summary", weights, jnp.tanh(hidden), taps)
    return summary, notes | more


def _dense(layer: str, weights: Weights, x: Array, taps: Weights) -> tuple[Array, Notes]:
    name = _PREFIX + layer
    return tapped(weights[name] @ x + weights[f"{name}_bias"], taps[name][0]), {name: x[None]}


def _log_logistic(z: Float[Array, " c"]) -> Float[Array, ""]:
    """The log density of the logistic distribution, which is the log slope of the sigmoid."""
    return jnp.sum(log_sigmoid(z) + log_sigmoid(-z))
