"""The doors without protection: exact answers, and a certificate that can never call them private."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sfumato as sf
import sfumato.pipeline as pipeline
from privacy.doors import WIDE, gradients_of, linear_loss, plan_of
from sfumato.audit.neighbours import SCHEMAS, text_table, trial_rows
from sfumato.errors import BudgetError
from sfumato.fitting.flow_loss import FlowLoss
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.privacy import Adjacency, FlatClip, Ledger, Randomness, ScoreQuery, SumQuery
from sfumato.privacy.events import GaussianSum
from sfumato.privacy.factors import FactoredLoss
from sfumato.privacy.unprotected import REASON, Unprotected
from sfumato.release.wording import event_words
from sfumato.synthesizers import REGISTRY, Maf
from thorough import marks_of

TRIALS = [pytest.param(name, 0, None, id=name, marks=marks_of(name)) for name in sorted(REGISTRY)]


def doors_of(rows: dict[str, np.ndarray], size: int) -> Unprotected:
    ledger = Ledger(WIDE, Adjacency())
    return Unprotected(rows, ledger=ledger, randomness=Randomness.from_seed(0), public_size=size)


def vectors(num: int, seed: int = 3) -> np.ndarray:
    # Far past every clipping bound below, so that a sum which is clipped after all shows.
    return (100 * np.random.default_rng(seed).normal(size=(num, 3))).astype(np.float32)


def test_a_sum_is_exact():
    rows = vectors(777)
    query = SumQuery(function=lambda row: row["x"], num_entries=3, clip=FlatClip(bound=1.0), purpose="sum")
    found = doors_of({"x": rows}, 777).noisy_sum(query, share=0.1)
    np.testing.assert_allclose(found, rows.astype(np.float64).sum(axis=0), rtol=1e-12)


def test_a_choice_is_the_best():
    query = ScoreQuery(function=lambda row: jnp.sign(row["x"]), num_candidates=3, purpose="choice")
    rows = vectors(50)
    rows[:40, 1] = 1.0  # the second candidate is ahead of both others by far
    assert doors_of({"x": rows}, 50).noisy_choice(query, epsilon=1e-3) == 1


def test_a_full_batch_has_the_mean_gradient():
    rows = vectors(600)
    found = gradients_of(doors_of({"x": rows}, 600), plan_of(rate=1.0, bound=0.5, steps=2), 3)
    np.testing.assert_allclose(found, [rows.astype(np.float64).mean(axis=0)] * 2, rtol=1e-4, atol=1e-4)


def test_batches_are_of_the_expected_size_without_repeats_and_vary():
    rows = np.eye(400, dtype=np.float32)  # the gradient of a row says which row it was
    found = gradients_of(doors_of({"x": rows}, 400), plan_of(rate=0.25, steps=5), 400)
    np.testing.assert_allclose(np.sort(found, axis=1)[:, -100:], 0.01, rtol=1e-5)
    assert ((found > 0).sum(axis=1) == 100).all()
    assert len({tuple(np.flatnonzero(step)) for step in found}) == 5


def test_no_rows_have_no_gradient():
    found = gradients_of(doors_of({"x": np.zeros((0, 3), np.float32)}, 10), plan_of(rate=0.5), 3)
    assert not found.any()


def test_a_loss_in_factors_has_the_gradient_of_its_plain_form():
    flow = SplineFlow.start(SplineFlowShape(3, 1, 8, 2, 4, 8, 1, "low-rank"), key=Randomness.from_seed(1).key[:2])
    params, _ = eqx.partition(flow, eqx.is_inexact_array)
    loss = FlowLoss(skeleton=flow)
    assert isinstance(loss, FactoredLoss)
    low = np.random.default_rng(0).uniform(0.1, 0.9, (300, 3)).astype(np.float32)
    rows = {"low": low, "width": np.zeros_like(low)}  # points: the draw within a cell does not matter

    def mean(params):
        weights = loss.weights(params)
        taps = {name: jnp.zeros(shape, jnp.float32) for name, shape in loss.taps().items()}
        key = jax.random.wrap_key_data(Randomness.from_seed(2).key[:2])
        values = jax.vmap(lambda row: loss.row(weights, row, key, taps)[0])(rows)
        return jnp.mean(values) + loss.common(weights)

    keep = lambda gradient, state, params: (params, gradient)
    start = jax.tree.map(jnp.zeros_like, params)
    plan = plan_of(rate=1.0, bound=1e-6)
    _, found = doors_of(rows, 300).noisy_descent(loss, params, start, plan=plan, update=keep, purpose="test")
    expected = jax.jit(jax.grad(mean))(params)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected)) > 0.01
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_the_ledger_admits_every_call_and_then_charges_nothing():
    doors = doors_of({"x": vectors(20)}, 20)
    gradients_of(doors, plan_of(), 3, linear_loss)
    doors.noisy_choice(ScoreQuery(function=lambda row: row["x"], num_candidates=3, purpose="best"), epsilon=0.1)
    ledger = doors._ledger
    assert [(entry.purpose, entry.event.reason) for entry in ledger.entries] == [("test", REASON), ("best", REASON)]
    with pytest.raises(BudgetError):
        ledger.charge(GaussianSum(noise_multiplier=100.0), "too late")


@pytest.mark.parametrize(
    ("name", "place", "seed"),
    [*TRIALS, pytest.param("mog", 2, None, id="laplace"), pytest.param("maf", 1, 5, id="seed")],
)
def test_the_certificate_is_infinite_and_stays_so_in_a_file(name, place, seed, tmp_path):
    method, schema = REGISTRY[name].trials()[place], SCHEMAS["mixed"]
    release = sf.fit_without_privacy(text_table(trial_rows("mixed", 60, 0), schema), schema, method=method, seed=seed)
    release.save(tmp_path / "open.safetensors")
    for found in (release.certificate, sf.load(tmp_path / "open.safetensors").certificate):
        assert found.status == "not for release"
        assert found.epsilon == found.rederive() == found.epsilon_rdp == float("inf")
        assert {event_words(event) for _, event in found.charges} == {"no protection: fitted without privacy"}
        assert found.randomness["noise"] == "none" and found.randomness["hardened"] is False
    assert release.sample(5).num_rows == 5


def test_handed_out_in_place_of_the_curator_it_still_certifies_nothing(monkeypatch):
    """As if ``fit`` had the wrong doors: the ledger knows what they did."""
    monkeypatch.setattr(pipeline, "Curator", Unprotected)
    schema = SCHEMAS["counted"]
    release = sf.fit(text_table(trial_rows("counted", 60, 0), schema), schema, method=Maf.trials()[0], epsilon=1.0)
    assert release.certificate.status == "not for release"
    assert release.certificate.epsilon == release.certificate.rederive() == float("inf")


def test_it_is_another_function_and_no_option_of_fit():
    schema = SCHEMAS["mixed"]
    with pytest.raises(TypeError):
        sf.fit_without_privacy([], schema, epsilon=1.0)
    with pytest.raises(sf.ArgumentError):
        sf.fit([], schema, epsilon=float("inf"))
