"""Ensemble: members trained on disjoint parts of a table, and how many of them call a row an anomaly.

NO PRIVACY in here: members and counts of votes are as private as the rows. Only a noisy vote may leave.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from sfumato.detection.flows import FlowMembers
from sfumato.detection.mixtures import Mixture, MixtureMembers
from sfumato.encoding.features import Cells, encode_features
from sfumato.encoding.texts import unit_codes
from sfumato.privacy.parts import parts_of_units
from sfumato.progress import Progress, quiet
from sfumato.release import Release
from sfumato.release.anomalies import threshold_of_share
from sfumato.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Members and the score above which each calls a row an anomaly."""

    schema: Schema
    members: tuple[Mixture | Release, ...]
    thresholds: Float[np.ndarray, " member"]

    def yes_votes(self, rows: pa.Table) -> Int[np.ndarray, " row"]:
        """How many members call each row an anomaly. PRIVATE: to be told with noise only.

        Guarantees: a vote depends on one member and the row, so a unit of the private table moves a count by at most 1.
        A score that is no number counts as an anomaly.
        """
        cells = encode_features(rows, self.schema)  # once, for all members
        votes = np.zeros(rows.num_rows, np.int64)
        for member, limit in zip(self.members, self.thresholds, strict=True):
            votes += ~(scores_of(member, rows, cells) <= limit)
        return votes

    def scores(self, place: int, rows: pa.Table) -> Float[np.ndarray, " row"]:
        """Minus the log-likelihood of rows by one member. PRIVATE."""
        return scores_of(self.members[place], rows, encode_features(rows, self.schema))


def train(
    table: pa.Table,
    schema: Schema,
    training: MixtureMembers | FlowMembers,
    *,
    members: int,
    share: float,
    threshold: float | None,
    progress: Progress = quiet,
) -> Ensemble:
    """Deal the rows out by unit, train a member on each part, and set its threshold.

    A threshold is public and the same for all, or for each member the score that ``share`` of its own rows lie above:
    then it is a part of the member, and a unit still changes one member only.
    """
    units = np.arange(table.num_rows) if schema.unit is None else unit_codes(table.column(schema.unit.column))
    parts = parts_of_units(units, members)
    trained: list[Mixture | Release] = []
    limits = np.empty(members)
    for place in range(members):
        progress("training members", place, members)
        part = table.filter(pa.array(parts == place))
        # One by one and on their own shapes: what one member is must not depend on the rows of another.
        member = _member(part, schema, training, members)
        trained.append(member)
        limits[place] = _limit(member, part, schema, share) if threshold is None else threshold
    progress("training members", members, members)
    return Ensemble(schema=schema, members=tuple(trained), thresholds=limits)


def scores_of(member: Mixture | Release, rows: pa.Table, cells: Cells) -> Float[np.ndarray, " row"]:
    """Minus the log-likelihood of rows: of a mixture at the middle of each cell, of a flow as its release has it."""
    if isinstance(member, Release):
        return member.anomaly_scores(rows)
    return -(member.log_density(cells.low + cells.width / 2) + cells.log_unit)


def _member(part: pa.Table, schema: Schema, training: MixtureMembers | FlowMembers, members: int) -> Mixture | Release:
    if isinstance(training, FlowMembers):
        return training.train(part, schema, members)
    cells = encode_features(part, schema)
    return training.train(cells.low + cells.width / 2)


def _limit(member: Mixture | Release, part: pa.Table, schema: Schema, share: float) -> float:
    if part.num_rows == 0:  # such a member calls nothing an anomaly
        return float("inf")
    return threshold_of_share(scores_of(member, part, encode_features(part, schema)), share)
