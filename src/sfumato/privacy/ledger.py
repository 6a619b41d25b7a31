"""Ledger: the append-only list of what was done to the rows. It charges before noise is drawn, or refuses."""

from collections.abc import Callable
from dataclasses import dataclass

from sfumato.errors import BudgetError
from sfumato.privacy.accounting import calibrate, headline
from sfumato.privacy.adjacency import Adjacency
from sfumato.privacy.budget import Budget
from sfumato.privacy.events import Event, NonPrivate


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One charge: the event and, in words, what it was for."""

    event: Event
    purpose: str


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
    def events(self) -> tuple[Event, ...]:
        return tuple(entry.event for entry in self._entries)

    def charge(self, event: Event, purpose: str) -> None:
        """Add the event, or refuse it when everything together would cost more than the budget."""
        total = headline((*self.events, event), self._adjacency, self._budget.delta).epsilon
        if not total <= self._budget.epsilon:
            raise BudgetError(
                f"The charge for {purpose!r} would bring epsilon to {total:.6g}, "
                f"past the budget of {self._budget.epsilon:g}; nothing was drawn."
            )
        self._entries.append(Entry(event=event, purpose=purpose))

    def admit(self, reason: str, purpose: str) -> None:
        """Write down what was done without protection: no budget covers it, so epsilon is infinite from here on."""
        self._entries.append(Entry(event=NonPrivate(reason=reason), purpose=purpose))

    def calibrate(self, make: Callable[[float], Event]) -> Event:
        """The event of least noise that the rest of the budget covers; charges nothing yet."""
        return calibrate(make, self.events, self._adjacency, self._budget)
