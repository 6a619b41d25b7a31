"""``sfumato account``: a table, one JSON object, a picture, and one line for what is wrong."""

import json
import sys
from pathlib import Path

import pytest

from sfumato.cli import main

FIGURE_9 = ["account", "--batch", "100", "--rows", "21384", "--noise", "2.1", "--delta", "1e-4"]


def test_it_prints_a_table_or_one_object_and_draws(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    assert main([*FIGURE_9, "--steps", "20", "--json", "--picture", str(picture)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["asked"] == "epsilon"
    values = {entry["accountant"]: entry for entry in found["accountants"]}
    assert values["PRV lower"]["value"] <= values["PLD"]["value"] <= values["RDP"]["value"]
    assert [name for name, entry in values.items() if not entry["guarantee"]] == ["PRV lower", "CLT"]
    assert picture.read_text().startswith("<?xml")
    assert main([*FIGURE_9, "--steps", "20"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"{values['PLD']['value']:.4f}" in out and "MAY" in out


def test_noise_and_steps_are_found(capsys):
    given = ["account", "--rate", "1", "--delta", "1e-5", "--epsilon", "1", "--json"]
    assert main([*given, "--steps", "1"]) == 0
    noise = {entry["accountant"]: entry["value"] for entry in json.loads(capsys.readouterr().out)["accountants"]}
    assert abs(noise["CLT"] - 1 / 0.26804) < 1e-3  # exact here: epsilon 1 at delta 1e-5 is mu 0.26804
    assert main([*given, "--noise", "10"]) == 0
    steps = {entry["accountant"]: entry["value"] for entry in json.loads(capsys.readouterr().out)["accountants"]}
    assert steps["CLT"] == 7  # (10 * 0.26804)^2 = 7.18
    assert steps["PLD"] == 7


WRONG = {
    "nothing asked": ([*FIGURE_9, "--steps", "5", "--epsilon", "1"], "two of"),
    "too much asked": (FIGURE_9, "two of"),
    "no rate": (["account", "--noise", "1", "--steps", "1", "--delta", "1e-5"], "--rate"),
    "rate and batch": ([*FIGURE_9, "--steps", "5", "--rate", "0.1"], "--rate"),
    "batch alone": (["account", "--batch", "5", "--noise", "1", "--steps", "1", "--delta", "1e-5"], "go together"),
    "batch above rows": (
        ["account", "--batch", "9", "--rows", "5", "--noise", "1", "--steps", "1", "--delta", "1e-5"],
        "at most rows=5",
    ),
    "no steps": ([*FIGURE_9, "--steps", "0"], "steps"),
    "delta of zero": (["account", "--rate", "0.1", "--noise", "1", "--steps", "1", "--delta", "0"], "delta"),
    "picture of unknown suffix": ([*FIGURE_9, "--steps", "5", "--picture", "x.pdf"], ".png"),
    "picture without steps": ([*FIGURE_9, "--epsilon", "1", "--picture", "x.png"], "--steps"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, words = WRONG[name]
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert list(Path().iterdir()) == []


def test_a_picture_without_matplotlib_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*FIGURE_9, "--steps", "5", "--picture", str(tmp_path / "x.png")]) == 2
    assert "pip install 'sfumato[bench]'" in capsys.readouterr().err
