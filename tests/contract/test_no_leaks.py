"""G15: canaries in the rows are nowhere in what comes out, and hostile rows change nothing that can be seen."""

import random
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

import sfumato
from contract.corpus import HEADER, SCHEMA, row
from sfumato.cli import main

TINY = ["--method", "maf", "--set", "steps=2", "--set", "width=4", "--set", "blocks=1", "--set", "scaling.rounds=1"]

WORDS = [f"zq{place}{word}" for place, word in enumerate(["Anna", "Bjork", "Chloe", "Dmitri", "Esme", "Farid"])]
IDENTIFIERS = [f"id-{place}-kumquat" for place in range(4)]
WHOLE = [-48151623, 77342108, 6180339887, 271828182845]
BROKEN = [61803.39887, -31415.92653, 57721.56649]
DATES = ["1871-03-14", "2213-07-19", "0987-06-05"]
CANARIES = [*WORDS, *IDENTIFIERS, *map(str, WHOLE), *map(str, BROKEN), *DATES]


def canary_rows() -> list[str]:
    """Each canary where it is most likely to slip out: an unknown level, a number out of bounds, an identifier."""
    lines = [row(place, id=f"p{place}", city=word) for place, word in enumerate(WORDS)]
    lines += [row(place, id=word) for place, word in enumerate(IDENTIFIERS)]
    lines += [row(place, id="p", age=str(number)) for place, number in enumerate(WHOLE)]
    lines += [row(place, id="p", weight=str(number)) for place, number in enumerate(BROKEN)]
    return lines + [row(place, id="p", visit=day) for place, day in enumerate(DATES)]


def hostile_rows() -> list[str]:
    """50 rows, each with a fault that depends on that row alone."""
    cells = ["inf", "-inf", "nan", "1e400", "9" * 400, "0x7f", "=cmd()", "\u202e", "NULL", "", "💥", "-0", "1e-400"]
    names = HEADER.split(",")
    draw = random.Random(7)
    return [row(place, **{draw.choice(names): draw.choice(cells) for _ in range(3)}) for place in range(50)]


@dataclass(frozen=True)
class Trail:
    """All that a run of every command left behind."""

    codes: tuple[int, ...]
    texts: str
    folder: Path
    release: sfumato.Release


def plain_rows(num: int = 60) -> list[str]:
    return [row(place, id=f"p{place}", age=str(20 + place)) for place in range(num)]


def walk(folder: Path, lines: list[str], capfd: pytest.CaptureFixture[str]) -> Trail:
    """Every command over a table. The data lie in a folder of their own, the results in another."""
    private, public = folder / "private", folder / "public"
    private.mkdir()
    public.mkdir()
    data, schema, model = private / "data.csv", public / "schema.toml", public / "model.safetensors"
    data.write_text("\n".join([HEADER, *lines, ""]), encoding="utf-8")
    schema.write_text(SCHEMA)
    commands = [
        ["check", str(data), "--schema", str(schema)],
        ["fit", str(data), "--schema", str(schema), "--epsilon", "1", *TINY, "-o", str(model)],
        ["fit", str(data), "--schema", str(schema), "--epsilon", "1", *TINY, "-o", str(model)],  # refused
        ["show", str(model)],
        ["show", str(model), "--json"],
        ["score", str(model), str(data), "--draws", "2", "-o", str(private / "scores.csv")],
    ]
    codes = tuple(main(command) for command in commands)
    out, err = capfd.readouterr()
    sampled = main(["sample", str(model), "-n", "2000", "-o", str(public / "synthetic.csv")])
    capfd.readouterr()
    texts = (out + err).replace(str(folder), "FOLDER")
    return Trail((*codes, sampled), texts, public, sfumato.load(model))


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temp"
    folder.mkdir()
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def forms(canary: str) -> list[bytes]:
    """How a canary may be written in a file: as text, or as the bytes of a number."""
    found = [canary.encode(), canary.encode("utf-16-le"), canary.encode("utf-16-be")]
    try:
        number = float(canary)
    except ValueError:
        return found
    found += [struct.pack("<d", number), struct.pack("<f", number)]
    return found + ([struct.pack("<q", int(number))] if number == int(number) else [])


def test_no_canary_comes_out(tmp_path: Path, temp: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(CANARIES) == 20
    trail = walk(tmp_path, [*plain_rows(), *canary_rows()], capfd)
    assert trail.codes == (0, 0, 2, 0, 0, 0, 0)
    files = [path for folder in (trail.folder, temp) for path in folder.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["model.safetensors", "schema.toml", "synthetic.csv"]
    places = {path.name: path.read_bytes() for path in files} | {"output": trail.texts.encode()}
    found = [
        (canary, place) for canary in CANARIES for place in places for form in forms(canary) if form in places[place]
    ]
    assert found == []


def test_a_draft_names_its_guesses_without_a_cell(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data.csv").write_text("\n".join([HEADER, *plain_rows(), *canary_rows(), ""]))
    assert main(["draft", str(tmp_path / "data.csv"), "-o", str(tmp_path / "schema.toml")]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert [canary for canary in CANARIES if canary in err] == []


def test_a_canary_that_does_come_out_is_found() -> None:
    """The search itself works: a number hidden in a tensor, a word in a text."""
    assert any(form in struct.pack("<3f", 1.0, float(BROKEN[0]), 2.0) for form in forms(str(BROKEN[0])))
    assert any(form in f"cannot parse {WORDS[0]!r}".encode() for form in forms(WORDS[0]))


def test_hostile_rows_change_no_exit_code_and_no_word(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trails = []
    for name, more in (("without", []), ("with", hostile_rows())):
        folder = tmp_path / name
        folder.mkdir()
        trails.append(walk(folder, [*plain_rows(), *more], capfd))
    without, hostile = trails
    assert without.codes == hostile.codes
    assert without.texts == hostile.texts
    assert without.release.certificate == hostile.release.certificate
    assert without.release.schema == hostile.release.schema
    assert sorted(p.name for p in without.folder.iterdir()) == sorted(p.name for p in hostile.folder.iterdir())


def test_an_error_nobody_thought_of_tells_its_type_only(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(*_: object, **__: object) -> None:
        raise ValueError(f"could not convert {WORDS[0]!r}")

    (tmp_path / "schema.toml").write_text(SCHEMA)
    monkeypatch.delenv("SFUMATO_TRACEBACK", raising=False)
    monkeypatch.setattr(sfumato, "fit", burst)
    schema, model = str(tmp_path / "schema.toml"), str(tmp_path / "model.safetensors")
    assert main(["fit", "data.csv", "--schema", schema, "--epsilon", "1", "-o", model]) == 70
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("sfumato: unexpected ValueError; ")
    assert err.count("\n") == 1
    assert WORDS[0] not in err


def test_warnings_and_logs_of_others_stay_inside(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging
    import warnings

    def chatter(*_: object, **__: object) -> None:
        warnings.warn(f"overflow in {WORDS[0]!r}", stacklevel=1)
        logging.getLogger("jax").error("bad cell %s", WORDS[1])
        raise sfumato.TableError("file 'data.csv': damaged")

    monkeypatch.setattr(sfumato, "load", chatter)
    assert main(["show", "model.safetensors"]) == 2
    assert capfd.readouterr() == ("", "sfumato: file 'data.csv': damaged\n")
