"""Selection through every method that has it: charged before all else, never by rows, and kept in files."""

from dataclasses import fields, replace
from functools import cache
from math import log

import numpy as np
import pytest

import sfumato as sf
from contract.cases import CASES, can_score, method_of, plain
from sfumato.cli.settings import configured
from sfumato.errors import BudgetError
from sfumato.fitting.selection import PURPOSE, Selection
from sfumato.models.union import CellUnion, CodedUnion, DensityUnion, LevelUnion, ModelUnion
from sfumato.privacy.events import ExponentialChoice
from sfumato.release import store
from thorough import once_a_family

CHOSEN = Selection(checkpoints=3, chosen=2, share=0.1)
SELECTING = sorted(name for name, kind in sf.REGISTRY.items() if any(f.name == "selection" for f in fields(kind)))
over_selecting = pytest.mark.parametrize("name", once_a_family(SELECTING))
KINDS = {"chain": CodedUnion, "tbart": CodedUnion, "hflow": CellUnion, "maf": DensityUnion}


@cache
def chosen_from(name, case, selection=CHOSEN):
    given = CASES[case]
    method = method_of(name, selection=selection)
    return sf.fit(given.table, given.schema, method=method, epsilon=given.epsilon, delta=given.delta)


def test_every_method_that_is_trained_in_steps_can_choose():
    trained = {"chain", "tbart", "hflow", "maf", "dpgan", "dp-cgan", "dp-ctgan", "gs-wgan", "pate-gan", "pate-ctgan"}
    assert set(SELECTING) == trained


@over_selecting
def test_choices_are_charged_first_and_within_the_budget(name):
    certificate = chosen_from(name, "mixed").certificate
    kinds = [(purpose, isinstance(event, ExponentialChoice)) for purpose, event in certificate.charges]
    assert kinds[:2] == [(PURPOSE, True)] * 2, "before anything is bought, one for each model that is released"
    assert PURPOSE not in {purpose for purpose, _ in kinds[2:]}
    assert len({event.epsilon for _, event in certificate.charges[:2]}) == 1
    assert 0.9 * CASES["mixed"].epsilon < certificate.epsilon <= CASES["mixed"].epsilon
    assert certificate.rederive() == pytest.approx(certificate.epsilon, abs=1e-9)
    assert certificate.public["settings"]["selection"] == {"checkpoints": 3, "chosen": 2, "share": 0.1, "label": None}


@over_selecting
def test_the_union_of_chosen_models_can_do_what_one_can(name, tmp_path):
    release, table = chosen_from(name, "mixed"), CASES["mixed"].table
    union = release.model
    assert type(union) is KINDS.get(name, LevelUnion) and union.num_members == 2
    assert set(release.abilities) == set(sf.REGISTRY[name].can) - {"warm_start"}
    release.save(tmp_path / "m.safetensors")
    again = sf.load(tmp_path / "m.safetensors")
    assert again.sample(100, seed=3).equals(release.sample(100, seed=3))
    assert type(again.model) is type(union)
    assert store.to_bytes(again) == (tmp_path / "m.safetensors").read_bytes()
    if can_score(name):
        parts = [replace(release, model=union.member(place)).log_prob(table) for place in (0, 1)]
        assert not np.array_equal(*parts), "two models, and not one of them twice"
        assert np.allclose(again.log_prob(table), np.logaddexp(*parts) - log(2), atol=2e-4)


def test_scores_by_a_union_come_to_an_end():
    """All members at once, as a ``vmap``, stood still within some ten calls on a CPU; a test that does so is ended."""
    release, table = chosen_from("hflow", "mixed"), CASES["mixed"].table
    first = release.log_prob(table)
    assert all(np.array_equal(release.log_prob(table), first) for _ in range(20))


@pytest.mark.parametrize("name", ["chain", "maf", "dpgan", "pate-gan"])
def test_no_charge_depends_on_rows(name):
    assert plain(chosen_from(name, "all continuous").certificate) == plain(chosen_from(name, "empty").certificate)


def test_one_chosen_model_is_released_as_it_is():
    release = chosen_from("maf", "all continuous", Selection(checkpoints=2))
    assert not isinstance(release.model, ModelUnion)
    assert [purpose for purpose, _ in release.certificate.charges].count(PURPOSE) == 1


def test_a_label_may_be_predicted_and_one_that_there_is_not_is_refused_before_anything_is_spent(monkeypatch):
    release = chosen_from("chain", "mixed", Selection(checkpoints=2, label="smokes"))
    assert release.certificate.public["settings"]["selection"]["label"] == "smokes"
    monkeypatch.setattr("sfumato.privacy.ledger.Ledger.charge", lambda *_: pytest.fail("something was charged"))
    monkeypatch.setattr("sfumato.privacy.ledger.Ledger.pledge", lambda *_: pytest.fail("something was pledged"))
    for wrong in ("weight", "nobody"):
        with pytest.raises(sf.ArgumentError, match=f"label '{wrong}'"):
            chosen_from("chain", "mixed", Selection(checkpoints=2, label=wrong))


def test_replace_one_can_choose_too():
    case = CASES["all continuous"]
    schema = replace(case.schema, rows=90)
    method = method_of("maf", sampling="fixed-size", selection=CHOSEN)
    release = sf.fit(case.table, schema, method=method, epsilon=0.5, delta=1e-5)
    assert release.certificate.epsilon <= 0.5 and release.model.num_members == 2


@over_selecting
def test_settings_are_checked_and_set_from_texts(name):
    assert configured(name, ["selection.checkpoints=5"]).selection == Selection(checkpoints=5)
    assert sf.REGISTRY[name]().selection is None
    with pytest.raises(sf.ArgumentError, match="selection='best' to be a Selection"):
        method_of(name, selection="best")


def test_shares_leave_something_for_the_training():
    with pytest.raises(sf.ArgumentError, match="95 %"):
        method_of("chain", selection=Selection(share=0.5), warm=replace(sf.Chain().warm, tables=0.5))


def test_what_was_pledged_is_refused_past_the_budget():
    """A share that others have taken already is no share: the ledger says so before a row is looked at."""
    from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness
    from sfumato.privacy.events import GaussianSum

    ledger = Ledger(Budget(epsilon=0.1, delta=1e-5), Adjacency())
    rows = {"low": np.zeros((3, 1), np.float32), "width": np.ones((3, 1), np.float32)}
    curator = Curator(rows, ledger=ledger, randomness=Randomness.from_seed(1), public_size=3)
    ledger.charge(ledger.calibrate(lambda multiplier: GaussianSum(noise_multiplier=multiplier)), "the rest")
    with pytest.raises(BudgetError):
        CHOSEN.pledge(curator)
