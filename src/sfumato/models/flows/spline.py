"""Spline: a monotone rational-quadratic spline of one number, with straight tails outside its box.

Reference: Durkan, Bekasov, Murray, Papamakarios 2019 (neural spline flows); Gregory and Delbourgo 1982.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.models.flows.autoregressive import UnivariateMap

_LEAST = 1e-2  # of a bin's share of the box, and of a slope
_UNIT_SLOPE = math.log(math.expm1(1 - _LEAST))  # the raw slope whose softplus, plus the least, is one


class _Bin(eqx.Module):
    """The piece of the spline that a point falls into."""

    left: Array
    width: Array
    bottom: Array
    height: Array
    slope_left: Array
    slope_right: Array

    @property
    def mean_slope(self) -> Array:
        return self.height / self.width

    @property
    def bend(self) -> Array:
        """What the slopes at both ends exceed the mean slope by; zero for a straight piece."""
        return self.slope_left + self.slope_right - 2 * self.mean_slope


class SplineMap(UnivariateMap):
    """An increasing spline of ``bins`` pieces from [-box, box] onto itself; the identity outside.

    The parameters are raw widths, heights and inner slopes; zeros give the identity. They are squashed to +-``limit``,
    so that no noisy step can make a piece too steep or too flat to invert in 32 bits.

    >>> y, log_slope = SplineMap().forward(jnp.asarray(0.3), jnp.zeros(SplineMap().num_parameters()))
    >>> round(float(y), 5), abs(float(log_slope)) < 1e-5
    (0.3, True)
    """

    bins: int = eqx.field(static=True, default=8)
    box: float = eqx.field(static=True, default=5.0)
    limit: float = eqx.field(static=True, default=3.0)

    def num_parameters(self) -> int:
        return 3 * self.bins - 1

    def forward(self, x: Array, parameters: Float[Array, " p"]) -> tuple[Array, Array]:
        inside = jnp.abs(x) < self.box
        point = jnp.clip(x, -self.box, self.box)
        xs, ys = self._knots(parameters)
        piece = self._piece(xs, ys, parameters, _place(point, xs))
        share = (point - piece.left) / piece.width
        both = share * (1 - share)
        under = piece.mean_slope + piece.bend * both
        y = piece.bottom + piece.height * (piece.mean_slope * share**2 + piece.slope_left * both) / under
        over = piece.slope_right * share**2 + 2 * piece.mean_slope * both + piece.slope_left * (1 - share) ** 2
        log_slope = 2 * jnp.log(piece.mean_slope) + jnp.log(over) - 2 * jnp.log(under)
        return jnp.where(inside, y, x), jnp.where(inside, log_slope, 0.0)

    def inverse(self, y: Array, parameters: Float[Array, " p"]) -> Array:
        inside = jnp.abs(y) < self.box
        point = jnp.clip(y, -self.box, self.box)
        xs, ys = self._knots(parameters)
        piece = self._piece(xs, ys, parameters, _place(point, ys))
        rise = point - piece.bottom
        # The share of the piece solves a quadratic; this form of the root has no cancellation.
        a = piece.height * (piece.mean_slope - piece.slope_left) + rise * piece.bend
        b = piece.height * piece.slope_left - rise * piece.bend
        c = -piece.mean_slope * rise
        root = jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0.0))
        share = jnp.clip(2 * c / (-b - root), 0.0, 1.0)
        return jnp.where(inside, piece.left + share * piece.width, y)

    def _knots(self, parameters: Float[Array, " p"]) -> tuple[Array, Array]:
        """The places of the knots and their images."""
        raw = self._squashed(parameters[: 2 * self.bins])
        return self._grid(raw[: self.bins]), self._grid(raw[self.bins :])

    def _piece(self, xs: Array, ys: Array, parameters: Float[Array, " p"], place: Float[Array, " bin"]) -> _Bin:
        """One piece; only its own two slopes are made from their raw numbers. Slope one where the tails begin."""
        none = jnp.zeros(1, parameters.dtype)
        inner = parameters[2 * self.bins :]
        raw = jnp.stack([_dot(jnp.concatenate([none, inner]), place), _dot(jnp.concatenate([inner, none]), place)])
        # The sum is bounded, so that the plain form of softplus loses nothing.
        slopes = jnp.log1p(jnp.exp(self._squashed(raw) + _UNIT_SLOPE)) + _LEAST
        left, right = _dot(xs[:-1], place), _dot(xs[1:], place)
        bottom, top = _dot(ys[:-1], place), _dot(ys[1:], place)
        return _Bin(left, right - left, bottom, top - bottom, slopes[0], slopes[1])

    def _squashed(self, raw: Array) -> Array:
        return self.limit * jnp.tanh(raw / self.limit)

    def _grid(self, raw: Float[Array, " bin"]) -> Float[Array, " knot"]:
        shares = _LEAST + (1 - _LEAST * self.bins) * jax.nn.softmax(raw)
        # A product with a triangle of ones: a running sum is slow to compile and to run for so few numbers.
        inner = _dot(shares, np.triu(np.ones((self.bins, self.bins - 1), np.float32)))
        ends = jnp.full(1, self.box, raw.dtype)
        return jnp.concatenate([-ends, 2 * self.box * inner - self.box, ends])


def _dot(values: Float[Array, " bin"], weights: Array | np.ndarray) -> Array:
    """values @ weights, for so few bins: as a product of matrices on a CPU, elsewhere as a sum that fuses.

    A GPU would start a program for each product, and round its factors to 11 bits: places of knots need more.
    """
    if jax.default_backend() == "cpu":
        return values @ weights
    return jnp.sum(values.reshape(-1, *(1,) * (weights.ndim - 1)) * weights, axis=0)


def _place(point: Array, knots: Float[Array, " knot"]) -> Array:
    """A one-hot vector of the piece that a point falls into."""
    num_pieces = knots.shape[0] - 1
    return jax.nn.one_hot(jnp.sum(point >= knots[1:-1]), num_pieces, dtype=knots.dtype)
