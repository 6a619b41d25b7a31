"""Chain: the chain rule of probability with one small network shared by all columns.

Codes are read in a fixed order. What came before is the sum of the embeddings of its codes; two hidden layers, the same
for every column, look at that sum, and a head of each column turns them into the log odds of its own codes. A base of
conditional tables, where there is one, is added to the log odds: with heads of zero the chain then is its base, so
that training has only that left to learn which the base does not know.

Reference: Bengio and Bengio 2000; Larochelle and Murray 2011 (NADE, whose hidden sums are these); Castellon et al. 2023
(DP-TBART) for codes of columns.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sfumato.checks import whole
from sfumato.errors import ArgumentError
from sfumato.models.codes.tables import ConditionalTables
from sfumato.models.codes.together import draw_row
from sfumato.models.starts import normal

NEVER = -1e9


@dataclass(frozen=True)
class ChainShape:
    """The codes of each column, the order in which columns are read, hidden units, and whether columns share codes.

    With ``shared``, a code means the same in every column (as letters of a word do), and one embedding and one head
    serve all of them.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    width: int = 64
    shared: bool = False

    def __post_init__(self) -> None:
        whole(1, width=self.width)
        if sorted(self.order) != list(range(len(self.sizes))):
            raise ArgumentError("Expected an order of all columns.")

    @property
    def places(self) -> int:
        """How many columns there are."""
        return len(self.sizes)

    @property
    def most(self) -> int:
        """The codes of the column that has most."""
        return max(self.sizes)

    def mask(self) -> np.ndarray:
        """Which codes there are, place by place."""
        return np.array([np.arange(self.most) < self.sizes[column] for column in self.order])


class Chain(eqx.Module):
    """A distribution over codes, column by column; arrays stand in the order in which columns are read.

    >>> chain = Chain.start(ChainShape((2, 3), (0, 1), 4), key=jax.random.key(0))
    >>> round(float(jnp.exp(chain.log_prob(jnp.array([1, 2])))), 4)
    0.1667
    """

    embedding: Float[Array, "*place unit code"]
    first: Float[Array, "place unit"]
    second: Float[Array, "unit unit"]
    second_bias: Float[Array, " unit"]
    head: Float[Array, "*place code unit"]
    head_bias: Float[Array, "place code"]
    base: ConditionalTables | None
    shape: ChainShape = eqx.field(static=True)

    @classmethod
    def start(cls, shape: ChainShape, *, key: Array, base: ConditionalTables | None = None) -> "Chain":
        """The chain before training: its base, or all codes alike."""
        places, width, most = shape.places, shape.width, shape.most
        first, second = jax.random.split(key)
        ahead = () if shape.shared else (places,)
        spread = 0.5 / np.sqrt(places)
        zeros = lambda *size: jnp.zeros(size, jnp.float32)
        return cls(
            spread * normal(first, *ahead, width, most),
            zeros(places, width),
            normal(second, width, width) / np.float32(np.sqrt(width)),
            zeros(width),
            zeros(*ahead, most, width),
            zeros(places, most),
            base,
            shape,
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each column."""
        return self.shape.sizes

    def trainable(self) -> "Chain":
        """The parameters: the chain with None in place of its base."""
        return eqx.tree_at(lambda chain: chain.base, self, None, is_leaf=lambda part: part is None)

    def weights(self) -> dict[str, Array]:
        """What acts on a row, by name."""
        names = ("embedding", "first", "second", "second_bias", "head", "head_bias")
        return {name: getattr(self, name) for name in names}

    def taps(self) -> dict[str, tuple[int, int]]:
        """The places where layers give out something, with their sizes: [place, unit]."""
        width, most, places = self.shape.width, self.shape.most, self.shape.places
        return {
            "embedding": (places, width),
            "first": (places, width),
            "second": (places, width),
            "head": (places, most),
        }

    def row_log_prob(
        self, weights: Mapping[str, Array], codes: Int[Array, " column"], taps: Mapping[str, Array]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The log probability of a row under these weights, with taps added, and what went into each layer."""
        shape = self.shape
        mine = codes[np.array(shape.order)]
        hot = jax.nn.one_hot(mine, shape.most, dtype=jnp.float32)
        read = jnp.einsum("uc,pc->pu" if shape.shared else "puc,pc->pu", weights["embedding"], hot) + taps["embedding"]
        before = jnp.cumsum(read, axis=0) - read
        hidden = jnp.tanh(before + weights["first"] + taps["first"])
        top = hidden + jnp.tanh(hidden @ weights["second"].T + weights["second_bias"] + taps["second"])
        logits = jnp.einsum("cu,pu->pc" if shape.shared else "pcu,pu->pc", weights["head"], top)
        logits = self._base_logits(codes) + logits + weights["head_bias"] + taps["head"]
        logs = jax.nn.log_softmax(jnp.where(shape.mask(), logits, NEVER), axis=1)
        return jnp.sum(logs * hot), {"code": hot, "hidden": hidden, "top": top}

    def log_prob(self, codes: Int[Array, " column"]) -> Float[Array, ""]:
        """The log probability of a row of codes."""
        taps = {name: jnp.zeros(size, jnp.float32) for name, size in self.taps().items()}
        return self.row_log_prob(self.weights(), codes, taps)[0]

    def sample(self, key: Array) -> Int[Array, " column"]:
        """One row of codes: one column after the other, each reading only what it needs."""
        return draw_row(self, jax.random.uniform(key, (self.shape.places,), jnp.float32))

    @property
    def order(self) -> tuple[int, ...]:
        """The columns in the order in which they are read."""
        return self.shape.order

    def near(self, column: int) -> tuple[int, ...]:
        """The column that it hangs on in the base; none where there is no base."""
        return () if self.base is None else self.base.parents[column]

    def begin(self) -> Float[Array, " unit"]:
        """The sum of the embeddings of no codes."""
        return jnp.zeros(self.shape.width, jnp.float32)

    def chances(self, place: int, codes: Int[Array, " column"], known: Float[Array, " unit"]) -> Float[Array, " code"]:
        """The probabilities of the codes of one place, from the sum of the embeddings of the codes before it."""
        column = self.shape.order[place]
        size = self.shape.sizes[column]
        hidden = jnp.tanh(known + self.first[place])
        top = hidden + jnp.tanh(self.second @ hidden + self.second_bias)
        head = self.head if self.shape.shared else self.head[place]
        logits = head[:size] @ top + self.head_bias[place, :size]
        if self.base is not None:
            logits = logits + self.base.log_conditional(column, codes)
        return jax.nn.softmax(logits)

    def after(self, place: int, code: Int[Array, ""], known: Float[Array, " unit"]) -> Float[Array, " unit"]:
        """The sum with one more code in it."""
        embedding = self.embedding if self.shape.shared else self.embedding[place]
        return known + embedding[:, code]

    def describe(self) -> dict[str, Any]:
        """What is needed, besides the arrays, to rebuild the chain."""
        found: dict[str, Any] = {"kind": "chain", **asdict(self.shape)}
        found |= {"sizes": list(self.shape.sizes), "order": list(self.shape.order)}
        return found if self.base is None else found | {"base": self.base.describe()}

    def _base_logits(self, codes: Int[Array, " column"]) -> Float[Array, "place code"]:
        if self.base is None:
            return jnp.zeros((self.shape.places, self.shape.most), jnp.float32)
        logs = [self.base.log_conditional(column, codes) for column in self.shape.order]
        return jnp.stack([jnp.pad(log, (0, self.shape.most - log.shape[0])) for log in logs])
