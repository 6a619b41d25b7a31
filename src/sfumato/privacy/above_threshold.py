"""AboveThreshold: the sparse vector technique. Answers below a threshold are free; one above ends a run that is paid.

A run at epsilon has one noisy threshold, with noise at the rate epsilon_1, and fresh noise at the rate epsilon_2 / 2
for every count, where epsilon_1 + epsilon_2 = epsilon. Proof for counts that neighbours move by at most 1, either
way, on whole numbers: let t be the noise of the threshold T. On the other table take t + 1 in its place, which costs
exp(epsilon_1). Every answer "below" stays at least as likely, since its count moved by at most 1. The one answer
"above" needs noise larger by at most 2, which costs exp(2 epsilon_2 / 2). So a run, however long, is epsilon-private.
Both noises are drawn once and for all: the threshold noise is new in each run, and no noisy count is ever told.
(Variants that reuse the threshold after an answer "above", leave out the noise of counts, or tell the noisy count are
not private.)

Reference: Dwork and Roth 2014, algorithm 1; Lyu, Su, Li 2017, algorithm 1, also for the shares 1 : 4^(1/3); Vadhan
and Wang 2021 and Lyu 2022 for runs that go on side by side.
"""

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import exp
from threading import Lock

from sfumato.checks import positive
from sfumato.privacy.laplace import discrete_laplace

_THRESHOLD_SHARE = Fraction(387, 1000)  # 1 / (1 + 4^(1/3))


@dataclass(kw_only=True)
class AboveThreshold:
    """Runs of the sparse vector technique over counts of sensitivity 1, each charged before it begins.

    ``charge`` is called before the noise of a run is drawn, and refuses by raising. The noisy threshold lives in the
    memory of one process: a process that starts anew, or was forked, begins a new run and pays for it. Threads wait for
    each other.
    """

    threshold: int
    epsilon: float
    charge: Callable[[], None]
    bits: Callable[[int], int] = field(default=secrets.randbits, repr=False)
    _noisy_threshold: int | None = field(default=None, init=False, repr=False)
    _process: int = field(default=0, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)

    def is_above(self, count: int) -> bool:
        """Whether a count reaches the threshold, both with noise. Cost: a run, at its first question."""
        with self._lock:
            return self._is_above(count)

    def _is_above(self, count: int) -> bool:
        of_threshold = Fraction(self.epsilon) * _THRESHOLD_SHARE
        if self._noisy_threshold is None or self._process != os.getpid():
            self._noisy_threshold = None
            self.charge()
            self._noisy_threshold = self.threshold + discrete_laplace(of_threshold, bits=self.bits)
            self._process = os.getpid()
        of_counts = (Fraction(self.epsilon) - of_threshold) / 2
        above = count + discrete_laplace(of_counts, bits=self.bits) >= self._noisy_threshold
        if above:  # the run is over, before the answer is out
            self._noisy_threshold = None
        return above

    def sureness(self, gap: int) -> float:
        """A lower bound on the chance of the right answer for a count that far from the threshold: public, no cost.

        It is wrong only where the noise of the threshold or that of the count alone reaches half of the gap.
        """
        shares = (float(_THRESHOLD_SHARE), float(1 - _THRESHOLD_SHARE) / 2)
        rates = [self.epsilon * share for share in shares]
        return max(0.0, 1 - sum(exp(-rate * ((gap + 1) // 2)) / (1 + exp(-rate)) for rate in rates))
