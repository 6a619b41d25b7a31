"""Most of the time of a run goes into compiling: what is compiled twice is kept, what is not measured stays rough.

``make test`` runs two commands: ``SFUMATO_TESTS=strict``, all that must be compiled as users compile it, and
``SFUMATO_TESTS=rough``, the folders of ``ROUGH`` and the examples of all modules but those of ``privacy`` and ``audit``
(``Makefile``). A plain ``pytest`` runs both and takes longer.

Tests marked ``thorough`` repeat for one more method or table what others show of the same code. They run with
``SFUMATO_TESTS_ALL=1`` alone: ``make test-all``.
"""

import gc
import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"sfumato-tests-{os.getuid()}"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
WAY = os.environ.get("SFUMATO_TESTS", "both")
ALL = os.environ.get("SFUMATO_TESTS_ALL") == "1"
if WAY == "rough":
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
if WAY == "rough" and version("jaxlib").startswith("0.10."):
    # XLA stops at flags that it does not know, so these are for versions that are known to have them. The first halves
    # the time of compiling once more; without the second each program is compiled in pieces, which takes a tenth more.
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"

settings.register_profile("any machine", deadline=None)  # one that is busy is no defect
settings.load_profile("any machine")

ROUGH = ("browser", "contract", "evaluation", "laws", "neighbours", "planted")
"""Folders of tests that ask what comes out of a fit, whether an equation holds or whether a defect is seen.

Their programs are compiled without most optimisations, in a third of the time. Doors, clipping, noise, accounting and
audits (``privacy``, ``golden``, ``audit``) are tested in the programs that users run: there rounding counts,
and programs run longer than they compile. Record-play of all methods, and planted bugs, ask for differences that no
compiler makes.
"""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the folders of the other command."""
    if WAY == "both" or collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    return True if (collection_path.parent.name in ROUGH) != (WAY == "rough") else None


@pytest.fixture(scope="module", autouse=True)
def compiled_roughly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile the programs of this file without most optimisations, if it lies in one of those folders.

    Where both kinds of files run in one process, none may meet a program that another compiled in its way.
    """
    if WAY != "both" or request.path.parent.name not in ROUGH:
        yield
        return
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


def pytest_collection_finish() -> None:
    """What is loaded by now stays: looking through it for garbage, over and over while JAX traces, takes time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


APART = ("test_audit.py", "test_canaries.py", "test_epsilons.py", "test_planted_bugs.py", "test_record_play.py")
"""Large files whose tests share nothing that was fitted, so that both processes can take part."""


OVER_METHODS = ("tests/contract/test_places.py", "tests/contract/test_synthesizers.py")
"""Files that share the fits of each method (``contract/cases.py``)."""


def pytest_configure(config: pytest.Config) -> None:
    """Say what the mark means."""
    config.addinivalue_line("markers", "thorough: runs with SFUMATO_TESTS_ALL=1 alone")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of one file share what they fit, and run in one process; those over all methods, of one method.

    The mark is set here because pytest-xdist reads marks before the collection may be changed in a conftest.
    """
    if item.path.name in APART:
        return
    name = item.path.relative_to(item.config.rootpath).as_posix()
    if name in OVER_METHODS:
        name = f"contract of {item.callspec.params.get('name', '') if hasattr(item, 'callspec') else ''}"
    item.add_marker(pytest.mark.xdist_group(name))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is thorough, unless it is asked for."""
    left_out = [] if ALL else [item for item in items if item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
