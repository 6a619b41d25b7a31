"""Vote: what most members say, told by the exponential mechanism over two outcomes.

Of k members, v say yes. The outcomes have the scores v and k - v. A unit is in one part only (``parts.py``), so it
can change one member's vote, and either score by 1. With weights exp(epsilon * score / 2) the log odds of yes are
epsilon * (2 v - k) / 2, and one vote moves them by exactly epsilon.

The exponent is right, and for many members it cannot be larger: with log odds a and a + epsilon the chances of an
outcome differ by the factor exp(epsilon) (1 + exp(a)) / (1 + exp(a + epsilon)), which is below exp(epsilon) and tends
to it as a falls. The scores do not rise together (one falls as the other rises), so the factor of two in the exponent
stays. As log odds move by epsilon, a vote is a choice of range epsilon and costs epsilon^2 / 8 of zero-concentrated
privacy.

Reference: Waites and Cummings 2021, Algorithm 2; McSherry and Talwar 2007; Cesar and Rogers 2021.
"""

import secrets
from collections.abc import Callable

from sfumato.checks import positive, whole
from sfumato.errors import ArgumentError
from sfumato.privacy.choice import NUM_BITS, draw, exponential_weights

_MOST_LOG_ODDS = 60


def vote_weights(yes: int, members: int, epsilon: float) -> tuple[int, int]:
    """Whole weights of yes and no, in the ratio exp(epsilon * (2 yes - members) / 2) to one part in 2**70.

    Log odds end at 60 to both sides, so that no weight is rounded away: the margin is cut, which keeps how far one
    vote can move it.

    >>> yes, no = vote_weights(7, 10, 1.0)
    >>> round(yes / (yes + no), 6)
    0.880797
    """
    whole(1, members=members)
    positive(epsilon=epsilon)
    if not 0 <= yes <= members:
        raise ArgumentError("A vote counts between none and all of its members.")
    most = max(1, int(2 * _MOST_LOG_ODDS / epsilon))
    margin = max(-most, min(most, 2 * yes - members))
    # Only the difference of both scores matters: (yes) - (members - yes).
    for_yes, for_no = exponential_weights([margin, 0], sensitivity=1, epsilon=epsilon)
    return for_yes, for_no


def noisy_majority(yes: int, members: int, epsilon: float, *, bits: Callable[[int], int] = secrets.randbits) -> bool:
    """Whether most members say yes, by the exponential mechanism.

    Cost: one choice at ``epsilon``, to be charged before. Randomness comes from the operating system at every call.
    """
    return draw(vote_weights(yes, members, epsilon), lambda _: bits(NUM_BITS)) == 0
