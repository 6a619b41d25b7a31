"""The cap on rows of one unit: what one person can change."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sfumato.privacy.units import first_rows_of_units


@given(ids=st.lists(st.integers(-3, 5), max_size=40), cap=st.integers(1, 4))
def test_each_unit_keeps_its_first_rows(ids, cap):
    ids = np.array(ids, int)
    kept = first_rows_of_units(ids, cap)
    for unit in set(ids.tolist()):
        mine = kept[ids == unit]
        assert mine.sum() == min(cap, mine.size)
        assert mine[: mine.sum()].all()


@given(ids=st.lists(st.integers(0, 5), max_size=40), cap=st.integers(1, 4), gone=st.integers(0, 5))
def test_removing_a_unit_changes_nothing_for_the_others(ids, cap, gone):
    ids = np.array(ids, int)
    stay = ids != gone
    assert np.array_equal(first_rows_of_units(ids, cap)[stay], first_rows_of_units(ids[stay], cap))
