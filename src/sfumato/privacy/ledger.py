"""Ledger: the append-only list of what was done to the rows. It charges before noise is drawn, or refuses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from sfumato.checks import whole
from sfumato.errors import BudgetError
from sfumato.privacy.accounting import calibrate, calibrate_laplace, headline, largest_rho
from sfumato.privacy.adjacency import Adjacency
from sfumato.privacy.budget import Budget
from sfumato.privacy.concentrated import rho_of
from sfumato.privacy.events import Concentrated, Event, LaplaceSum, NonPrivate


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One charge: the event and, in words, what it was for; ``prepaid`` where a reserve or a pledge paid for it.

    A ``pledge`` is paid for what will be drawn later.
    """

    event: Event
    purpose: str
    prepaid: bool = False
    pledge: bool = False


class Ledger:
    """What was charged against a budget so far; entries are only ever added.

    Guarantees: after every ``charge`` the composed epsilon of all entries is within the budget; a charge that
    would break this raises ``BudgetError`` and leaves the ledger as it was. After an ``admit`` epsilon is infinite,
    and every further charge is refused.
    """

    def __init__(self, budget: Budget, adjacency: Adjacency) -> None:
        self._budget = budget
        self._adjacency = adjacency
        self._entries: list[Entry] = []
        self._reserve: Fraction | None = None
        self._pledged: list[tuple[Event, str]] = []

    @property
    def budget(self) -> Budget:
        return self._budget

    @property
    def adjacency(self) -> Adjacency:
        return self._adjacency

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    @property
    def charges(self) -> tuple[Entry, ...]:
        """What epsilon is counted from: every entry but those that a reserve or a pledge paid for."""
        return tuple(entry for entry in self._entries if not entry.prepaid)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that epsilon is counted from."""
        return tuple(entry.event for entry in self.charges)

    @property
    def drawn(self) -> tuple[Event, ...]:
        """The events that something was drawn for: those paid from a reserve or a pledge in place of these."""
        drawn = [entry for entry in self._entries if not entry.pledge and not isinstance(entry.event, Concentrated)]
        return tuple(entry.event for entry in drawn)

    def charge(self, event: Event, purpose: str) -> None:
        """Add the event, or refuse it when everything together would cost more than the budget, or than the reserve.

        An event that was pledged for this purpose is paid for already, once for each pledge.
        """
        if (event, purpose) in self._pledged:
            self._pledged.remove((event, purpose))
            self._entries.append(Entry(event=event, purpose=purpose, prepaid=True))
            return
        self._add(event, purpose)

    def _add(self, event: Event, purpose: str) -> None:
        if self._reserve is not None:
            self._pay(event, purpose)
            return
        total = headline((*self.events, event), self._adjacency, self._budget.delta).epsilon
        if not total <= self._budget.epsilon:
            raise BudgetError(
                f"The charge for {purpose!r} would bring epsilon to {total:.6g}, "
                f"past the budget of {self._budget.epsilon:g}; nothing was drawn."
            )
        self._entries.append(Entry(event=event, purpose=purpose))

    def reserve(self, purpose: str) -> Fraction:
        """Charge all that is left as one total of zero-concentrated privacy, and pay for sums and choices from it.

        What is paid from a reserve may be chosen from answers, noise and all; the ledger refuses what would pass the
        total, in exact arithmetic.
        """
        rho = largest_rho(self.events, self._adjacency, self._budget)
        self.charge(Concentrated(rho=rho), purpose)
        self._reserve = Fraction(rho)
        return self._reserve

    def pledge(self, event: Event, purpose: str, times: int) -> None:
        """Charge so many equal events now that will be drawn later, so that nothing in between can spend their budget.

        Their noise is fixed here, in advance. What is pledged and never drawn stays charged.
        """
        whole(1, times=times)
        before = len(self._entries)
        try:
            for _ in range(times):
                self._add(event, purpose)  # an earlier pledge pays for what will be drawn, not for another pledge
                self._entries[-1] = replace(self._entries[-1], pledge=True)
        except BudgetError:
            del self._entries[before:]  # all or none: nothing was drawn
            raise
        self._pledged += [(event, purpose)] * times

    def _pay(self, event: Event, purpose: str) -> None:
        left = (self._reserve or Fraction(0)) - rho_of(event)
        if left < 0:
            raise BudgetError(f"The charge for {purpose!r} would pass the reserve; nothing was drawn.")
        self._reserve = left
        self._entries.append(Entry(event=event, purpose=purpose, prepaid=True))

    def admit(self, reason: str, purpose: str) -> None:
        """Write down what was done without protection: no budget covers it, so epsilon is infinite from here on."""
        self._entries.append(Entry(event=NonPrivate(reason=reason), purpose=purpose))

    def calibrate(self, make: Callable[[float], Event]) -> Event:
        """The event of least noise that the rest of the budget covers; charges nothing yet."""
        return calibrate(make, self.events, self._adjacency, self._budget)

    def calibrate_laplace(self, times: int) -> LaplaceSum:
        """The Laplace sum of least noise that the rest of the budget covers so many times; charges nothing yet."""
        return calibrate_laplace(times, self.events, self._adjacency, self._budget)
