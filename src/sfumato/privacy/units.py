"""Units: keeps at most k rows of each person, before anything else looks at the rows."""

import numpy as np
from jaxtyping import Bool, Int

from sfumato.checks import whole


def first_rows_of_units(unit_ids: Int[np.ndarray, " row"], max_rows: int) -> Bool[np.ndarray, " row"]:
    """Which rows to keep: the first ``max_rows`` of every unit, in the order of the table.

    Guarantees: whether a row is kept depends on the rows of its own unit alone, so adding or removing a unit
    adds or removes at most ``max_rows`` kept rows and changes no other.

    >>> import numpy as np
    >>> first_rows_of_units(np.array([7, 3, 7, 7, 3]), 2).tolist()
    [True, True, True, False, True]
    """
    whole(1, max_rows=max_rows)
    order = np.argsort(unit_ids, kind="stable")
    ordered = unit_ids[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if ordered.size else np.zeros(0, int)
    place = np.arange(ordered.size) - np.repeat(starts, np.diff(np.r_[starts, ordered.size]))
    kept = np.zeros(unit_ids.shape, bool)
    kept[order] = place < max_rows
    return kept
