"""The frame: which room may import which, who may build a curator, how large things may grow.

Each rule is a function from source text to a list of faults, so that every rule is also shown a source that breaks
it.
"""

import ast
import inspect
from pathlib import Path

import pytest

import sfumato

SOURCE = Path(sfumato.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = {path.parent.name for path in SOURCE.glob("*/__init__.py")}

FREE = {"errors", "checks", "atomic", "progress"}
"""Not rooms: named errors, argument checks, atomic files and progress, which import no room and any room may import."""

MAY_IMPORT = {
    "schema": set(),
    "table": {"schema"},
    "encoding": {"schema", "table"},
    "privacy": set(),
    "models": {"schema", "table", "encoding"},
    "fitting": {"schema", "table", "encoding", "models", "privacy"},
    "synthesizers": {"schema", "table", "encoding", "models", "privacy", "fitting"},
    "release": {"schema", "table", "encoding", "models", "privacy"},
    "evaluation": {"schema", "table", "encoding", "release"},
    "pipeline": {"schema", "table", "encoding", "models", "privacy", "fitting", "synthesizers", "release"},
    "detection": {"schema", "table", "encoding", "privacy", "fitting", "synthesizers", "release", "pipeline"},
    "audit": {"schema", "table", "encoding", "models", "privacy", "fitting", "synthesizers", "release", "pipeline"},
}
"""Every room, and the modules of the package itself, by the rooms they may import; the command line may all."""

EDGE = {"__init__", "__main__", "cli"}
"""Around the rooms: the public names and the command line. No room may import them."""

MOST_LINES, MOST_FUNCTION_LINES = 400, 60

over_files = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))


def room_of(path):
    """The room of a file, or the name of a module that stands by itself."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def imported_rooms(text):
    """The rooms and modules of sfumato that a source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError("imports are absolute here, so that they can be read")
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
            if node.module == "sfumato":
                names = [f"sfumato.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "sfumato":
                found.add(parts[1] if len(parts) > 1 else "__init__")
    return found


def import_faults(room, text):
    """Imports that the rule forbids to a room."""
    used = imported_rooms(text) - FREE - {room}
    if room in EDGE:
        return sorted(used - set(MAY_IMPORT) - EDGE - set(vars(sfumato)))
    return sorted(used - MAY_IMPORT.get(room, set()))


def calls_of(text):
    """The dotted names of everything that a source calls, with the calls."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def builds_a_curator(text):
    return any(name.split(".")[-1] == "Curator" for name, _ in calls_of(text))


def prints(text):
    return any(name in ("print", "sys.stdout.write", "sys.stderr.write") for name, _ in calls_of(text))


def weak_keys(text):
    """Keys made from an integer: they hold 32 bits, which can be searched."""
    makers = ("key", "PRNGKey")
    return [
        ast.unparse(node)
        for name, node in calls_of(text)
        if name.split(".")[-1] in makers and ("random" in name or name == "PRNGKey")
    ]


def float_noise(text):
    """Noise of JAX or NumPy, which is not to be found where rows are protected."""
    laws = {"normal", "laplace", "uniform", "exponential", "gumbel", "default_rng", "bernoulli", "choice", "poisson"}
    return [name for name, _ in calls_of(text) if "random" in name and name.split(".")[-1] in laws]


def long_functions(text):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, functions)]
    return [node.name for node in nodes if node.end_lineno - node.lineno + 1 > MOST_FUNCTION_LINES]


def undocumented(text):
    """Public classes and functions of a module without a docstring, and the module itself."""
    tree = ast.parse(text)
    if not tree.body:
        return []
    named = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    public = [node for node in tree.body if isinstance(node, named) and not node.name.startswith("_")]
    found = [] if ast.get_docstring(tree) else ["the module"]
    return found + [node.name for node in public if not ast.get_docstring(node)]


def test_every_room_has_a_rule():
    assert set(MAY_IMPORT) - {"pipeline"} == ROOMS - EDGE
    loose = {path.stem for path in SOURCE.glob("*.py")}
    assert loose <= EDGE | FREE | {"pipeline"}, "a module by itself is of a room, of the command line, or free of all"


@over_files
def test_imports_run_one_way(path):
    assert import_faults(room_of(path), path.read_text()) == []


def test_the_rule_has_no_circle():
    order = []
    while len(order) < len(MAY_IMPORT):
        ready = [room for room, below in MAY_IMPORT.items() if room not in order and below <= set(order)]
        assert ready, "rooms import each other"
        order += ready


@over_files
def test_only_the_pipeline_and_the_audit_build_a_curator(path):
    if room_of(path) not in ("pipeline", "audit"):
        assert not builds_a_curator(path.read_text())


@over_files
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert long_functions(text) == []


@over_files
def test_only_the_command_line_prints(path):
    if room_of(path) != "cli":
        assert not prints(path.read_text())


@over_files
def test_no_key_is_made_from_an_integer(path):
    assert weak_keys(path.read_text()) == []


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) == "privacy"], ids=lambda path: path.name)
def test_no_float_noise_where_rows_are_protected(path):
    assert float_noise(path.read_text()) == []


@over_files
def test_every_public_name_has_a_docstring(path):
    assert undocumented(path.read_text()) == []


def test_the_public_names_are_there_sorted_and_documented():
    names = sfumato.__all__
    assert len(names) <= 30, "about twenty"
    assert len(set(names)) == len(names)
    for name in names:
        value = getattr(sfumato, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name
            assert value.__module__.startswith("sfumato."), name


def test_the_pipeline_fits_on_one_screen():
    assert len((SOURCE / "pipeline.py").read_text().splitlines()) <= 120


# --- every rule is shown what it must refuse ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("schema", "from sfumato.table import read_file"),
        ("table", "import sfumato.encoding.features"),
        ("encoding", "from sfumato.models.model import DensityModel"),
        ("models", "from sfumato.privacy import Randomness"),
        ("models", "from sfumato.fitting import likelihood"),
        ("models", "from sfumato import privacy"),
        ("privacy", "from sfumato.schema import Schema"),
        ("privacy", "def late():\n    from sfumato.models import cells"),
        ("fitting", "from sfumato.synthesizers import Maf"),
        ("synthesizers", "from sfumato.pipeline import fit"),
        ("release", "from sfumato.fitting.likelihood import Optimiser"),
        ("pipeline", "from sfumato.cli import main"),
        ("evaluation", "from sfumato.privacy import Curator"),
        ("release", "from sfumato.evaluation.metric import Score"),
        ("detection", "from sfumato.evaluation import evaluate"),
        ("release", "from sfumato.detection import Detector"),
        ("pipeline", "from sfumato.audit import playback"),
        ("schema", "import sfumato"),
        ("errors", "from sfumato.schema import Schema"),
    ],
)
def test_the_import_rule_sees_a_forbidden_import(room, text):
    assert import_faults(room, text)


def test_the_import_rule_allows_what_it_should():
    assert import_faults("encoding", "from sfumato.schema import Schema\nfrom sfumato.errors import TableError") == []
    assert import_faults("cli", "import sfumato\nfrom sfumato.audit import audit\nimport sfumato.table") == []
    assert import_faults("privacy", "from sfumato.privacy.ledger import Ledger\nimport jax") == []


def test_the_other_rules_see_what_they_forbid():
    assert builds_a_curator("from sfumato.privacy import Curator\nc = Curator(rows, ledger=l, randomness=r)")
    assert builds_a_curator("from sfumato import privacy\nc = privacy.Curator(rows)")
    assert not builds_a_curator("def fit(curator: Curator) -> None:\n    '''Curator(x)'''")
    assert prints("print(loss)") and prints("import sys\nsys.stdout.write(loss)")
    assert weak_keys("jax.random.key(0)") and weak_keys("jax.random.PRNGKey(seed)") and weak_keys("PRNGKey(1)")
    assert not weak_keys("jax.random.wrap_key_data(words)\nself._randomness.key[:2]")
    assert float_noise("jax.random.normal(key, (3,))") and float_noise("np.random.default_rng(0)")
    assert long_functions("def f():\n" + "    x = 1\n" * 60)
    assert undocumented("'''A module.'''\nclass A:\n    x = 1\ndef f(): ...\ndef _g(): ...") == ["A", "f"]
    with pytest.raises(AssertionError, match="absolute"):
        imported_rooms("from . import privacy")
