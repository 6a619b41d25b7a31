"""Most of the time of a run goes into compiling: what is compiled twice is kept, what is not measured stays rough."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"sfumato-tests-{os.getuid()}"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

ROUGH = ("browser", "contract", "evaluation")
"""Folders of tests that ask what comes out of a fit, and not how its sums are rounded.

Their programs are compiled without most optimisations, which takes a third of the time less. All that is about
privacy, densities and their laws is tested in the programs that users run.
"""


@pytest.fixture(scope="module", autouse=True)
def compiled_roughly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile the programs of this file without most optimisations, if it lies in one of those folders."""
    if request.path.parent.name not in ROUGH:
        yield
        return
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()  # no other file may meet a program that was compiled so
