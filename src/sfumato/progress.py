"""Progress: how long work tells of itself. It is given public numbers only, or numbers that are not shown."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a purpose, the steps done and the steps in all: public numbers only."""


def quiet(purpose: str, done: int, total: int) -> None:
    """A progress callback that shows nothing."""
