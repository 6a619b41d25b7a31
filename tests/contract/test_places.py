"""Places through every method: no synthetic row outside of the polygon, in the file and on the command line too."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from contract.cases import ROWS, can_score, fitted, method_of, over_methods
from sfumato.cli import main
from sfumato.encoding import canonicalise
from sfumato.pipeline import private_rows
from sfumato.release.store import to_bytes
from sfumato.schema import Continuous, Place, Schema
from sfumato.schema.polygon import UNIT, Polygon

BAY = ((0.4, -5.0), (0.4, 5.0), (0.5, 5.0), (0.42, 0.0), (0.5, -5.0))
"""A band with a bay from the north that nearly cuts it in two: no model keeps to it by itself."""

PLACE = Place(latitude="u", longitude="v", polygon=(BAY,))
SCHEMA = Schema(
    columns={"u": Continuous(lower=0, upper=1), "v": Continuous(lower=-5, upper=5)},
    rows=ROWS,
    places={"home": PLACE},
)
SEA = pa.table({"u": np.linspace(0, 1, 90), "v": np.linspace(-5, 5, 90)})
"""A line across: most of its rows lie outside."""


def outside(table):
    y, x = (np.rint(table.column(name).to_numpy() * UNIT).astype(np.int64) for name in ("u", "v"))
    return int((~Polygon.of([BAY]).contains(y, x)).sum())


@over_methods
def test_no_method_draws_a_row_outside(name, tmp_path):
    """Without the polygon the same model does: there is something to move. Models see columns, and no place."""
    bare = fitted(name, "all continuous")
    assert dict(bare.schema.columns) == dict(SCHEMA.columns)
    release = replace(bare, schema=SCHEMA)
    assert outside(bare.sample(2_000, seed=1)) > 0
    drawn = release.sample(2_000, seed=1)
    assert outside(drawn) == 0
    release.save(tmp_path / "model.safetensors")
    again = sf.load(tmp_path / "model.safetensors")
    assert again.schema == SCHEMA and again.schema.places["home"] == PLACE
    assert again.sample(2_000, seed=1).equals(drawn)
    if can_score(name):
        assert np.all(np.isfinite(again.log_prob(drawn)))


def test_private_rows_are_read_into_the_polygon():
    """What the curator holds of rows outside is what it holds of the points that they are moved to."""
    moved = canonicalise(SEA, SCHEMA)
    assert outside(SEA) > 10 and outside(moved) == 0
    for part, other in zip(private_rows(SEA, SCHEMA).values(), private_rows(moved, SCHEMA).values(), strict=True):
        assert np.array_equal(part, other)
    bare = Schema(columns=SCHEMA.columns, rows=ROWS)
    assert not np.array_equal(private_rows(SEA, bare)["low"], private_rows(moved, bare)["low"])


def test_a_place_is_on_the_command_line_and_its_polygon_in_the_file(tmp_path, capsys):
    (tmp_path / "bay.geojson").write_text(
        json.dumps({"type": "Polygon", "coordinates": [[[x, y] for y, x in (*BAY, BAY[0])]]})
    )
    text = Schema(columns=SCHEMA.columns, rows=ROWS).to_toml()
    text += '\n[places.home]\nlatitude = "u"\nlongitude = "v"\npolygon_file = "bay.geojson"\n'
    (tmp_path / "schema.toml").write_text(text)
    (tmp_path / "data.csv").write_text(
        "u,v\n" + "\n".join(f"{u},{v}" for u, v in zip(*SEA.to_pydict().values(), strict=True))
    )
    data, schema, model = (str(tmp_path / name) for name in ("data.csv", "schema.toml", "model.safetensors"))
    assert main(["check", data, "--schema", schema]) == 0
    settings = ["--method", "independent", "--set", "even_bins=4", "--epsilon", "0.1", "--delta", "1e-5"]
    assert main(["fit", data, "--schema", schema, "-o", model, *settings]) == 0
    (tmp_path / "bay.geojson").unlink()
    capsys.readouterr()
    assert main(["show", model]) == 0
    assert "polygon of 5 corners" in " ".join(capsys.readouterr().out.split())
    assert main(["show", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"]["places"] == {"home": PLACE.describe()}
    assert main(["sample", model, "-n", "500", "-o", str(tmp_path / "s.parquet")]) == 0
    assert outside(sf.load(model).sample(500)) == 0
    (tmp_path / "schema.toml").write_text(text.replace("bay.geojson", "gone.geojson"))
    assert main(["check", data, "--schema", schema]) == 2
    assert "place 'home': polygon file" in capsys.readouterr().out


def test_the_place_is_told_in_the_file_and_checked_when_it_is_read(tmp_path):
    release = sf.fit(SEA, SCHEMA, method=method_of("independent"), epsilon=0.1, delta=1e-5)
    content = to_bytes(release)
    assert b"places" in content and b"[0.42,0.0]" in content
    (tmp_path / "m.safetensors").write_bytes(content.replace(b"[0.42,0.0]", b"[0.43,0.0]"))
    with pytest.raises(sf.ReleaseError, match="digest"):
        sf.load(tmp_path / "m.safetensors")
