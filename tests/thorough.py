"""Thorough: tests that show of one more method what another shows of the same code. `make test-all` runs them."""

import pytest

thorough = pytest.mark.thorough

SHARING = {"dp-cgan": "dpgan", "dp-ctgan": "dpgan", "gs-wgan": "pate-gan", "pate-ctgan": "pate-gan", "ntk": "merf"}
"""Methods that share nearly all of their code with another, and which one it is."""


def marks_of(name):
    """The mark of a test of a method that shares its code with another."""
    return [thorough] if name in SHARING else []


def once_a_family(names):
    """The names, those marked that share their code with another method."""
    return [pytest.param(name, marks=marks_of(name)) for name in names]
