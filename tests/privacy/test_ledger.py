"""The ledger: charges come before noise, never past the budget, and the certificate re-derives."""

import json
from math import inf

import numpy as np
import pyarrow as pa
import pytest

from privacy.doors import NARROW, curator_of, gradients_of, plan_of
from sfumato import pipeline
from sfumato.errors import ArgumentError, BudgetError
from sfumato.privacy import Adjacency, Budget, Curator, Ledger, Randomness, Relation
from sfumato.privacy.accounting import headline
from sfumato.privacy.certificate import Certificate, certify
from sfumato.privacy.events import (
    ExponentialChoice,
    Exposure,
    FixedSizeGaussian,
    GaussianSum,
    LaplaceSum,
    NonPrivate,
    PoissonGaussian,
    event_from_dict,
    event_to_dict,
)
from sfumato.privacy.queries import count_query
from sfumato.schema import Continuous, Schema
from sfumato.synthesizers import Maf

EVENTS = (
    GaussianSum(noise_multiplier=3.0),
    PoissonGaussian(rate=0.1, noise_multiplier=1.5, steps=10, max_rows=2),
    FixedSizeGaussian(rows=100, batch=10, noise_multiplier=1.0, steps=3),
    ExponentialChoice(epsilon=0.5),
    LaplaceSum(epsilon=0.5),
    Exposure(delta=1e-7),
    NonPrivate(reason="test"),
)


def test_events_survive_json():
    for event in EVENTS:
        assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event


def test_unknown_events_are_refused_and_nothing_is_imported():
    for fields in ({"kind": "os.system"}, {"kind": "gaussian_sum", "cmd": "x"}, {}, {"kind": 3}):
        with pytest.raises(ArgumentError):
            event_from_dict(fields)


def test_values_that_would_mean_no_noise_are_refused():
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ArgumentError):
            GaussianSum(noise_multiplier=value)
        with pytest.raises(ArgumentError):
            LaplaceSum(epsilon=value)
        with pytest.raises(ArgumentError):
            Budget(epsilon=value, delta=1e-6)
        with pytest.raises(ArgumentError):
            Budget(epsilon=1.0, delta=value)
    with pytest.raises(ArgumentError):
        Budget(epsilon=1.0, delta=1.0)
    for delta in (9e-11, 1e-13):  # where the round-off of the accountant would count
        with pytest.raises(ArgumentError, match="1e-10"):
            Budget(epsilon=1.0, delta=delta)


def test_a_charge_past_the_budget_is_refused_before_any_noise(monkeypatch):
    drawn = []
    import sfumato.privacy.curator as room

    real = room.gaussian_integers
    monkeypatch.setattr(room, "gaussian_integers", lambda *given: drawn.append(1) or real(*given))
    curator = curator_of(np.ones((5, 1)), budget=Budget(epsilon=1.0, delta=1e-5))
    curator.noisy_sum(count_query(), share=0.9)
    with pytest.raises(BudgetError, match="nothing was drawn"):
        curator.noisy_sum(count_query(), share=0.2)
    assert len(drawn) == 1
    assert len(curator._ledger.entries) == 1


def test_the_whole_budget_is_used_and_not_more():
    curator = curator_of(np.ones((50, 2)), budget=NARROW)
    curator.noisy_sum(count_query(), share=0.05)
    gradients_of(curator, plan_of(steps=20), 2)
    spent = headline(curator._ledger.events, Adjacency(), 1e-5).epsilon
    assert 0.999 * NARROW.epsilon <= spent <= NARROW.epsilon
    with pytest.raises(BudgetError):
        curator.noisy_sum(count_query(), share=0.001)


def test_entries_cannot_be_taken_back():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency())
    ledger.charge(GaussianSum(noise_multiplier=10.0), "one")
    assert isinstance(ledger.entries, tuple)
    with pytest.raises(AttributeError):
        ledger.entries = ()  # type: ignore[misc]


def test_certificate_rederives_and_survives_json():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency(unit="person", max_rows=2))
    ledger.charge(GaussianSum(noise_multiplier=20.0), "one")
    ledger.charge(ExponentialChoice(epsilon=0.1), "two")
    certificate = certify(ledger, Randomness.from_os(), {"method": "none"})
    again = Certificate.from_dict(json.loads(json.dumps(certificate.to_dict())))
    assert again == certificate
    assert abs(again.rederive() - certificate.epsilon) < 1e-9
    assert certificate.status == "for release"
    assert certificate.epsilon_rdp > 0


def test_a_seed_makes_epsilon_infinite_and_is_not_in_the_certificate():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency())
    ledger.charge(GaussianSum(noise_multiplier=20.0), "one")
    certificate = certify(ledger, Randomness.from_seed(987654321), {})
    assert certificate.epsilon == inf
    assert certificate.rederive() == inf
    assert certificate.status == "not for release"
    assert "987654321" not in json.dumps(certificate.to_dict())
    assert "987654321" not in repr(Randomness.from_seed(987654321))


def test_several_rows_a_person_are_refused_under_replace_one():
    with pytest.raises(ArgumentError, match="add-or-remove-one"):
        Adjacency(relation=Relation.REPLACE_ONE, max_rows=2)


def test_a_key_serves_one_fit():
    """Two fits with one key would draw the same noise, and the difference of their answers would have none."""
    randomness = Randomness.from_os()
    given = {"ledger": Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency()), "randomness": randomness}
    Curator({"x": np.zeros((3, 1), np.float32)}, **given)
    with pytest.raises(ArgumentError, match="one fit"):
        Curator({"x": np.zeros((3, 1), np.float32)}, **given)


@pytest.mark.parametrize("source", [Randomness.known(bytes(32)), Randomness.from_seed(1)], ids=["known", "seed"])
def test_a_key_that_others_know_certifies_nothing(source):
    certificate = certify(Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency()), source, {})
    assert certificate.status == "not for release" and certificate.epsilon == float("inf")
    assert certificate.randomness["hardened"] is False


def test_other_doors_than_the_curators_certify_nothing():
    """What an audit watches from inside must not pass for a release."""

    class Doors(Curator):
        pass

    schema = Schema(columns={"x": Continuous(lower=0.0, upper=1.0)}, rows=20)
    given = {"method": Maf(steps=1, blocks=1, width=4), "budget": NARROW}
    table = pa.table({"x": [0.1, 0.5]})
    found = {
        doors: pipeline.fit_through(doors, table, schema, **given, randomness=Randomness.from_os())
        for doors in (Curator, Doors)
    }
    assert found[Curator].certificate.status == "for release"
    assert found[Doors].certificate.status == "not for release"


def test_a_pledge_is_charged_at_once_and_pays_for_as_many_choices_as_it_says():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())
    choice = ExponentialChoice(epsilon=0.2)
    ledger.pledge(choice, "models", 2)
    before = headline(ledger.events, ledger.adjacency, 1e-6).epsilon
    assert ledger.events == (choice, choice) and ledger.drawn == ()
    rest = ledger.calibrate(lambda multiplier: GaussianSum(noise_multiplier=multiplier))
    ledger.charge(rest, "the rest")
    for _ in range(2):
        ledger.charge(choice, "models")
    assert ledger.events == (choice, choice, rest) and ledger.drawn == (rest, choice, choice)
    assert before < headline(ledger.events, ledger.adjacency, 1e-6).epsilon <= 1.0
    with pytest.raises(BudgetError):  # the mutant: a pledge that pays more often than it was charged
        ledger.charge(choice, "models")


def test_a_pledge_pays_for_nothing_else():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())
    ledger.pledge(ExponentialChoice(epsilon=0.2), "models", 1)
    ledger.charge(ExponentialChoice(epsilon=0.2), "another purpose")
    ledger.charge(ExponentialChoice(epsilon=0.1), "models")
    assert [event.epsilon for event in ledger.events] == [0.2, 0.2, 0.1]
    with pytest.raises(BudgetError):
        ledger.pledge(ExponentialChoice(epsilon=5.0), "models", 1)


def test_a_pledge_does_not_pay_for_another_pledge():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())
    choice = ExponentialChoice(epsilon=0.2)
    ledger.pledge(choice, "models", 1)
    ledger.pledge(choice, "models", 1)
    assert ledger.events == (choice, choice)
    for _ in range(2):
        ledger.charge(choice, "models")
    assert ledger.events == (choice, choice) and ledger.drawn == (choice, choice)


def test_a_pledge_that_the_budget_does_not_cover_leaves_nothing_behind():
    """The first of ten would fit; a ledger that kept it would charge for what nobody can draw."""
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())
    choice = ExponentialChoice(epsilon=0.8)
    with pytest.raises(BudgetError):
        ledger.pledge(choice, "models", 10)
    assert ledger.events == () and ledger.entries == ()
    ledger.pledge(choice, "models", 1)
    assert ledger.events == (choice,)
