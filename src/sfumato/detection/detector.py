"""Detector: answers "is this row an anomaly?" by the noisy vote of members on disjoint parts (DP-AD).

Privacy: with respect to the private table, under adding or removing one unit (a row, or all rows of one value of the
schema's unit column; no cap on its rows is needed, since all of them are in one part). All answers that a detector can
ever give are together (epsilon, delta)-private, whatever is asked and however questions depend on earlier answers. The
rows that are asked about are not protected, nor is how many questions were asked.

Two ways to answer:

- ``vote``: the exponential mechanism over two outcomes; every question is a charge (``privacy/vote.py``).
- ``sparse``: the sparse vector technique; a charge buys any number of answers "normal" and one answer "anomaly"
  (``privacy/above_threshold.py``). For long streams of mostly normal rows. Every process that asks begins a new run.

Reference: Waites and Cummings 2021, section 5, Algorithm 2; Nissim, Raskhodnikova, Smith 2007 (sample and aggregate).
"""

from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from sfumato.checks import between, whole
from sfumato.detection import store
from sfumato.detection.ensemble import Ensemble, train
from sfumato.detection.flows import FlowMembers
from sfumato.detection.mixtures import MixtureMembers
from sfumato.errors import ArgumentError, BudgetError, SchemaError, TableError
from sfumato.privacy import Budget
from sfumato.privacy.above_threshold import AboveThreshold
from sfumato.privacy.allowance import MOST, Allowance
from sfumato.privacy.budget import default_delta
from sfumato.privacy.prices import Charge, price_of
from sfumato.privacy.vote import noisy_majority
from sfumato.progress import Progress, quiet
from sfumato.schema import Schema
from sfumato.table import check_columns, to_arrow

Way = Literal["vote", "sparse"]
_SHARE = 0.01
_CHARGE: dict[str, Charge] = {"vote": "choice", "sparse": "pure"}
_MOST_MEMBERS = 10_000


@dataclass(frozen=True, kw_only=True)
class Answers:
    """One answer a row: true for an anomaly, false for a normal row, None where the budget was gone."""

    flags: tuple[bool | None, ...]
    left: int

    @property
    def refused(self) -> int:
        """How many rows got no answer."""
        return sum(flag is None for flag in self.flags)


class Detector:
    """Members that vote, and an allowance on disk that every answer is paid from before it is given.

    >>> detector = Detector.fit(table, schema, "detector", epsilon=1.0, charges=100)   # doctest: +SKIP
    >>> detector.ask(new_rows).flags                                                   # doctest: +SKIP
    (False, True, None)
    """

    def __init__(self, ensemble: Ensemble, facts: dict[str, Any], allowance: Allowance) -> None:
        self._ensemble = ensemble
        self._facts = facts
        self._allowance = allowance
        members = len(ensemble.members)
        self._sparse = AboveThreshold(
            threshold=members // 2 + 1, epsilon=float(facts["price"]), charge=lambda: _paid(allowance)
        )

    def __repr__(self) -> str:
        return "Detector(members are private)"

    @classmethod
    def fit(
        cls,
        table: Any,
        schema: Schema,
        folder: str | Path,
        *,
        epsilon: float,
        delta: float | None = None,
        charges: int = 1_000,
        way: Way = "vote",
        members: int = 100,
        training: MixtureMembers | FlowMembers | None = None,
        share: float | None = None,
        threshold: float | None = None,
        progress: Progress = quiet,
    ) -> "Detector":
        """Train members on disjoint parts of a private table, and write them into a new folder for their owner alone.

        The budget is cut into so many ``charges``, questions by ``vote`` or anomalies found by ``sparse``, by pure or
        concentrated composition, whichever leaves more for each. A member calls a row an anomaly where its score is
        above a public ``threshold``, or above that of a ``share`` of its own rows, 0.01 unless given. Many members
        make answers sure at a small price, and each of them worse.

        The folder is as private as the rows. Nothing in it is a release.
        """
        budget = Budget(epsilon=epsilon, delta=default_delta(schema.rows) if delta is None else delta)
        _check(way, members, charges, share, threshold)
        if schema.learnt:
            names = ", ".join(repr(name) for name in schema.learnt)
            raise SchemaError([f"A detector learns no columns: declare the levels or bounds of {names}."])
        folder = Path(folder)
        store.check_folder(folder)
        arrow, _ = to_arrow(table)
        faults = check_columns(arrow, schema)
        if faults:
            raise TableError("; ".join(faults))
        price = price_of(budget, charges, _CHARGE[way])
        training = training or MixtureMembers()
        share = _SHARE if share is None else share
        given: dict[str, Any] = {"members": members, "share": share, "threshold": threshold}
        ensemble = train(arrow, schema, training, **given, progress=progress)
        facts = {
            "way": way,
            "kind": training.kind,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "price": price.epsilon,
            "composition": price.composition,
            **given,
        }
        store.save(folder, ensemble, facts, charges)
        return cls.load(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Detector":
        """A detector from its folder, with what is left of its allowance."""
        ensemble, facts, allowance = store.load(Path(folder))
        try:
            return cls(ensemble, facts, allowance)
        except (KeyError, TypeError, ValueError):
            raise ArgumentError(f"{str(folder)!r} is no detector of this version of sfumato.") from None

    @property
    def left(self) -> int:
        """Charges that are left."""
        return self._allowance.left

    def facts(self) -> dict[str, Any]:
        """What is promised, what was asked and what is left: public, JSON-safe."""
        unit = self._ensemble.schema.unit
        names = ("way", "kind", "members", "epsilon", "delta", "price", "composition")
        return {
            **{name: self._facts[name] for name in names},
            "relation": "add-or-remove-one",
            "unit": "row" if unit is None else unit.column,
            "charges": self._allowance.most,
            "spent": self._allowance.spent,
            "left": self._allowance.left,
            "right_where_members_agree": self.sureness(),
        }

    def sureness(self) -> float:
        """The chance that a vote says what all members say: public, from their number and the price.

        Of the sparse way it is a lower bound, for one answer.
        """
        members, price = len(self._ensemble.members), float(self._facts["price"])
        if self._facts["way"] == "vote":
            return 1 / (1 + exp(-min(60.0, price * members / 2)))
        return self._sparse.sureness(-(-members // 2))

    def ask(self, rows: Any) -> Answers:
        """Whether each row is an anomaly. The charge is on the disk before an answer is given.

        Rows for which nothing is left are answered None; where not one can be answered, ``BudgetError``.
        """
        table, _ = to_arrow(rows)
        faults = check_columns(table, self._ensemble.schema, identifiers=False)
        if faults:
            raise TableError("; ".join(faults))
        if table.num_rows == 0:
            return Answers(flags=(), left=self.left)
        flags = self._by_vote(table) if self._facts["way"] == "vote" else self._by_sparse(table)
        return Answers(flags=(*flags, *(None for _ in range(table.num_rows - len(flags)))), left=self.left)

    def _by_vote(self, table: pa.Table) -> list[bool]:
        had = self._allowance.charge(table.num_rows)
        members, price = len(self._ensemble.members), float(self._facts["price"])
        votes = self._ensemble.yes_votes(table.slice(0, had))
        return [noisy_majority(int(yes), members, price) for yes in votes]

    def _by_sparse(self, table: pa.Table) -> list[bool]:
        votes, flags = self._ensemble.yes_votes(table), []
        for yes in votes:
            try:
                flags.append(self._sparse.is_above(int(yes)))
            except BudgetError:
                if not flags:
                    raise
                break
        return flags


def _paid(allowance: Allowance) -> None:
    allowance.charge()


def _check(way: str, members: int, charges: int, share: float | None, threshold: float | None) -> None:
    if way not in _CHARGE:
        raise ArgumentError(f"Expected way={way!r} to be 'vote' or 'sparse'.")
    whole(1, members=members, charges=charges)
    between(1, _MOST_MEMBERS, members=members)
    between(1, MOST, charges=charges)
    if threshold is not None and share is not None:
        raise ArgumentError("A detector takes one of share and threshold.")
    if threshold is not None:
        between(-1e300, 1e300, threshold=threshold)
    if share is not None and not 0 < share < 1:
        raise ArgumentError(f"Expected share={share!r} between 0 and 1, both left out.")
