"""What a benchmark ran on."""

import os
import platform
from importlib.metadata import version
from typing import Any

import jax


def describe_machine() -> dict[str, Any]:
    """The machine and the versions, for the head of a result file."""
    return {
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": version("jax"),
    }
