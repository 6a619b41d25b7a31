"""``sfumato detect`` and the thresholds of a release: from a share of its own rows, or from public labelled rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.cli import main
from sfumato.release.anomalies import roc_area, threshold_of_labels, threshold_of_share
from sfumato.table import write_file

SCHEMA = sf.Schema.from_dict(
    {
        "rows": 2000,
        "columns": {
            "x": {"kind": "continuous", "lower": 0.0, "upper": 10.0},
            "n": {"kind": "integer", "lower": 0, "upper": 9},
        },
    }
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detect")
    random = np.random.default_rng(0)
    rows = pa.table({"x": random.normal(3.0, 0.3, 2000).clip(0, 10), "n": random.integers(0, 3, 2000)})
    release = sf.fit(rows, SCHEMA, method="independent", epsilon=8.0, delta=1e-5)
    release.save(folder / "model.safetensors")
    odd = pa.table({"x": [3.0, 3.1, 9.0, 3.0], "n": [1, 2, 1, 8]})
    write_file(odd, folder / "rows.csv")
    write_file(odd.append_column("anomaly", pa.array(["no", "no", "yes", "yes"])), folder / "labelled.csv")
    return folder


def test_scores_flag_what_is_unlikely(home):
    release = sf.load(home / "model.safetensors")
    rows = home / "rows.csv"
    scores = release.anomaly_scores(rows)
    assert np.array_equal(scores, -release.log_prob(rows))
    threshold = release.anomaly_threshold(0.02, seed=1)
    assert (scores > threshold).tolist() == [False, False, True, True]
    # The share of fresh rows above it: 0.02 within five standard errors (a false alarm in less than 1e-5 of runs).
    drawn = release.anomaly_scores(release.sample_arrow(10_000, seed=2))
    assert abs((drawn > threshold).mean() - 0.02) < 5 * (2 * 0.02 * 0.98 / 10_000) ** 0.5
    for share in (0.0, 1.0, -1.0, 1e-6):
        with pytest.raises(sf.ArgumentError, match="share"):
            release.anomaly_threshold(share)


def test_the_command_writes_score_and_flag(home, tmp_path, capsys):
    model, rows = str(home / "model.safetensors"), str(home / "rows.csv")
    out = tmp_path / "flags.parquet"
    assert main(["detect", model, rows, "--share", "0.02", "-o", str(out)]) == 0
    assert "the certificate does not cover them" in capsys.readouterr().err
    found = pq.read_table(out)
    assert found.column_names == ["score", "anomaly"]
    assert found.column("anomaly").to_pylist() == [False, False, True, True]
    assert main(["detect", model, rows, "--labelled", str(home / "labelled.csv"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["columns"]["anomaly"] == [False, False, True, True]
    assert main(["detect", model, rows, "--threshold", str(said["threshold"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["columns"] == said["columns"]
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--share", "0.1", "--threshold", "1"], "one of"),
        (["--share", "2"], "share"),
        (["--threshold", "nan"], "threshold"),
        (["--labelled", "{home}/rows.csv"], "--labels"),
        (["--labelled", "{home}/rows.csv", "--labels", "x"], "true or false"),
        (["-o", "{home}/rows.csv"], "--force"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, words, home, capsys):
    given = [argument.format(home=home) for argument in arguments]
    assert main(["detect", str(home / "model.safetensors"), str(home / "rows.csv"), *given]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and words in err


def test_thresholds_agree_with_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(1)
    labels = random.random(500) < 0.2
    scores = np.round(random.normal(size=500) + labels, 1)  # with ties
    assert abs(roc_area(scores, labels) - metrics.roc_auc_score(labels, scores)) < 1e-12
    found = threshold_of_labels(scores, labels)
    alarms, caught, _ = metrics.roc_curve(labels, scores)
    assert abs((found.true_positives - found.false_positives) - (caught - alarms).max()) < 1e-12
    flags = scores > found.threshold
    assert abs(flags[labels].mean() - found.true_positives) < 1e-12
    assert abs(flags[~labels].mean() - found.false_positives) < 1e-12
    assert threshold_of_share(np.array([np.inf, 1.0, np.nan, 2.0]), 0.5) == 2.0
    with pytest.raises(sf.ArgumentError, match="both kinds"):
        threshold_of_labels(scores, np.zeros(500, bool))
