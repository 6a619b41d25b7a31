"""Parts: units of a table dealt out to members, so that a unit can change one member only.

Every unit (a row, or all rows of one person) goes to a part drawn by itself, evenly and in secret, whatever the other
units are. Proof that neighbours differ in one part: fix the draws of the units that both tables have. Then the parts
are the same but for the one that the further unit falls into. A mechanism that is private for every fixed draw is
private over random ones, since the draws of the common units have the same law under both tables. Parts of equal size
would not do: a further row would move others across borders, and several members would change.

What is trained on a part must look at that part alone: no common scaling, no common count, no shape that the largest
part decides.
"""

import secrets
from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from sfumato.checks import whole


def parts_of_units(
    units: Int[np.ndarray, " row"], members: int, *, draw: Callable[[int], bytes] = secrets.token_bytes
) -> Int[np.ndarray, " row"]:
    """The part of each row: equal for rows of one unit, else drawn independently; 64 secret bits a unit.

    ``units`` has a whole number a row, equal for equal units. ``draw`` is for tests: so many random bytes.

    >>> parts = parts_of_units(np.array([4, 9, 4, -1]), 10)
    >>> bool(parts[0] == parts[2]), bool((parts < 10).all())
    (True, True)
    """
    whole(1, members=members)
    _, place = np.unique(units, return_inverse=True)
    num_units = int(place.max()) + 1 if place.size else 0
    words = np.frombuffer(draw(8 * num_units), "<u8")
    return (words % np.uint64(members)).astype(np.int64)[place]
