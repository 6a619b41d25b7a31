"""The detector of DP-AD: parts, members, answers, refusals, its folder, and its commands."""

import json
import stat
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from contract.corpus import HEADER
from contract.corpus import SCHEMA as CORPUS_SCHEMA
from contract.test_no_leaks import CANARIES, canary_rows, hostile_rows, plain_rows
from sfumato.cli import main
from sfumato.detection import Detector, FlowMembers, MixtureMembers
from sfumato.detection.ensemble import train
from sfumato.detection.mixtures import Mixture
from sfumato.detection.store import load, save
from sfumato.errors import ArgumentError, BudgetError, ReleaseError, SchemaError
from sfumato.privacy.parts import parts_of_units
from sfumato.table import write_file

COLUMNS = {
    "x": {"kind": "continuous", "lower": -5.0, "upper": 5.0},
    "y": {"kind": "continuous", "lower": -5.0, "upper": 5.0, "nullable": True},
}
SCHEMA = sf.Schema.from_dict({"rows": 600, "columns": COLUMNS})
TRAINING = MixtureMembers(components=2, rounds=10, starts=1)
NEW = pa.table({"x": [0.0, 4.9, 0.2, -4.9], "y": [0.0, -4.9, 0.3, 4.9]})


def rows_of(num, seed=0):
    random = np.random.default_rng(seed)
    return pa.table({"x": random.normal(size=num).clip(-5, 5), "y": random.normal(size=num).clip(-5, 5)})


@pytest.fixture
def detector(tmp_path):
    given = {"epsilon": 8.0, "delta": 1e-5, "charges": 6, "members": 40, "training": TRAINING}
    return Detector.fit(rows_of(600), SCHEMA, tmp_path / "detector", **given)


def test_a_further_unit_changes_one_part_only():
    """Whatever the draws: with the same draws of common units, neighbours have the same parts but one.

    Mutant: parts of equal size, cut from a shuffled table, move rows of several members.
    """
    units = np.array([3, 3, 7, 1, 9, 9, 9, 2])
    draws = {unit: np.random.default_rng(unit).bytes(8) for unit in range(10)}
    members, gone = 4, 7

    def parts(present):
        draw = lambda num: b"".join(draws[unit] for unit in np.unique(present))
        return parts_of_units(present, members, draw=draw)

    both, without = parts(units), parts(units[units != gone])
    assert np.array_equal(both[units != gone], without)
    assert len({int(part) for part in both[units == 9]}) == 1
    order = np.random.default_rng(0).permutation(40)
    equal = zip(np.array_split(order, 4), np.array_split(order[1:], 4), strict=True)
    assert sum(set(one) != set(other) for one, other in equal) > 1


def test_parts_are_dealt_evenly_and_anew():
    """5,000 units to 5 parts: each has 1,000 within five standard errors (1 in 10^6 alarms)."""
    units = np.arange(5000)
    counts = np.bincount(parts_of_units(units, 5), minlength=5)
    assert (np.abs(counts - 1000) < 5 * (5000 * 0.2 * 0.8) ** 0.5).all()
    assert not np.array_equal(parts_of_units(units, 5), parts_of_units(units, 5))
    assert parts_of_units(np.zeros(0, int), 5).shape == (0,)


def test_members_look_at_their_own_part(monkeypatch):
    """Training is called once a part, with the rows of that part and nothing else; a unit's rows stay together."""
    seen = []

    def spy(self, points):
        seen.append(points)
        return Mixture(log_weights=np.zeros(1), means=np.zeros((1, 3)), inverses=np.eye(3)[None])

    monkeypatch.setattr(MixtureMembers, "train", spy)
    unit = {"person": {"kind": "identifier"}, **COLUMNS}
    schema = sf.Schema.from_dict({"rows": 600, "columns": unit, "unit": {"column": "person", "max_rows": 2}})
    persons = np.arange(600) // 3
    table = rows_of(600).add_column(0, "person", pa.array(persons))
    train(table, schema, TRAINING, members=7, share=0.01, threshold=None)
    assert (len(seen), sum(map(len, seen))) == (7, 600)
    places = {tuple(point): part for part, points in enumerate(seen) for point in points}
    assert len(places) == 600
    cells = np.concatenate(seen)
    assert len({tuple(point) for point in cells}) == 600
    # All three rows of a person, told by their values, are in one part.
    from sfumato.encoding.features import encode_features

    encoded = encode_features(table, schema)
    parts = [places[tuple(point)] for point in encoded.low + encoded.width / 2]
    assert all(len({parts[row] for row in np.flatnonzero(persons == person)}) == 1 for person in range(200))


@pytest.mark.parametrize("num", [0, 1, 3])
def test_members_of_few_rows_are_trained_all_the_same(num):
    """An error would tell of the rows. A member without rows calls nothing an anomaly."""
    ensemble = train(rows_of(num), SCHEMA, TRAINING, members=5, share=0.01, threshold=None)
    votes = ensemble.yes_votes(NEW)
    assert ((votes >= 0) & (votes <= min(5, num))).all()


def test_mixtures_find_the_density_that_they_were_drawn_from():
    """Against scikit-learn's on the same rows: a mean log-likelihood of new rows within 0.03 nats."""
    mixture = pytest.importorskip("sklearn.mixture")
    random = np.random.default_rng(0)
    draw = lambda num: (
        np.where(random.random((num, 1)) < 0.3, [0.3, 0.7], [0.6, 0.4]) + 0.05 * random.normal(size=(num, 2))
    )
    rows, new = draw(3000), draw(3000)
    ours = MixtureMembers(components=2).train(rows).log_density(new).mean()
    theirs = mixture.GaussianMixture(2, random_state=0, n_init=3).fit(rows).score(new)
    assert abs(ours - theirs) < 0.03
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-0.5, 1.5, 400)]), axis=-1).reshape(-1, 2)
    mass = np.exp(MixtureMembers(components=2).train(rows).log_density(grid)).sum() * (2 / 399) ** 2
    assert abs(mass - 1) < 1e-3


def test_it_answers_charges_and_refuses(detector, tmp_path):
    assert detector.facts()["right_where_members_agree"] > 0.999
    answers = detector.ask(NEW)
    assert (answers.flags, answers.left, answers.refused) == ((False, True, False, True), 2, 0)
    again = Detector.load(tmp_path / "detector")  # a new process: what was spent stays spent
    answers = again.ask(NEW)
    assert answers.flags[:2] == (False, True)
    assert (answers.flags[2:], answers.left, answers.refused) == ((None, None), 0, 2)
    with pytest.raises(BudgetError, match="spent"):
        detector.ask(NEW)
    assert again.ask(NEW.slice(0, 0)).flags == ()
    assert "private" in repr(detector)


def charges_come_first(detector, monkeypatch):
    """Whether the allowance on disk had counted each question when its vote was drawn."""
    behind = []
    before = detector.left
    spy = lambda *_: (behind.append(before - detector.left), False)[1]
    monkeypatch.setattr("sfumato.detection.detector.noisy_majority", spy)
    detector.ask(NEW)
    return len(behind) == 4 and all(charged >= place for place, charged in enumerate(behind, start=1))


def test_a_question_is_charged_before_it_is_answered(detector, monkeypatch, tmp_path):
    assert charges_come_first(detector, monkeypatch)


def test_an_uncharged_question_is_found(detector, monkeypatch):
    """Mutant: the answer first, the charge after."""
    charge = detector._allowance.charge
    late = []
    monkeypatch.setattr(detector._allowance, "charge", lambda number: (late.append(number), number)[1])
    assert not charges_come_first(detector, monkeypatch)
    charge(sum(late))


def test_a_detector_from_its_folder_votes_as_the_members_did(tmp_path):
    """Columns in no order of the alphabet, with bounds of their own: features must come back in the schema's order.

    Parts are dealt in secret, anew in each run: 150 runs in a row had the votes 0, 10 and 10, and with the mutant, a
    folder that sorts the columns and so gives the members another schema, three times 10.
    """
    columns = {
        "z": {"kind": "continuous", "lower": -5.0, "upper": 5.0},
        "a": {"kind": "integer", "lower": 0, "upper": 99},
    }
    schema = sf.Schema.from_dict({"rows": 600, "columns": columns})
    random = np.random.default_rng(1)
    rows = pa.table({"z": random.normal(size=600).clip(-5, 5), "a": random.integers(85, 95, 600)})
    new = pa.table({"z": [0.0, 4.9, 0.1], "a": [90, 90, 5]})
    ensemble = train(rows, schema, TRAINING, members=10, share=0.01, threshold=None)
    votes = ensemble.yes_votes(new)
    assert votes[0] <= 3 and min(votes[1:]) >= 8
    save(tmp_path / "detector", ensemble, {"way": "vote", "kind": "mixture", "members": 10, "price": 1.0}, 5)
    back, _, _ = load(tmp_path / "detector")
    assert np.array_equal(back.yes_votes(new), votes)
    other = sf.Schema.from_dict({"rows": 600, "columns": dict(sorted(columns.items()))})
    assert not np.array_equal(replace(ensemble, schema=other).yes_votes(new), votes)


def test_the_sparse_way_charges_anomalies_only(tmp_path):
    given = {"epsilon": 50.0, "delta": 1e-5, "charges": 3, "members": 80, "training": TRAINING, "way": "sparse"}
    detector = Detector.fit(rows_of(800), SCHEMA, tmp_path / "sparse", **given)
    calm = pa.table({"x": [0.1] * 50, "y": [0.1] * 50})
    assert detector.ask(calm).flags == (False,) * 50
    assert detector.left == 2
    answers = detector.ask(NEW)  # normal, anomaly, normal, anomaly: the second run begins with the third row
    assert (answers.flags, answers.left) == ((False, True, False, True), 1)
    assert detector.ask(NEW).flags == (False, True, None, None)
    with pytest.raises(BudgetError):
        detector.ask(calm)


def test_the_folder_is_for_its_owner_and_checked(detector, tmp_path):
    folder = tmp_path / "detector"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert sorted(path.name for path in folder.iterdir()) == ["allowance", "detector.json", "members.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["detector"]
    with pytest.raises(ArgumentError, match="never written over"):
        Detector.fit(rows_of(5), SCHEMA, folder, epsilon=1.0)
    members = folder / "members.safetensors"
    content = members.read_bytes()
    members.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ReleaseError, match="digest"):
        Detector.load(folder)
    members.write_bytes(content)
    (folder / "detector.json").write_text((folder / "detector.json").read_text().replace('"price": ', '"price":  '))
    with pytest.raises(ReleaseError, match="another detector"):
        Detector.load(folder)
    folder.chmod(0o755)
    with pytest.raises(ReleaseError, match="chmod 700"):
        Detector.load(folder)
    with pytest.raises(ReleaseError, match="no such file"):
        Detector.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"way": "loud"}, "way"),
        ({"members": 0}, "members"),
        ({"charges": 0}, "charges"),
        ({"share": 1.0}, "share"),
        ({"share": 0.1, "threshold": 2.0}, "one of share and threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_arguments_are_checked_before_rows_are_seen(fields, words, tmp_path):
    with pytest.raises(ArgumentError, match=words):
        Detector.fit("nowhere.csv", SCHEMA, tmp_path / "new", **{"epsilon": 1.0, **fields})


@pytest.mark.parametrize("training", [TRAINING, FlowMembers()])
def test_columns_that_are_to_be_learnt_are_refused_before_rows_are_seen(training, tmp_path):
    """Members would learn them without noise, each its own."""
    schema = sf.Schema.from_dict({"rows": 600, "columns": {**COLUMNS, "z": {"kind": "integer", "learn": True}}})
    with pytest.raises(SchemaError, match="declare the levels or bounds of 'z'"):
        Detector.fit("nowhere.csv", schema, tmp_path / "new", epsilon=1.0, training=training, threshold=3.0)


def test_the_commands(tmp_path, capsys):
    data, schema, new = (str(tmp_path / name) for name in ("data.csv", "schema.toml", "new.csv"))
    folder, answers = str(tmp_path / "detector"), tmp_path / "answers.csv"
    write_file(rows_of(2_400), data)  # 60 rows a member, so that members agree: an answer is wrong once in 10^6
    write_file(NEW, new)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    budget = ["--epsilon", "8", "--delta", "1e-5", "--charges", "6", "--members", "40"]
    assert main(["build-detector", data, "--schema", schema, *budget, "-o", folder]) == 0
    told = capsys.readouterr().err
    assert "never pass it on" in told and "fewer than 50 of the declared rows" in told and "turn answers" not in told
    assert main(["ask-detector", folder, new, "-o", str(answers)]) == 0
    assert answers.read_text().split() == ['"anomaly"', "false", "true", "false", "true"]
    capsys.readouterr()
    assert main(["ask-detector", folder, new, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["columns"]["anomaly"][2:], said["refused"], said["left"]) == ([None, None], 2, 0)
    assert main(["ask-detector", folder, new]) == 2
    assert "budget is spent" in capsys.readouterr().err
    assert main(["ask-detector", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == 0
    assert main(["build-detector", data, "--schema", schema, *budget, "-o", folder]) == 2
    assert "never written over" in capsys.readouterr().err


def test_members_may_be_flows(tmp_path):
    """Trained without privacy, kept as releases that are none, and loaded again."""
    training = FlowMembers(method=sf.Independent())  # any density of the registry; this one compiles soonest
    given = {"epsilon": 8.0, "charges": 2, "members": 2, "training": training}
    detector = Detector.fit(rows_of(60), SCHEMA, tmp_path / "flows", **given)
    flows = sorted((tmp_path / "flows").glob("flow_*.safetensors"))
    assert len(flows) == 2
    assert {sf.load(path).certificate.status for path in flows} == {"not for release"}
    votes = detector._ensemble.yes_votes(NEW)
    assert np.array_equal(votes, Detector.load(tmp_path / "flows")._ensemble.yes_votes(NEW))
    assert detector.ask(NEW).refused == 2


def test_hostile_rows_change_no_word_of_building_and_leave_no_cell(tmp_path, capfd):
    """Cells that are no numbers, dates or levels: what is printed is the same, and no canary is printed."""
    said = []
    for name, more in (("without", []), ("with", [*hostile_rows(), *canary_rows()])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "data.csv").write_text("\n".join([HEADER, *plain_rows(), *more, ""]), encoding="utf-8")
        (folder / "schema.toml").write_text(CORPUS_SCHEMA)
        given = ["--schema", str(folder / "schema.toml"), "--epsilon", "1", "--members", "3", "--components", "2"]
        assert main(["build-detector", str(folder / "data.csv"), *given, "-o", str(folder / "detector")]) == 0
        said.append("".join(capfd.readouterr()).replace(str(folder), "FOLDER"))
    assert said[0] == said[1]
    assert [canary for canary in CANARIES if canary in said[1]] == []
