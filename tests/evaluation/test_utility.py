"""Utility: closed forms, extremes, odd targets, and failures that stay visible."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from evaluation.predictable_tables import compare, rows
from sfumato.evaluation.metrics import utility
from sfumato.evaluation.metrics.design_matrix import MOST_LEVELS, standardised
from sfumato.evaluation.metrics.estimators import CLASSIFIERS, REGRESSORS
from sfumato.evaluation.metrics.utility import MEASUREMENTS, macro_f1, mean_auroc, mean_precision, positives
from sfumato.schema import Boolean, Categorical, Continuous, Integer, Schema

CLASSIFICATION, REGRESSION, TREE, LINEAR = MEASUREMENTS
RANKING = ("utility_auroc", "utility_average_precision")


def scores_of(measurement, comparison):
    return {score.metric.name: score for score in measurement.scores(comparison)}


def labelled(num, seed, *, answer, target, **more):
    """A number, a level, and a target made of them."""
    random = np.random.default_rng(seed)
    table = {"x": random.uniform(-1, 1, num), "level": random.choice(["a", "b", "c"], num)}
    table["y"] = answer(table, random)
    schema = Schema(
        columns={"x": Continuous(lower=-1, upper=1), "level": Categorical(levels=("a", "b", "c")), "y": target, **more}
    )
    return schema, pa.table({name: pa.array(values) for name, values in table.items()})


WIDE = Continuous(lower=-1e6, upper=1e6)
BINARY = Categorical(levels=("no", "yes"))


def of_level(table, _):
    return np.where(table["level"] == "a", "yes", "no")


def by_chance(_, random):
    return random.choice(["yes", "no"], 600, p=[0.25, 0.75])


# --- extremes and closed forms --------------------------------------------------------------------------------


def test_a_target_that_is_written_in_a_column_is_predicted_without_fault():
    schema, table = labelled(600, 1, answer=of_level, target=BINARY)
    _, test = labelled(300, 2, answer=of_level, target=BINARY)
    found = scores_of(CLASSIFICATION, compare(table, table, schema, holdout=test, target="y"))
    for score in found.values():
        assert [part.of for part in score.parts] == [(name,) for name in CLASSIFIERS]
        for part in score.parts:
            assert part.value == part.detail["real"] == pytest.approx(1.0)
            assert part.detail["held_out"] == 1


def test_synthetic_rows_are_what_is_learnt_from():
    """Labels turned round: the ranking is upside down, though the real rows beside it are without fault."""
    schema, table = labelled(600, 1, answer=of_level, target=BINARY)
    _, turned = labelled(600, 1, answer=lambda t, r: np.where(of_level(t, r) == "yes", "no", "yes"), target=BINARY)
    found = scores_of(CLASSIFICATION, compare(table, turned, schema, holdout=table, target="y"))
    for part in found["utility_auroc"].parts:
        assert part.value == pytest.approx(0.0) and part.detail["real"] == pytest.approx(1.0)


def test_the_held_out_rows_are_what_is_tested_on():
    schema, table = labelled(600, 1, answer=of_level, target=BINARY)
    _, turned = labelled(600, 2, answer=lambda t, r: np.where(of_level(t, r) == "yes", "no", "yes"), target=BINARY)
    found = scores_of(CLASSIFICATION, compare(table, table, schema, holdout=turned, target="y"))
    assert found["utility_auroc"].value == pytest.approx(0.0)


def test_without_held_out_rows_a_fifth_of_the_real_ones_is_the_test():
    schema, table = labelled(600, 1, answer=of_level, target=BINARY)
    found = scores_of(CLASSIFICATION, compare(table, table, schema, target="y"))
    assert all(part.detail["held_out"] == 0 and part.value == pytest.approx(1) for part in found["utility_auroc"].parts)
    assert "may have seen" in found["utility_auroc"].metric.about


def test_a_target_by_chance_cannot_be_learnt():
    """AUROC of 600 test rows, one in four positive: standard error 0.027; five of them, nine classifiers: 5e-6."""
    schema, table = labelled(600, 1, answer=by_chance, target=BINARY)
    _, test = labelled(600, 2, answer=by_chance, target=BINARY)
    found = scores_of(CLASSIFICATION, compare(table, table, schema, holdout=test, target="y"))
    for part in found["utility_auroc"].parts:
        assert abs(part.value - 0.5) < 5 * 0.027
    share = np.mean(np.array(test["y"].to_pylist()) == "yes")
    assert found["utility_average_precision"].value == pytest.approx(share, abs=0.08)


def test_several_classes_are_judged_as_scikit_learn_judges_them():
    random = np.random.default_rng(0)
    found = random.dirichlet(np.ones(4), 300)
    truth = random.integers(0, 4, 300)
    classes = positives(truth)
    assert mean_auroc(truth, found, classes) == pytest.approx(roc_auc_score(truth, found, multi_class="ovr"))
    hot = np.eye(4)[truth]
    assert mean_precision(truth, found, classes) == pytest.approx(average_precision_score(hot, found, average="macro"))


def test_of_two_classes_the_rarer_is_looked_for():
    truth = np.array([0, 0, 0, 1])
    found = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
    assert positives(truth).tolist() == [1]
    assert mean_auroc(truth, found, positives(truth)) == pytest.approx(2 / 3)
    assert mean_precision(truth, found, positives(truth)) == pytest.approx(1 / 2)
    # Two of three "no" are found, the one "yes" too: F1 of 0.8 and 2/3.
    assert macro_f1(truth, found) == pytest.approx((0.8 + 2 / 3) / 2)


def test_a_straight_line_is_learnt_without_fault_by_linear_regression():
    schema, table = labelled(500, 1, answer=lambda t, _: 3 * t["x"] - 1, target=Continuous(lower=-9, upper=9))
    comparison = compare(table, table, schema, holdout=table, target="y")
    (score,) = REGRESSION.scores(comparison)
    assert [part.of for part in score.parts] == [(name,) for name in REGRESSORS]
    values = {part.of[0]: part for part in score.parts}
    assert values["linear regression"].value == pytest.approx(1.0, abs=1e-6)
    assert min(part.value for part in score.parts) > 0.98
    variance = np.var(table["y"].to_numpy())
    for part in score.parts:
        assert part.value == pytest.approx(1 - part.detail["mse"] / variance, abs=1e-9)
    (exact,) = LINEAR.scores(comparison)
    assert exact.value == pytest.approx(1.0)


def test_a_number_by_chance_cannot_be_predicted():
    schema, table = labelled(600, 1, answer=lambda _, r: r.normal(size=600), target=Continuous(lower=-9, upper=9))
    _, test = labelled(600, 2, answer=lambda _, r: r.normal(size=600), target=Continuous(lower=-9, upper=9))
    (score,) = REGRESSION.scores(compare(table, table, schema, holdout=test, target="y"))
    assert all(part.value < 0.05 for part in score.parts)


def test_levels_that_add_up_to_one_do_not_upset_least_squares():
    """In single precision the fit of three columns of 70 levels falls to pieces for one seed in two."""
    levels = tuple(f"n{number}" for number in range(70))
    names = ("p", "q", "r")
    schema = Schema(columns={"x": WIDE, **dict.fromkeys(names, Categorical(levels=levels)), "y": WIDE})
    for seed in range(5):
        random = np.random.default_rng(seed)
        table = {"x": random.normal(size=2_000)}
        table |= {name: [levels[min(place, 69)] for place in random.geometric(0.1, 2_000)] for name in names}
        table["y"] = 1e5 * (table["x"] + 0.1 * random.normal(size=2_000))
        (score,) = REGRESSION.scores(compare(*[pa.table(table)] * 2, schema, target="y"))
        assert score.parts[0].of == ("linear regression",)
        assert score.parts[0].value > 0.95 and score.parts[0].detail["real"] > 0.95


def test_rare_classes_do_not_upset_any_classifier():
    """Eight classes, of which six have one row in fifty: each classifier must rank them.

    Naive Bayes sees of a number only on which side of the mean it lies, which ranks three quarters of the pairs.
    """
    levels = tuple("abcdefgh")

    def answer(table, random):
        return np.array(levels)[np.digitize(table["x"], [-0.88, -0.84, -0.8, 0.8, 0.84, 0.88, 0.92])]

    schema, table = labelled(3_000, 1, answer=answer, target=Categorical(levels=levels))
    found = scores_of(CLASSIFICATION, compare(table, table, schema, target="y"))
    assert {part.of[0]: round(part.value, 2) for part in found["utility_auroc"].parts if part.value < 0.7} == {}


# --- odd targets ----------------------------------------------------------------------------------------------


def test_one_class_in_the_synthetic_rows_is_a_constant_guess():
    schema, table = labelled(400, 1, answer=of_level, target=BINARY)
    _, constant = labelled(400, 3, answer=lambda t, _: np.full(len(t["x"]), "no"), target=BINARY)
    comparison = compare(table, constant, schema, holdout=table, target="y")
    found = scores_of(CLASSIFICATION, comparison)
    share = np.mean(np.array(table["y"].to_pylist()) == "yes")
    assert found["utility_auroc"].value == pytest.approx(0.5)
    assert found["utility_average_precision"].value == pytest.approx(share)
    assert found["utility_macro_f1"].value == pytest.approx((1 - share) / (2 - share))
    assert found["utility_auroc"].parts[0].detail["real"] == pytest.approx(1)
    assert TREE.scores(comparison)[0].parts[0].detail["f1_rarer"] == 0


def test_one_class_in_the_test_rows_has_no_ranking():
    schema, table = labelled(400, 1, answer=of_level, target=BINARY)
    _, constant = labelled(100, 3, answer=lambda t, _: np.full(len(t["x"]), "no"), target=BINARY)
    found = scores_of(CLASSIFICATION, compare(table, table, schema, holdout=constant, target="y"))
    for name in RANKING:
        assert found[name].text == "failed"
        assert "one class" in found[name].parts[0].failure
    assert found["utility_macro_f1"].value is not None


def test_a_class_that_training_rows_lack_is_never_predicted():
    target = Categorical(levels=("no", "yes", "rare"))
    schema, table = labelled(400, 1, answer=of_level, target=target)
    _, test = labelled(
        400, 2, answer=lambda t, r: np.where(t["x"] > 0.9, "rare", of_level(t, r)).astype(str), target=target
    )
    comparison = compare(table, table, schema, holdout=test, target="y")
    found = scores_of(CLASSIFICATION, comparison)
    assert all(not score.failures for score in found.values())
    assert all(part.value < 0.7 for part in found["utility_macro_f1"].parts), "one of three classes is never found"
    assert TREE.scores(comparison)[0].value < 0.7


@pytest.mark.parametrize(
    "target",
    [
        Boolean(nullable=True),
        Categorical(levels=tuple(range(30))),
        Categorical(levels=("no", "yes", "x"), nullable=True),
    ],
    ids=["boolean", "30 classes", "missing answers"],
)
def test_other_targets_are_fine(target):
    levels = [False, True] if isinstance(target, Boolean) else list(target.levels)
    missing = 0.2 if target.nullable else 0.0

    def answer(table, random):
        places = ((table["x"] + 1) / 2 * len(levels)).astype(int).clip(0, len(levels) - 1)
        gone = random.random(len(places)) < missing
        return [None if lost else levels[place] for place, lost in zip(places, gone, strict=True)]

    schema, table = labelled(400, 1, answer=answer, target=target)
    _, test = labelled(300, 2, answer=answer, target=target)
    comparison = compare(table, table, schema, holdout=test, target="y")
    for score in (*CLASSIFICATION.scores(comparison), *TREE.scores(comparison)):
        assert not score.failures, score.metric.name
        assert score.value > 0.1
    assert scores_of(CLASSIFICATION, comparison)["utility_auroc"].value > 0.8


@pytest.mark.parametrize("target", ["ill", "cost"])
def test_a_target_that_is_missing_everywhere_fails_in_words(target):
    table = rows(100, 1)
    place = table.column_names.index(target)
    empty = table.set_column(place, target, pa.nulls(100, table[target].type))
    for measurement in MEASUREMENTS:
        for score in measurement.scores(compare(table, empty, holdout=table, target=target)):
            assert not score.applies or (score.text == "failed" and "lack the target" in score.parts[0].failure)


def test_a_constant_number_in_the_test_rows_fails_in_words():
    schema, table = labelled(100, 1, answer=lambda t, _: t["x"], target=Continuous(lower=-9, upper=9))
    _, constant = labelled(50, 1, answer=lambda t, _: np.zeros(len(t["x"])), target=Continuous(lower=-9, upper=9))
    (score,) = REGRESSION.scores(compare(table, table, schema, holdout=constant, target="y"))
    assert score.text == "failed" and "constant" in score.parts[0].failure


def test_a_table_of_the_target_alone_fails_in_words():
    schema = Schema(columns={"y": Boolean()})
    table = pa.table({"y": [True, False] * 20})
    for measurement in (CLASSIFICATION, TREE):
        for score in measurement.scores(compare(table, table, schema, target="y")):
            assert "no column beside the target" in score.parts[0].failure


def test_without_a_target_nothing_applies():
    comparison = compare(rows(50, 1), rows(50, 2))
    assert not any(score.applies for measurement in MEASUREMENTS for score in measurement.scores(comparison))


def test_each_kind_of_target_has_its_own_measurements():
    for target, applying in {"ill": (CLASSIFICATION, TREE), "cost": (REGRESSION, LINEAR)}.items():
        comparison = compare(rows(60, 1), rows(60, 2), target=target)
        for measurement in MEASUREMENTS:
            for score in measurement.scores(comparison):
                assert score.applies == (measurement in applying)


# --- failures, features, repeatability ------------------------------------------------------------------------


def test_a_classifier_that_crashes_is_a_failure_that_the_mean_shows(monkeypatch):
    def broken(*_):
        raise ValueError("a cell of the table: 4711")

    some = {"naive Bayes": CLASSIFIERS["naive Bayes"], "broken": broken}
    monkeypatch.setattr(utility, "CLASSIFIERS", some)
    schema, table = labelled(100, 1, answer=of_level, target=BINARY)
    score = scores_of(CLASSIFICATION, compare(table, table, schema, target="y"))["utility_auroc"]
    assert score.text == "1.000 (1 of 2 failed)"
    assert score.failures[0].failure == "ValueError", "the message of another library may quote cells"


def test_features_stand_in_one_scale_and_know_what_is_missing():
    comparison = compare(rows(500, 1), rows(300, 2))
    features = standardised(comparison.real, without="ill")
    matrix = features.matrix(comparison.real)
    assert features.matrix(comparison.synthetic).shape[1] == matrix.shape[1]
    numbers = matrix[:, : len(features.scales)]
    assert np.allclose(numbers.mean(axis=0), 0, atol=1e-6)
    dose = list(features.scales).index("dose")
    assert numbers[:, dose].std() == pytest.approx(1, abs=1e-6)
    assert set(features.flagged) == {"age", "since", "town", "smokes"}
    assert "ill" not in features.levels


def test_a_column_of_very_many_levels_stays_narrow():
    levels = tuple(f"n{number}" for number in range(3 * MOST_LEVELS))
    schema = Schema(columns={"many": Categorical(levels=levels), "y": Integer(lower=0, upper=9)})
    names = [*levels, *levels[:MOST_LEVELS]]
    comparison = compare(*[pa.table({"many": names, "y": [1] * len(names)})] * 2, schema)
    matrix = standardised(comparison.real, without="y").matrix(comparison.real)
    assert matrix.shape[1] == MOST_LEVELS
    assert matrix.sum() == 2 * MOST_LEVELS, "the frequent levels are kept, twice each"


@pytest.mark.parametrize("target", ["grade", "cost"])
def test_the_seed_fixes_the_scores(target):
    def values(seed):
        comparison = compare(rows(150, 1), rows(150, 2), holdout=rows(100, 3), target=target, seed=seed)
        return [part.value for measurement in MEASUREMENTS for score in measurement.scores(comparison)
                for part in score.parts]  # fmt: skip

    first = values(3)
    assert first == values(3)
    assert target == "cost" or first != values(4)
