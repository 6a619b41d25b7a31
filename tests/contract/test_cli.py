"""Every command end to end on a small table, as a person or a script would call it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import sfumato
from contract.corpus import SCHEMA, csv, row
from sfumato.cli import demo, main
from sfumato.cli.console import print_rich
from sfumato.privacy.certificate import Certificate
from sfumato.table import read_file

TINY = ["--method", "maf", "--set", "steps=2", "--set", "width=4", "--set", "blocks=1", "--set", "scaling.rounds=1"]
SFUMATO = Path(sys.executable).with_name("sfumato")

Capture = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Home:
    """A folder with a table, its schema and a release."""

    folder: Path

    @property
    def data(self) -> str:
        return str(self.folder / "data.csv")

    @property
    def schema(self) -> str:
        return str(self.folder / "schema.toml")

    @property
    def model(self) -> str:
        return str(self.folder / "model.safetensors")

    def fit(self, *more: str) -> list[str]:
        return ["fit", self.data, "--schema", self.schema, "--epsilon", "1", "--delta", "1e-6", *TINY, *more]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    found = Home(tmp_path_factory.mktemp("home"))
    Path(found.data).write_bytes(csv(*(row(place, age=str(20 + place % 70)) for place in range(120))))
    Path(found.schema).write_text(SCHEMA)
    assert main(found.fit("--method", "maf", "-o", found.model)) == 0
    return found


def one_object(arguments: list[str], capsys: Capture, code: int = 0) -> dict[str, object]:
    """The one JSON object that a command prints."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    value = json.loads(capsys.readouterr().out)
    assert isinstance(value, dict)
    return value


def one_line(arguments: list[str], capsys: Capture, code: int = 2) -> str:
    """The one line on standard error that a command fails with."""
    capsys.readouterr()
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("sfumato: ")
    return err


def test_draft_writes_a_schema_under_its_warning_and_names_each_guess(
    home: Home, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "drafted.toml"
    assert main(["draft", home.data, "-o", str(path)]) == 0
    err = capsys.readouterr().err
    assert path.read_text().startswith("# DRAFT: READ FROM PRIVATE ROWS.")
    assert "column 'age': the bounds are the least and greatest value seen" in err
    assert sfumato.Schema.load(path).rows == 100
    assert "--force" in one_line(["draft", home.data, "-o", str(path)], capsys)
    assert main(["draft", home.data, "-o", str(path), "--force"]) == 0
    assert main(["draft", home.data]) == 0
    assert capsys.readouterr().out == path.read_text()
    assert one_object(["draft", home.data], capsys)["guesses"]


def test_check_lists_the_faults_of_schema_and_file_at_once(home: Home, tmp_path: Path, capsys: Capture) -> None:
    assert main(["check", home.data, "--schema", home.schema]) == 0
    assert capsys.readouterr().out == "no faults\n"
    assert one_object(["check", home.data, "--schema", home.schema], capsys) == {"ok": True, "faults": []}
    broken = tmp_path / "broken.toml"
    broken.write_text(SCHEMA.replace("upper = 120", "upper = -1").replace("rows = 1_000", "rows = 0"))
    found = one_object(["check", str(tmp_path / "none.csv"), "--schema", str(broken)], capsys, code=2)
    assert len(found["faults"]) == 3
    assert main(["check", str(tmp_path / "none.csv"), "--schema", str(broken)]) == 2
    out, err = capsys.readouterr()
    assert (out.count("\n"), err.count("\n")) == (3, 1)


def test_fit_prints_one_object_and_a_seed_is_not_for_release(home: Home, tmp_path: Path, capsys: Capture) -> None:
    model = str(tmp_path / "seeded.safetensors")
    capsys.readouterr()
    assert main(home.fit("--seed", "3", "-o", model, "--json")) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["certificate"]["epsilon"] == "infinity"
    assert "not for release" in err
    assert main(["show", model]) == 0
    assert "Certificate: not for release" in capsys.readouterr().out
    assert one_object(["show", model], capsys)["rederived_epsilon"] == "infinity"


def test_sampling_needs_no_data(home: Home, tmp_path: Path, capsys: Capture) -> None:
    moved = Path(home.data).rename(tmp_path / "away.csv")
    try:
        path = tmp_path / "out.parquet"
        assert main(["sample", home.model, "-n", "50", "-o", str(path), "--seed", "1"]) == 0
        assert pq.read_table(path).num_rows == 50
        assert main(["sample", home.model, "-n", "50", "--seed", "1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert (lines[0], len(lines)) == ('"age","weight","smokes","city","visit"', 51)
        assert len(one_object(["sample", home.model, "-n", "2"], capsys)["columns"]["age"]) == 2
        assert one_object(["sample", home.model, "-o", str(tmp_path / "a.csv")], capsys)["rows"] == 1_000
        assert one_object(["show", home.model], capsys)["agrees"] is True
    finally:
        moved.rename(home.data)


def test_scores_are_nats_of_each_row_and_need_no_identifier(home: Home, tmp_path: Path, capsys: Capture) -> None:
    path, synthetic = tmp_path / "scores.parquet", str(tmp_path / "synthetic.csv")
    assert main(["score", home.model, home.data, "--draws", "4", "-o", str(path)]) == 0
    scores = pq.read_table(path)
    expected = sfumato.load(home.model).log_prob(read_file(home.data), draws=4)
    assert scores.column_names == ["log_prob"]
    assert np.array_equal(scores.column("log_prob").to_numpy(), expected)
    assert "120" not in capsys.readouterr().err.replace(str(path), "")
    assert main(["sample", home.model, "-n", "3", "-o", synthetic]) == 0
    assert len(one_object(["score", home.model, synthetic], capsys)["columns"]["log_prob"]) == 3
    assert main(["score", home.model, synthetic]) == 0
    assert capsys.readouterr().out.startswith('"log_prob"\n')


def test_progress_shows_public_numbers_only(
    home: Home, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes Rich take standard error for a terminal
    monkeypatch.setenv("TERM", "xterm")
    assert main(["score", home.model, home.data, "--draws", "4", "-o", str(tmp_path / "s.csv")]) == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\d+:\d\d:\d\d", "", capsys.readouterr().err)
    assert "scoring" in shown
    said = shown.replace(str(tmp_path), "").replace("from 4 fixed points", "")  # the draws are what the user asked for
    assert not re.search(r"\d", said)
    assert main(["sample", home.model, "-n", "777", "-o", str(tmp_path / "out.csv")]) == 0
    assert "777 of 777" in capsys.readouterr().err


def test_the_certificate_re_derives(home: Home, capsys: Capture) -> None:
    shown = one_object(["show", home.model], capsys)
    certificate = Certificate.from_dict(shown["certificate"])
    assert abs(certificate.rederive() - certificate.epsilon) <= 1e-9
    assert abs(shown["rederived_epsilon"] - certificate.epsilon) <= 1e-9
    assert main(["show", home.model]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("for release", "one row, added or removed", "approximation, may understate", "RDP cross-check"):
        assert words in text
    assert "agrees with the stated" in text


FORGED = [{"epsilon": 0.1}, {"charges": [], "epsilon": 0.5}]


@pytest.mark.parametrize("fields", FORGED)
def test_a_certificate_that_does_not_add_up_is_not_trusted(
    fields: dict[str, object], home: Home, tmp_path: Path, capsys: Capture
) -> None:
    release = sfumato.load(home.model)
    forged = Certificate.from_dict({**release.certificate.to_dict(), **fields})
    path = str(tmp_path / "forged.safetensors")
    sfumato.Release(model=release.model, schema=release.schema, certificate=forged).save(path)
    assert main(["show", path]) == 2
    assert "do not trust" in capsys.readouterr().err
    assert one_object(["show", path], capsys, code=2)["agrees"] is False


def test_methods_and_version(capsys: Capture) -> None:
    found = one_object(["methods"], capsys)["methods"]
    assert [method["name"] for method in found] == sorted(sfumato.REGISTRY)
    assert main(["methods"]) == 0
    assert "Waites and Cummings" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sfumato {sfumato.__version__}\n"
    assert main([]) == 0
    assert "Usage" in capsys.readouterr().out


def test_demo_runs_the_whole_way(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("statsmodels")
    method = sfumato.Maf(steps=2, width=4, blocks=1, batch=10_000, scaling=None)
    monkeypatch.setattr(demo, "fit", lambda *a, **k: sfumato.fit(*a, **k, method=method))
    found = one_object(["demo", "-o", str(tmp_path / "demo")], capsys)
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == sorted(demo.NAMES.values())
    assert read_file(found["files"]["synthetic"]).num_rows == 20_000
    assert len(found["means"]) == 10
    results = demo.Results(
        files={name: Path(path) for name, path in found["files"].items()},
        release=sfumato.load(found["files"]["model"]),
        means=tuple((entry["column"], entry["real"], entry["synthetic"]) for entry in found["means"]),
        scores=tuple(found["scores"]),
    )
    print_rich(*results.parts())
    assert "randhie-synthetic.csv" in capsys.readouterr().out


def test_demo_without_statsmodels_says_what_to_install(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    assert "pip install 'sfumato[demo]'" in one_line(["demo", "-o", str(tmp_path / "demo")], capsys)
    assert not (tmp_path / "demo").exists()


WRONG: dict[str, Callable[[Home], tuple[list[str], str]]] = {
    "no such command": lambda h: (["fitt"], "fitt"),
    "no such option": lambda h: (["show", h.model, "--verbose"], "--verbose"),
    "argument missing": lambda h: (["show"], "Missing argument"),
    "epsilon is no number": lambda h: (["fit", h.data, "--schema", h.schema, "--epsilon", "x", "-o", "m"], "epsilon"),
    "epsilon missing": lambda h: (["fit", h.data, "--schema", h.schema, "-o", "m.safetensors"], "--epsilon"),
    "epsilon of zero": lambda h: (h.fit("--epsilon", "0", "-o", "new.safetensors"), "epsilon"),
    "epsilon nan": lambda h: (h.fit("--epsilon", "nan", "-o", "new.safetensors"), "epsilon"),
    "delta of two": lambda h: (h.fit("--delta", "2", "-o", "new.safetensors"), "delta"),
    "unknown method": lambda h: (h.fit("--method", "gan", "-o", "new.safetensors"), "there are: aim, auto, chain"),
    "unknown setting": lambda h: (h.fit("--set", "stepz=3", "-o", "new.safetensors"), "optimiser.learning_rate"),
    "setting without value": lambda h: (h.fit("--set", "clip", "-o", "new.safetensors"), "name=value"),
    "setting twice": lambda h: (h.fit("--set", "steps=3", "-o", "new.safetensors"), "twice"),
    "setting of wrong type": lambda h: (h.fit("--set", "depth=x", "-o", "new.safetensors"), "a whole number"),
    "setting out of range": lambda h: (h.fit("--set", "depth=0", "-o", "new.safetensors"), "depth=0"),
    "setting of none": lambda h: (h.fit("--set", "scaling=none", "-o", "new.safetensors"), "'scaling' is none"),
    "setting of several": lambda h: (h.fit("--set", "optimiser=adam", "-o", "new.safetensors"), "optimiser.averaging"),
    "negative seed": lambda h: (["sample", h.model, "-n", "1", "--seed", "-1"], "seed"),
    "negative rows": lambda h: (["sample", h.model, "-n", "-1"], "num_rows"),
    "no draws": lambda h: (["score", h.model, h.data, "--draws", "0"], "draws"),
    "no such data": lambda h: (["draft", "none.csv"], "no such file"),
    "data of unknown suffix": lambda h: (["draft", h.model], "unknown suffix"),
    "no such schema": lambda h: (
        ["fit", h.data, "--schema", "no.toml", "--epsilon", "1", "-o", "new.safetensors"],
        "no.toml",
    ),
    "no such model": lambda h: (["show", "none.safetensors"], "no such file"),
    "model is no release": lambda h: (["show", h.data], "not a release"),
    "output is there": lambda h: (h.fit("-o", h.model), "--force"),
    "output of unknown suffix": lambda h: (["sample", h.model, "-n", "1", "-o", "out.xlsx"], "unknown suffix"),
    "model of unknown suffix": lambda h: (h.fit("-o", "model.pt"), ".safetensors"),
    "draft of unknown suffix": lambda h: (["draft", h.data, "-o", "schema.yaml"], ".toml"),
    "output folder is not there": lambda h: (h.fit("-o", "nowhere/model.safetensors"), "does not exist"),
    "output is a folder": lambda h: (["score", h.model, h.data, "-o", str(h.folder) + "/x.csv/"], "is a directory"),
    "data against another schema": lambda h: (
        ["score", h.model, str(h.folder / "other.csv")],
        "no column of the schema",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line_with_code_2(
    name: str, home: Home, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (home.folder / "x.csv").mkdir(exist_ok=True)
    (home.folder / "other.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr(sfumato, "fit", _fit_without_rows)
    arguments, words = WRONG[name](home)
    assert words in one_line(arguments, capsys)
    assert words in one_line([*arguments, "--json"], capsys)
    assert list(tmp_path.iterdir()) == []


def _fit_without_rows(*args: object, **kwargs: object) -> object:
    """The real fit, but for the door: what is wrong must be found before it opens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.pipeline.Curator", _refuse)
        return sfumato.pipeline.fit(*args, **kwargs)  # type: ignore[arg-type]


def _refuse(*args: object, **kwargs: object) -> object:
    raise AssertionError("the rows were touched")


def test_a_folder_that_cannot_be_written_is_found_before_the_fit(
    home: Home, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)  # root may write anywhere
    assert "cannot be written" in one_line(home.fit("-o", str(tmp_path / "m.safetensors")), capsys)


@pytest.mark.parametrize(
    ("error", "code", "words"), [(KeyboardInterrupt(), 130, "stopped"), (MemoryError(), 70, "memory")]
)
def test_a_stop_is_one_line(
    error: BaseException, code: int, words: str, home: Home, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sfumato, "load", stop)
    assert words in one_line(["show", home.model], capsys, code=code)


def test_a_killed_fit_leaves_no_half_file(home: Home, tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    arguments = [*home.fit("-o", str(model)), "--set", "depth=3"]
    arguments[arguments.index("steps=2")] = "steps=100000"
    process = subprocess.Popen([SFUMATO, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(9)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=10)
    assert list(tmp_path.iterdir()) == []
    assert (out, err) == (b"", b"")


def test_the_installed_command_and_the_star_import_work(home: Home) -> None:
    script = "from sfumato import *; print(Schema.__name__, fit.__name__)"
    star = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert star.stdout == "Schema fit\n"
    done = subprocess.run(
        [SFUMATO, "sample", home.model, "-n", "2", "--json"], capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(done.stdout)["rows"] == 2
    assert done.stderr == ""
    bad = subprocess.run(
        [SFUMATO, "show", "none.safetensors"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)


def test_formulas_are_escaped_unless_asked(tmp_path: Path, home: Home, capsys: Capture) -> None:
    folder = tmp_path / "formulas"
    folder.mkdir()
    mine = Home(folder)
    Path(mine.schema).write_text('rows = 9\n[columns.a]\nkind = "categorical"\nlevels = ["=1+1", "@x"]\n')
    Path(mine.data).write_text("a\n=1+1\n@x\n")
    assert main(mine.fit("-o", mine.model)) == 0
    capsys.readouterr()
    assert main(["sample", mine.model, "-n", "20"]) == 0
    assert all(line.startswith("\"'") for line in capsys.readouterr().out.splitlines()[1:])
    assert main(["sample", mine.model, "-n", "20", "--raw-csv"]) == 0
    assert all(line in ('"=1+1"', '"@x"') for line in capsys.readouterr().out.splitlines()[1:])
