"""Console: what a person sees. Results go to standard output, everything else to standard error.

Nothing here is given a private value: progress shows purposes and public numbers, and where the total is the
number of private rows the bar only moves.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from sfumato.privacy.certificate import Certificate
from sfumato.progress import Progress as ProgressCallback
from sfumato.release.wording import event_words, flat, number, promise
from sfumato.schema import Schema


def say(text: str = "") -> None:
    """One line for a person, on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def fail(text: str) -> None:
    """What is wrong, as exactly one line on standard error."""
    say(f"sfumato: {' '.join(plain(text).split())}")


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_rich(*parts: Any) -> None:
    """Tables and panels on standard output."""
    console = Console(highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(part)


def plain(text: object) -> str:
    """A text from a file without what could steer a terminal.

    >>> plain("a" + chr(27) + "[2Jb")
    'a?[2Jb'
    """
    return "".join(letter if letter.isprintable() or letter == " " else "?" for letter in str(text))


@contextmanager
def watched(purpose: str, *, total_is_public: bool) -> Iterator[ProgressCallback]:
    """A progress bar on standard error, gone when done; hidden where standard error is no terminal.

    Where the total is private (the number of rows that are scored), neither it nor a share of it is shown.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {purpose: bars.add_task(purpose, total=None)}
        last = [0.0]

        def show(now: str, done: int, total: int) -> None:
            if not total_is_public:
                return
            if now not in tasks:
                tasks[now] = bars.add_task(now, total=total)
                bars.update(tasks[purpose], visible=False)  # what came before is over
            # Drawing costs time, so a bar moves ten times a second at most.
            if done == total or time.monotonic() - last[0] > 0.1:
                bars.update(tasks[now], completed=done, total=total, description=_step(now, done, total))
                last[0] = time.monotonic()

        yield show


def _step(purpose: str, done: int, total: int) -> str:
    return f"{purpose}: {done:,} of {total:,}"


def facts(title: str, rows: Mapping[str, object]) -> Panel:
    """Names and values in a frame."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows.items():
        grid.add_row(plain(name), plain(value))
    return Panel(grid, title=title, title_align="left")


def listing(title: str, heads: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> Table:
    """A table with a head."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    return table


def certificate_parts(certificate: Certificate, rederived: float) -> list[Any]:
    """The certificate for a person, from the promise down to the versions."""
    charges = [(purpose, event_words(event)) for purpose, event in certificate.charges]
    return [
        facts(f"Certificate: {plain(certificate.status)}", _promise(certificate, rederived)),
        listing("Charged", ("for", "what was done"), charges),
        facts("Public facts", flat(certificate.public)),
        facts("Assumptions", {str(place): text for place, text in enumerate(certificate.assumptions, start=1)}),
        facts("Versions", certificate.versions),
    ]


def place_parts(schema: Schema) -> list[Any]:
    """The places of a schema for a person; nothing where there are none."""
    rows = []
    for name, place in schema.places.items():
        corners = sum(map(len, place.polygon or ()))
        where = f"a polygon of {corners:,} corners" if corners else "the bounds of both columns"
        rows.append((name, place.latitude, place.longitude, where))
    return [listing("Places", ("place", "latitude", "longitude", "no row outside of"), rows)] if rows else []


def brief_certificate(certificate: Certificate) -> Panel:
    """The promise alone."""
    told = promise(certificate)
    rows = {name: told[name] for name in ("epsilon", "delta", "protected", "randomness")}
    return facts(f"Certificate: {plain(certificate.status)}", rows)


def _promise(certificate: Certificate, rederived: float) -> dict[str, str]:
    agrees = "agrees with the stated epsilon" if same(rederived, certificate.epsilon) else "DOES NOT AGREE"
    return {**promise(certificate), "re-derived": f"{number(rederived)} from the charges below: {agrees}"}


def setting_text(value: object) -> str:
    """A default for a person.

    >>> setting_text({"share": 0.04, "rounds": 3})
    'share=0.04, rounds=3'
    """
    if isinstance(value, dict):
        return ", ".join(f"{name}={inner}" for name, inner in value.items())
    return "none" if value is None else str(value)


def same(left: float, right: float) -> bool:
    """Whether two epsilons agree to 1e-9, infinite ones too."""
    return left == right or abs(left - right) <= 1e-9
