"""Releases without a likelihood: files, refusals in words, and a report that leaves scores out."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.cli import main
from sfumato.evaluation.metrics.density import can_score
from sfumato.models.generators.blocks import blocks_of
from sfumato.models.generators.generator import Generator, GeneratorShape
from sfumato.models.union import union_of
from sfumato.privacy import Relation
from sfumato.privacy.queries import count_query
from sfumato.schema import Boolean, Categorical, Continuous, Integer, Schema

SCHEMA = Schema(
    columns={
        "town": Categorical(levels=("Ulm", "Graz", "Bern"), nullable=True),
        "visits": Integer(lower=2, upper=11),
        "age": Integer(lower=0, upper=120, nullable=True),
        "smokes": Boolean(),
        "weight": Continuous(lower=0, upper=200),
    },
    rows=400,
)
TABLE = pa.table(
    {"town": ["Ulm", None], "visits": [2, 3], "age": [44, None], "smokes": [True, False], "weight": [70.0, 5.0]}
)


class Untrained:
    """Generators as they start: all that files, refusals and reports need."""

    name, title, reference, can = "untrained", "a generator as it starts", "none", ("sample",)
    relation = Relation.ADD_OR_REMOVE_ONE

    def __init__(self, members=0):
        self.members = members

    def settings(self):
        return {}

    def fit(self, curator, layout):
        curator.noisy_sum(count_query(), share=0.5)
        shape = GeneratorShape(blocks_of(layout, 1), latent=3, width=8, depth=2, label=1)
        if not self.members:
            return Generator.start(shape, key=curator.start_key())
        return union_of([Generator.start(shape, key=curator.start_key()) for _ in range(self.members)])


@pytest.fixture(scope="module", params=[0, 2], ids=["one generator", "two"])
def release(request):
    return sf.fit(TABLE, SCHEMA, method=Untrained(request.param), epsilon=1.0, delta=1e-6)


def test_a_release_of_a_generator_survives_its_file(release, tmp_path):
    release.save(tmp_path / "m.safetensors")
    again = sf.load(tmp_path / "m.safetensors")
    assert again.sample(300, seed=5).equals(release.sample(300, seed=5))
    assert again.abilities == ("sample",)
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


@pytest.mark.parametrize("command", ["score", "detect"])
def test_the_command_line_refuses_to_score_with_exit_code_two(release, command, tmp_path, capsys):
    release.save(tmp_path / "m.safetensors")
    assert main([command, str(tmp_path / "m.safetensors"), "no_such_rows.csv"]) == 2
    said = capsys.readouterr().err
    assert "'untrained' gives rows and no likelihood" in said
    assert "no_such_rows" not in said, "it is refused before the rows are looked for"


def test_a_report_leaves_out_what_needs_a_likelihood(release):
    assert not can_score(SimpleNamespace(release=release))
    assert can_score(SimpleNamespace(release=SimpleNamespace(abilities=("log_prob",), log_prob=len)))
