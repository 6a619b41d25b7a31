"""Choice: the exponential mechanism with exact integer probabilities.

Scores are whole numbers on the grid and the weights are integers computed to 60 digits, so the probabilities
are what the formula says: no ties lost to rounding, no floats to attack.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext

from sfumato.checks import positive

_WEIGHT_BITS = 160


def exponential_weights(scores: Sequence[int], sensitivity: int, epsilon: float) -> list[int]:
    """Integer weights proportional to exp(epsilon * score / (2 * sensitivity)), to one part in 2**160.

    Guarantees: for two score lists that differ by at most ``sensitivity`` a candidate, each candidate's
    probability changes by a factor of at most exp(epsilon), up to the rounding of the weights: every weight is
    at least 1, so candidates with weights below 2**-100 of the best are the only ones off by more than 2**-60.
    Reference: McSherry and Talwar 2007.

    >>> weights = exponential_weights([0, 2], sensitivity=1, epsilon=1.0)
    >>> round(weights[1] / weights[0], 6)
    2.718282
    """
    positive(sensitivity=sensitivity, epsilon=epsilon)
    best = max(scores)
    with localcontext() as context:
        context.prec = 60
        rate = Decimal(epsilon) / (2 * Decimal(sensitivity))
        unit = Decimal(2**_WEIGHT_BITS)
        return [int((rate * (score - best)).exp() * unit) + 1 for score in scores]


NUM_BITS = 512
"""Random bits of one try; more than the weights have, so that hardly any try fails."""


def draw(weights: Sequence[int], bits: Callable[[int], int]) -> int:
    """An index with a probability in proportion to its weight; ``bits`` gives the random bits of each try.

    >>> draw([1, 3], lambda attempt: 7)  # 7 is 3 modulo 4, past the first weight
    1
    """
    attempt, index = 0, None
    while index is None:
        index = draw_index(weights, bits(attempt), NUM_BITS)
        attempt += 1
    return index


def draw_index(weights: Sequence[int], random_bits: int, num_bits: int) -> int | None:
    """The index that uniform random bits fall on, or None when they fall outside and must be drawn again."""
    total = sum(weights)
    span = 1 << num_bits
    if random_bits >= span - span % total:
        return None
    ticket = random_bits % total
    for index, weight in enumerate(weights):
        if ticket < weight:
            return index
        ticket -= weight
    raise AssertionError("a ticket below the total always falls on a weight")
