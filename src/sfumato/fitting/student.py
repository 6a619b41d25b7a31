"""Student: a public model of what teachers say of made rows, learnt from noisy counts of their votes.

It is a ridge regression on what a critic sees of a row and on random hidden units over that: closed form, all counts so
far, with older ones fading as the generator moves on. What a count is worth is known, since its noise is: where the
counts say little the student says little, and does not drag the generator after noise. All of it is post-processing.

Reference: Jordon, Yoon, van der Schaar 2019 (a student of votes); Rahimi and Recht 2008 (random hidden units).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sfumato.models.generators.critic import CriticShape, Weights

_KEPT = 0.9
"""What is kept of older counts from round to round."""

_USUAL = 0.2
"""How far from even a share of votes usually is: the spread of the student before any count."""


class Student(eqx.Module):
    """Weights of a ridge regression, with the sums that they follow from.

    Guarantees: with no count at all, or counts of boundless noise, the score of every row is zero.
    """

    hidden: Weights
    gram: Float[Array, "feature feature"]
    told: Float[Array, " feature"]
    weights: Float[Array, " feature"]
    shape: CriticShape = eqx.field(static=True)

    @classmethod
    def start(cls, shape: CriticShape, key: Array) -> "Student":
        """A student that has heard nothing."""
        hidden = shape.start(key)
        num = sum(hidden["weight0"].shape)
        zeros = jnp.zeros(num, jnp.float32)
        return cls(hidden, jnp.zeros((num, num), jnp.float32), zeros, zeros, shape)

    def features(self, row: Float[Array, " number"]) -> Float[Array, " feature"]:
        """What the student looks at, of a length near one."""
        seen = self.shape.seen(row)
        units = jax.nn.leaky_relu(self.hidden["weight0"] @ seen, 0.1)
        return jnp.concatenate([seen / jnp.sqrt(seen.size), units / jnp.sqrt(units.size)])

    def score(self, row: Float[Array, " number"]) -> Float[Array, ""]:
        """How far from even the votes on a row are expected to be: above zero where it looks real."""
        return self.features(row) @ self.weights

    def studied(
        self, rows: Float[Array, "row number"], votes: Float[Array, " row"], noise: Float[Array, ""]
    ) -> "Student":
        """The student after noisy mean votes, each half up to half down, on some rows."""
        seen = jax.vmap(self.features)(rows)
        gram, told = _KEPT * self.gram + seen.T @ seen, _KEPT * self.told + seen.T @ votes
        ridge = (noise**2 + _USUAL**2) / _USUAL**2  # votes differ from what is expected without noise as well
        weights = jnp.linalg.solve(gram + ridge * jnp.eye(told.size, dtype=gram.dtype), told)
        return Student(self.hidden, gram, told, weights.astype(jnp.float32), self.shape)
