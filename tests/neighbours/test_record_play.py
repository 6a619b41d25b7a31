"""G6: every method on ten kinds of neighbours; with the doors frozen, the release must not change by one byte."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sfumato.audit.neighbours import HOSTILE, SCHEMAS, Neighbour, neighbours, random_neighbours, trial_rows
from sfumato.audit.playback import PlayResult, play
from sfumato.audit.tape import Tape, Violation, agreed, identity
from sfumato.errors import ArgumentError
from sfumato.privacy import Relation
from sfumato.privacy.units import first_rows_of_units
from sfumato.synthesizers import REGISTRY, Maf
from thorough import thorough

TRIALS = [(name, i) for name in REGISTRY for i in range(len(REGISTRY[name].trials()))]

FIRST, LATER = (27, 0), (14, 0)
PAIRS = {trial: LATER if trial[1] else FIRST for trial in TRIALS} | {("maf", 3): (11, 0)}
"""How many pairs of each trial must be played and skipped: a table that is skipped without need would show here."""

TABLES = {("maf", place): (table,) for place, table in enumerate(("counted", "persons", "mixed", "mixed"))}
TABLES |= {("hflow", place): (table,) for place, table in enumerate(("mixed", "persons", "mixed", "counted"))}
TABLES |= {("independent", 0): ("mixed",), ("independent", 1): ("persons",)}
TABLES |= {("mog", 0): ("mixed",), ("mog", 1): ("persons",), ("mog", 2): ("persons",)}
TABLES |= {("mst", 0): ("counted",), ("mst", 1): ("persons",), ("aim", 0): ("mixed",), ("aim", 1): ("counted",)}
TABLES |= {("chain", 0): ("mixed",), ("chain", 1): ("persons",), ("auto", 0): ("persons",)}
TABLES |= {("tbart", place): (table,) for place, table in enumerate(("mixed", "persons", "counted"))}
TABLES |= {("dp-cgan", 0): ("mixed",), ("dp-ctgan", 0): ("mixed",)}
TABLES |= {("gs-wgan", 0): ("persons",), ("pate-gan", 0): ("mixed",), ("pate-ctgan", 0): ("counted",)}
TABLES |= {("dpgan", place): (table,) for place, table in enumerate(("mixed", "persons", "counted"))}
TABLES |= {("merf", 0): ("mixed",), ("merf", 1): ("counted",), ("ntk", 0): ("persons",), ("ntk", 1): ("counted",)}
"""Where all tables for each trial would take minutes: together the trials still play every one."""


RARELY = {("hflow", 1), ("tbart", 1), ("tbart", 2), ("dpgan", 1)}
"""Settings that take long to compile; their ways of clipping have tests of their own (``tests/privacy``)."""


@pytest.mark.parametrize(
    "trial", [pytest.param(trial, marks=[thorough] if trial in RARELY else [], id=str(trial)) for trial in TRIALS]
)
def test_frozen_doors_give_an_equal_release(trial):
    """No pair may differ, no table is skipped by surprise; trials after the first make up their table but once."""
    name, place = trial
    result = play(REGISTRY[name].trials()[place], tables=TABLES.get(trial, tuple(SCHEMAS)), turns=1 if place else 2)
    assert result.violations == ()
    assert (result.pairs, result.skipped) == PAIRS[trial]


def test_frozen_doors_give_an_equal_release_of_labelled_rows():
    """A trial cannot name a label, since no column is in every table."""
    result = play(replace(REGISTRY["merf"].trials()[1], label="smoker"), tables=("mixed",), turns=1)
    assert (result.pairs, result.skipped, result.violations) == (LATER[0], 0, ())


def test_there_are_a_hundred_pairs():
    assert sum(played for played, _ in PAIRS.values()) >= 100


def test_random_neighbours_give_an_equal_release():
    changes = random_neighbours(Relation.ADD_OR_REMOVE_ONE, 20, np.random.default_rng(5))
    result = play(Maf.trials()[0], tables=["mixed"], changes=changes)
    assert (result.pairs, result.violations) == (40, ())


def test_rows_of_persons_are_apart_and_the_cap_cuts_a_joined_person():
    """A cap that counts runs of equal ids, or none, would keep all of these rows; what is kept stays in its place."""
    rows = trial_rows("persons", 41, 0)
    add = next(change for change in neighbours(Relation.ADD_OR_REMOVE_ONE) if change.name == "add")
    tables = [rows, add.change(rows)]
    assert [_rows_of(table, "p999") for table in tables] == [0, 4]
    assert all(one["person"] != two["person"] for table in tables for one, two in pairwise(table))
    before, after = ([row for row, keep in zip(table, _kept(table), strict=True) if keep] for table in tables)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2


def _rows_of(rows, person):
    return sum(row["person"] == person for row in rows)


def _kept(rows):
    return first_rows_of_units(np.unique([row["person"] for row in rows], return_inverse=True)[1], 2)


@pytest.mark.parametrize("relation", list(Relation))
def test_neighbours_are_as_far_as_they_say(relation):
    """Under add-or-remove-one whole units come and go; under replace-one the number of rows stays."""
    for name in ("mixed", "counted") if relation is Relation.REPLACE_ONE else SCHEMAS:
        rows = trial_rows(name, 41, 0)
        for change in (*neighbours(relation), *random_neighbours(relation, 30, np.random.default_rng(1))):
            before = rows[: change.start]
            assert _steps(before, change.change(before), relation) <= change.steps, (name, change.name)


def _steps(before, after, relation):
    """Units that are in one table and not in the other, counted with all of their rows in their order."""

    def units(rows):
        groups = {}
        for i, row in enumerate(rows):
            groups.setdefault(row.get("person", i), []).append(str({**row, "person": None}))
        return (
            sorted((str(key) if "person" in rows[0] else "", *rows_) for key, rows_ in groups.items()) if rows else []
        )

    left, right = units(before), units(after)
    for unit in list(left):
        if unit in right:
            left.remove(unit)
            right.remove(unit)
    if relation is Relation.REPLACE_ONE:
        assert len(left) == len(right)
        return len(left)
    return len(left) + len(right)


def test_there_are_ten_kinds_and_more():
    """The kinds that the goal names: add, remove, replace, NaN, infinite, new level, out of range, duplicate, ..."""
    named = {"add", "remove", "replace", "duplicate", "empty", "permuted", *HOSTILE}
    assert {change.name for change in neighbours(Relation.ADD_OR_REMOVE_ONE)} == named
    assert {change.name for change in neighbours(Relation.REPLACE_ONE)} == named - {"add", "remove", "empty"}


def test_a_tape_refuses_other_questions():
    tape = Tape()
    tape.put("sum of x", np.zeros(1), 3.0)
    with pytest.raises(Violation, match="where it was asked"):
        tape.take("sum of y")
    with pytest.raises(Violation, match="less often"):
        tape.finish()
    tape.take("sum of x")
    with pytest.raises(Violation, match="more often"):
        tape.take("sum of x")


class Times(eqx.Module):
    """A function of a row with an array, a key and a fixed number."""

    by: jax.Array
    key: jax.Array
    power: int = eqx.field(static=True, default=1)

    def __call__(self, row):
        return self.by * row**self.power


def times(by, seed=0, **given):
    return Times(jnp.asarray(by, jnp.float32), jax.random.key(seed), **given)


SAME = {
    "trees": (times(2.0), times(2.0)),
    "closures of one text": tuple((lambda row, by=by: by * row) for by in (2.0, 2.0)),
}
OTHER = {
    "another array": (times(2.0), times(3.0)),
    "another key": (times(2.0), times(2.0, seed=1)),
    "another fixed part": (times(2.0), times(2.0, power=2)),
    "closures of other numbers": tuple((lambda row, by=by: by * row) for by in (2.0, 3.0)),
    "closures of other arrays": tuple((lambda row, by=by: by * row) for by in jnp.array([[2.0, 1.0], [3.0, 1.0]])),
}


@pytest.mark.parametrize("kind", [*SAME, *OTHER])
def test_another_function_is_told_from_the_first(kind):
    """A key that a function does not use changes no program, so it is no violation by itself."""
    first, now = (SAME | OTHER)[kind]
    lowered = lambda function: jax.jit(lambda row: function(row)).lower(jnp.ones(2, jnp.float32))
    if kind in SAME:
        assert agreed(now, first, lowered) is first
    elif kind == "another key":
        assert identity(now) != identity(first) and agreed(now, first, lowered) is first
    else:
        assert identity(now) != identity(first)
        with pytest.raises(Violation, match="another function"):
            agreed(now, first, lowered)


def test_a_fit_that_fails_on_a_neighbour_only_is_a_violation():
    """An error that depends on the rows tells of them, on either seed."""
    wrong = Neighbour(name="broken", change=lambda rows: [{}, *rows])
    assert len(play(Maf.trials()[0], tables=["counted"], changes=[wrong]).violations) == 2


@dataclass(frozen=True)
class Refusing:
    """A method that refuses tables, all of them or those of an odd number of rows."""

    relation: ClassVar[Relation] = Relation.ADD_OR_REMOVE_ONE
    name: ClassVar[str] = "refusing"
    only_odd: bool

    def fit(self, curator, layout):
        if not self.only_odd or int(curator._rows.real.sum()) % 2:
            raise ArgumentError("no")
        raise ArgumentError("no, but for another reason")


def test_a_method_that_is_never_played_has_not_passed():
    """All pairs are skipped, and counted; that none is left is a violation."""
    result = play(Refusing(only_odd=False), tables=["counted"])
    assert result == PlayResult(skipped=27, violations=("no pair could be played",), refusals=("counted: no",) * 3)
    assert result.to_dict()["skipped"] == 27
    assert play(Maf.trials()[0], tables=["counted"], changes=[]).violations == ("no pair could be played",)


def test_a_refusal_that_depends_on_the_rows_is_a_violation():
    """Adding or removing one of 41 rows, or the only one, changes the reason; replacing or turning them does not."""
    assert len(play(Refusing(only_odd=True), tables=["counted"]).violations) == 2 * 11 + 1 + 1
