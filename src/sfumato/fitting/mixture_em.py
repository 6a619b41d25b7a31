"""Mixture EM: a mixture of Gaussians fitted by expectation maximisation, each round one noisy sum.

A round asks, for every component, how many rows it answers for, where they lie and how they spread: the sum over rows
of (responsibility, responsibility-weighted place, weighted square of the place). All that follows (division,
projection, averaging over rounds) is post-processing. Places are taken in the eyes of the component: whitened by its
present mean and covariance, which are public by then, and drawn into a ball of radius ``sqrt(d) + reach`` deviations.
The first balls are wide and hold nearly every row; later ones follow the components, and the noise shrinks with them.

Sensitivity, one bound for the whole vector: let r be the responsibilities of a row, sum r = 1, and v_k its place in the
ball of component k, scaled to |v_k| <= 1. The vector of the row is, for all k, r_k * (a, b v_k, c (v_k v_k')), where
the square is written as its upper triangle with off-diagonal entries times sqrt(2), so that its norm is |v_k|^2. Then

    |vector|^2 = sum_k r_k^2 (a^2 + b^2 |v_k|^2 + c^2 |v_k|^4) <= (a^2 + b^2 + c^2) sum_k r_k^2 <= a^2 + b^2 + c^2 = 1,

since sum r_k^2 <= (sum r_k)^2 = 1 and the weights are chosen with a^2 + b^2 + c^2 = 1. The bound is tight: a row at the
edge of a ball that one component alone answers for reaches it. Three bounds of one each would sum up to 3 at equal
weights, and to sqrt(3) as norms. A row of cells is the mean over some of their points, and a mean of vectors in a ball
lies in it. The weights are those for which noise costs least likelihood, to second order: the noise on block i costs
A_i / w_i^2, and sum A_i / w_i^2 is least under sum w_i^2 = 1 at w_i^2 proportional to sqrt(A_i).

Laplace noise, the paper's other one, hides a row by the sum of the absolute values of its vector. Off-diagonal entries
are then multiplied with w = 2^(1/3). With |v_k| <= 1 the absolute values of v_k add up to at most sqrt(d), and those of
its square to at most sum_i v_i^2 + w sum_(i<j) (v_i^2 + v_j^2) / 2 <= 1 + w (d - 1) / 2 = s. Hence

    sum of absolute values <= sum_k r_k (a + b sqrt(d) + c s) = a + b sqrt(d) + c s = 1,

which does not grow with the number of components either. It is tight as well: a row on the diagonal of a ball, with d
equal entries, that one component alone answers for reaches all three bounds at once. The weights are again those that
cost least: sum A_i / w_i^2 is least under sum n_i w_i = 1 at w_i proportional to (A_i / n_i)^(1/3), with n_i the bound
of block i. The same rule gives w: an off-diagonal error counts twice in a symmetric matrix, so A is doubled, and n is
the same where the bound is reached.

Composition: the noise of every round is fixed before the first answer, so the ledger's accountants (PLD, RDP beside it)
compose plain Gaussian sums, or sums that are epsilon-private each (``privacy/pure.py``).

Reference: Park, Foulds, Choudhary, Welling 2017 ("DP-EM"), which divides rows by a public bound once and for all and
charges weights, means and covariances apart; the zooming follows Biswas, Dong, Kamath, Ullman 2020 ("CoinPress").
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import cbrt, sqrt
from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sfumato.checks import positive, whole
from sfumato.errors import ArgumentError
from sfumato.fitting.flow_loss import spread
from sfumato.models.cells import point_in_cell
from sfumato.models.flows.bijection import Bijection
from sfumato.models.mixture import GaussianMixture
from sfumato.privacy import AbsoluteClip, Curator, FlatClip, SumQuery

Noise: TypeAlias = Literal["gaussian", "laplace"]

_DRAWS = 8
_CANDIDATES = 2_000
_STEP = 10.0
"""By how much a variance may grow or shrink in one round, so that no noisy answer can blow a component up."""
_WIDEST = 5.0


@dataclass(frozen=True, kw_only=True)
class EmSettings:
    """A mixture's size and how it is fitted.

    ``reach`` is how many deviations past sqrt(d) the ball of a component goes; ``floor`` is the least deviation of a
    component in any direction, in units of the scaled features. ``noise`` is that of each round's sum.
    """

    components: int = 10
    rounds: int = 20
    reach: float = 1.5
    floor: float = 0.03
    noise: Noise = "gaussian"

    def __post_init__(self) -> None:
        whole(1, components=self.components, rounds=self.rounds)
        positive(reach=self.reach, floor=self.floor)
        if self.noise not in ("gaussian", "laplace"):
            raise ArgumentError(f"Expected noise={self.noise!r} to be 'gaussian' or 'laplace'.")


@dataclass(frozen=True, kw_only=True)
class Ball:
    """The ball that a component's rows are drawn into, and the weights of the three blocks of a row's vector."""

    num_features: int
    reach: float

    @property
    def radius(self) -> float:
        """In deviations of the component."""
        return sqrt(self.num_features) + self.reach

    @cached_property
    def weights(self) -> tuple[float, float, float]:
        """Of counts, places and squares: positive, with squares that add up to one."""
        roots = [sqrt(cost) for cost in self.costs]
        a, b, c = (sqrt(root / sum(roots)) for root in roots)
        return a, b, c

    @property
    def costs(self) -> tuple[float, float, float]:
        """What unit noise on a block costs, up to a common factor: the error of a count enters mean and spread too."""
        d, radius = self.num_features, self.radius
        squares = d + d * (d - 1) / self.off_diagonal**2
        return 0.5 + d / 4, radius**2 * d / 2, radius**4 * squares / 4

    @property
    def off_diagonal(self) -> float:
        """What off-diagonal entries of squares are multiplied with; here so that their norm is that of the matrix."""
        return sqrt(2)

    @property
    def clip(self) -> FlatClip:
        """The norm in which rows have a vector of at most one."""
        return FlatClip(bound=1.0)

    @property
    def block(self) -> int:
        """Entries of one component."""
        return 1 + self.num_features + self.num_features * (self.num_features + 1) // 2

    @cached_property
    def triangle(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and columns of the upper triangle, and what its entries are multiplied with."""
        rows, columns = np.triu_indices(self.num_features)
        return rows, columns, np.where(rows == columns, 1.0, self.off_diagonal).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class AbsoluteBall(Ball):
    """The same with a row's vector weighted for Laplace noise: its absolute values add up to at most one."""

    @cached_property
    def weights(self) -> tuple[float, float, float]:
        """Of counts, places and squares: positive, and one in all when each is multiplied with its block's bound."""
        terms = [cbrt(cost / bound) for cost, bound in zip(self.costs, self.bounds, strict=True)]
        whole_ = sum(term * bound for term, bound in zip(terms, self.bounds, strict=True))
        a, b, c = (term / whole_ for term in terms)
        return a, b, c

    @property
    def bounds(self) -> tuple[float, float, float]:
        """How large the absolute values of each block can be in sum, for a place in the unit ball."""
        return 1.0, sqrt(self.num_features), 1 + self.off_diagonal * (self.num_features - 1) / 2

    @property
    def off_diagonal(self) -> float:
        """That costs least (module docstring)."""
        return cbrt(2)

    @property
    def clip(self) -> FlatClip:
        return AbsoluteClip(bound=1.0)


class RowMoments(eqx.Module):
    """A row's part in one round: its vector has the norm one at most, the norm of its ball (module docstring).

    ``view`` sends features to where the mixture lives. ``key`` is public; with the bits of the row it says where in its
    cells points are taken, so that rows of equal levels differ from round to round and nothing but the row is needed.
    """

    mixture: GaussianMixture
    view: Bijection
    key: Array
    ball: Ball = eqx.field(static=True)
    draws: int = eqx.field(static=True)

    def __call__(self, row: dict[str, Array]) -> Float[Array, " entry"]:
        low, width = row["low"], row["width"]
        if self.draws == 1:
            return self.at(point_in_cell(low, width, jnp.full_like(low, 0.5)))
        bits = jax.lax.bitcast_convert_type(low, jnp.uint32)
        odd = (2 * np.arange(low.size, dtype=np.uint32) + 1) * np.uint32(2_654_435_761)
        mixed = jnp.sum(bits * odd, dtype=jnp.uint32)
        points = spread(jax.random.fold_in(self.key, mixed), self.draws, low)
        return jnp.mean(jax.vmap(lambda share: self.at(point_in_cell(low, width, share)))(points), axis=0)

    def at(self, features: Float[Array, " d"]) -> Float[Array, " entry"]:
        """The vector at one point of the row's cells."""
        whitened = self.mixture.whitened(self.view.forward(features)[0])
        share = jax.nn.softmax(self.mixture.log_joint(whitened))
        place = whitened / jnp.maximum(self.ball.radius, jnp.linalg.norm(whitened, axis=1, keepdims=True))
        rows, columns, double = self.ball.triangle
        square = place[:, rows] * place[:, columns] * double
        a, b, c = self.ball.weights
        blocks = jnp.concatenate([jnp.full((share.size, 1), a, place.dtype), b * place, c * square], axis=1)
        return (share[:, None] * blocks).reshape(-1)


def fit_mixture(
    curator: Curator,
    settings: EmSettings,
    view: Bijection,
    num_features: int,
    *,
    share: float | None,
    discrete: bool,
    key: Array,
) -> GaussianMixture:
    """A mixture of the rows, seen through ``view``, after so many rounds; the start does not look at them.

    Cost: ``rounds`` Gaussian or Laplace sums, ``share`` of the budget together; None takes all that is left of it.
    Sensitivity: one (module docstring).
    """
    kind = AbsoluteBall if settings.noise == "laplace" else Ball
    ball = kind(num_features=num_features, reach=settings.reach)
    start_key, point_key = jax.random.split(key)
    estimate = Estimate.start(settings, num_features, start_key)
    ask, deviation = noisy_door(curator, settings, share)
    for number in range(settings.rounds):
        point = jax.random.fold_in(point_key, number)
        query = SumQuery(
            function=RowMoments(estimate.mixture(), view, point, ball, _DRAWS if discrete else 1),
            num_entries=settings.components * ball.block,
            clip=ball.clip,
            purpose=f"moments of a mixture, round {number + 1} of {settings.rounds}",
        )
        estimate = estimate.after(ask(query), ball, deviation, gain(number, settings.rounds))
    return estimate.mixture()


def noisy_door(
    curator: Curator, settings: EmSettings, share: float | None
) -> tuple[Callable[[SumQuery], np.ndarray], float]:
    """The door that every round goes through, and the deviation of its noise: both fixed before the first answer."""
    if settings.noise == "laplace":
        epsilon = curator.laplace_epsilon(settings.rounds, share=share)
        return lambda query: curator.noisy_laplace_sum(query, epsilon=epsilon), curator.laplace_noise(1.0, epsilon)
    multiplier = round_noise(curator, share, settings.rounds)
    return lambda query: curator.noisy_sum_at(query, noise_multiplier=multiplier), curator.noise_at(1.0, multiplier)


def round_noise(curator: Curator, share: float | None, rounds: int) -> float:
    """The noise multiplier of each of so many sums that get this share of the budget together, or all that is left.

    Gaussian sums compose to one whose inverse square multiplier is the sum of theirs. A part in 10^9 is left, for the
    rounding of that sum.
    """
    if share is not None:
        return curator.noise_multiplier(share / rounds)
    return curator.least_noise() * sqrt(rounds) * (1 + 1e-9)


def gain(number: int, rounds: int) -> float:
    """How far a round moves the estimate: all the way in the first half, then as a mean over the rounds of the second.

    The mean hides as much noise as if the second half of the budget had been spent on one round.

    >>> [round(gain(number, 6), 2) for number in range(6)]
    [1.0, 1.0, 1.0, 1.0, 0.5, 0.33]
    """
    return 1 / max(1, number - rounds // 2 + 1)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What is known of the mixture after some rounds, in float64: weights, means, covariances above a floor."""

    weights: Float[np.ndarray, " component"]
    means: Float[np.ndarray, "component d"]
    covariances: Float[np.ndarray, "component d d"]
    floor: float

    @classmethod
    def start(cls, settings: EmSettings, num_features: int, key: Array) -> "Estimate":
        """Equal weights, round components, and means far apart among points of the standard normal (k-means++)."""
        whole(1, num_features=num_features)
        draw = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
        points = draw.normal(size=(_CANDIDATES, num_features))
        means = [points[0]]
        while len(means) < settings.components:
            apart = np.min([np.sum((points - mean) ** 2, axis=1) for mean in means], axis=0)
            means.append(points[draw.choice(_CANDIDATES, p=apart / apart.sum())])
        deviation = max(0.5, settings.components ** (-1 / num_features))
        wide = np.broadcast_to(deviation**2 * np.eye(num_features), (len(means), num_features, num_features))
        return cls(
            weights=np.full(len(means), 1 / len(means)), means=np.array(means), covariances=wide, floor=settings.floor
        )

    def mixture(self) -> GaussianMixture:
        """As a density."""
        return GaussianMixture.of(self.weights, self.means, self.covariances)

    def after(self, answer: np.ndarray, ball: Ball, noise: float, step: float) -> "Estimate":
        """The estimate after one more noisy sum, whose entries have noise of this deviation: post-processing.

        Each component moves by ``step``, and by less where noise would drown what its rows say.
        """
        blocks = np.asarray(answer, np.float64).reshape(self.weights.size, ball.block)
        a = ball.weights[0]
        counts = np.maximum(blocks[:, 0] / a, max(1.0, noise / a))
        moved = [self._moved(place, blocks[place], counts[place], ball, noise, step) for place in range(counts.size)]
        weights = (1 - step) * self.weights + step * counts / counts.sum()
        return Estimate(
            weights=weights / weights.sum(),
            means=np.array([mean for mean, _ in moved]),
            covariances=np.array([covariance for _, covariance in moved]),
            floor=self.floor,
        )

    def _moved(
        self, place: int, block: np.ndarray, count: float, ball: Ball, noise: float, step: float
    ) -> tuple[np.ndarray, np.ndarray]:
        d, radius = ball.num_features, ball.radius
        _, b, c = ball.weights
        rows, columns, double = ball.triangle
        square = np.zeros((d, d))
        square[rows, columns] = square[columns, rows] = block[1 + d :] / double
        mean = radius * block[1 : 1 + d] / (b * count)
        mean *= min(1.0, radius / max(float(np.linalg.norm(mean)), 1e-12))
        spread_ = within(radius**2 * square / (c * count) - np.outer(mean, mean), 1 / _STEP, _STEP)
        error = radius * noise / (b * count), radius**2 * noise / (c * count)
        mean_step, spread_step = (step / (1 + d * size**2) for size in error)
        factor = np.linalg.cholesky(self.covariances[place])
        inside = spread_step * spread_ + (1 - spread_step) * np.eye(d)
        covariance = within(factor @ inside @ factor.T, self.floor**2, _WIDEST**2)
        return self.means[place] + factor @ (mean_step * mean), covariance


def within(matrix: np.ndarray, least: float, most: float) -> Float[np.ndarray, "d d"]:
    """The nearest symmetric matrix with eigenvalues in an interval: never an indefinite covariance.

    >>> within(np.array([[1.0, 3.0], [3.0, 1.0]]), 0.5, 10.0).round(6).tolist()
    [[2.25, 1.75], [1.75, 2.25]]
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    found = (vectors * np.clip(values, least, most)) @ vectors.T
    return np.asarray((found + found.T) / 2)
