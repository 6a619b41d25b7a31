"""Metrics of workloads: worked cases, brute force, and that questions do not depend on the rows."""

from datetime import date
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from evaluation.mixed_tables import SCHEMA, compare, mixed, rows
from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import Comparison, sample_of
from sfumato.evaluation.metric import Part
from sfumato.evaluation.metrics import pairs, workload
from sfumato.evaluation.metrics.queries import Query, answer, draw_query
from sfumato.schema import Boolean, Categorical, Integer, Schema


def parts(comparison: Comparison, name: str) -> list[Part]:
    (measurement,) = [m for m in workload.MEASUREMENTS if m.metrics[0].name == name]
    return list(measurement.run(comparison).get(name, ()))


def test_three_way_sees_what_pairs_do_not():
    """Synthetic rows have an even number of ones: pairs are uniform in both tables, but half of the cells are empty."""
    schema = Schema(columns={name: Boolean() for name in "xyz"})
    cells = list(product([False, True], repeat=3))
    even = [cell for cell in cells if sum(cell) % 2 == 0]
    real, synthetic = (
        pa.table({name: [row[place] for row in table] for place, name in enumerate("xyz")}) for table in (cells, even)
    )
    comparison = compare(real, synthetic, schema)
    (part,) = parts(comparison, "kway_error")
    assert part.of == ("x", "y", "z")
    assert part.value == 0.5
    (two_way,) = [m for m in pairs.MEASUREMENTS if pairs.TV2_BINNED in m.metrics]
    assert [part.value for part in two_way.run(comparison)["tv2_binned"]] == [0, 0, 0]


def test_kway_against_counting_by_hand():
    comparison = mixed(60, 50)
    (measurement,) = [m for m in workload.MEASUREMENTS if m.metrics[0].name == "kway_error"]
    found = {part.of: part.value for part in measurement.run(comparison)["kway_error"]}

    def cell(row, name):
        value = row[name]
        if value is None or name in comparison.discrete:
            return value
        column = SCHEMA.columns[name]
        return min(int((value - column.lower) / (column.upper - column.lower) * workload.SUBSET_BINS), 7)

    for of in (("age", "income", "day"), ("age", "colour", "on"), ("colour", "grade", "kind")):
        counts: dict[tuple, float] = {}
        for side, sign in ((comparison.real, 1), (comparison.synthetic, -1)):
            for row in side.table.to_pylist():
                key = tuple(cell(row, name) for name in of)
                counts[key] = counts.get(key, 0) + sign / side.num_rows
        assert found[of] == pytest.approx(sum(abs(share) for share in counts.values()) / 2, abs=1e-12)


def test_kway_of_one_and_of_too_many_columns():
    comparison = mixed(20, 20)
    assert len(workload.kway(1).run(comparison)["kway_error"]) == 8
    assert not workload.kway(9).run(comparison)["kway_error"]
    with pytest.raises(ArgumentError, match="k=0"):
        workload.kway(0)


def test_subsets_are_at_most_64_and_follow_the_seed():
    schema = Schema(columns={f"x{i}": Boolean() for i in range(12)})
    random = np.random.default_rng(0)

    def table():
        return pa.table({name: random.random(9) < 0.5 for name in schema.columns})

    first, second, other = (compare(table(), table(), schema, seed) for seed in (1, 1, 2))
    chosen = [[part.of for part in parts(comparison, "kway_error")] for comparison in (first, second, other)]
    assert len(chosen[0]) == workload.SUBSETS
    assert chosen[0] == chosen[1]
    assert chosen[0] != chosen[2]


def test_range_queries_by_hand():
    """All true against all false: a set that is neither empty nor full holds one of them, so every answer is wrong."""
    schema = Schema(columns={"on": Boolean()})
    comparison = compare(pa.table({"on": [True] * 3}), pa.table({"on": [False] * 2}), schema)
    (part,) = parts(comparison, "range_query_error")
    assert part.of == ("1 column",)
    assert part.value == 1
    assert part.detail == {"largest": 1.0, "queries": 200.0}


def test_families_have_their_sizes():
    assert [part.of for part in parts(mixed(30, 30), "range_query_error")] == [
        ("1 column",),
        ("2 columns",),
        ("3 columns",),
    ]


def test_answers_against_a_loop_over_rows():
    sample = sample_of(rows(80, 0, missing=0.3), SCHEMA)
    random = np.random.default_rng(1)
    shares = set()
    for size in (1, 2, 3, 8):
        for _ in range(20):
            query = draw_query(SCHEMA, size, random)
            assert len(query.ranges) + len(query.members) == size
            met = sum(
                all(low <= sample.numbers[name][row] <= high for name, (low, high) in query.ranges.items())
                and all(
                    sample.codes[name][row] >= 0 and members[sample.codes[name][row]]
                    for name, members in query.members.items()
                )
                for row in range(80)
            )
            shares.add(met)
            assert answer(sample, query) == pytest.approx(met / 80)
    assert len(shares) > 10, "queries that all have one answer test nothing"


def test_queries_stay_within_the_public_domain():
    schema = Schema(
        columns={
            "age": Integer(lower=18, upper=70),
            "one": Categorical(levels=("only",)),
            "size": Categorical(levels=("s", "m", "l", "xl"), ordered=True),
            "shade": Categorical(levels=("a", "b", "c")),
        }
    )
    random = np.random.default_rng(2)
    queries = [draw_query(schema, 4, random) for _ in range(300)]
    ends = np.array([query.ranges["age"] for query in queries])
    assert (ends[:, 0] <= ends[:, 1]).all()
    assert ends.min() == 18
    assert ends.max() == 70
    assert {query.members["one"] for query in queries} == {(True,)}
    sizes = {query.members["size"] for query in queries}
    assert (True, False, True, False) not in sizes
    assert len(sizes) == 9, "all runs of four levels but the full one"
    assert len({query.members["shade"] for query in queries}) == 6, (
        "all sets of three levels but the empty and the full"
    )


def test_queries_do_not_depend_on_rows(monkeypatch):
    """Tables without a row in common are asked the same questions; another seed asks others."""
    asked: list[Query] = []

    def record(_, query):
        asked.append(query)
        return 0.0

    monkeypatch.setattr(workload, "answer", record)
    for real, synthetic, seed in ((1, 2, 0), (3, 4, 0), (1, 2, 1)):
        parts(compare(rows(30, real), rows(20, synthetic), seed=seed), "range_query_error")
    num = len(asked) // 3
    assert num == 2 * 3 * workload.QUERIES
    assert asked[:num] == asked[num : 2 * num]
    assert asked[:num] != asked[2 * num :]


def test_missing_meets_no_condition():
    schema = Schema(columns={"age": Integer(lower=0, upper=9, nullable=True), "on": Boolean(nullable=True)})
    sample = sample_of(pa.table({"age": [1, None], "on": [None, True]}), schema)
    assert answer(sample, Query(ranges={"age": (0, 9)}, members={})) == 0.5
    assert answer(sample, Query(ranges={}, members={"on": (True, True)})) == 0.5
    assert answer(sample, Query(ranges={"age": (0, 9)}, members={"on": (True, True)})) == 0


def test_worse_copies_have_larger_errors():
    """Rows of the same source beat rows of another: by a factor of 2 at least with 2,000 rows each."""
    real = rows(2_000, 0)
    same, other = compare(real, rows(2_000, 1)), compare(real, rows(2_000, 1, tilt=0.7, missing=0.3))
    for name in ("kway_error", "range_query_error"):
        near, far = (np.mean([part.value for part in parts(comparison, name)]) for comparison in (same, other))
        assert far > 2 * near, name


def test_dates_are_asked_in_days():
    schema = Schema(columns={"day": SCHEMA.columns["day"]})
    sample = sample_of(pa.table({"day": [date(2020, 1, 1), date(2023, 12, 31)]}), schema)
    random = np.random.default_rng(3)
    answers = {answer(sample, draw_query(schema, 1, random)) for _ in range(100)}
    assert answers == {0.0, 0.5, 1.0}
