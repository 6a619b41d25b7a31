"""Laws of columns that are learnt: reading, the public grid, bounds, and a fit whose charges do not follow answers."""

from dataclasses import replace
from functools import partial
from math import inf

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato import pipeline
from sfumato.audit.neighbours import Neighbour
from sfumato.audit.playback import Player, Recorder, Tape, Violation, frozen_randomness
from sfumato.encoding.layout import layout_of
from sfumato.encoding.levels import find_levels
from sfumato.encoding.unknown import grid_of, read_numbers, read_texts
from sfumato.errors import ArgumentError, BudgetError, SchemaError
from sfumato.fitting import learning, warm_start
from sfumato.fitting.learning import Learning, find_range, learn, unknown_rows, unknown_texts
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness, Relation, Texts
from sfumato.privacy.events import ExponentialChoice, Exposure, GaussianSum
from sfumato.release.store import to_bytes
from sfumato.schema import (
    Boolean,
    Categorical,
    Continuous,
    Identifier,
    Integer,
    LearntCategorical,
    LearntContinuous,
    LearntInteger,
    Schema,
    Unit,
)
from sfumato.synthesizers import REGISTRY, Auto, Chain, HFlow, Independent, Tbart
from sfumato.synthesizers.chain import Selection, WarmStart
from sfumato.synthesizers.hflow import FlowSize, MarginalShare
from sfumato.synthesizers.tbart import TransformerSize

NUMBERS = {"whole": LearntInteger(), "decimal": LearntContinuous(decimals=2), "real": LearntContinuous()}
each_kind = pytest.mark.parametrize("column", NUMBERS.values(), ids=NUMBERS.keys())


def numbers_of(seed=0):
    """Numbers of all sizes and both signs, and what is on the edge of being one."""
    random = np.random.default_rng(seed)
    some = random.choice([-1, 1], 2_000) * 10.0 ** random.uniform(-14, 22, 2_000)
    edges = [0.0, -0.0, 1.0, -1.0, 2.0**38, 2.0**39, -(2.0**53), inf, -inf, 5e-324, 1.7e308, 0.005, 0.015, 1e-13]
    return np.concatenate([some, edges])


# --- reading --------------------------------------------------------------------------------------------------


def test_a_text_that_is_learnt_is_a_level_that_is_found():
    cells = ["a", " a ", "b\t", "1.0", "1", " 01", "'=x", "TRUE", "é", "\u00a0c", "2020-01-01", "NA", "", None, "x y"]
    values = pa.chunked_array([cells[:7], cells[7:]])
    places, names = read_texts(values, LearntCategorical())
    known = LearntCategorical().known(names)
    found = find_levels(values, known)
    assert [known.levels[place] if place >= 0 else None for place in found] == [
        names[place] if place >= 0 else None for place in places
    ]
    assert {names[place] for place in places if place >= 0} == set(names)
    assert sum(place < 0 for place in places) == 3  # NA, an empty cell, none


def test_whole_levels_are_learnt_where_other_is_one():
    values = pa.chunked_array([["3", "3.0", "x", "-1", None, "2.5"]])
    places, names = read_texts(values, LearntCategorical(other=-1))
    assert [names[place] if place >= 0 else None for place in places] == ["3", "3", None, "-1", None, None]
    known = LearntCategorical(other=-1).known([int(name) for name in names])
    assert known == Categorical(levels=(-1, 3), other=-1)
    assert find_levels(values, known).tolist() == [1, 1, -1, 0, -2, -1]


@each_kind
def test_places_follow_the_numbers_and_hold_them(column):
    grid, numbers = grid_of(column), np.sort(numbers_of())
    places = grid.places(numbers)
    assert np.all(places < np.array(grid.sizes)) and np.all(places[:, 0] >= 0)
    parted = places[:, -1] >= 0
    for depth in range(places.shape[1]):
        assert np.all(np.diff(places[parted, depth]) >= 0)
    scaled = np.clip(numbers, -(2.0**70), 2.0**70) * grid.scale
    top = np.floor(np.nextafter(2.0**grid.octaves, 0)) if grid.stepped else 2.0**grid.octaves
    for number, place in zip(scaled[parted], places[parted, -1], strict=True):
        low, high = grid.ends(int(place))
        assert low - 0.5 * grid.stepped <= np.clip(number, -top, top) <= high + 0.5 * grid.stepped
    zero = places[:, 0] == grid.octaves
    assert np.all(np.abs(scaled[zero]) < 1) and np.all(zero == ~parted)


def test_a_cell_without_a_number_has_no_place():
    places = read_numbers(pa.chunked_array([["x", None, "nan", ""]]), LearntInteger())
    assert np.all(places == -1)


# --- bounds ---------------------------------------------------------------------------------------------------


def counts_of(numbers, grid):
    places = grid.places(np.asarray(numbers, float))
    return [np.bincount(at[at >= 0], minlength=size) for at, size in zip(places.T, grid.sizes, strict=True)]


@pytest.mark.parametrize(
    ("numbers", "column", "expected"),
    [
        (range(17, 91), LearntInteger(), (17, 91)),
        (range(1950, 2011), LearntInteger(), (1920, 2015)),
        ([0] * 9, LearntInteger(), (0, 1)),
        ([0.0] * 9, LearntContinuous(), (0.0, 1.0)),
        ([-5, -3, 4], LearntInteger(), (-5, 4)),
        ([5, 5_000], LearntInteger(), (0, 5_119)),
        ([-5_000, -5], LearntInteger(), (-5_119, 0)),
        ([0.25, 0.26, 0.49], LearntContinuous(decimals=2), (0.25, 0.49)),
        ([-1.0, 0.75], LearntContinuous(), (-1.03125, 0.765625)),
        ([1e300, -1e300], LearntInteger(), (1 - 2**39, 2**39 - 1)),
        ([1e300, -1e300], LearntContinuous(decimals=6), ((1 - 2**39) / 1e6, (2**39 - 1) / 1e6)),
        ([inf, -inf], LearntContinuous(), (-(2.0**64), 2.0**64)),
    ],
)
def test_bounds_without_noise(numbers, column, expected):
    grid = grid_of(column)
    known = learning._bounded(column, *find_range(counts_of(numbers, grid), 0.1, grid))
    assert (known.lower, known.upper) == expected
    Schema(columns={"x": known})  # and there is no fault in it


@each_kind
def test_bounds_of_any_numbers_hold_them_and_are_near(column):
    grid, random = grid_of(column), np.random.default_rng(3)
    for _ in range(50):
        numbers = random.normal(0, 10.0 ** random.uniform(-1, 5), 50) + 10.0 ** random.uniform(-1, 5)
        known = learning._bounded(column, *find_range(counts_of(numbers, grid), 0.1, grid))
        step = 1 / grid.scale
        assert known.lower - step <= numbers.min() and numbers.max() <= known.upper + step
        widest = max(abs(numbers.min()), abs(numbers.max()))
        assert known.upper - numbers.max() <= widest / 16 + step
        assert numbers.min() - known.lower <= widest / 16 + step
        Schema(columns={"x": known})


def test_noise_alone_gives_no_bounds():
    """An octave passes five deviations with chance 3e-7, so one of 79 in 2.3e-5; three of 2,000 columns in 2e-5."""
    grid, random = grid_of(LearntInteger()), np.random.default_rng(0)
    noise = lambda: [random.normal(0, 30, size) for size in grid.sizes]
    assert sum(find_range(noise(), 30, grid) is not None for _ in range(2_000)) <= 2
    # The search itself would find what is there.
    assert find_range([table + 300 for table in noise()], 30, grid) is not None


# --- learning through the doors ------------------------------------------------------------------------------------

SCHEMA = Schema(
    columns={
        "person": Identifier(),
        "town": LearntCategorical(nullable=True),
        "grade": LearntCategorical(other=0),
        "age": LearntInteger(),
        "weight": LearntContinuous(decimals=1, nullable=True),
        "smokes": Boolean(),
    },
    rows=6_000,
    unit=Unit(column="person", max_rows=2),
)


def table_of(num=6_000, seed=0):
    """Every person has three rows, one more than the cap, spread over the table; all cells are text."""
    random = np.random.default_rng(seed)
    text = lambda values: pa.array([None if value is None else str(value) for value in values], pa.string())
    return pa.table(
        {
            "person": text(f"p{place % (num // 3)}" for place in range(num)),
            "town": text(random.choice(["Ulm", "Graz", "Bern", None], num, p=[0.5, 0.3, 0.1, 0.1])),
            "grade": text(random.integers(1, 4, num)),
            "age": text(random.integers(18, 80, num)),
            "weight": text(np.round(random.normal(70, 10, num), 1)),
            "smokes": text(random.integers(0, 2, num) == 1),
        }
    )


def fitted(table, *, doors=Curator, schema=SCHEMA, epsilon=1.0, method=None, randomness=None, settings=None):
    return pipeline.fit_through(
        doors,
        table,
        schema,
        method=method or Independent(even_bins=6),
        budget=Budget(epsilon=epsilon, delta=1e-5),
        randomness=randomness or Randomness.from_seed(5),
        learning=settings or Learning(share=0.3),
    )


def test_a_fit_learns_and_the_release_knows():
    release = fitted(table_of())
    columns = release.schema.columns
    assert columns["town"] == Categorical(levels=("Bern", "Graz", "Ulm", "other"), other="other", nullable=True)
    assert columns["grade"] == Categorical(levels=(1, 2, 3, 0), other=0)
    assert isinstance(columns["age"], Integer) and 0 <= columns["age"].lower <= 24 and 70 <= columns["age"].upper <= 127
    assert isinstance(columns["weight"], Continuous) and columns["weight"].decimals == 1
    assert release.schema.learnt == {} and list(columns) == list(SCHEMA.columns)
    charges = [(purpose, type(event)) for purpose, event in release.certificate.charges]
    assert charges[:3] == [
        ("bounds of columns 'age', 'weight'", GaussianSum),
        ("levels of columns 'town', 'grade'", Exposure),
        ("levels of columns 'town', 'grade'", GaussianSum),
    ]
    assert release.certificate.public["learnt"] == ["town", "grade", "age", "weight"]
    sample = release.sample(200, seed=1, kind="arrow")
    assert set(sample["town"].to_pylist()) <= {*columns["town"].levels, None}
    assert len(release.log_prob(sample)) == 200


def test_shares_are_what_was_asked_for():
    curator, ledger = opened(table_of(), Budget(epsilon=1.0, delta=1e-5))
    learn(curator, SCHEMA, Learning(share=0.2, delta_share=0.25), 1e-5)
    exposure = [event.delta for event in ledger.events if isinstance(event, Exposure)]
    mu = sum(event.noise_multiplier**-2 for event in ledger.events if isinstance(event, GaussianSum))
    assert exposure == [0.25 * 1e-5]
    assert mu == pytest.approx(0.2 * Budget(epsilon=1.0, delta=1e-5).multiplier(1.0) ** -2)


def opened(table, budget):
    ledger = Ledger(budget, Adjacency(unit="person", max_rows=2))
    table = pipeline.first_rows(table, SCHEMA)
    given = {"ledger": ledger, "randomness": Randomness.from_seed(1), "public_size": 100}
    return Curator(unknown_rows(table, SCHEMA), texts=unknown_texts(table, SCHEMA), **given), ledger


def test_a_declared_schema_costs_nothing_and_comes_back():
    schema = Schema(columns={"smokes": Boolean()})
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency())
    curator = Curator(np.zeros((3, 0), np.int32), ledger=ledger, randomness=Randomness.from_seed(1))
    assert learn(curator, schema, Learning(), 1e-5) == schema
    assert ledger.entries == ()


def test_what_cannot_be_learnt_is_refused_without_a_word_of_it():
    table = table_of(60)
    with pytest.raises(BudgetError, match="'town', 'grade', 'age', 'weight'") as failure:
        fitted(table, epsilon=0.1)
    assert not any(word in str(failure.value) for word in ("Ulm", "Graz", "60", "18"))


def test_at_most_so_many_levels_and_those_of_the_largest_counts():
    columns = fitted(table_of(), settings=Learning(share=0.3, most_levels=2)).schema.columns
    assert columns["town"].levels == ("Graz", "Ulm", "other")


def test_without_privacy_everything_that_occurs_is_learnt():
    release = sf.fit_without_privacy(table_of(), SCHEMA, method=Independent(even_bins=6))
    assert release.certificate.status == "not for release"
    assert (release.schema.columns["age"].lower, release.schema.columns["age"].upper) == (18, 79)


def test_settings_outside_their_range_are_refused():
    for wrong in ({"share": 0.0}, {"share": 0.6}, {"delta_share": 0.9}, {"most_levels": 0}, {"most_levels": 10**6}):
        with pytest.raises(ArgumentError):
            Learning(**wrong)


# --- nothing but what was charged for ------------------------------------------------------------------------------


def changed(table, **cells):
    """The table with a person more: three rows with these cells, the last of which the cap cuts."""
    row = {**{name: table[name][0].as_py() for name in table.column_names}, "person": "p999999", **cells}
    more = pa.table({name: pa.array([row[name]] * 3, pa.string()) for name in table.column_names})
    return pa.concat_tables([table.slice(0, 10), more, table.slice(10)])


HOSTILE = [
    lambda table: changed(table),
    lambda table: changed(table, town="canary", grade="77", age="1e300", weight="-inf"),
    lambda table: changed(table, town=None, grade="x", age="nan", weight=""),
    lambda table: table.filter(pa.array([name != "p7" for name in table["person"].to_pylist()])),
]


def play_learnt():
    """A fit is recorded and played on neighbours: with what the doors said frozen, the release must be the same."""
    tape, table = Tape(), table_of()
    record = lambda *given, **more: Recorder(*given, tape=tape, **more)
    first = to_bytes(fitted(table, doors=record, randomness=frozen_randomness()))
    for place, change in enumerate(HOSTILE):
        tape.place = 0
        neighbour = Neighbour(name=str(place), change=change)
        play = lambda *given, neighbour=neighbour, **more: Player(*given, tape=tape, neighbour=neighbour, **more)
        second = to_bytes(fitted(change(table), doors=play, randomness=frozen_randomness()))
        tape.finish()
        if second != first:
            raise Violation("the release changed")


def test_a_neighbour_changes_nothing_but_through_the_doors():
    play_learnt()


@pytest.mark.parametrize("bug", ["levels from rows", "no cap", "a row counts twice"])
def test_record_play_sees_broken_learning(monkeypatch, bug):
    if bug == "levels from rows":
        real = learning._levelled

        def spied(column, counts, most):
            return real(column, {**counts, **({"77": 1} if seen[-1] else {})}, most)

        seen, read = [], learning.unknown_texts

        def texts(table, schema):
            seen.append("canary" in table["town"].to_pylist())
            return read(table, schema)

        monkeypatch.setattr(learning, "_levelled", spied)
        monkeypatch.setattr(pipeline, "unknown_texts", texts)
    if bug == "no cap":
        monkeypatch.setattr(pipeline, "first_rows_of_units", lambda ids, cap: np.ones(len(ids), bool))
    if bug == "a row counts twice":
        once = Texts.counts
        monkeypatch.setattr(Texts, "counts", lambda self: {name: 2 * count for name, count in once(self).items()})
    with pytest.raises(Violation):
        play_learnt()


# --- no charge follows an answer -----------------------------------------------------------------------------------


class Mute(Curator):
    """Doors that charge and answer nothing, to see what a method asks for."""

    def noisy_sum_at(self, query, *, noise_multiplier):
        self._charge(GaussianSum(noise_multiplier=noise_multiplier), query.purpose)
        return np.full(query.num_entries, 10.0)

    def noisy_choice(self, query, *, epsilon):
        self._charge(ExponentialChoice(epsilon=epsilon), query.purpose)
        return 0

    def _loop(self, build, held, params, state, **given):
        return params, state

    def _teach(self, teaching, carry, held, **given):
        return carry[1]


class Babbling(Mute):
    """The same, with answers at random: what a method makes of them must not show in what it asks for next."""

    def __init__(self, *given, seed, **rest):
        super().__init__(*given, **rest)
        self._talk = np.random.default_rng(seed)

    def noisy_sum_at(self, query, *, noise_multiplier):
        size = super().noisy_sum_at(query, noise_multiplier=noise_multiplier).size
        scale = 10 ** self._talk.uniform(-1, 2)
        return self._talk.exponential(scale, size) - 0.2 * scale * (size > 1)

    def noisy_choice(self, query, *, epsilon):
        super().noisy_choice(query, epsilon=epsilon)
        return int(self._talk.integers(query.num_candidates))


LEARNT = {"town": ("a",), "job": ("a", "b"), "age": (0, 1)}, {"town": range(99), "job": range(60), "age": (0, 10**6)}


def asked(method, known, learnt=("town", "job", "age"), doors=Mute, size=200):
    """What a method charges for after these columns were learnt, one by one."""
    columns = {name: LearntCategorical().known(str(level) for level in known[name]) for name in ("town", "job")}
    schema = Schema(columns={**columns, "age": LearntInteger().known(*known["age"]), "on": Boolean()}, rows=size)
    ledger = Ledger(Budget(epsilon=0.1, delta=1e-5), Adjacency(relation=method.relation))
    rows = {name: np.full((200, 4), 0.1, np.float32) for name in ("low", "width")}
    mute = doors(rows, ledger=ledger, randomness=Randomness.from_seed(1), public_size=size)
    method.fit(mute, layout_of(schema, learnt=learnt))
    return ledger.events


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_no_charge_depends_on_what_was_learnt(name):
    few, many = (asked(REGISTRY[name].trials()[0], known) for known in LEARNT)
    assert [type(event) for event in few] == [type(event) for event in many]
    for one, two in zip(few, many, strict=True):
        assert vars(one) == pytest.approx(vars(two), rel=1e-6)


CHAIN = Chain(steps=2, width=4)
STARTING_WARM = {
    "chain": CHAIN,
    "chain with a label": replace(CHAIN, label="job"),
    "chain over even bins": replace(CHAIN, codec=None),
    "chain that chooses": replace(CHAIN, selection=Selection(checkpoints=2)),
    "transformer": Tbart(steps=2, size=TransformerSize(layers=1, width=4, heads=2), warm=WarmStart()),
    "auto": Auto(chain=CHAIN, label="town"),
}


@pytest.mark.parametrize("size", [200_000, None])
@pytest.mark.parametrize("name", STARTING_WARM)
def test_no_charge_of_a_warm_start_follows_an_answer(name, size):
    """Tables are chosen from answers, and how much each choice and each count costs is not."""
    method = STARTING_WARM[name]
    doors = [partial(Babbling, seed=seed) for seed in (1, 2)]
    few, many = (asked(method, known, doors=each, size=size) for known, each in zip(LEARNT, doors, strict=True))
    assert few == many
    assert {"gaussian_sum", "exponential_choice", "poisson_gaussian"} == {event.kind for event in few}


@pytest.mark.parametrize("bug", ["noise", "epsilon", "rounds"])
def test_a_warm_start_that_follows_its_answers_is_seen(bug, monkeypatch):
    real = warm_start.worst_table

    def following(view, model, *, noise_multiplier, epsilon, room):
        more = 1 + (model.total > 50)
        if bug == "rounds" and more > 1:
            real(view, model, noise_multiplier=noise_multiplier, epsilon=epsilon, room=room)
        return real(
            view,
            model,
            noise_multiplier=noise_multiplier * (more if bug == "noise" else 1),
            epsilon=epsilon / (more if bug == "epsilon" else 1),
            room=room,
        )

    monkeypatch.setattr(warm_start, "worst_table", following)
    with pytest.raises(AssertionError):
        test_no_charge_of_a_warm_start_follows_an_answer("chain over even bins", 200_000)


def test_charges_may_depend_on_what_was_declared():
    """The mutant: a layout that does not say what was learnt. HFlow orders levels where there are more than two."""
    few, many = (asked(HFlow.trials()[0], known, learnt=()) for known in LEARNT)
    assert [event.noise_multiplier for event in few] != pytest.approx([e.noise_multiplier for e in many], rel=1e-3)


def test_histograms_are_asked_for_in_as_many_rounds_whatever_was_learnt():
    """Few learnt values fit into one round, and are asked for in all of them; the same values declared are not."""
    settings, learnt = MarginalShare(), ("town", "job", "age")
    method = HFlow(steps=1, size=FlowSize(blocks=1, width=4), marginals=settings, correlations=None)
    few, many = (len(asked(method, known, learnt)) for known in LEARNT)
    assert few == many == len(asked(method, LEARNT[0], ())) + settings.rounds - 1


def test_auto_chooses_by_the_kind_of_what_is_learnt():
    """Bins are bought of numbers that were learnt, of levels that were learnt never, however many there are."""
    curator = Curator(
        np.zeros((1, 0), np.int32),
        ledger=Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency()),
        randomness=Randomness.from_seed(1),
        public_size=20_000,
    )
    narrow = Schema(columns={"a": Integer(lower=0, upper=1), "b": Integer(lower=0, upper=3)}, rows=20_000)
    wide = Schema(columns={"a": Integer(lower=0, upper=10**6), "b": Integer(lower=0, upper=10**6)}, rows=20_000)
    levels = Schema(columns={"a": Categorical(levels=tuple(range(100)))}, rows=20_000)
    bought = lambda schema, learnt: Auto().chosen(curator, layout_of(schema, learnt=learnt)).codec is not None
    assert bought(narrow, ("a", "b")) and bought(wide, ("a", "b"))
    assert (bought(narrow, ()), bought(wide, ())) == (False, True)
    assert (bought(levels, ("a",)), bought(levels, ())) == (False, True)


# --- schema --------------------------------------------------------------------------------------------------------


def test_a_schema_to_be_learnt_survives_files_and_has_no_domain():
    for again in (Schema.from_toml(SCHEMA.to_toml()), Schema.from_json(SCHEMA.to_json())):
        assert again == SCHEMA
    assert list(SCHEMA.learnt) == ["town", "grade", "age", "weight"]
    with pytest.raises(SchemaError, match=r"'town', 'grade', 'age', 'weight'.*release"):
        _ = SCHEMA.modelled


@pytest.mark.parametrize(
    ("kind", "more", "fault"),
    [
        ("categorical", 'levels = ["a"]', "levels must not be given with learn = true"),
        ("categorical", "ordered = true", "ordered must not be given with learn = true"),
        ("categorical", 'other = ""', "other must be a text that is not empty, or an integer"),
        ("integer", "lower = 0", "lower must not be given with learn = true"),
        ("integer", "decimals = 2", "unknown key 'decimals'; known: nullable"),
        ("continuous", "upper = 0", "upper must not be given with learn = true"),
        ("continuous", "decimals = 7", "decimals must be at most 6 with learn = true"),
        ("date", "", "learn = true is for kinds categorical, integer, continuous: declare the bounds of this one"),
        ("boolean", "", "learn = true is for kinds categorical, integer, continuous: declare the bounds of this one"),
    ],
)
def test_faults_of_columns_to_be_learnt(kind, more, fault):
    with pytest.raises(SchemaError) as failure:
        Schema.from_toml(f'[columns.x]\nkind = "{kind}"\nlearn = true\n{more}\n')
    assert failure.value.faults == (f"column 'x': {fault}",)


def test_faults_are_found_in_python_as_well():
    with pytest.raises(SchemaError) as failure:
        Schema(columns={"a": LearntCategorical(other=""), "b": LearntContinuous(decimals=9), "c": LearntInteger()})
    assert len(failure.value.faults) == 2


def test_relations_other_than_the_usual_are_learnt_under_too():
    """Under replace-one the sum factor is two and a unit is a row; the ledger takes both events."""
    ledger = Ledger(Budget(epsilon=4.0, delta=1e-5), Adjacency(relation=Relation.REPLACE_ONE))
    schema = replace(SCHEMA, unit=None)
    given = {"ledger": ledger, "randomness": Randomness.from_seed(1), "public_size": 100}
    table = table_of()
    curator = Curator(unknown_rows(table, schema), texts=unknown_texts(table, schema), **given)
    assert learn(curator, schema, Learning(share=0.3), 1e-5).learnt == {}
